//! TCP as nearly all segments are: behind an IPv4 header without options, or an IPv6 header without extensions, and no fragment.
//! All headers are read, and written, as one piece of known length, which takes a fraction of the instructions of one header after
//! the other. What is not like that is for [`crate::ipv4`], [`crate::ipv6`] and [`crate::tcp`], which read and write these too, to
//! the same bytes.

mod options;
mod v4;
mod v6;

pub use options::UsualOptions;
pub use v4::IpV4;
pub use v6::IpV6;

use crate::tcp::{self, Flags};
use crate::{SeqNum, be16, be32, checksum, ipv4, ipv6, proto};
use options::TIMESTAMPS_LEN;

/// A segment that arrived behind an IP header of `IP` bytes: its lengths are sound, its checksums are not looked at yet.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a, const IP: usize> {
    /// All of it, from the IP header on.
    packet: &'a [u8],
    ip: &'a [u8; IP],
    tcp: &'a [u8; tcp::LEN],
    /// Options and payload.
    rest: &'a [u8],
    options_len: usize,
}

/// A segment behind an IPv4 header.
pub type SegmentV4<'a> = Segment<'a, { ipv4::LEN }>;

/// A segment behind an IPv6 header.
pub type SegmentV6<'a> = Segment<'a, { ipv6::LEN }>;

impl<'a, const IP: usize> Segment<'a, IP> {
    /// The first `len` bytes of `packet`, if they hold both headers and TCP's options.
    #[inline(always)]
    fn cut(packet: &'a [u8], len: usize) -> Option<Self> {
        let packet = packet.get(..len)?;
        let (ip, segment) = packet.split_first_chunk::<IP>()?;
        let (tcp, rest) = segment.split_first_chunk::<{ tcp::LEN }>()?;
        let options_len = (usize::from(tcp[12] >> 4) * 4).checked_sub(tcp::LEN)?;
        (options_len <= rest.len()).then_some(Segment {
            packet,
            ip,
            tcp,
            rest,
            options_len,
        })
    }

    /// Bytes before TCP's options.
    #[inline(always)]
    pub const fn headers_len(&self) -> usize {
        IP + tcp::LEN
    }

    /// Sequence number.
    #[inline(always)]
    pub const fn seq(&self) -> SeqNum {
        SeqNum(be32(self.tcp, 4))
    }

    /// Acknowledgment number.
    #[inline(always)]
    pub const fn ack(&self) -> SeqNum {
        SeqNum(be32(self.tcp, 8))
    }

    /// Control bits.
    #[inline(always)]
    pub const fn flags(&self) -> Flags {
        Flags(self.tcp[13])
    }

    /// Window as on the wire.
    #[inline(always)]
    pub const fn window(&self) -> u16 {
        be16(self.tcp, 14)
    }

    /// Bytes of TCP's options.
    #[inline(always)]
    pub const fn options_len(&self) -> usize {
        self.options_len
    }

    /// Bytes of payload.
    #[inline(always)]
    pub const fn payload_len(&self) -> usize {
        self.rest.len() - self.options_len
    }

    /// Value and echo of the timestamps option.
    #[inline(always)]
    pub fn timestamps(&self) -> Option<(u32, u32)> {
        if self.options_len == 0 {
            return None;
        }
        match self.rest.first_chunk::<TIMESTAMPS_LEN>() {
            Some(option)
                if self.options_len == TIMESTAMPS_LEN
                    && be32(option, 0) == tcp::options::TIMESTAMPS_WORD =>
            {
                Some((be32(option, 4), be32(option, 8)))
            }
            _ => tcp::options::other_timestamps(&self.rest[..self.options_len]),
        }
    }

    /// TCP's checksum holds, where the packet without `SKIPPED` bytes at its front begins with the pseudo header's addresses. With
    /// timestamps and nothing else there is no loop: headers and options, of `FRONT` bytes, hold `SUMMED` that are covered.
    #[inline(always)]
    fn is_sound<const FRONT: usize, const SUMMED: usize>(&self) -> bool {
        const { assert!(FRONT == IP + tcp::LEN + TIMESTAMPS_LEN && SUMMED <= FRONT) };
        let len = (self.packet.len() - IP) as u32;
        let pseudo = u64::from((len + u32::from(proto::TCP)).to_be());
        match self.packet.split_first_chunk::<FRONT>() {
            Some((front, rest)) => {
                let words: &[u8; SUMMED] = front.last_chunk().expect("shorter than that");
                let sum = checksum::chain(pseudo, words);
                match rest {
                    [] => checksum::is_complete(sum),
                    rest => checksum::is_complete_with(sum, rest),
                }
            }
            None => checksum::is_complete_with(pseudo, &self.packet[FRONT - SUMMED..]),
        }
    }
}

/// The headers of a segment to be written, behind an IP header with the fields of `I`.
#[derive(Clone, Copy, Debug)]
pub struct Headers<I> {
    /// Addresses and other fields of the IP header.
    pub ip: I,
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: SeqNum,
    /// Acknowledgment number.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window as on the wire.
    pub window: u16,
    /// TCP's options.
    pub options: UsualOptions,
}

impl<I> Headers<I> {
    /// Writes TCP's header at the start of `segment`, the rest of which is the payload, without urgent pointer. `addresses` is the sum
    /// of the words of both; without it the checksum's field is zero.
    #[inline(always)]
    fn write_tcp(&self, segment: &mut [u8], addresses: Option<u64>) {
        let len = segment.len() as u64;
        let (head, rest) = segment
            .split_first_chunk_mut::<{ tcp::LEN }>()
            .expect("room for TCP's header");
        let (options_sum, payload) = self.options.write(rest);
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        let words = (tcp::LEN + self.options.len()) as u32 / 4;
        let control = words << 28 | u32::from(self.flags.0) << 16 | u32::from(self.window);
        put32(head, 0, ports);
        put32(head, 4, self.seq.0);
        put32(head, 8, self.ack.0);
        put32(head, 12, control);
        let field = match addresses {
            Some(addresses) => {
                let pseudo = addresses + u64::from(proto::TCP) + len;
                let numbers = u64::from(self.seq.0) + u64::from(self.ack.0);
                let fixed = u64::from(ports) + numbers + u64::from(control);
                let headers = pseudo + fixed + options_sum;
                match payload {
                    [] => checksum::complete(headers),
                    payload => checksum::complete_with(headers, payload),
                }
            }
            None => 0,
        };
        put32(head, 16, u32::from(field) << 16);
    }
}

/// Writes `value` at `at` in network order.
#[inline(always)]
fn put32<const N: usize>(bytes: &mut [u8; N], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
