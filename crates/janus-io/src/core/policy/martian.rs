//! Addresses that no packet from outside can carry (RFC 1122 section 3.2.1.3, RFC 6890, RFC 4291 section 2): as its
//! source, or as its destination. What may be on a wire of our own (the portal's carries loopback) is not asked here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Reach;

/// The first octets of IPv4 sources that cannot be: "this network", loopback, groups, the reserved end with its broadcast.
const NO_SOURCE: [u64; 4] = octets(&[(0, 0), (127, 127), (224, 255)]);
/// The first octets of destinations that a single host cannot have.
const NO_HOST: [u64; 4] = NO_SOURCE;
/// The first octets of destinations that nothing can be for; groups and the broadcast are taken.
const NOBODY: [u64; 4] = octets(&[(0, 0), (127, 127), (240, 254)]);

/// One bit for each first octet in these ranges.
const fn octets(ranges: &[(u8, u8)]) -> [u64; 4] {
    let mut bits = [0; 4];
    let mut i = 0;
    while i < ranges.len() {
        let (mut octet, last) = (ranges[i].0 as usize, ranges[i].1 as usize);
        while octet <= last {
            bits[octet / 64] |= 1 << (octet % 64);
            octet += 1;
        }
        i += 1;
    }
    bits
}

#[inline]
fn is_in(bits: &[u64; 4], addr: Ipv4Addr) -> bool {
    let octet = usize::from(addr.octets()[0]);
    bits[octet / 64] >> (octet % 64) & 1 != 0
}

/// The test, with the addresses that are ours.
#[derive(Debug, Default)]
pub(super) struct MartianTable {
    own_v4: Vec<Ipv4Addr>,
    own_v6: Vec<Ipv6Addr>,
}

impl MartianTable {
    pub(super) fn new(own: &[IpAddr]) -> MartianTable {
        let mut martians = MartianTable::default();
        for addr in own {
            match addr {
                IpAddr::V4(addr) => martians.own_v4.push(*addr),
                IpAddr::V6(addr) => martians.own_v6.push(*addr),
            }
        }
        martians
    }

    #[inline]
    pub(super) fn is_martian_v4(&self, src: Ipv4Addr, dst: Ipv4Addr, reach: Reach) -> bool {
        let no_destination = match reach {
            Reach::Single => &NO_HOST,
            Reach::Any => &NOBODY,
        };
        is_in(&NO_SOURCE, src) || is_in(no_destination, dst) || self.own_v4.contains(&src)
    }

    #[inline]
    pub(super) fn is_martian_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, reach: Reach) -> bool {
        let group = dst.is_multicast() && reach == Reach::Single;
        is_no_host(src)
            || src.is_multicast()
            || is_no_host(dst)
            || group
            || self.own_v6.contains(&src)
    }
}

/// `::`, `::1`, and IPv4 addresses in disguise (`::ffff:a.b.c.d`, and the obsolete `::a.b.c.d`).
#[inline]
fn is_no_host(addr: Ipv6Addr) -> bool {
    addr.to_bits() >> 48 == 0
}
