//! ICMP for IPv6 (RFC 4443) and the neighbour messages that replace ARP (RFC 4861): echo, errors with the connection
//! they speak of, solicitation and advertisement. Caches, timers and trust live in the stack; so does the check that a
//! neighbour message came with hop limit 255.

use crate::ethernet::MacAddr;
use crate::icmp::{self, put_echo, put_error};
use crate::{Malformed, Result, be16, be32, checksum, ipv6, proto};
use core::net::Ipv6Addr;

pub use crate::icmp::LEN;

/// The address of `mac` on its link (RFC 4291 appendix A, RFC 2464 section 5).
#[must_use]
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let id = u64::from_be_bytes([a ^ 0x02, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(id))
}

/// Bytes of a neighbour message that carries a link-layer address.
pub const NEIGHBOUR_LEN: usize = 32;

const UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;

/// Codes of [`Message::Unreachable`].
pub mod unreachable {
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Administratively prohibited.
    pub const PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// Address unreachable.
    pub const ADDRESS: u8 = 3;
    /// Port unreachable: no socket listens on it.
    pub const PORT: u8 = 4;
    /// The source address is not allowed to.
    pub const POLICY: u8 = 5;
    /// The route to the destination rejects.
    pub const REJECTED: u8 = 6;
}

/// The packet that an error speaks of.
pub type Quote = icmp::Quote<Ipv6Addr>;

impl Quote {
    /// Reads a quoted packet as far as the first eight bytes of its payload. The quoted length is not compared with
    /// what is there: routers cut.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let (h, rest) = bytes
            .split_first_chunk::<{ ipv6::LEN }>()
            .ok_or(Malformed::Truncated)?;
        if h[0] >> 4 != 6 {
            return Err(Malformed::Version);
        }
        let upper = ipv6::walk(h[6], rest)?;
        // Only a first fragment begins with a transport header.
        if upper.fragment.is_some_and(|f| f.offset != 0) {
            return Err(Malformed::Version);
        }
        let ends = (ipv6::address(h, 8), ipv6::address(h, 24));
        let total_len = be16(h, 4).saturating_add(ipv6::LEN as u16);
        Self::of(ends, upper.proto, total_len, rest, upper.at)
    }
}

/// Kind of an error, with the value that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not delivered, see [`mod@unreachable`].
    Unreachable(u8),
    /// Larger than the next link's MTU.
    TooBig(u32),
    /// 0: the hop limit ended; 1: not put together in time.
    TimeExceeded(u8),
    /// A field that cannot be processed.
    Parameter {
        /// See [`mod@parameter`].
        code: u8,
        /// Where in the packet.
        pointer: u32,
    },
}

/// Codes of [`Problem::Parameter`].
pub mod parameter {
    /// A field has an impossible value.
    pub const ERRONEOUS_FIELD: u8 = 0;
    /// Unrecognized next header.
    pub const NEXT_HEADER: u8 = 1;
}

/// The flags of a neighbour advertisement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// The sender is a router.
    pub router: bool,
    /// Answers a solicitation.
    pub solicited: bool,
    /// May replace a cached address.
    pub r#override: bool,
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
    /// A packet could not be delivered.
    Unreachable {
        /// Why, see [`mod@unreachable`].
        code: u8,
        /// The packet.
        quote: Quote,
    },
    /// A packet did not fit the next link (RFC 8201).
    PacketTooBig {
        /// The link's MTU.
        mtu: u32,
        /// The packet.
        quote: Quote,
    },
    /// A packet's hop limit ended, or reassembly took too long.
    TimeExceeded {
        /// 0 in transit, 1 in reassembly.
        code: u8,
        /// The packet.
        quote: Quote,
    },
    /// Somebody did not like a header.
    ParameterProblem {
        /// Kind of problem.
        code: u8,
        /// The packet.
        quote: Quote,
    },
    /// Asks for the link-layer address of `target`.
    NeighbourSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// Link-layer address of the asker; absent when it has no address yet.
        source: Option<MacAddr>,
    },
    /// The sender has this address.
    NeighbourAdvertisement {
        /// The address.
        target: Ipv6Addr,
        /// Its link-layer address.
        mac: Option<MacAddr>,
        /// Flags.
        flags: Advertised,
    },
    /// Anything else; informational messages we do not know are discarded (RFC 4443 section 2.4 b).
    Other {
        /// Type field.
        kind: u8,
        /// Code field.
        code: u8,
    },
}

