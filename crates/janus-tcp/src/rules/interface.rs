//! The device that frames go through, as the stack knows it: the link, the addresses that are ours, and what follows
//! from them for a packet: whether it is for us, whether it may come from where it says, where it goes next.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use janus_wire::{Link, MacAddr, icmpv6};

use crate::rules::routes::{ROUTES_MAX, Route};

/// No link and no path makes segments smaller, options not counted: there is always room for timestamps.
pub(crate) const LEAST_SEGMENT: u16 = 24;

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpCidr {
    /// The address.
    pub addr: IpAddr,
    /// Bits of it that name the network.
    pub prefix: u8,
}

impl IpCidr {
    /// An address in a network whose prefix has that many bits.
    pub fn new(addr: impl Into<IpAddr>, prefix: u8) -> IpCidr {
        let addr = addr.into();
        IpCidr { addr, prefix }
    }

    /// Whether `other` is the broadcast address of the network, or its obsolete form with all bits zero.
    pub fn is_broadcast(&self, other: IpAddr) -> bool {
        let (IpAddr::V4(addr), IpAddr::V4(other)) = (self.addr, other) else {
            return false;
        };
        let hosts = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
        let (addr, other) = (addr.to_bits(), other.to_bits());
        // A network of one or two addresses has no broadcast (RFC 3021).
        (addr ^ other) & !hosts == 0 && hosts > 1 && (other & hosts == 0 || other & hosts == hosts)
    }

    /// Whether `other` is in the same network.
    pub fn contains(&self, other: IpAddr) -> bool {
        self.shared_bits(other)
            .is_some_and(|shared| shared >= u32::from(self.prefix))
    }

    /// How many leading bits the address shares with another of its family.
    fn shared_bits(&self, other: IpAddr) -> Option<u32> {
        match (self.addr, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
            (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
            _ => None,
        }
    }
}

/// The device that frames go through, as the stack knows it.
/// Exhaustive: each device says all of it in a literal.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Whether frames begin with an Ethernet or an IP header.
    pub link: Link,
    /// Our hardware address (unused without Ethernet).
    pub mac: MacAddr,
    /// Largest IP packet.
    pub mtu: u16,
    /// Our addresses, of both families.
    pub addresses: Vec<IpCidr>,
    /// Take every unicast destination as ours: for wires that carry one server's traffic only.
    pub any_local: bool,
    /// Where IPv4 packets for other networks go.
    pub gateway: Option<Ipv4Addr>,
    /// Where IPv6 packets for other networks go.
    pub gateway_v6: Option<Ipv6Addr>,
    /// Other ways than the gateways', to single networks.
    pub routes: Vec<Route>,
    /// The device fills in checksums.
    pub tx_checksum: bool,
    /// The device vouches for the checksums of IP, TCP and UDP in whole packets: it has verified them, or its sender left them to it, and
    /// then the field may hold the pseudo header's sum only.
    pub rx_checksum: bool,
    /// This stack answers ARP requests and neighbour solicitations. Of the stacks that share a device, and all hear
    /// them, one does.
    pub answers: bool,
    /// Ports that are this stack's to choose from, where others have our addresses too.
    pub ports: Option<PortBlock>,
}

/// First of the ports that are the stack's to choose (RFC 6335 section 6: the dynamic range). It ends with the last port.
pub const DYNAMIC_FIRST: u16 = 49_152;

/// Ports that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortBlock {
    /// The first.
    pub first: u16,
    /// How many: a power of two, so that a walk passes all of them.
    pub count: u16,
}

impl PortBlock {
    /// The dynamic ports (RFC 6335 section 6).
    pub const DYNAMIC: PortBlock = PortBlock {
        first: DYNAMIC_FIRST,
        count: ((1 << 16) - DYNAMIC_FIRST as u32) as u16,
    };

    /// Whether a port is one of them.
    #[must_use]
    pub fn has(self, port: u16) -> bool {
        port.checked_sub(self.first)
            .is_some_and(|at| at < self.count)
    }

