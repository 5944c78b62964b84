//! ICMP lines: `< [1:1461(1460)] icmp unreachable frag_needed mtu 1200`. Only errors about a segment that the stack has
//! sent, and only to the stack; in brackets stands which one, in the script's numbers.

use super::parse::{Parser, Result};
use super::token::Token;
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
        let end = self.seq.wrapping_add(self.len.into());
        write!(f, "[{}:{end}({})] icmp", self.seq, self.len)?;
        let (name, _, codes) = TYPES
            .iter()
            .find(|(_, kind, _)| *kind == self.kind)
            .unwrap_or(&TYPES[0]);
        write!(f, " {name}")?;
        match codes.iter().find(|(_, code)| *code == self.code) {
            Some((code, _)) => write!(f, " {code}")?,
            None if self.code != 0 => write!(f, " {}", self.code)?,
            None => {}
        }
        match self.mtu {
            0 => Ok(()),
            mtu => write!(f, " mtu {mtu}"),
        }
    }
}

impl Parser {
    /// Whether an ICMP line follows: `[`, a number and a colon.
    pub(super) fn at_icmp(&self) -> bool {
        self.peek() == Some(&Token::Symbol('[')) && self.peek_at(2) == Some(&Token::Symbol(':'))
    }

    /// What follows `<`.
    pub(super) fn icmp(&mut self) -> Result<IcmpError> {
        self.symbol('[')?;
        let (seq, len) = self.sequence_range()?;
        self.symbol(']')?;
        if !self.take_word("icmp") {
            return self.unexpected("`icmp`");
        }
        let named = TYPES.iter().find(|(name, ..)| self.take_word(name));
        let Some((_, kind, codes)) = named else {
            return self
                .unexpected("unreachable, source_quench, time_exceeded or parameter_problem");
        };
        let code = match codes.iter().find(|(name, _)| self.take_word(name)) {
            Some((_, code)) => *code,
            None if matches!(self.peek(), Some(Token::Int(_))) && !self.at_next_event() => {
                self.number("a code", 255)? as u8
            }
            None => 0,
        };
        let mtu = match self.take_word("mtu") {
            true => self.number("an MTU", u16::MAX.into())? as u16,
            false => 0,
        };
        Ok(IcmpError {
            seq,
            len,
            kind: *kind,
            code,
            mtu,
        })
    }

    /// A bare number may be the time of the next event: what follows such a time is a packet or a call.
    fn at_next_event(&self) -> bool {
        matches!(
            self.peek_at(1),
            Some(Token::Symbol('<' | '>' | '~') | Token::Ellipsis | Token::Word(_))
        ) && !matches!(self.peek_at(1), Some(Token::Word(word)) if word == "mtu")
    }
}
