//! ICMP lines: `< icmp unreachable frag_needed mtu 1200 [1:1461(1460)]`. Only errors about a segment that the stack has
//! sent, and only to the stack; in brackets stands which one, in the script's numbers; nothing said, the SYN.

use super::parse::{Parser, Result};
use std::fmt;

/// The name of a code.
type Code = (&'static str, u8);

/// Types with their codes, as packetdrill names them.
const TYPES: [(&str, u8, &[Code]); 4] = [
    (
        "unreachable",
        3,
        &[
            ("net_unreachable", 0),
            ("host_unreachable", 1),
            ("protocol_unreachable", 2),
            ("port_unreachable", 3),
            ("frag_needed", 4),
            ("source_route_failed", 5),
            ("net_unknown", 6),
            ("host_unknown", 7),
            ("source_host_isolated", 8),
            ("net_prohibited", 9),
            ("host_prohibited", 10),
            ("net_unreachable_for_tos", 11),
            ("host_unreachable_for_tos", 12),
            ("packet_filtered", 13),
        ],
    ),
    ("source_quench", 4, &[]),
    ("time_exceeded", 11, &[]),
    ("parameter_problem", 12, &[]),
];

/// An ICMP error about a segment of the stack's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// First sequence number of the segment it quotes.
    pub seq: u32,
    /// Bytes of data of it.
    pub len: u16,
    /// The type of the message.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// `mtu N`, with `frag_needed`.
    pub mtu: u16,
}

impl fmt::Display for IcmpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _, codes) = TYPES
            .iter()
            .find(|(_, kind, _)| *kind == self.kind)
            .unwrap_or(&TYPES[0]);
        write!(f, "icmp {name}")?;
        if let Some((code, _)) = codes.iter().find(|(_, code)| *code == self.code) {
            write!(f, " {code}")?;
        }
        if self.mtu > 0 {
            write!(f, " mtu {}", self.mtu)?;
        }
        let end = self.seq.wrapping_add(self.len.into());
        write!(f, " [{}:{end}({})]", self.seq, self.len)
    }
}

impl Parser {
    /// What follows `< icmp`.
    pub(super) fn icmp(&mut self) -> Result<IcmpError> {
        let named = TYPES.iter().find(|(name, ..)| self.take_word(name));
        let Some((_, kind, codes)) = named else {
            return self
                .unexpected("unreachable, source_quench, time_exceeded or parameter_problem");
        };
        let code = codes.iter().find(|(name, _)| self.take_word(name));
        let mtu = match self.take_word("mtu") {
            true => self.number("an MTU", u16::MAX.into())? as u16,
            false => 0,
        };
        let (seq, len) = match self.take_symbol('[') {
            true => {
                let range = self.sequence_range()?;
                self.symbol(']')?;
                range
            }
            false => (0, 0),
        };
        Ok(IcmpError {
            seq,
            len,
            kind: *kind,
            code: code.map_or(0, |(_, code)| *code),
            mtu,
        })
    }
}
