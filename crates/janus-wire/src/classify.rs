//! The first look at a frame, for the I/O core: which flow, and where its headers begin. Cheap, because it runs for
//! every packet on the core that feeds all others; checksums and everything TCP are left to the shard.

use crate::ethernet::{self, ethertype};
use crate::flow::{FlowKey, FlowKeyOf, FlowKeyV4};
use crate::icmp::Quote;
use crate::tcp::Flags;
use crate::{Malformed, be16, icmpv4, icmpv6, ipv4, ipv6, proto, usual};
use core::net::{Ipv4Addr, Ipv6Addr};

/// First header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// The IP header itself.
    Ip,
}

impl Link {
    /// Bytes of the header that an outgoing frame carries before IP.
    #[inline]
    pub const fn header_len(self) -> usize {
        match self {
            Self::Ethernet => ethernet::LEN,
            Self::Ip => 0,
        }
    }
}

/// A whole TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp<A> {
    /// Offset of the IP header in the frame.
    pub l3_offset: usize,
    /// The connection, as its receiver (we) names it.
    pub flow: FlowKeyOf<A>,
    /// Control bits.
    pub flags: Flags,
}

/// A whole UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<A> {
    /// Offset of the IP header in the frame.
    pub l3_offset: usize,
    /// Both ends; `local` is the receiver, us.
    pub flow: FlowKeyOf<A>,
}

/// An ICMP message. An error belongs to the connection it quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp<A> {
    /// Offset of the IP header in the frame.
    pub l3_offset: usize,
    /// Sender.
    pub src: A,
    /// Receiver.
    pub dst: A,
    /// Neighbor discovery: as ARP, every shard wants to see it. Never over IPv4.
    pub neighbor: bool,
    /// The connection that an error message quotes.
    pub quoted: Option<FlowKeyOf<A>>,
    /// The port of ours of the UDP datagram that it quotes instead.
    pub socket: Option<u16>,
}

/// Class of a frame, as far as steering needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// ARP: every shard wants to see it.
    Arp,
    /// TCP over IPv4.
    Tcp4(Tcp<Ipv4Addr>),
    /// ICMP over IPv4.
    Icmp4(Icmp<Ipv4Addr>),
    /// UDP over IPv4.
    Udp4(Udp<Ipv4Addr>),
    /// TCP over IPv6.
    Tcp6(Tcp<Ipv6Addr>),
    /// ICMP over IPv6.
    Icmp6(Icmp<Ipv6Addr>),
    /// UDP over IPv6.
    Udp6(Udp<Ipv6Addr>),
    /// A fragment of an IPv4 datagram: put together before it can be steered by ports.
    Fragment4 {
        /// Offset of the IP header in the frame.
        l3_offset: usize,
        /// Sender.
        src: Ipv4Addr,
        /// Receiver.
        dst: Ipv4Addr,
        /// Which datagram of theirs, together with the protocol.
        id: u16,
        /// The protocol of the whole.
        proto: u8,
    },
    /// A fragment of an IPv6 packet.
    Fragment6 {
        /// Offset of the IP header in the frame.
        l3_offset: usize,
        /// Sender.
        src: Ipv6Addr,
        /// Receiver.
        dst: Ipv6Addr,
        /// Which packet of theirs.
        id: u32,
    },
    /// A protocol the stack does not speak.
    Other,
    /// Not what its headers claim.
    Malformed(Malformed),
}

impl Class {
    /// The flow of a TCP segment, as its receiver names it, and its control bits.
    #[inline]
    pub fn segment(self) -> Option<(FlowKey, Flags)> {
        match self {
            Class::Tcp4(tcp) => Some((FlowKey::V4(tcp.flow), tcp.flags)),
            Class::Tcp6(tcp) => Some((FlowKey::V6(tcp.flow), tcp.flags)),
            _ => None,
        }
    }
}

impl<A: Copy> Tcp<A> {
    /// Half a header is refused here: it would be of no use to the shard either.
    #[inline(always)]
    fn read(l3_offset: usize, (peer, local): (A, A), segment: &[u8]) -> crate::Result<Self> {
        let t = segment.first_chunk::<20>().ok_or(Malformed::Truncated)?;
        Ok(Self {
            l3_offset,
            flow: flow(peer, local, t),
            flags: Flags(t[13]),
        })
    }
}

impl<A: Copy> Udp<A> {
    fn read(l3_offset: usize, (peer, local): (A, A), datagram: &[u8]) -> crate::Result<Self> {
        let h = datagram.first_chunk::<{ crate::udp::LEN }>();
        let flow = flow(peer, local, h.ok_or(Malformed::Truncated)?);
        Ok(Self { l3_offset, flow })
    }
}

