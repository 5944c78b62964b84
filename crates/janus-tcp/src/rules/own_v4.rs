//! Our IPv4 addresses as each packet is compared with them: numbers that are made once. An address is here the number that its
//! four bytes are to the machine, so that none has to be turned round.

use std::net::{IpAddr, Ipv4Addr};

use crate::rules::interface::Interface;

/// Our IPv4 networks.
pub(crate) struct OwnV4 {
    any_local: bool,
    networks: Vec<Network>,
}

/// One of our addresses, and the network it is in.
struct Network {
    addr: u32,
    mask: u32,
    /// The broadcast address and its obsolete form; where a network has none, both are `addr`.
    broadcasts: [u32; 2],
}

#[inline(always)]
pub(crate) fn number(addr: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(addr.octets())
}

impl OwnV4 {
    pub(crate) fn new(interface: &Interface) -> OwnV4 {
        let networks = interface.addresses.iter().filter_map(|own| {
            let IpAddr::V4(addr) = own.addr else {
                return None;
            };
            let hosts = u32::MAX.checked_shr(own.prefix.into()).unwrap_or(0);
            let broadcasts = match hosts {
                // A network of one or two addresses has no broadcast (RFC 3021).
                0 | 1 => [addr; 2],
                _ => [addr.to_bits() | hosts, addr.to_bits() & !hosts].map(Ipv4Addr::from_bits),
            };
            Some(Network {
                addr: number(addr),
                mask: number(Ipv4Addr::from_bits(!hosts)),
                broadcasts: broadcasts.map(number),
            })
        });
        OwnV4 {
            any_local: interface.any_local,
            networks: networks.collect(),
        }
    }

    /// Whether a packet may come from the address that is `src` and is for us: as [`Interface::may_be_source`] and
    /// [`Interface::is_ours`] have it.
    #[inline(always)]
    pub(crate) fn takes(&self, src: u32, dst: u32) -> bool {
        const LOOPBACK: u8 = 127;
        let first = |number: u32| number.to_ne_bytes()[0];
        let is_unicast = |number: u32| (1..224).contains(&first(number));
        if !is_unicast(src) || !is_unicast(dst) {
            return false;
        }
        if self.any_local {
            return true;
        }
        let mut is_ours = false;
        for own in &self.networks {
            is_ours |= own.addr == dst;
            if own.addr == src || own.broadcasts.contains(&src) {
                return false;
            }
        }
        is_ours && first(src) != LOOPBACK
    }

    /// Whether `peer` is in one of our networks.
    #[inline(always)]
    pub(crate) fn is_near(&self, peer: Ipv4Addr) -> bool {
        let peer = number(peer);
        let differs = |own: &Network| (own.addr ^ peer) & own.mask;
        self.networks.iter().any(|own| differs(own) == 0)
    }
}

#[cfg(test)]
mod tests;