impl Message<'_> {
    /// The quoted packet of an error message.
    #[inline]
    pub const fn quote(&self) -> Option<&Quote> {
        match self {
            Self::Unreachable { quote, .. }
            | Self::PacketTooBig { quote, .. }
            | Self::TimeExceeded { quote, .. }
            | Self::ParameterProblem { quote, .. } => Some(quote),
            Self::EchoRequest { .. }
            | Self::EchoReply { .. }
            | Self::NeighbourSolicitation { .. }
            | Self::NeighbourAdvertisement { .. }
            | Self::Other { .. } => None,
        }
    }

    /// A neighbour message, which every shard wants to see.
    #[inline]
    pub const fn is_neighbour(&self) -> bool {
        matches!(
            self,
            Self::NeighbourSolicitation { .. } | Self::NeighbourAdvertisement { .. }
        )
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
            quote: Quote::parse(data)?,
        },
        PACKET_TOO_BIG => Message::PacketTooBig {
            mtu: be32(h, 4),
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
        NEIGHBOUR_SOLICITATION => {
            let (target, options) = target(data)?;
            Message::NeighbourSolicitation {
                target,
                source: link_address(options, SOURCE_LINK_ADDRESS)?,
            }
        }
        NEIGHBOUR_ADVERTISEMENT => {
            let (target, options) = target(data)?;
            let flags = Advertised {
                router: h[4] & 0x80 != 0,
                solicited: h[4] & 0x40 != 0,
                r#override: h[4] & 0x20 != 0,
            };
            Message::NeighbourAdvertisement {
                target,
                mac: link_address(options, TARGET_LINK_ADDRESS)?,
                flags,
            }
        }
        kind => Message::Other { kind, code },
    })
}

fn target(data: &[u8]) -> Result<(Ipv6Addr, &[u8])> {
    let (target, options) = data.split_first_chunk::<16>().ok_or(Malformed::Truncated)?;
    let target = Ipv6Addr::from_octets(*target);
    // RFC 4861 section 7.1: a multicast target is invalid.
    if target.is_multicast() {
        Err(Malformed::Version)
    } else {
        Ok((target, options))
    }
}

/// Finds a link-layer address among neighbour options. An option of length zero condemns the packet (RFC 4861 section
/// 4.6); each turn takes at least eight bytes.
fn link_address(mut options: &[u8], wanted: u8) -> Result<Option<MacAddr>> {
    let mut found = None;
    while let Some(h) = options.first_chunk::<8>() {
        let len = usize::from(h[1]) * 8;
        if len == 0 {
            return Err(Malformed::Length);
        }
        if h[0] == wanted && len == 8 {
            found = Some(MacAddr([h[2], h[3], h[4], h[5], h[6], h[7]]));
        }
        options = options.get(len..).ok_or(Malformed::Length)?;
    }
    if options.is_empty() {
        Ok(found)
    } else {
        Err(Malformed::Length)
    }
}

/// The checksum over pseudo header and message holds.
#[inline]
pub fn checksum_ok(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> bool {
    checksum_of(src, dst, message) == 0
}

fn checksum_of(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> u16 {
    let pseudo = checksum::pseudo_v6(src, dst, proto::ICMPV6, message.len() as u32);
    checksum::finish(checksum::sum(message, pseudo))
}

/// The multicast address that the owner of `address` listens on (RFC 4291 section 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let low = (address.to_bits() & 0x00ff_ffff) as u32;
    Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | (low >> 16) as u16,
        low as u16,
    )
}

