//! Changed addresses on their way to the cores, whether a lease of our own has changed or the device is a daemon's that says so; and the
//! addresses as other threads see them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, MutexGuard};

use janus_io::member::{Network, Ports};
use janus_tcp::{Addressing, Interface, IpCidr, ROUTES_MAX, Route};

use super::lease::Lease;
use crate::inbox::Inbox;
use crate::lock::Lock;
use crate::shard::core_context;

/// Records a core visits before it goes on with its packets, when an address is gone.
const SLICE: usize = 4096;

/// State shared with other threads.
#[derive(Clone, Default)]
pub(crate) struct Shown(Arc<Lock<Known>>);

#[derive(Default)]
struct Known {
    lease: Option<Lease>,
    /// Told with the lease, or by the daemon.
    name_servers: Vec<IpAddr>,
    addressing: Option<Addressing>,
}

impl Shown {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }

    /// Returns the lease now held.
    pub(crate) fn lease(&self) -> Option<Lease> {
        self.known().lease.clone()
    }

    /// Returns the name servers that belong to the addresses, at this port.
    pub(crate) fn name_servers(&self, port: u16) -> Vec<SocketAddr> {
        let servers = &self.known().name_servers;
        let at = |ip: &IpAddr| SocketAddr::new(*ip, port);
        servers.iter().map(at).collect()
    }

    /// Returns the addressing that all cores use, or are about to, where it may change.
    pub(crate) fn addressing(&self) -> Option<Addressing> {
        self.known().addressing.clone()
    }

    pub(super) fn set(&self, lease: Option<Lease>, addressing: Addressing) {
        let servers = lease.iter().flat_map(|lease| &lease.name_servers);
        *self.known() = Known {
            name_servers: servers.copied().map(IpAddr::V4).collect(),
            lease,
            addressing: Some(addressing),
        };
    }

    fn set_told(&self, name_servers: &[IpAddr], addressing: Addressing) {
        *self.known() = Known {
            name_servers: name_servers.to_vec(),
            lease: None,
            addressing: Some(addressing),
        };
    }
}

/// The addresses of a daemon's device, and what the settings say besides.
pub(crate) struct Follower {
    ports: Ports,
    base: Base,
    network: Network,
    shown: Shown,
}

/// Settings that hold whatever the daemon says.
struct Base {
    interface: Interface,
    mtu: u16,
}

impl Base {
    /// Returns the addressing with what the daemon says, which goes before.
    fn addressing(&self, network: &Network) -> Addressing {
        let of = |(addr, prefix): (IpAddr, u8)| IpCidr { addr, prefix };
        let Interface {
            mut gateway,
            mut gateway_v6,
            mut routes,
            ..
        } = self.interface.clone();
        for router in &network.gateways {
            match router {
                IpAddr::V4(router) => gateway = Some(*router),
                IpAddr::V6(router) => gateway_v6 = Some(*router),
            }
        }
        let room = ROUTES_MAX.saturating_sub(routes.len());
        let told = network.routes.iter().take(room);
        routes.extend(told.map(|(to, prefix, via)| Route::new(of((*to, *prefix)), *via)));
        Addressing {
            addresses: network.addresses.iter().copied().map(of).collect(),
            gateway,
            gateway_v6,
            routes,
            mtu: match network.mtu {
                0 => self.mtu,
                mtu => mtu.min(self.mtu),
            },
        }
    }
}

impl Follower {
    /// Gives `interface` the addresses that the daemon's device has now.
    pub(crate) fn new(ports: Ports, network: Network, interface: &mut Interface) -> Follower {
        let base = Base {
            mtu: interface.mtu,
            interface: interface.clone(),
        };
        let addressing = base.addressing(&network);
        let shown = Shown::default();
        shown.set_told(&network.name_servers, addressing.clone());
        interface.addresses = addressing.addresses;
        (interface.gateway, interface.gateway_v6) = (addressing.gateway, addressing.gateway_v6);
        (interface.routes, interface.mtu) = (addressing.routes, addressing.mtu);
        Follower {
            ports,
            base,
            network,
            shown,
        }
    }