impl<A: Copy> Icmp<A> {
    #[inline]
    fn new(l3_offset: usize, (src, dst): (A, A), neighbor: bool, quote: Option<&Quote<A>>) -> Self {
        Self {
            l3_offset,
            src,
            dst,
            neighbor,
            quoted: quote.and_then(Quote::flow),
            socket: quote.and_then(Quote::socket),
        }
    }
}

/// The flow of a packet whose transport header begins with the two ports.
#[inline(always)]
fn flow<A, const N: usize>(peer: A, local: A, header: &[u8; N]) -> FlowKeyOf<A> {
    FlowKeyOf {
        peer,
        local,
        peer_port: be16(header, 0),
        local_port: be16(header, 2),
    }
}

/// Reads flow and control bits of a TCP segment behind plain headers, as nearly all are: to what [`classify`] reads in it. `None` for
/// anything else, which is for [`classify`].
#[inline]
pub fn plain_tcp4(frame: &[u8], link: Link) -> Option<(FlowKeyV4, Flags)> {
    let packet = match link {
        Link::Ethernet => ethernet::ipv4_to_one(frame)?,
        Link::Ip => frame,
    };
    let segment = usual::SegmentV4::read(packet)?;
    Some((segment.flow(), segment.flags()))
}

/// Looks at a frame.
#[inline]
pub fn classify(frame: &[u8], link: Link) -> Class {
    match look(frame, link) {
        Ok(class) => class,
        Err(why) => Class::Malformed(why),
    }
}

#[inline]
fn look(frame: &[u8], link: Link) -> crate::Result<Class> {
    match link {
        Link::Ip => ip(frame, 0),
        Link::Ethernet => {
            let head = frame
                .first_chunk::<{ ethernet::LEN }>()
                .ok_or(Malformed::Truncated)?;
            match be16(head, 12) {
                ethertype::IPV4 => ip4(&frame[ethernet::LEN..], ethernet::LEN),
                ethertype::IPV6 => ip6(&frame[ethernet::LEN..], ethernet::LEN),
                ethertype::ARP => Ok(Class::Arp),
                ethertype::VLAN | ethertype::SERVICE_VLAN => tagged(frame),
                _ => Ok(Class::Other),
            }
        }
    }
}

#[cold]
fn tagged(frame: &[u8]) -> crate::Result<Class> {
    let (header, rest) = ethernet::Header::parse(frame)?;
    let l3_offset = frame.len() - rest.len();
    match header.ethertype {
        ethertype::IPV4 => ip4(rest, l3_offset),
        ethertype::IPV6 => ip6(rest, l3_offset),
        ethertype::ARP => Ok(Class::Arp),
        _ => Ok(Class::Other),
    }
}

#[inline]
fn ip(packet: &[u8], l3_offset: usize) -> crate::Result<Class> {
    match packet.first().ok_or(Malformed::Truncated)? >> 4 {
        4 => ip4(packet, l3_offset),
        6 => ip6(packet, l3_offset),
        _ => Err(Malformed::Version),
    }
}

#[inline]
fn ip4(packet: &[u8], l3_offset: usize) -> crate::Result<Class> {
    let ip = ipv4::parse(packet)?;
    if ip.is_fragment() {
        return Ok(Class::Fragment4 {
            l3_offset,
            src: ip.src,
            dst: ip.dst,
            id: ip.id,
            proto: ip.proto,
        });
    }
    let (ends, payload) = ((ip.src, ip.dst), ip.payload());
    Ok(match ip.proto {
        proto::TCP => Class::Tcp4(Tcp::read(l3_offset, ends, payload)?),
        proto::ICMP => {
            let message = icmpv4::parse(payload)?;
            Class::Icmp4(Icmp::new(l3_offset, ends, false, message.quote()))
        }
        proto::UDP => Class::Udp4(Udp::read(l3_offset, ends, payload)?),
        _ => Class::Other,
    })
}

#[inline]
fn ip6(packet: &[u8], l3_offset: usize) -> crate::Result<Class> {
    let ip = ipv6::parse(packet)?;
    if let Some(fragment) = ip.fragment {
        return Ok(Class::Fragment6 {
            l3_offset,
            src: ip.src,
            dst: ip.dst,
            id: fragment.id,
        });
    }
    let (ends, payload) = ((ip.src, ip.dst), ip.payload());
    Ok(match ip.proto {
        proto::TCP => Class::Tcp6(Tcp::read(l3_offset, ends, payload)?),
        proto::ICMPV6 => {
            let message = icmpv6::parse(payload)?;
            let neighbor = message.is_neighbour();
            Class::Icmp6(Icmp::new(l3_offset, ends, neighbor, message.quote()))
        }
        proto::UDP => Class::Udp6(Udp::read(l3_offset, ends, payload)?),
        _ => Class::Other,
    })
}

#[cfg(test)]
mod tests;
