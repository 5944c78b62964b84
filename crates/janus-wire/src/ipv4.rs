//! IPv4 headers (RFC 791): a checked view for what arrives, a small record for what leaves. Reassembly of fragments and
//! the choice of a route live elsewhere.

use crate::{Malformed, Result, be16, be32, checksum};
use core::net::Ipv4Addr;

/// Bytes of a header without options, the only kind that is written.
pub const LEN: usize = 20;
/// The longest header: 15 words.
pub const LEN_MAX: usize = 60;

const MORE_FRAGMENTS: u16 = 0x2000;
const DONT_FRAGMENT: u16 = 0x4000;
const OFFSET_MASK: u16 = 0x1fff;

/// A datagram whose lengths were checked: the header fits, the total length fits, trailing link padding is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4<'a> {
    bytes: &'a [u8],
    header_len: u8,
    /// Protocol of the payload, see [`crate::proto`].
    pub proto: u8,
    /// Time to live.
    pub ttl: u8,
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Identification for reassembly.
    pub id: u16,
    fragment: u16,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

/// Reads a datagram from the start of `bytes`; see [`Ipv4::checksum_ok`] for the header's checksum.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Ipv4<'_>> {
    let h = bytes.first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    if h[0] >> 4 != 4 {
        return Err(Malformed::Version);
    }
    let header_len = usize::from(h[0] & 0x0f) * 4;
    let total_len = usize::from(be16(h, 2));
    if header_len < LEN || total_len < header_len {
        return Err(Malformed::Length);
    }
    Ok(Ipv4 {
        bytes: bytes.get(..total_len).ok_or(Malformed::Truncated)?,
        header_len: header_len as u8,
        proto: h[9],
        ttl: h[8],
        tos: h[1],
        id: be16(h, 4),
        fragment: be16(h, 6),
        src: Ipv4Addr::from_bits(be32(h, 12)),
        dst: Ipv4Addr::from_bits(be32(h, 16)),
    })
}

impl<'a> Ipv4<'a> {
    /// Bytes of the header with its options.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.header_len as usize
    }

    /// Bytes of header and payload.
    #[inline]
    pub const fn total_len(&self) -> usize {
        self.bytes.len()
    }

    /// The header with its options.
    #[inline]
    pub fn header(&self) -> &'a [u8] {
        &self.bytes[..self.header_len()]
    }

    /// The options, padding included.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        &self.bytes[LEN..self.header_len()]
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_len()..]
    }

    /// Where the payload belongs in the original datagram, in bytes.
    #[inline]
    pub const fn fragment_offset(&self) -> usize {
        (self.fragment & OFFSET_MASK) as usize * 8
    }

    /// More fragments follow this one.
    #[inline]
    pub const fn more_fragments(&self) -> bool {
        self.fragment & MORE_FRAGMENTS != 0
    }

    /// Routers must not fragment the datagram.
    #[inline]
    pub const fn dont_fragment(&self) -> bool {
        self.fragment & DONT_FRAGMENT != 0
    }

    /// The payload is only a part of the original datagram.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.fragment & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// The two ECN bits (RFC 3168).
    #[inline]
    pub const fn ecn(&self) -> u8 {
        self.tos & 0b11
    }

    /// The header checksum holds.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        checksum::ipv4_header(self.header()) == 0
    }
}

/// A header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub proto: u8,
    /// Bytes of the payload; header and payload together fit 65,535.
    pub payload_len: u16,
    /// Time to live.
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification; irrelevant with `dont_fragment` (RFC 6864).
    pub id: u16,
    /// Forbid fragmentation on the path.
    pub dont_fragment: bool,
}

/// Writes the header with its checksum at the start of `out` and returns [`LEN`].
///
/// # Panics
/// When `out` is shorter than [`LEN`].
#[inline]
pub fn emit(out: &mut [u8], repr: &Repr) -> usize {
    let total = (LEN as u16).saturating_add(repr.payload_len);
    let fragment = if repr.dont_fragment { DONT_FRAGMENT } else { 0 };
    let mut h = [0u8; LEN];
    h[0] = 0x45;
    h[1] = repr.tos;
    h[2..4].copy_from_slice(&total.to_be_bytes());
    h[4..6].copy_from_slice(&repr.id.to_be_bytes());
    h[6..8].copy_from_slice(&fragment.to_be_bytes());
    h[8] = repr.ttl;
    h[9] = repr.proto;
    h[12..16].copy_from_slice(&repr.src.octets());
    h[16..20].copy_from_slice(&repr.dst.octets());
    let sum = checksum::values([
        0x4500_0000 | u32::from(repr.tos) << 16 | u32::from(total),
        u32::from(repr.id) << 16 | u32::from(fragment),
        u32::from(repr.ttl) << 24 | u32::from(repr.proto) << 16,
        repr.src.to_bits(),
        repr.dst.to_bits(),
    ]);
    h[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    out[..LEN].copy_from_slice(&h);
    LEN
}

/// Sets the two ECN bits (RFC 3168) of the written packet that `packet` begins with, and its checksum.
///
/// # Panics
/// When `packet` is shorter than its header.
pub fn set_ecn(packet: &mut [u8], codepoint: u8) {
    let header = &mut packet[..LEN];
    header[1] = header[1] & !0b11 | codepoint & 0b11;
    header[10..12].fill(0);
    let sum = checksum::ipv4_header(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Writes the header of a fragment whose payload belongs `offset` bytes, a multiple of eight, into the datagram, and
/// returns [`LEN`].
///
/// # Panics
/// When `out` is shorter than [`LEN`].
pub fn emit_fragment(out: &mut [u8], repr: &Repr, offset: u16, more: bool) -> usize {
    emit(out, repr);
    let word = (offset / 8) | if more { MORE_FRAGMENTS } else { 0 };
    out[6..8].copy_from_slice(&word.to_be_bytes());
    out[10..12].fill(0);
    let sum = checksum::ipv4_header(&out[..LEN]);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    LEN
}

#[cfg(test)]
mod tests;
