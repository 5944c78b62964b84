//! ICMP for IPv4 (RFC 792): echo, and errors with the connection they speak of. Whether an error is believed
//! (RFC 5927) and how many answers a second are sent is the stack's matter.

use crate::icmp::{self, put_echo, put_error};
use crate::{Malformed, Result, be16, be32, checksum};
use core::net::Ipv4Addr;

pub use crate::icmp::LEN;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Codes of [`Message::Unreachable`].
pub mod unreachable {
    /// No route to the network.
    pub const NET: u8 = 0;
    /// No route to the host.
    pub const HOST: u8 = 1;
    /// The host does not know the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Port unreachable: no socket listens on it.
    pub const PORT: u8 = 3;
    /// Too big for the next hop and must not be fragmented (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route could not be followed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// There is no such host.
    pub const HOST_UNKNOWN: u8 = 7;
    /// The host is cut off from its network.
    pub const HOST_ISOLATED: u8 = 8;
    /// Administratively prohibited.
    pub const PROHIBITED: u8 = 13;
}

/// The datagram that an error speaks of.
pub type Quote = icmp::Quote<Ipv4Addr>;

impl Quote {
    /// Reads a quoted header and the first eight payload bytes, all that RFC 792 promises. The quoted total length is
    /// not compared with what is there: routers cut.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let h = bytes.first_chunk::<20>().ok_or(Malformed::Truncated)?;
        if h[0] >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let header_len = usize::from(h[0] & 0x0f) * 4;
        if header_len < 20 {
            return Err(Malformed::Length);
        }
        // Only a first fragment begins with a transport header.
        if be16(h, 6) & 0x1fff != 0 {
            return Err(Malformed::Version);
        }
        let ends = [12, 16].map(|at| Ipv4Addr::from_bits(be32(h, at)));
        Self::of(ends.into(), h[9], be16(h, 2), bytes, header_len)
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Somebody pings us.
    EchoRequest {
        /// Identifier, usually of the pinging process.
        ident: u16,
        /// Sequence number.
        sequence: u16,
        /// Payload to be sent back.
        data: &'a [u8],
    },
    /// An answer to a ping.
    EchoReply {
        /// Identifier.
        ident: u16,
        /// Sequence number.
        sequence: u16,
        /// Payload that came back.
        data: &'a [u8],
    },
    /// A datagram could not be delivered.
    Unreachable {
        /// Why, see [`mod@unreachable`].
        code: u8,
        /// Path MTU, with [`unreachable::FRAGMENTATION_NEEDED`]; 0 from old routers.
        mtu: u16,
        /// The datagram.
        quote: Quote,
    },
    /// A datagram's time to live ended, or reassembly took too long.
    TimeExceeded {
        /// 0 in transit, 1 in reassembly.
        code: u8,
        /// The datagram.
        quote: Quote,
    },
    /// A router did not like a header.
    ParameterProblem {
        /// Kind of problem.
        code: u8,
        /// The datagram.
        quote: Quote,
    },
    /// Anything else; silently discarded (RFC 1122 section 3.2.2).
    Other {
        /// Type field.
        kind: u8,
        /// Code field.
        code: u8,
    },
}

impl Message<'_> {
    /// The quoted datagram of an error message.
    #[inline]
    pub const fn quote(&self) -> Option<&Quote> {
        match self {
            Self::Unreachable { quote, .. }
            | Self::TimeExceeded { quote, .. }
            | Self::ParameterProblem { quote, .. } => Some(quote),
            Self::EchoRequest { .. } | Self::EchoReply { .. } | Self::Other { .. } => None,
        }
    }
}

/// Reads a message; its checksum is [`checksum_ok`]'s matter.
pub fn parse(bytes: &[u8]) -> Result<Message<'_>> {
    let (h, data) = bytes
        .split_first_chunk::<LEN>()
        .ok_or(Malformed::Truncated)?;
    let code = h[1];
    Ok(match h[0] {
        ECHO_REQUEST => Message::EchoRequest {
            ident: be16(h, 4),
            sequence: be16(h, 6),
            data,
        },
        ECHO_REPLY => Message::EchoReply {
            ident: be16(h, 4),
            sequence: be16(h, 6),
            data,
        },
        UNREACHABLE => Message::Unreachable {
            code,
            mtu: be16(h, 6),
            quote: Quote::parse(data)?,
        },
        TIME_EXCEEDED => Message::TimeExceeded {
            code,
            quote: Quote::parse(data)?,
        },
        PARAMETER_PROBLEM => Message::ParameterProblem {
            code,
            quote: Quote::parse(data)?,
        },
        kind => Message::Other { kind, code },
    })
}

/// The checksum over the whole message holds.
#[inline]
pub fn checksum_ok(message: &[u8]) -> bool {
    checksum::finish(checksum::sum(message, 0)) == 0
}

/// Writes an echo reply at the start of `out` and returns its length.
///
/// # Panics
/// When `out` is shorter than [`LEN`] plus `data`.
pub fn emit_echo_reply(out: &mut [u8], ident: u16, sequence: u16, data: &[u8]) -> usize {
    finish(put_echo(out, ECHO_REPLY, ident, sequence, data))
}

/// Writes an echo request at the start of `out` and returns its length.
///
/// # Panics
/// When `out` is shorter than [`LEN`] plus `data`.
pub fn emit_echo_request(out: &mut [u8], ident: u16, sequence: u16, data: &[u8]) -> usize {
    finish(put_echo(out, ECHO_REQUEST, ident, sequence, data))
}

/// Writes an error about `datagram` (from its IP header on) at the start of `out` and returns its length. As many bytes
/// are quoted as fit `out` and a datagram of 576 bytes (RFC 1812 section 4.3.2.3). `mtu` counts only with
/// [`unreachable::FRAGMENTATION_NEEDED`].
///
/// # Panics
/// When `out` is shorter than [`LEN`].
pub fn emit_unreachable(out: &mut [u8], code: u8, mtu: u16, datagram: &[u8]) -> usize {
    emit_error(out, UNREACHABLE, code, mtu, datagram)
}

/// Writes that the time of `datagram` is over, and returns the length: code 0 on its way, code 1 while it was put
/// together. Otherwise as [`emit_unreachable`].
///
/// # Panics
/// When `out` is shorter than [`LEN`].
pub fn emit_time_exceeded(out: &mut [u8], code: u8, datagram: &[u8]) -> usize {
    emit_error(out, TIME_EXCEEDED, code, 0, datagram)
}

fn emit_error(out: &mut [u8], kind: u8, code: u8, word: u16, datagram: &[u8]) -> usize {
    const QUOTE_MAX: usize = 576 - crate::ipv4::LEN - LEN;
    finish(put_error(
        out,
        (kind, code),
        word.into(),
        datagram,
        QUOTE_MAX,
    ))
}

fn finish(message: &mut [u8]) -> usize {
    let sum = checksum::finish(checksum::sum(message, 0));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message.len()
}

#[cfg(test)]
mod tests;
