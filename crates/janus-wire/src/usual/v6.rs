//! IPv6 headers of usual segments.

use core::net::Ipv6Addr;

use super::{Headers, Segment, SegmentV6, put32};
use crate::{FlowKeyV6, be16, ipv6, proto};

impl<'a> SegmentV6<'a> {
    /// The segment that `packet` begins with, if it is a usual one.
    #[inline(always)]
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        let ip = packet.first_chunk::<{ ipv6::LEN }>()?;
        let is_usual = ip[0] >> 4 == 6 && ip[6] == proto::TCP;
        let segment = Segment::cut(packet, ipv6::LEN + usize::from(be16(ip, 4)))?;
        is_usual.then_some(segment)
    }

    /// Source address.
    #[inline(always)]
    pub const fn src(&self) -> Ipv6Addr {
        address(self.ip, 8)
    }

    /// Destination address.
    #[inline(always)]
    pub const fn dst(&self) -> Ipv6Addr {
        address(self.ip, 24)
    }

    /// The two ECN bits.
    #[inline(always)]
    pub const fn ecn(&self) -> u8 {
        self.ip[1] >> 4 & 0b11
    }

    /// The connection, as its receiver names it.
    #[inline(always)]
    pub const fn flow(&self) -> FlowKeyV6 {
        FlowKeyV6 {
            peer: self.src(),
            local: self.dst(),
            peer_port: be16(self.tcp, 0),
            local_port: be16(self.tcp, 2),
        }
    }

    /// TCP's checksum holds.
    #[inline(always)]
    pub fn tcp_is_sound(&self) -> bool {
        self.is_sound::<72, 64>()
    }
}

#[inline(always)]
const fn address(header: &[u8; ipv6::LEN], at: usize) -> Ipv6Addr {
    let (_, bytes) = header.split_at(at);
    Ipv6Addr::from_octets(*bytes.first_chunk().expect("inside of the header"))
}

/// Fields of an IPv6 header to be written.
#[derive(Clone, Copy, Debug)]
pub struct IpV6 {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

impl Headers<IpV6> {
    /// Writes the headers at the start of `packet`, the rest of which is the payload: with no urgent pointer, and TCP's checksum,
    /// which covers the payload, if `sum` says so; else that field is zero.
    ///
    /// # Panics
    /// When `packet` is shorter than both headers and the options or longer than 65,575 bytes.
    #[inline(always)]
    pub fn write(&self, packet: &mut [u8], sum: bool) {
        let (head, segment) = packet
            .split_first_chunk_mut::<{ ipv6::LEN }>()
            .expect("room for both headers");
        let len = segment.len() as u32;
        assert!(len <= 0xffff, "an IPv6 payload has at most 65,535 bytes");
        let IpV6 { src, dst, .. } = self.ip;
        let class = u32::from(self.ip.traffic_class) << 20;
        put32(head, 0, 6 << 28 | class | self.ip.flow_label & 0x000f_ffff);
        let hop_limit = u32::from(self.ip.hop_limit);
        put32(head, 4, len << 16 | u32::from(proto::TCP) << 8 | hop_limit);
        head[8..24].copy_from_slice(&src.octets());
        head[24..40].copy_from_slice(&dst.octets());
        self.write_tcp(segment, sum.then(|| words(src) + words(dst)));
    }
}

/// The sum of an address's words.
#[inline(always)]
fn words(address: Ipv6Addr) -> u64 {
    let bits = address.to_bits();
    let each = [96, 64, 32, 0].map(|shift| u64::from((bits >> shift) as u32));
    each.iter().sum()
}
