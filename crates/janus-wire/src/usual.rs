//! TCP over IPv4 as nearly all segments are: no IP options, no fragment. Both headers are read, and written, as one piece of
//! known length, which takes a fraction of the instructions of one header after the other. What is not like that is for
//! [`crate::ipv4`] and [`crate::tcp`], which read and write these too, to the same bytes.

use core::net::Ipv4Addr;

use crate::tcp::{self, Flags};
use crate::{FlowKeyV4, SeqNum, be16, be32, checksum, ipv4, proto};

/// Bytes of both headers without TCP's options.
pub const LEN: usize = ipv4::LEN + tcp::LEN;
/// Bytes of the timestamps option and the padding before it.
const TIMESTAMPS_LEN: usize = 12;
/// Bytes of a SYN's options.
const SYN_LEN: usize = 20;
/// Version and length of an IP header without options.
const FIRST: u8 = 0x45;
const DONT_FRAGMENT: u16 = 0x4000;
/// Bits that may be set in the fragment word of an unfragmented packet: "don't fragment" and the reserved bit.
const WHOLE: u16 = 0xc000;

/// A segment that arrived: its lengths are sound, its checksums are not looked at yet.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    head: &'a [u8; LEN],
    /// All of it, from the IP header on.
    packet: &'a [u8],
    options_len: usize,
}

/// The segment that `packet` begins with, if it is a usual one.
#[inline(always)]
pub fn read(packet: &[u8]) -> Option<Segment<'_>> {
    let head = packet.first_chunk::<LEN>()?;
    let is_usual = head[0] == FIRST && head[9] == proto::TCP && be16(head, 6) & !WHOLE == 0;
    let len = usize::from(be16(head, 2));
    let options_len = (usize::from(head[32] >> 4) * 4).checked_sub(tcp::LEN)?;
    if !is_usual || LEN + options_len > len {
        return None;
    }
    Some(Segment {
        head,
        packet: packet.get(..len)?,
        options_len,
    })
}

impl<'a> Segment<'a> {
    /// Source address, as the machine reads its bytes.
    #[inline(always)]
    pub const fn src(&self) -> u32 {
        ne32(self.head, 12)
    }

    /// Destination address, as the machine reads its bytes.
    #[inline(always)]
    pub const fn dst(&self) -> u32 {
        ne32(self.head, 16)
    }

    /// The two ECN bits.
    #[inline(always)]
    pub const fn ecn(&self) -> u8 {
        self.head[1] & 0b11
    }

    /// The connection, as its receiver names it.
    #[inline(always)]
    pub const fn flow(&self) -> FlowKeyV4 {
        FlowKeyV4 {
            peer: Ipv4Addr::from_octets(self.src().to_ne_bytes()),
            local: Ipv4Addr::from_octets(self.dst().to_ne_bytes()),
            peer_port: be16(self.head, 20),
            local_port: be16(self.head, 22),
        }
    }

    /// Sequence number.
    #[inline(always)]
    pub const fn seq(&self) -> SeqNum {
        SeqNum(be32(self.head, 24))
    }

    /// Acknowledgment number.
    #[inline(always)]
    pub const fn ack(&self) -> SeqNum {
        SeqNum(be32(self.head, 28))
    }

    /// Control bits.
    #[inline(always)]
    pub const fn flags(&self) -> Flags {
        Flags(self.head[33])
    }

    /// Window as on the wire.
    #[inline(always)]
    pub const fn window(&self) -> u16 {
        be16(self.head, 34)
    }

    /// Bytes of TCP's options.
    #[inline(always)]
    pub const fn options_len(&self) -> usize {
        self.options_len
    }

    /// Bytes of payload.
    #[inline(always)]
    pub const fn payload_len(&self) -> usize {
        self.packet.len() - LEN - self.options_len
    }

    /// Value and echo of the timestamps option.
    #[inline(always)]
    pub fn timestamps(&self) -> Option<(u32, u32)> {
        if self.options_len == 0 {
            return None;
        }
        let rest = self.rest();
        match rest.first_chunk::<TIMESTAMPS_LEN>() {
            Some(option)
                if self.options_len == TIMESTAMPS_LEN
                    && be32(option, 0) == tcp::options::TIMESTAMPS_WORD =>
            {
                Some((be32(option, 4), be32(option, 8)))
            }
            _ => tcp::options::parse(&rest[..self.options_len]).timestamps,
        }
    }

    /// Options and payload.
    #[inline(always)]
    fn rest(&self) -> &'a [u8] {
        &self.packet[LEN..]
    }

    /// The IP header's checksum holds.
    #[inline(always)]
    pub fn ip_is_sound(&self) -> bool {
        let words: &[u8; 16] = self.head.first_chunk().expect("shorter than that");
        checksum::is_complete(checksum::chain(u64::from(self.dst()), words))
    }

    /// TCP's checksum holds.
    #[inline(always)]
    pub fn tcp_is_sound(&self) -> bool {
        let len = (self.packet.len() - ipv4::LEN) as u16;
        // Of the pseudo header the addresses stand before the ports.
        let pseudo = u64::from((len + u16::from(proto::TCP)).to_be());
        // Where there are timestamps and nothing else there is no loop.
        match self.packet.split_first_chunk::<{ LEN + TIMESTAMPS_LEN }>() {
            Some((front, rest)) => {
                let words: &[u8; 40] = front.last_chunk().expect("shorter than that");
                let sum = checksum::chain(pseudo, words);
                match rest {
                    [] => checksum::is_complete(sum),
                    rest => checksum::is_complete_with(sum, rest),
                }
            }
            None => checksum::is_complete_with(pseudo, &self.packet[12..]),
        }
    }
}

