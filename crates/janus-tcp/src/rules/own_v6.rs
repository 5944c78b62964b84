//! Our IPv6 addresses as each packet is compared with them: numbers that are made once. An address is here the number that its
//! sixteen bytes are to the machine, so that none has to be turned round.

use std::net::{IpAddr, Ipv6Addr};

use crate::rules::interface::{Interface, may_be_peer_v6};

/// Our IPv6 networks.
pub(crate) struct OwnV6 {
    any_local: bool,
    networks: Vec<Network>,
    /// The first of our addresses, for which nearly all packets are; a group's number if there is none.
    first: u128,
    /// The [`mark`]s of all.
    marks: u64,
}

/// One of our addresses, and the network it is in.
struct Network {
    addr: u128,
    mask: u128,
}

#[inline(always)]
fn number(addr: Ipv6Addr) -> u128 {
    u128::from_ne_bytes(addr.octets())
}

/// One of 64 bits for an address, by its last half, in which nearly all differ: most strangers have none of ours.
#[inline(always)]
fn mark(number: u128) -> u64 {
    let half = (number >> 64) as u64;
    1 << (half.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

/// Nearly all addresses: neither groups nor any of those that begin with zeros.
#[inline(always)]
fn is_usual(addr: Ipv6Addr) -> bool {
    !matches!(addr.octets()[0], 0 | 0xff)
}

impl OwnV6 {
    pub(crate) fn new(interface: &Interface) -> OwnV6 {
        let networks = interface.addresses.iter().filter_map(|own| {
            let IpAddr::V6(addr) = own.addr else {
                return None;
            };
            let hosts = u128::MAX.checked_shr(own.prefix.into()).unwrap_or(0);
            Some(Network {
                addr: number(addr),
                mask: number(Ipv6Addr::from_bits(!hosts)),
            })
        });
        let networks: Vec<Network> = networks.collect();
        OwnV6 {
            any_local: interface.any_local,
            first: networks.first().map_or(u128::MAX, |own| own.addr),
            marks: networks.iter().fold(0, |all, own| all | mark(own.addr)),
            networks,
        }
    }

    /// Whether a packet may come from `src` and is for us: as [`Interface::may_be_source`] and [`Interface::is_ours`] have it.
    #[inline]
    pub(crate) fn takes(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        let are_usual = is_usual(src) && is_usual(dst);
        if !(are_usual || may_be_peer_v6(src) && may_be_peer_v6(dst)) {
            return false;
        }
        if self.any_local {
            return true;
        }
        let (from, to) = (number(src), number(dst));
        let is_one = |addr| self.networks.iter().any(|own| own.addr == addr);
        if self.first != to && !is_one(to) {
            return false;
        }
        let may_be_one = self.marks & mark(from) != 0;
        !(may_be_one && is_one(from) || !are_usual && src.is_loopback())
    }

    /// Like [`OwnV6::takes`], of a packet that has crossed no device: both addresses are ours.
    #[inline(never)]
    pub(crate) fn takes_looped(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        self.has(src) && self.has(dst)
    }

    /// Whether packets for `addr` come back in: it is one of ours that packets can be for. Where all are, none is.
    #[inline(always)]
    pub(crate) fn has(&self, addr: Ipv6Addr) -> bool {
        let may_be_one = self.marks & mark(number(addr)) != 0;
        may_be_one && !self.any_local && self.has_by_search(addr)
    }

    #[inline(never)]
    fn has_by_search(&self, addr: Ipv6Addr) -> bool {
        let number = number(addr);
        may_be_peer_v6(addr) && self.networks.iter().any(|own| own.addr == number)
    }

    /// Whether `peer` is on our link, or in one of our networks.
    #[inline]
    pub(crate) fn is_near(&self, peer: Ipv6Addr) -> bool {
        let differs = |own: &Network| (own.addr ^ number(peer)) & own.mask;
        peer.is_unicast_link_local() || self.networks.iter().any(|own| differs(own) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::interface::IpCidr;
    use proptest::prelude::*;

    /// Addresses that differ in few places, so that networks and strangers all come, and those that no peer has.
    fn any_addr() -> impl Strategy<Value = Ipv6Addr> {
        let first = prop_oneof![
            Just(0x2001_0db8_0000_0000u64),
            Just(0xfe80_0000_0000_0000),
            Just(0xff02_0000_0000_0000),
            Just(0),
        ];
        let last = prop_oneof![Just(0u64), Just(1), Just(2), Just(0xffff_0a00_0001)];
        (first, 0u64..2, last)
            .prop_map(|(a, b, c)| Ipv6Addr::from_bits(u128::from(a | b) << 64 | u128::from(c)))
    }

    proptest! {
        /// Numbers compare as the interface compares addresses.
        #[test]
        fn numbers_say_what_the_addresses_say(
            own in proptest::collection::vec((any_addr(), 0u8..=128), 0..4),
            any_local: bool,
            src in any_addr(),
            dst in any_addr(),
            gateway in any_addr(),
        ) {
            let mut interface = Interface::ip(1_500);
            interface.any_local = any_local;
            interface.addresses = own.iter().map(|&(addr, prefix)| IpCidr::new(addr, prefix)).collect();
            interface.gateway_v6 = Some(gateway);
            let numbers = OwnV6::new(&interface);
            let (source, ours) = (IpAddr::V6(src), IpAddr::V6(dst));
            let takes = interface.is_ours(ours) && may_be_peer_v6(dst) && interface.may_be_source(source);
            prop_assert_eq!(numbers.takes(src, dst), takes);
            let loops = |addr: Ipv6Addr| {
                !any_local && may_be_peer_v6(addr) && interface.is_own(addr.into())
            };
            prop_assert_eq!((numbers.has(src), numbers.has(dst)), (loops(src), loops(dst)));
            prop_assert_eq!(numbers.takes_looped(src, dst), loops(src) && loops(dst));
            let hop = if numbers.is_near(src) { src } else { gateway };
            prop_assert_eq!(IpAddr::V6(hop), interface.next_hop(source));
        }
    }
}
