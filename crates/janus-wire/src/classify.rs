//! The first look at a frame, for the I/O core: which flow, and where its headers begin. Cheap, because it runs for
//! every packet on the core that feeds all others; checksums and everything TCP are left to the shard.

use crate::ethernet::{self, ethertype};
use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};
use crate::tcp::Flags;
use crate::{Malformed, be16, icmpv4, icmpv6, ipv4, ipv6, proto};
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

/// Class of a frame, as far as steering needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// ARP: every shard wants to see it.
    Arp,
    /// A whole TCP segment over IPv4.
    Tcp4 {
        /// Offset of the IP header in the frame.
        l3_offset: usize,
        /// Sender.
        src: Ipv4Addr,
        /// Receiver, us.
        dst: Ipv4Addr,
        /// Port of the sender.
        sport: u16,
        /// Port of the receiver.
        dport: u16,
        /// Control bits.
        flags: Flags,
    },
    /// ICMP over IPv4. An error belongs to the connection it quotes.
    Icmp4 {
        /// Offset of the IP header in the frame.
        l3_offset: usize,
        /// Sender.
        src: Ipv4Addr,
        /// Receiver.
        dst: Ipv4Addr,
        /// The connection that an error message quotes.
        quoted: Option<FlowKeyV4>,
        /// The port of ours of the UDP datagram that it quotes instead.
        socket: Option<u16>,
    },
    /// A whole UDP datagram over IPv4.
    Udp4 {
        /// Offset of the IP header in the frame.
        l3_offset: usize,
        /// Sender.
        src: Ipv4Addr,
        /// Receiver, us.
        dst: Ipv4Addr,
        /// Port of the sender.
        sport: u16,
        /// Port of the receiver.
        dport: u16,
    },
    /// A whole TCP segment over IPv6.
    Tcp6 {
        /// Offset of the IP header in the frame.
        l3_offset: usize,
        /// Sender.
        src: Ipv6Addr,
        /// Receiver, us.
        dst: Ipv6Addr,
        /// Port of the sender.
        sport: u16,
        /// Port of the receiver.
        dport: u16,
        /// Control bits.
        flags: Flags,
    },
    /// ICMP over IPv6. An error belongs to the connection it quotes.
    Icmp6 {
        /// Offset of the IP header in the frame.
        l3_offset: usize,
        /// Sender.
        src: Ipv6Addr,
        /// Receiver.
        dst: Ipv6Addr,
        /// Neighbour discovery: as ARP, every shard wants to see it.
        neighbor: bool,
        /// The connection that an error message quotes.
        quoted: Option<FlowKeyV6>,
        /// The port of ours of the UDP datagram that it quotes instead.
        socket: Option<u16>,
    },
    /// A whole UDP datagram over IPv6.
    Udp6 {
        /// Offset of the IP header in the frame.
        l3_offset: usize,
        /// Sender.
        src: Ipv6Addr,
        /// Receiver, us.
        dst: Ipv6Addr,
        /// Port of the sender.
        sport: u16,
        /// Port of the receiver.
        dport: u16,
    },
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
            Class::Tcp4 {
                src,
                dst,
                sport,
                dport,
                flags,
                ..
            } => {
                let flow = FlowKeyV4 {
                    peer: src,
                    local: dst,
                    peer_port: sport,
                    local_port: dport,
                };
                Some((FlowKey::V4(flow), flags))
            }
            Class::Tcp6 {
                src,
                dst,
                sport,
                dport,
                flags,
                ..
            } => {
                let flow = FlowKeyV6 {
                    peer: src,
                    local: dst,
                    peer_port: sport,
                    local_port: dport,
                };
                Some((FlowKey::V6(flow), flags))
            }
            _ => None,
        }
    }
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
    match ip.proto {
        proto::TCP => {
            let (sport, dport, flags) = ports(ip.payload())?;
            Ok(Class::Tcp4 {
                l3_offset,
                src: ip.src,
                dst: ip.dst,
                sport,
                dport,
                flags,
            })
        }
        proto::ICMP => {
            let message = icmpv4::parse(ip.payload())?;
            let quote = message.quote();
            Ok(Class::Icmp4 {
                l3_offset,
                src: ip.src,
                dst: ip.dst,
                quoted: quote.and_then(icmpv4::Quote::flow),
                socket: quote.and_then(icmpv4::Quote::socket),
            })
        }
        proto::UDP => {
            let (sport, dport) = udp_ports(ip.payload())?;
            Ok(Class::Udp4 {
                l3_offset,
                src: ip.src,
                dst: ip.dst,
                sport,
                dport,
            })
        }
        _ => Ok(Class::Other),
    }
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
    match ip.proto {
        proto::TCP => {
            let (sport, dport, flags) = ports(ip.payload())?;
            Ok(Class::Tcp6 {
                l3_offset,
                src: ip.src,
                dst: ip.dst,
                sport,
                dport,
                flags,
            })
        }
        proto::ICMPV6 => {
            let message = icmpv6::parse(ip.payload())?;
            let quote = message.quote();
            Ok(Class::Icmp6 {
                l3_offset,
                src: ip.src,
                dst: ip.dst,
                neighbor: message.is_neighbour(),
                quoted: quote.and_then(icmpv6::Quote::flow),
                socket: quote.and_then(icmpv6::Quote::socket),
            })
        }
        proto::UDP => {
            let (sport, dport) = udp_ports(ip.payload())?;
            Ok(Class::Udp6 {
                l3_offset,
                src: ip.src,
                dst: ip.dst,
                sport,
                dport,
            })
        }
        _ => Ok(Class::Other),
    }
}

/// Ports and flags of a segment. Half a header is refused here: it would be of no use to the shard either.
#[inline(always)]
fn ports(segment: &[u8]) -> crate::Result<(u16, u16, Flags)> {
    let t = segment.first_chunk::<20>().ok_or(Malformed::Truncated)?;
    Ok((be16(t, 0), be16(t, 2), Flags(t[13])))
}

/// Ports of a datagram.
fn udp_ports(datagram: &[u8]) -> crate::Result<(u16, u16)> {
    let h = datagram
        .first_chunk::<{ crate::udp::LEN }>()
        .ok_or(Malformed::Truncated)?;
    Ok((be16(h, 0), be16(h, 2)))
}

#[cfg(test)]
mod tests;
