//! TCP headers (RFC 9293 section 3.1): fixed part and flags here, options in [`options`]. What a segment means lives in
//! `janus-tcp`; checksums are computed by [`crate::checksum`], because they need the addresses.

pub mod options;

use crate::{Malformed, Result, SeqNum, be16, be32};
use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign};

pub use options::{Options, OptionsToSend, SackBlocks, UserTimeout};

/// Bytes of a header without options.
pub const LEN: usize = 20;
/// The longest header: 15 words.
pub const LEN_MAX: usize = 60;
/// Offset of the checksum field.
pub const CHECKSUM_AT: usize = 16;

/// The control bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// No control bit.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Every bit of `other` is set.
    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Some bit of `other` is set.
    #[inline(always)]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of both.
    #[inline(always)]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits of `self` that are not in `other`.
    #[inline(always)]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Flags {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The letters that tcpdump and packetdrill use, `-` when none is set.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("-");
        }
        for (bit, letter) in "FSRP.UEW".chars().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// The fixed part of a TCP header, checksum left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
    /// Sequence number of the first byte (of the SYN, where there is one).
    pub seq: SeqNum,
    /// Next byte the sender expects; counts only with [`Flags::ACK`].
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window as on the wire, unscaled.
    pub window: u16,
    /// Urgent pointer; counts only with [`Flags::URG`].
    pub urgent: u16,
    /// Bytes of header and options. Read by [`parse`], computed by [`emit`].
    pub header_len: usize,
}

/// Reads a segment: header, options, payload.
#[inline]
pub fn parse(segment: &[u8]) -> Result<(Header, &[u8], &[u8])> {
    let h = segment.first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    let header_len = usize::from(h[12] >> 4) * 4;
    if header_len < LEN {
        return Err(Malformed::Length);
    }
    let (head, payload) = segment
        .split_at_checked(header_len)
        .ok_or(Malformed::Length)?;
    let header = Header {
        src_port: be16(h, 0),
        dst_port: be16(h, 2),
        seq: SeqNum(be32(h, 4)),
        ack: SeqNum(be32(h, 8)),
        flags: Flags(h[13]),
        window: be16(h, 14),
        urgent: be16(h, 18),
        header_len,
    };
    Ok((header, &head[LEN..], payload))
}

/// Writes header and options at the start of `out`, the checksum field zero, and returns their length.
///
/// # Panics
/// When `out` is shorter than the header with these options; [`LEN_MAX`] always suffices.
#[inline]
pub fn emit(out: &mut [u8], header: &Header, options: &OptionsToSend) -> usize {
    let (fixed, rest) = out
        .split_first_chunk_mut::<LEN>()
        .expect("room for a TCP header");
    let len = LEN + options.emit(rest);
    fixed[0..2].copy_from_slice(&header.src_port.to_be_bytes());
    fixed[2..4].copy_from_slice(&header.dst_port.to_be_bytes());
    fixed[4..8].copy_from_slice(&header.seq.0.to_be_bytes());
    fixed[8..12].copy_from_slice(&header.ack.0.to_be_bytes());
    fixed[12] = (len as u8 / 4) << 4;
    fixed[13] = header.flags.0;
    fixed[14..16].copy_from_slice(&header.window.to_be_bytes());
    fixed[16..18].fill(0);
    fixed[18..20].copy_from_slice(&header.urgent.to_be_bytes());
    len
}

/// [`emit`], and beside the length the partial sum of what was written: known from the values, so that nothing is read back
/// that was only just stored in other portions.
///
/// # Panics
/// As [`emit`].
#[inline]
pub fn emit_summed(out: &mut [u8], header: &Header, options: &OptionsToSend) -> (usize, u32) {
    let len = emit(out, header, options);
    let ports = u32::from(header.src_port) << 16 | u32::from(header.dst_port);
    let control = (len as u32 / 4) << 28 | u32::from(header.flags.0) << 16;
    let fixed = [
        ports,
        header.seq.0,
        header.ack.0,
        control | u32::from(header.window),
        u32::from(header.urgent),
    ];
    let fixed = crate::checksum::values(fixed);
    let options = match options.only_timestamps() {
        Some(words) => crate::checksum::values(words),
        None => crate::checksum::sum(&out[LEN..len], 0),
    };
    (len, fixed + options)
}

/// Puts the checksum of `segment` into its field, whose `header_len` first bytes add up to `header` and whose pseudo header
/// to `pseudo`: partial sums below 2^31.
///
/// # Panics
/// When `segment` is shorter than its header.
#[inline]
pub fn fill_checksum(segment: &mut [u8], header_len: usize, header: u32, pseudo: u32) {
    let (head, payload) = segment.split_at_mut(header_len);
    let sum = match payload {
        [] => crate::checksum::finish(header + pseudo),
        payload => crate::checksum::finish(crate::checksum::sum(payload, header + pseudo)),
    };
    head[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Puts the checksum of `segment` (its field zero) into its field.
///
/// # Panics
/// When `segment` is shorter than [`LEN`].
#[inline]
pub fn fill_checksum_v4(segment: &mut [u8], src: core::net::Ipv4Addr, dst: core::net::Ipv4Addr) {
    let sum = crate::checksum::tcp_v4(src, dst, segment);
    segment[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

/// [`fill_checksum_v4`] for a segment over IPv6.
///
/// # Panics
/// When `segment` is shorter than [`LEN`].
#[inline]
pub fn fill_checksum_v6(segment: &mut [u8], src: core::net::Ipv6Addr, dst: core::net::Ipv6Addr) {
    let sum = crate::checksum::tcp_v6(src, dst, segment);
    segment[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests;
