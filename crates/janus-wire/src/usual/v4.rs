//! IPv4 headers of usual segments.

use core::net::Ipv4Addr;

use super::{Headers, Segment, SegmentV4, put32};
use crate::{FlowKeyV4, be16, checksum, ipv4, proto};

/// Version and length of an IP header without options.
const FIRST: u8 = 0x45;
const DONT_FRAGMENT: u16 = 0x4000;
/// Bits that may be set in the fragment word of an unfragmented packet: "don't fragment" and the reserved bit.
const WHOLE: u16 = 0xc000;

impl<'a> SegmentV4<'a> {
    /// The segment that `packet` begins with, if it is a usual one.
    #[inline(always)]
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        let ip = packet.first_chunk::<{ ipv4::LEN }>()?;
        let is_usual = ip[0] == FIRST && ip[9] == proto::TCP && be16(ip, 6) & !WHOLE == 0;
        let segment = Segment::cut(packet, usize::from(be16(ip, 2)))?;
        is_usual.then_some(segment)
    }

    /// Source address, as the machine reads its bytes.
    #[inline(always)]
    pub const fn src(&self) -> u32 {
        ne32(self.ip, 12)
    }

    /// Destination address, as the machine reads its bytes.
    #[inline(always)]
    pub const fn dst(&self) -> u32 {
        ne32(self.ip, 16)
    }

    /// The two ECN bits.
    #[inline(always)]
    pub const fn ecn(&self) -> u8 {
        self.ip[1] & 0b11
    }

    /// The connection, as its receiver names it.
    #[inline(always)]
    pub const fn flow(&self) -> FlowKeyV4 {
        FlowKeyV4 {
            peer: Ipv4Addr::from_octets(self.src().to_ne_bytes()),
            local: Ipv4Addr::from_octets(self.dst().to_ne_bytes()),
            peer_port: be16(self.tcp, 0),
            local_port: be16(self.tcp, 2),
        }
    }

    /// The IP header's checksum holds.
    #[inline(always)]
    pub fn ip_is_sound(&self) -> bool {
        let words: &[u8; 16] = self.ip.first_chunk().expect("shorter than that");
        checksum::is_complete(checksum::chain(u64::from(self.dst()), words))
    }

    /// TCP's checksum holds.
    #[inline(always)]
    pub fn tcp_is_sound(&self) -> bool {
        self.is_sound::<52, 40>()
    }
}

/// The four bytes at `at`, as the machine reads them.
#[inline(always)]
const fn ne32(header: &[u8; ipv4::LEN], at: usize) -> u32 {
    let (_, bytes) = header.split_at(at);
    u32::from_ne_bytes(*bytes.first_chunk().expect("inside of the header"))
}

/// Fields of an IPv4 header to be written.
#[derive(Clone, Copy, Debug)]
pub struct IpV4 {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
}

impl Headers<IpV4> {
    /// Writes the headers at the start of `packet`, the rest of which is the payload: with "don't fragment", no urgent pointer,
    /// and TCP's checksum, which covers the payload, if `sum` says so; else that field is zero.
    ///
    /// # Panics
    /// When `packet` is shorter than both headers and the options or longer than 65,535 bytes.
    #[inline(always)]
    pub fn write(&self, packet: &mut [u8], sum: bool) {
        let total = packet.len() as u32;
        assert!(total <= 0xffff, "an IPv4 packet has at most 65,535 bytes");
        let (head, segment) = packet
            .split_first_chunk_mut::<{ ipv4::LEN }>()
            .expect("room for both headers");
        let (src, dst) = (self.ip.src.to_bits(), self.ip.dst.to_bits());
        let first = u32::from(FIRST) << 24 | u32::from(self.ip.tos) << 16 | total;
        // A whole datagram needs no identification (RFC 6864 section 4.1).
        let second = u32::from(DONT_FRAGMENT);
        let third = u32::from(self.ip.ttl) << 24 | u32::from(proto::TCP) << 16;
        let addresses = u64::from(src) + u64::from(dst);
        let ip = addresses + u64::from(first) + u64::from(second) + u64::from(third);
        put32(head, 0, first);
        put32(head, 4, second);
        put32(head, 8, third | u32::from(checksum::complete(ip)));
        put32(head, 12, src);
        put32(head, 16, dst);
        self.write_tcp(segment, sum.then_some(addresses));
    }
}
