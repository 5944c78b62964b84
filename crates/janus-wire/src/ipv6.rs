//! IPv6 headers (RFC 8200): a checked view with its extension headers walked, and a small record for what leaves.
//! Reassembly and neighbour discovery live elsewhere.

use crate::{Malformed, Result, be16, be32};
use core::net::Ipv6Addr;

/// Bytes of the fixed header, the only kind that is written.
pub const LEN: usize = 40;
/// Extension headers that are walked before a packet counts as [`Malformed::TooDeep`]. RFC 8200 section 4.1 knows seven
/// in the recommended order.
pub const EXTENSIONS_MAX: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// A fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Where the payload belongs in the original packet's fragmentable part, in bytes.
    pub offset: u16,
    /// More fragments follow this one.
    pub more: bool,
    /// Identification for reassembly.
    pub id: u32,
}

/// Upper-layer header: its protocol and place behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upper {
    pub(crate) proto: u8,
    /// Offset from the end of the fixed header.
    pub(crate) at: usize,
    pub(crate) fragment: Option<Fragment>,
}

/// A packet whose lengths were checked and whose extension headers were walked; trailing link padding is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6<'a> {
    bytes: &'a [u8],
    payload_at: usize,
    /// Protocol of the payload, see [`crate::proto`]; of a fragment, the protocol its header names.
    pub proto: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// The packet is a part of a larger one. An atomic fragment (RFC 6946) is whole and does not count.
    pub fragment: Option<Fragment>,
}

/// Reads a packet from the start of `bytes`.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Ipv6<'_>> {
    let h = bytes.first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    if h[0] >> 4 != 6 {
        return Err(Malformed::Version);
    }
    let bytes = bytes
        .get(..LEN + usize::from(be16(h, 4)))
        .ok_or(Malformed::Truncated)?;
    let upper = walk(h[6], &bytes[LEN..])?;
    Ok(Ipv6 {
        bytes,
        payload_at: LEN + upper.at,
        proto: upper.proto,
        hop_limit: h[7],
        traffic_class: (be16(h, 0) >> 4) as u8,
        flow_label: be32(h, 0) & 0x000f_ffff,
        src: address(h, 8),
        dst: address(h, 24),
        fragment: upper.fragment,
    })
}

/// The protocol behind the extension headers that `bytes` begins with, the first of which is `first`, and where it
/// begins: for a part of a packet that was put together by other means than [`parse`].
pub fn upper_layer(first: u8, bytes: &[u8]) -> Result<(u8, usize)> {
    walk(first, bytes).map(|upper| (upper.proto, upper.at))
}

/// Walks the extension headers that begin `bytes`. Ends at the first header it does not know and at a real fragment,
/// whose payload is of no use before reassembly.
#[inline]
pub(crate) fn walk(first: u8, bytes: &[u8]) -> Result<Upper> {
    match first {
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION => {
            walk_extensions(first, bytes)
        }
        proto => Ok(Upper {
            proto,
            at: 0,
            fragment: None,
        }),
    }
}

fn walk_extensions(first: u8, bytes: &[u8]) -> Result<Upper> {
    let mut proto = first;
    let mut at = 0;
    for depth in 0..=EXTENSIONS_MAX {
        let known = match proto {
            HOP_BY_HOP => depth == 0, // anywhere else it is an unknown protocol (RFC 8200 section 4.1)
            ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION => true,
            _ => false,
        };
        if !known {
            return Ok(Upper {
                proto,
                at,
                fragment: None,
            });
        }
        let rest = bytes.get(at..).ok_or(Malformed::Truncated)?;
        let h = rest.first_chunk::<8>().ok_or(Malformed::Truncated)?;
        let len = match proto {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(h[1]) + 2) * 4,
            _ => (usize::from(h[1]) + 1) * 8,
        };
        if proto == ROUTING && h[3] != 0 {
            // Segments are left: we are asked to forward (RFC 5095 deprecates it, RFC 8200 section 4.4 drops it).
            return Err(Malformed::Routed);
        }
        if len > rest.len() {
            return Err(Malformed::Length);
        }
        at += len;
        if proto == FRAGMENT {
            let word = be16(h, 2);
            let fragment = Fragment {
                offset: word & 0xfff8,
                more: word & 1 != 0,
                id: be32(h, 4),
            };
            if fragment.offset != 0 || fragment.more {
                return Ok(Upper {
                    proto: h[0],
                    at,
                    fragment: Some(fragment),
                });
            }
        }
        proto = h[0];
    }
    Err(Malformed::TooDeep)
}

#[inline(always)]
pub(crate) fn address<const N: usize>(bytes: &[u8; N], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    Ipv6Addr::from_octets(octets)
}

impl<'a> Ipv6<'a> {
    /// Bytes of the fixed header and all extension headers.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.payload_at
    }

    /// Bytes of headers and payload.
    #[inline]
    pub const fn total_len(&self) -> usize {
        self.bytes.len()
    }

    /// The extension headers.
    #[inline]
    pub fn extensions(&self) -> &'a [u8] {
        &self.bytes[LEN..self.payload_at]
    }

    /// Returns the payload behind all extension headers.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.payload_at..]
    }

    /// The payload is only a part of the original packet.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.fragment.is_some()
    }

    /// The two ECN bits (RFC 3168).
    #[inline]
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 0b11
    }
}

/// A header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Protocol of the payload.
    pub proto: u8,
    /// Bytes of the payload.
    pub payload_len: u16,
    /// Hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

/// Writes the header at the start of `out` and returns [`LEN`].
///
/// # Panics
/// When `out` is shorter than [`LEN`].
#[inline]
pub fn emit(out: &mut [u8], repr: &Repr) -> usize {
    let h = out
        .first_chunk_mut::<LEN>()
        .expect("room for an IPv6 header");
    let first = 6 << 28 | u32::from(repr.traffic_class) << 20 | (repr.flow_label & 0x000f_ffff);
    h[0..4].copy_from_slice(&first.to_be_bytes());
    h[4..6].copy_from_slice(&repr.payload_len.to_be_bytes());
    h[6] = repr.proto;
    h[7] = repr.hop_limit;
    h[8..24].copy_from_slice(&repr.src.octets());
    h[24..40].copy_from_slice(&repr.dst.octets());
    LEN
}

/// Sets the two ECN bits (RFC 3168) of the packet that `packet` begins with.
///
/// # Panics
/// When `packet` is shorter than two bytes.
pub fn set_ecn(packet: &mut [u8], codepoint: u8) {
    packet[1] = packet[1] & !0x30 | (codepoint & 0b11) << 4;
}

/// Bytes of a fragment header.
pub const FRAGMENT_LEN: usize = 8;

/// Writes the header of a fragment with its fragment header, and returns their length. `repr.payload_len` counts the
/// latter.
///
/// # Panics
/// When `out` is shorter than the two.
pub fn emit_fragment(out: &mut [u8], repr: &Repr, fragment: Fragment) -> usize {
    let proto = repr.proto;
    emit(
        out,
        &Repr {
            proto: FRAGMENT,
            ..*repr
        },
    );
    let word = fragment.offset & 0xfff8 | u16::from(fragment.more);
    let h = &mut out[LEN..LEN + FRAGMENT_LEN];
    h[..2].copy_from_slice(&[proto, 0]);
    h[2..4].copy_from_slice(&word.to_be_bytes());
    h[4..].copy_from_slice(&fragment.id.to_be_bytes());
    LEN + FRAGMENT_LEN
}

#[cfg(test)]
mod tests;
