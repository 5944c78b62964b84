//! UDP headers (RFC 768; over IPv6 RFC 8200 section 8.1): a checked view for received datagrams, a header for sent ones. The stack decides
//! which program a datagram is for, and what happens to one for a port without a socket.

use crate::checksum::{finish, pseudo_v4, pseudo_v6, sum};
use crate::{Malformed, Result, be16, proto};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of the header.
pub const LEN: usize = 8;
/// Offset of the checksum field.
pub const CHECKSUM_AT: usize = 6;
/// The longest payload that the length field can tell of. IP leaves less room: 65,507 bytes over IPv4 without options.
pub const PAYLOAD_MAX: usize = u16::MAX as usize - LEN;

/// A datagram whose length was checked; what followed it in the packet is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    bytes: &'a [u8],
    /// Port of the sender; 0 when it wants no answer.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
    checksum: u16,
}

/// Reads a datagram from an IP packet's payload. See [`Udp::checksum_ok_v4`] and [`Udp::checksum_ok_v6`] for its checksum.
///
/// A length of zero, which only a jumbogram may have (RFC 2675), is refused as every other that is shorter than the
/// header.
#[inline]
pub fn parse(payload: &[u8]) -> Result<Udp<'_>> {
    let h = payload.first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    let len = usize::from(be16(h, 4));
    if len < LEN {
        return Err(Malformed::Length);
    }
    Ok(Udp {
        bytes: payload.get(..len).ok_or(Malformed::Truncated)?,
        src_port: be16(h, 0),
        dst_port: be16(h, 2),
        checksum: be16(h, CHECKSUM_AT),
    })
}

impl<'a> Udp<'a> {
    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[LEN..]
    }

    /// The sender computed a checksum.
    #[inline]
    pub const fn has_checksum(&self) -> bool {
        self.checksum != 0
    }

    /// The checksum holds, or the sender computed none, which IPv4 leaves to it (RFC 1122 section 4.1.3.4).
    #[inline]
    pub fn checksum_ok_v4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> bool {
        // The length counts in the pseudo header as the UDP header tells it; it was checked against what is there.
        let len = self.bytes.len() as u16;
        !self.has_checksum() || finish(sum(self.bytes, pseudo_v4(src, dst, proto::UDP, len))) == 0
    }

    /// The checksum holds. Over IPv6 there must be one.
    #[inline]
    pub fn checksum_ok_v6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        let len = self.bytes.len() as u32;
        self.has_checksum() && finish(sum(self.bytes, pseudo_v6(src, dst, proto::UDP, len))) == 0
    }
}

/// Writes the header of a datagram with `payload_len` bytes of payload at the start of `out`, the checksum field zero, and
/// returns [`LEN`].
///
/// # Panics
/// When `out` is shorter than [`LEN`], or the payload longer than [`PAYLOAD_MAX`].
#[inline]
pub fn emit(out: &mut [u8], src_port: u16, dst_port: u16, payload_len: usize) -> usize {
    assert!(
        payload_len <= PAYLOAD_MAX,
        "UDP: a payload no header can tell of"
    );
    let mut h = [0u8; LEN];
    h[0..2].copy_from_slice(&src_port.to_be_bytes());
    h[2..4].copy_from_slice(&dst_port.to_be_bytes());
    h[4..6].copy_from_slice(&((LEN + payload_len) as u16).to_be_bytes());
    out[..LEN].copy_from_slice(&h);
    LEN
}

/// Puts the checksum of `datagram`, header and payload with the field zero, into its field.
///
/// # Panics
/// When `datagram` is shorter than [`LEN`].
#[inline]
pub fn fill_checksum_v4(datagram: &mut [u8], src: Ipv4Addr, dst: Ipv4Addr) {
    let pseudo = pseudo_v4(src, dst, proto::UDP, datagram.len() as u16);
    put(datagram, finish(sum(datagram, pseudo)));
}

/// [`fill_checksum_v4`] for a datagram over IPv6.
///
/// # Panics
/// When `datagram` is shorter than [`LEN`].
#[inline]
pub fn fill_checksum_v6(datagram: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) {
    let pseudo = pseudo_v6(src, dst, proto::UDP, datagram.len() as u32);
    put(datagram, finish(sum(datagram, pseudo)));
}

#[inline]
fn put(datagram: &mut [u8], sum: u16) {
    // Zero says "none"; the other zero of ones' complement is the same value (RFC 768).
    let field = if sum == 0 { u16::MAX } else { sum };
    datagram[CHECKSUM_AT..LEN].copy_from_slice(&field.to_be_bytes());
}

#[cfg(test)]
mod tests;