    pub(crate) fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Has later changes sent to these inboxes.
    pub(crate) fn begin(self, inboxes: Vec<Arc<Inbox>>) {
        let Follower {
            ports,
            base,
            network,
            shown,
        } = self;
        let mut applied = base.addressing(&network);
        let learns = move |network: &Network| {
            let wanted = base.addressing(network);
            shown.set_told(&network.name_servers, wanted.clone());
            if wanted == applied {
                return;
            }
            if wanted.addresses != applied.addresses {
                say(&wanted.addresses);
            }
            tell(&inboxes, &wanted);
            applied = wanted;
        };
        ports.follow(&network, Box::new(learns));
    }
}

/// Printed, since no configuration contains the addresses.
fn say(addresses: &[IpCidr]) {
    let all: Vec<_> = addresses.iter().map(|own| own.addr.to_string()).collect();
    match all.as_slice() {
        [] => eprintln!("janus: the daemon's device has no address any more"),
        _ => eprintln!("janus: the daemon's device has {} now", all.join(", ")),
    }
}

/// Has the cores of these inboxes take over a changed addressing.
pub(super) fn tell(inboxes: &[Arc<Inbox>], wanted: &Addressing) {
    for inbox in inboxes {
        let wanted = wanted.clone();
        // Fails only for a core that has ended.
        let _ = inbox.run(Box::new(move || readdress(wanted)));
    }
}

fn ips(addresses: &[IpCidr]) -> Vec<IpAddr> {
    addresses.iter().map(|own| own.addr).collect()
}

/// Sets this core's addresses, and what the polling cores take for such.
fn readdress(wanted: Addressing) {
    core_context::with(|ctx| {
        let mut stack = ctx.stack.borrow_mut();
        let before = ips(&stack.interface().addresses);
        ctx.shared.ingress.admission.change(|rules| {
            // The user may have set others, or another core these.
            if rules.own == before {
                rules.own = ips(&wanted.addresses);
            }
        });
        stack.readdress(wanted);
    });
    end_homeless(0);
}

/// Ends connections of this core whose address is gone, a slice at a time, between which packets are handled.
fn end_homeless(cursor: u64) {
    core_context::with(|ctx| {
        let mut cursor = Some(cursor);
        while let Some(from) = cursor {
            cursor = ctx.on_stack(|stack, now| stack.end_homeless(now, from, SLICE));
            if let Some(next) = cursor
                && ctx.inbox.run(Box::new(move || end_homeless(next))).is_ok()
            {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_says_goes_before_and_routes_add_up() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let route = |text: &str, via: &str| {
            let (addr, prefix) = (ip(text), 24);
            Route::new(IpCidr { addr, prefix }, ip(via))
        };
        let own = route("203.0.113.0", "192.0.2.9");
        let base = Base {
            interface: Interface {
                gateway: Some("192.0.2.1".parse().unwrap()),
                gateway_v6: Some("fe80::1".parse().unwrap()),
                routes: vec![own],
                ..Interface::ip(1500)
            },
            mtu: 1500,
        };
        let mut network = Network {
            addresses: vec![(ip("192.0.2.77"), 24)],
            gateways: vec![ip("192.0.2.254")],
            routes: vec![(ip("198.51.100.0"), 24, ip("192.0.2.7"))],
            mtu: 1400,
            ..Network::default()
        };
        let all = base.addressing(&network);
        assert_eq!(all.addresses, [IpCidr::new([192, 0, 2, 77], 24)]);
        assert_eq!(all.gateway, Some("192.0.2.254".parse().unwrap()));
        assert_eq!(all.gateway_v6, base.interface.gateway_v6);
        assert_eq!(all.routes, [own, route("198.51.100.0", "192.0.2.7")]);
        assert_eq!(all.mtu, 1400);
        network.mtu = 9000;
        assert_eq!(base.addressing(&network).mtu, 1500, "the device's");
        network.mtu = 0;
        assert_eq!(base.addressing(&network).mtu, 1500, "no other");
        let none = base.addressing(&Network::default());
        assert!(none.addresses.is_empty());
        assert_eq!(none.gateway, base.interface.gateway);
    }
}
