//! ICMP lines: `< icmp unreachable frag_needed mtu 1200 [1:1461(1460)]`. In brackets stands what the message is about:
//! a segment of the connection in the script's numbers (nothing said: its SYN), a datagram, `[udp (10)]`, or nothing,
//! `[raw (64)]`. Which names there are depends on the family, as their numbers do.

use super::IpInfo;
use super::parse::{Parser, Result};
use super::token::Token;
use std::fmt;

/// The name of a code.
type Code = (&'static str, u8);
/// A type: its name, its number, its codes.
type Type = (&'static str, u8, &'static [Code]);

const UNREACHABLE_V4: &[Code] = &[
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
    ("precedence_violation", 14),
    ("precedence_cutoff", 15),
];

/// RFC 792 and its successors, as the original tool names them.
const TYPES_V4: &[Type] = &[
    ("echo_reply", 0, &[]),
    ("unreachable", 3, UNREACHABLE_V4),
    ("source_quench", 4, &[]),
    ("redirect", 5, &[]),
    ("echo_request", 8, &[]),
    ("time_exceeded", 11, &[]),
    ("parameter_problem", 12, &[]),
    ("timestamp_request", 13, &[]),
    ("timestamp_reply", 14, &[]),
    ("information_request", 15, &[]),
    ("information_reply", 16, &[]),
    ("address_mask_request", 17, &[]),
    ("address_mask_reply", 18, &[]),
];

/// RFC 4443.
const TYPES_V6: &[Type] = &[
    (
        "unreachable",
        1,
        &[
            ("no_route", 0),
            ("net_unreachable", 0),
            ("admin_prohibited", 1),
            ("not_neighbour", 2),
            ("address_unreachable", 3),
            ("port_unreachable", 4),
        ],
    ),
    ("packet_too_big", 2, &[]),
    (
        "time_exceeded",
        3,
        &[("exceeded_hop_limit", 0), ("exceeded_frag_time", 1)],
    ),
    (
        "parameter_problem",
        4,
        &[
            ("header_field", 0),
            ("unknown_next_header", 1),
            ("unknown_option", 2),
        ],
    ),
    ("echo_request", 128, &[]),
    ("echo_reply", 129, &[]),
];

/// The type and code by which a message carries an MTU.
const MTU_V4: (u8, u8) = (3, 4);
const MTU_V6: (u8, u8) = (2, 0);

/// Packet that an ICMP message quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quoted {
    /// A segment of the connection: its first sequence number and its bytes of data.
    Tcp(u32, u16),
    /// A datagram with so many bytes of data.
    Udp(u16),
    /// Nothing: the message has so many bytes, zeros behind its header.
    Raw(u16),
}

/// An ICMP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpMessage {
    /// Of IPv6's ICMP.
    pub v6: bool,
    /// Fields of its IP header that the script names.
    pub ip: IpInfo,
    /// The type of the message.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// `mtu N`.
    pub mtu: Option<u32>,
    /// `id N`.
    pub id: Option<u16>,
    /// Packet that it quotes.
    pub quoted: Quoted,
}

fn types(v6: bool) -> &'static [Type] {
    if v6 { TYPES_V6 } else { TYPES_V4 }
}

/// Type and code as a script would name them.
pub(crate) fn write_names(f: &mut fmt::Formatter<'_>, v6: bool, kind: u8, code: u8) -> fmt::Result {
    let named = types(v6).iter().find(|(_, number, _)| *number == kind);
    let codes = named.map_or(&[][..], |(_, _, codes)| codes);
    match named {
        Some((name, ..)) => write!(f, "icmp {name}")?,
        None => write!(f, "icmp type_{kind}")?,
    }
    match codes.iter().find(|(_, number)| *number == code) {
        Some((name, _)) => write!(f, " {name}"),
        None if code == 0 => Ok(()),
        None => write!(f, " code_{code}"),
    }
}