/// The Ethernet address of an IPv6 multicast group (RFC 2464 section 7).
pub const fn multicast_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// Writes an echo reply at the start of `out` and returns its length.
///
/// # Panics
/// When `out` is shorter than [`LEN`] plus `data`.
pub fn emit_echo_reply(
    out: &mut [u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    ident: u16,
    sequence: u16,
    data: &[u8],
) -> usize {
    finish(put_echo(out, ECHO_REPLY, ident, sequence, data), (src, dst))
}

/// Writes an echo request at the start of `out` and returns its length.
///
/// # Panics
/// When `out` is shorter than [`LEN`] plus `data`.
pub fn emit_echo_request(
    out: &mut [u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    ident: u16,
    sequence: u16,
    data: &[u8],
) -> usize {
    finish(
        put_echo(out, ECHO_REQUEST, ident, sequence, data),
        (src, dst),
    )
}

/// Writes a neighbour solicitation from `mac` and returns [`NEIGHBOUR_LEN`].
///
/// # Panics
/// When `out` is shorter than [`NEIGHBOUR_LEN`].
pub fn emit_solicitation(
    out: &mut [u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    target: Ipv6Addr,
    mac: MacAddr,
) -> usize {
    emit_neighbor(
        out,
        NEIGHBOUR_SOLICITATION,
        0,
        (src, dst),
        target,
        (SOURCE_LINK_ADDRESS, mac),
    )
}

/// Writes a neighbour advertisement that `mac` has `target` and returns [`NEIGHBOUR_LEN`].
///
/// # Panics
/// When `out` is shorter than [`NEIGHBOUR_LEN`].
pub fn emit_advertisement(
    out: &mut [u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    target: Ipv6Addr,
    mac: MacAddr,
    flags: Advertised,
) -> usize {
    let Advertised {
        router,
        solicited,
        r#override,
    } = flags;
    let bits = u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(r#override) << 5;
    emit_neighbor(
        out,
        NEIGHBOUR_ADVERTISEMENT,
        bits,
        (src, dst),
        target,
        (TARGET_LINK_ADDRESS, mac),
    )
}

/// Writes an error about `packet` (from its IPv6 header on) at the start of `out` and returns its length. As many bytes
/// are quoted as fit `out` and the smallest MTU (RFC 4443 section 2.4 c).
///
/// # Panics
/// When `out` is shorter than [`LEN`].
pub fn emit_error(
    out: &mut [u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    problem: Problem,
    packet: &[u8],
) -> usize {
    const QUOTE_MAX: usize = 1_280 - ipv6::LEN - LEN;
    let (kind, code, word) = match problem {
        Problem::Unreachable(code) => (UNREACHABLE, code, 0),
        Problem::TooBig(mtu) => (PACKET_TOO_BIG, 0, mtu),
        Problem::TimeExceeded(code) => (TIME_EXCEEDED, code, 0),
        Problem::Parameter { code, pointer } => (PARAMETER_PROBLEM, code, pointer),
    };
    let message = put_error(out, (kind, code), word, packet, QUOTE_MAX);
    finish(message, (src, dst))
}

fn emit_neighbor(
    out: &mut [u8],
    kind: u8,
    bits: u8,
    ends: (Ipv6Addr, Ipv6Addr),
    target: Ipv6Addr,
    (option, mac): (u8, MacAddr),
) -> usize {
    let out = &mut out[..NEIGHBOUR_LEN];
    out[..8].copy_from_slice(&[kind, 0, 0, 0, bits, 0, 0, 0]);
    out[8..24].copy_from_slice(&target.octets());
    out[24..26].copy_from_slice(&[option, 1]);
    out[26..32].copy_from_slice(&mac.0);
    finish(out, ends)
}

fn finish(message: &mut [u8], (src, dst): (Ipv6Addr, Ipv6Addr)) -> usize {
    let sum = checksum_of(src, dst, message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message.len()
}

#[cfg(test)]
mod tests;
