//! Where packets for other networks go: a few static routes beside the gateway of each family. The longest prefix wins,
//! the networks of our own addresses among them. Which hardware address a neighbour has is `neighbor`'s affair.

use std::net::IpAddr;

use crate::rules::interface::{Interface, IpCidr};

/// Routes that are looked at; a server has none or a handful, and they are searched one by one.
pub const ROUTES_MAX: usize = 64;

/// A way to a network that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network.
    pub to: IpCidr,
    /// The neighbour that knows the way, of the same family.
    pub gateway: IpAddr,
}

impl Route {
    /// A way to `to` through `gateway`.
    pub fn new(to: IpCidr, gateway: impl Into<IpAddr>) -> Route {
        let gateway = gateway.into();
        Route { to, gateway }
    }
}

impl Interface {
    /// The next hop towards `peer` when there are routes; `None` when neither they nor our networks lead there.
    pub(crate) fn routed_hop(&self, peer: IpAddr) -> Option<IpAddr> {
        if self.is_own(peer) {
            return Some(peer);
        }
        let own = self.addresses.iter().filter(|own| own.contains(peer));
        let near = own.map(|own| own.prefix).max();
        let routes = self.routes.iter().take(ROUTES_MAX);
        let fits =
            |route: &&Route| route.to.contains(peer) && route.gateway.is_ipv4() == peer.is_ipv4();
        // Of equals the first.
        let best = routes
            .filter(fits)
            .rev()
            .max_by_key(|route| route.to.prefix);
        match (near, best) {
            (Some(near), Some(best)) if best.to.prefix > near => Some(best.gateway),
            (Some(_), _) => Some(peer),
            (None, best) => best.map(|best| best.gateway),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn cidr(text: &str) -> IpCidr {
        let (addr, prefix) = text.split_once('/').unwrap();
        IpCidr::new(ip(addr), prefix.parse().unwrap())
    }

    fn interface() -> Interface {
        Interface {
            any_local: false,
            addresses: vec![
                cidr("192.0.2.2/24"),
                cidr("198.51.100.2/25"),
                cidr("2001:db8::2/64"),
            ],
            gateway: Some(Ipv4Addr::new(192, 0, 2, 1)),
            gateway_v6: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
            ..Interface::ip(1_500)
        }
    }

    #[test]
    fn the_longest_prefix_wins_and_the_first_of_equals() {
        let mut interface = interface();
        interface.routes = vec![
            Route::new(cidr("10.0.0.0/8"), ip("192.0.2.10")),
            Route::new(cidr("10.1.0.0/16"), ip("198.51.100.11")),
            Route::new(cidr("10.1.0.0/16"), ip("192.0.2.99")),
            Route::new(cidr("192.0.2.128/25"), ip("198.51.100.12")),
            Route::new(cidr("2001:db8:1::/48"), ip("2001:db8::10")),
            // Of two families: no way at all.
            Route::new(cidr("10.9.0.0/16"), ip("2001:db8::10")),
        ];
        for (peer, hop) in [
            ("10.2.3.4", "192.0.2.10"),
            ("10.1.3.4", "198.51.100.11"),
            ("10.9.3.4", "192.0.2.10"),
            // More special than our own network; our own network; the gateway.
            ("192.0.2.200", "198.51.100.12"),
            ("192.0.2.100", "192.0.2.100"),
            ("203.0.113.1", "192.0.2.1"),
            ("2001:db8:1::5", "2001:db8::10"),
            ("2001:db8::5", "2001:db8::5"),
            ("2001:db8:2::5", "2001:db8::1"),
            ("fe80::5", "fe80::5"),
        ] {
            assert_eq!(interface.next_hop(ip(peer)), ip(hop), "to {peer}");
        }
        (interface.gateway, interface.routes) = (None, Vec::new());
        assert_eq!(interface.next_hop(ip("203.0.113.1")), ip("203.0.113.1"));
    }

    #[test]
    fn the_source_is_an_address_that_the_next_hop_knows() {
        let mut interface = interface();
        interface.routes = vec![Route::new(cidr("10.1.0.0/16"), ip("198.51.100.11"))];
        for (peer, source) in [
            ("192.0.2.77", "192.0.2.2"),
            ("198.51.100.7", "198.51.100.2"),
            ("10.1.2.3", "198.51.100.2"),
            ("203.0.113.1", "192.0.2.2"),
            ("2001:db8:7::1", "2001:db8::2"),
        ] {
            assert_eq!(
                interface.source_for(ip(peer)),
                Some(ip(source)),
                "to {peer}"
            );
        }
        interface.gateway = Some(Ipv4Addr::new(198, 51, 100, 1));
        let source = interface.source_for(ip("203.0.113.1"));
        assert_eq!(source, Some(ip("198.51.100.2")));
    }
}