impl fmt::Display for IcmpMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ip)?;
        write_names(f, self.v6, self.kind, self.code)?;
        self.mtu.map_or(Ok(()), |mtu| write!(f, " mtu {mtu}"))?;
        self.id.map_or(Ok(()), |id| write!(f, " id {id}"))?;
        match self.quoted {
            Quoted::Tcp(seq, len) => {
                write!(f, " [{seq}:{}({len})]", seq.wrapping_add(len.into()))
            }
            Quoted::Udp(len) => write!(f, " [udp ({len})]"),
            Quoted::Raw(len) => write!(f, " [raw ({len})]"),
        }
    }
}

impl Parser {
    /// Parses the rest of a line after `icmp`.
    pub(super) fn icmp(&mut self, ip: IpInfo) -> Result<IcmpMessage> {
        let (kind, codes) = self.icmp_type()?;
        let code = match self.peek() {
            Some(Token::Word(word)) if word != "mtu" && word != "id" => self.icmp_code(codes)?,
            _ => 0,
        };
        let carries_mtu = (kind, code) == if self.v6 { MTU_V6 } else { MTU_V4 };
        let mtu = match self.take_word("mtu") {
            true if !carries_mtu => {
                return self.error(
                    "only `unreachable frag_needed`, over IPv6 `packet_too_big`, carries an MTU",
                );
            }
            true => Some(self.number("an MTU", if self.v6 { u32::MAX } else { 0xffff })?),
            false => None,
        };
        let id = match self.take_word("id") {
            true => Some(self.number("an identifier", 0xffff)? as u16),
            false => None,
        };
        Ok(IcmpMessage {
            v6: self.v6,
            ip,
            kind,
            code,
            mtu,
            id,
            quoted: self.quoted()?,
        })
    }

    fn icmp_type(&mut self) -> Result<(u8, &'static [Code])> {
        let types = types(self.v6);
        let Some(Token::Word(word)) = self.peek().cloned() else {
            return self.unexpected("the type of an ICMP message");
        };
        let named = types.iter().find(|(name, ..)| *name == word);
        let numbered = word.strip_prefix("type_").and_then(|n| n.parse().ok());
        match (named, numbered) {
            (Some((_, kind, codes)), _) => {
                self.next();
                Ok((*kind, codes))
            }
            (None, Some(kind)) => {
                self.next();
                Ok((kind, &[]))
            }
            (None, None) => {
                let names: Vec<&str> = types.iter().map(|(name, ..)| *name).collect();
                self.unexpected(&format!(
                    "an ICMP type of this family ({} type_N)",
                    names.join(" ")
                ))
            }
        }
    }

    fn icmp_code(&mut self, codes: &[Code]) -> Result<u8> {
        let Some(Token::Word(word)) = self.peek().cloned() else {
            return self.unexpected("the code of an ICMP message");
        };
        let named = codes.iter().find(|(name, _)| *name == word);
        let numbered = word.strip_prefix("code_").and_then(|n| n.parse().ok());
        match named.map(|(_, code)| *code).or(numbered) {
            Some(code) => {
                self.next();
                Ok(code)
            }
            None => {
                let names: Vec<&str> = codes.iter().map(|(name, _)| *name).collect();
                self.unexpected(&format!("a code of this type ({} code_N)", names.join(" ")))
            }
        }
    }

    fn quoted(&mut self) -> Result<Quoted> {
        if !self.take_symbol('[') {
            return Ok(Quoted::Tcp(0, 0));
        }
        let quoted = if self.take_word("udp") {
            Quoted::Udp(self.in_parentheses("a payload length", 0xffff)?)
        } else if self.take_word("raw") {
            // Sizes that fit a packet buffer.
            Quoted::Raw(self.in_parentheses("a message length", 1_400)?)
        } else {
            let (seq, len) = self.sequence_range()?;
            Quoted::Tcp(seq, len)
        };
        self.symbol(']')?;
        Ok(quoted)
    }

    fn in_parentheses(&mut self, what: &str, max: u32) -> Result<u16> {
        self.symbol('(')?;
        let number = self.number(what, max)?;
        self.symbol(')')?;
        Ok(number as u16)
    }
}