    /// One of them for any number.
    #[inline]
    #[must_use]
    pub fn port(self, number: u32) -> u16 {
        self.first
            .wrapping_add((number % u32::from(self.count.max(1))) as u16)
    }
}

impl Interface {
    /// An interface without a link layer that takes every packet for its own.
    pub fn ip(mtu: u16) -> Interface {
        Interface {
            link: Link::Ip,
            mac: MacAddr::default(),
            mtu,
            addresses: Vec::new(),
            any_local: true,
            gateway: None,
            gateway_v6: None,
            routes: Vec::new(),
            tx_checksum: false,
            rx_checksum: false,
            answers: true,
            ports: None,
        }
    }

    /// Adds a link-local address, which an Ethernet interface that speaks IPv6 must have (RFC 4291 section 2.8), if it was
    /// given none.
    pub(crate) fn with_link_local(mut self) -> Interface {
        let speaks_v6 = self.addresses.iter().any(|own| own.addr.is_ipv6());
        let has_one = self.addresses.iter().any(|own| is_link_local(own.addr));
        if self.link == Link::Ethernet && speaks_v6 && !has_one {
            let own = IpCidr::new(icmpv6::link_local(self.mac), 64);
            self.addresses.push(own);
        }
        self
    }

    #[inline]
    pub(crate) fn is_ours(&self, addr: IpAddr) -> bool {
        self.any_local || self.is_own(addr)
    }

    /// Whether it is one of the addresses we were given.
    #[inline]
    pub(crate) fn is_own(&self, addr: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.addr == addr)
    }

    /// Whether a packet may come from `addr`: not from a group, a broadcast, a loopback or our own address (MUST-63;
    /// RFC 1122 section 3.2.1.3, RFC 4291 sections 2.5.2 and 2.7). Where every destination is ours, no source can be
    /// told from one of ours.
    /// Keeps MUST-63.
    #[inline]
    pub(crate) fn may_be_source(&self, addr: IpAddr) -> bool {
        may_be_peer(addr)
            && (self.any_local
                || !addr.is_loopback()
                    && !self
                        .addresses
                        .iter()
                        .any(|own| own.addr == addr || own.is_broadcast(addr)))
    }

    /// Whether a connection can be opened to `addr`: not to a group, nowhere, or a broadcast of our networks (MUST-46).
    /// Keeps MUST-46.
    pub(crate) fn may_be_destination(&self, addr: IpAddr) -> bool {
        may_be_peer(addr) && !self.addresses.iter().any(|own| own.is_broadcast(addr))
    }

    /// Whether an ICMP message for IPv6 may come from `src` and is for us. Neighbour discovery speaks to groups, and one
    /// who has no address yet from `::`.
    pub(crate) fn takes_icmp_v6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        let detecting = src.is_unspecified() && dst.is_multicast();
        let from = detecting || self.may_be_source(src.into());
        let to = if dst.is_multicast() {
            let mut own = self.addresses.iter().map(|own| own.addr);
            own.any(|own| matches!(own, IpAddr::V6(own) if is_in_group(own, dst)))
        } else {
            self.is_ours(dst.into()) && may_be_peer_v6(dst)
        };
        from && to
    }

    /// Our address towards `peer`: itself if it is ours (RFC 6724 section 5, rule 1); the one whose network it is in; else, for IPv6, one of the peer's scope that shares
    /// most with it (RFC 6724 section 5, rules 2 and 8).
    /// Keeps MUST-44.
    pub fn source_for(&self, peer: impl Into<IpAddr>) -> Option<IpAddr> {
        let peer = peer.into();
        if !self.any_local && self.is_own(peer) {
            return Some(peer);
        }
        let same_family = |own: &&IpCidr| own.addr.is_ipv4() == peer.is_ipv4();
        let mut candidates = self.addresses.iter().filter(same_family);
        let near = candidates.clone().find(|own| own.contains(peer));
        let chosen = near.or_else(|| match peer {
            // The one that the next hop is a neighbour of.
            IpAddr::V4(_) => {
                let hop = self.next_hop(peer);
                let mut all = candidates.clone();
                all.find(|own| own.contains(hop)).or(candidates.next())
            }
            IpAddr::V6(_) => {
                // Of equals the first.
                let fits = |own: &IpCidr| {
                    (
                        is_link_local(own.addr) == is_link_local(peer),
                        own.shared_bits(peer),
                    )
                };
                candidates.rev().max_by_key(|own| fits(own))
            }
        });
        chosen.map(|own| own.addr)
    }

    /// The neighbour that packets for `peer` are handed to.
    #[inline]
    pub(crate) fn next_hop(&self, peer: IpAddr) -> IpAddr {
        let gateway = match peer {
            IpAddr::V4(_) => self.gateway.map(IpAddr::V4),
            IpAddr::V6(_) => self.gateway_v6.map(IpAddr::V6),
        };
        let is_near = || is_link_local(peer) || self.addresses.iter().any(|own| own.contains(peer));
        if !self.routes.is_empty()
            && !is_link_local(peer)
            && let Some(hop) = self.routed_hop(peer)
        {
            return hop;
        }
        match gateway {
            Some(gateway) if !is_near() => gateway,
            _ => peer,
        }
    }

    /// The neighbours that hand packets on.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        let own = [
            self.gateway.map(IpAddr::V4),
            self.gateway_v6.map(IpAddr::V6),
        ];
        let routes = self.routes.iter().take(ROUTES_MAX);
        own.into_iter()
            .flatten()
            .chain(routes.map(|route| route.gateway))
    }

    /// Whether there is a way to `peer`: it is a neighbour, or somebody hands packets on to it. Whether anybody is there is not known.
    pub fn reaches(&self, peer: IpAddr) -> bool {
        let hop = self.next_hop(peer);
        self.source_for(peer).is_some()
            && (is_link_local(hop) || self.addresses.iter().any(|own| own.contains(hop)))
    }

    /// The payload of the largest segment that fits (RFC 9293 section 3.7.1).
    /// Keeps MUST-67, SHLD-6.
    pub(crate) fn mss(&self, v6: bool) -> u16 {
        let headers = if v6 { 60 } else { 40 };
        self.mtu.saturating_sub(headers).max(LEAST_SEGMENT)
    }
}

