//! Our IPv4 addresses as each packet is compared with them: numbers that are made once. An address is here the number that its
//! four bytes are to the machine, so that none has to be turned round.

use std::net::{IpAddr, Ipv4Addr};

use crate::rules::interface::Interface;

/// Our IPv4 networks.
pub(crate) struct OwnV4 {
    any_local: bool,
    networks: Vec<Network>,
    /// The only network, where there is no more than one and its address is for packets to one receiver.
    only: Option<Network>,
}

/// One of our addresses, and the network it is in.
#[derive(Clone, Copy)]
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

/// First byte of an address.
#[inline(always)]
fn first(number: u32) -> u8 {
    number.to_ne_bytes()[0]
}

/// Neither "this network" nor a group, nor reserved.
#[inline(always)]
fn is_unicast(number: u32) -> bool {
    (1..224).contains(&first(number))
}

impl Network {
    /// Whether `src` is neither our address, nor a broadcast of the network, nor loopback.
    #[inline(always)]
    fn may_be_source(&self, src: u32) -> bool {
        const LOOPBACK: u8 = 127;
        src != self.addr && !self.broadcasts.contains(&src) && first(src) != LOOPBACK
    }
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
        let networks: Vec<Network> = networks.collect();
        let only = match networks[..] {
            [own] if is_unicast(own.addr) && !interface.any_local => Some(own),
            _ => None,
        };
        OwnV4 {
            any_local: interface.any_local,
            networks,
            only,
        }
    }

    /// Whether a packet may come from the address that is `src` and is for us: as [`Interface::may_be_source`] and
    /// [`Interface::is_ours`] have it.
    #[inline(always)]
    pub(crate) fn takes(&self, src: u32, dst: u32) -> bool {
        match &self.only {
            Some(own) => own.addr == dst && is_unicast(src) && own.may_be_source(src),
            None => self.takes_by_search(src, dst),
        }
    }

    #[inline(never)]
    fn takes_by_search(&self, src: u32, dst: u32) -> bool {
        is_unicast(src)
            && is_unicast(dst)
            && (self.any_local
                || self.networks.iter().any(|own| own.addr == dst)
                    && self.networks.iter().all(|own| own.may_be_source(src)))
    }

    /// Like [`OwnV4::takes`], of a packet that has crossed no device: both addresses are ours.
    #[inline(never)]
    pub(crate) fn takes_looped(&self, src: u32, dst: u32) -> bool {
        let is_own = |addr| self.has_by_search(addr);
        !self.any_local && is_own(src) && is_own(dst)
    }

    /// Whether packets for `addr` come back in: it is one of ours that packets can be for. Where all are, none is.
    #[inline(always)]
    pub(crate) fn has(&self, addr: Ipv4Addr) -> bool {
        let addr = number(addr);
        match &self.only {
            Some(own) => own.addr == addr,
            None => !self.any_local && self.has_by_search(addr),
        }
    }

    #[inline(never)]
    fn has_by_search(&self, addr: u32) -> bool {
        is_unicast(addr) && self.networks.iter().any(|own| own.addr == addr)
    }

    /// Whether `peer` is in one of our networks.
    #[inline(always)]
    pub(crate) fn is_near(&self, peer: Ipv4Addr) -> bool {
        let peer = number(peer);
        let has_it = |own: &Network| (own.addr ^ peer) & own.mask == 0;
        match &self.only {
            Some(own) => has_it(own),
            None => self.networks.iter().any(has_it),
        }
    }
}

#[cfg(test)]
mod tests;