/// The four bytes at `at`, as the machine reads them.
#[inline(always)]
const fn ne32(head: &[u8; LEN], at: usize) -> u32 {
    let (_, bytes) = head.split_at(at);
    u32::from_ne_bytes(*bytes.first_chunk().expect("inside of the headers"))
}

/// TCP's options in the layouts that nearly all segments have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsualOptions {
    /// None.
    None,
    /// Timestamps: value and echo.
    Timestamps(u32, u32),
    /// Options of a SYN: segment size, "SACK permitted", timestamps, and window scale.
    Syn {
        /// Maximum segment size.
        mss: u16,
        /// Value and echo of the timestamps.
        timestamps: (u32, u32),
        /// Window scale.
        scale: u8,
    },
}

impl UsualOptions {
    /// Bytes they take.
    #[inline(always)]
    pub const fn len(self) -> usize {
        match self {
            UsualOptions::None => 0,
            UsualOptions::Timestamps(..) => TIMESTAMPS_LEN,
            UsualOptions::Syn { .. } => SYN_LEN,
        }
    }

    /// There are none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        matches!(self, UsualOptions::None)
    }

    /// Writes them at the start of `out`: the sum of their words, and what follows them.
    #[inline(always)]
    fn write(self, out: &mut [u8]) -> (u64, &[u8]) {
        match self {
            UsualOptions::None => (0, out),
            UsualOptions::Timestamps(value, echo) => {
                put_words(out, [tcp::options::TIMESTAMPS_WORD, value, echo])
            }
            UsualOptions::Syn {
                mss,
                timestamps: (value, echo),
                scale,
            } => put_words(out, tcp::options::usual_syn(mss, value, echo, scale)),
        }
    }
}

/// Writes words in network order at the start of `out`: their sum, and what follows them.
#[inline(always)]
fn put_words<const N: usize>(out: &mut [u8], words: [u32; N]) -> (u64, &[u8]) {
    let (place, rest) = out.split_at_mut(4 * N);
    let (place, _) = place.as_chunks_mut::<4>();
    for (place, word) in place.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    (words.iter().map(|&word| u64::from(word)).sum(), rest)
}

/// The headers of a segment to be written.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
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

impl Headers {
    /// Writes the headers at the start of `packet`, the rest of which is the payload: with "don't fragment", no urgent pointer,
    /// and TCP's checksum, which covers the payload, if `sum` says so; else that field is zero.
    ///
    /// # Panics
    /// When `packet` is shorter than both headers and the options or longer than 65,535 bytes.
    #[inline(always)]
    pub fn write(&self, packet: &mut [u8], sum: bool) {
        let total = packet.len() as u32;
        assert!(total <= 0xffff, "an IPv4 packet has at most 65,535 bytes");
        let (head, rest) = packet
            .split_first_chunk_mut::<LEN>()
            .expect("room for both headers");
        let (options_sum, payload) = self.options.write(rest);
        let (src, dst) = (self.src.to_bits(), self.dst.to_bits());
        let first = u32::from(FIRST) << 24 | u32::from(self.tos) << 16 | total;
        // A whole datagram needs no identification (RFC 6864 section 4.1).
        let second = u32::from(DONT_FRAGMENT);
        let third = u32::from(self.ttl) << 24 | u32::from(proto::TCP) << 16;
        let addresses = u64::from(src) + u64::from(dst);
        let ip = addresses + u64::from(first) + u64::from(second) + u64::from(third);
        put32(head, 0, first);
        put32(head, 4, second);
        put32(head, 8, third | u32::from(checksum::complete(ip)));
        put32(head, 12, src);
        put32(head, 16, dst);
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        let words = (tcp::LEN + self.options.len()) as u32 / 4;
        let control = words << 28 | u32::from(self.flags.0) << 16 | u32::from(self.window);
        put32(head, 20, ports);
        put32(head, 24, self.seq.0);
        put32(head, 28, self.ack.0);
        put32(head, 32, control);
        let field = if sum {
            let pseudo = addresses + u64::from(proto::TCP) + u64::from(total - ipv4::LEN as u32);
            let numbers = u64::from(self.seq.0) + u64::from(self.ack.0);
            let fixed = u64::from(ports) + numbers + u64::from(control);
            let payload = match payload {
                [] => 0,
                payload => checksum::sum(payload, 0),
            };
            checksum::complete(pseudo + fixed + options_sum + u64::from(payload))
        } else {
            0
        };
        put32(head, 36, u32::from(field) << 16);
    }
}

/// Writes `value` at `at` in network order.
#[inline(always)]
fn put32<const N: usize>(bytes: &mut [u8; N], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