/// An IPv6 address that is good on one link only. IPv4's 169.254.0.0/16 needs no such care: it is a network like others.
fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}

/// Whether an address can be an end of a TCP connection.
#[inline]
pub(crate) fn may_be_peer(addr: IpAddr) -> bool {
    match addr {
        // 0.0.0.0/8 is "this network"; 224.0.0.0 and above: multicast, reserved, broadcast.
        IpAddr::V4(addr) => (1..224).contains(&addr.octets()[0]),
        IpAddr::V6(addr) => may_be_peer_v6(addr),
    }
}

/// No group, not `::`; and no IPv4 address in disguise: `::ffff:a.b.c.d` is for programs, never for the wire, where it
/// would get round what is known of the IPv4 address (RFC 4038 section 4.2); the obsolete `::a.b.c.d` likewise.
#[inline]
pub(crate) fn may_be_peer_v6(addr: Ipv6Addr) -> bool {
    let in_disguise = addr.to_bits() >> 48 == 0 && addr != Ipv6Addr::LOCALHOST;
    !addr.is_multicast() && !in_disguise
}

/// Whether a packet for `group` is for the owner of `own` (RFC 4291 section 2.8). The groups are not joined by MLD: no
/// switch that snoops needs a report for what neighbour discovery lives on (RFC 4541 section 3 floods ff02::1, and a
/// device in front of a stack like this one hears all).
pub(crate) fn is_in_group(own: Ipv6Addr, group: Ipv6Addr) -> bool {
    group == ALL_NODES || group == icmpv6::solicited_node(own)
}

/// Everybody on the link.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
