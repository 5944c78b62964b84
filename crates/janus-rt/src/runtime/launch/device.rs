//! Opening the device: what the user chose, the interface that goes with it, and the far end where that is ours too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use janus_io::exception::Ours;
use janus_io::faults::{FaultCounters, FaultyBackend};
use janus_io::member::Ports;
use janus_io::tap::Tap;
use janus_io::trace::{Trace, TracedBackend};
use janus_io::xdp::{self, Xdp};
use janus_io::{Backend, LossesFn, Queue, wire};
use janus_mem::{Depot, Growth};
use janus_tcp::{Config, Interface, IpCidr, Route, Stack};
use janus_wire::Link;

use super::dpdk;
use crate::clock::Clock;
use crate::config::{BackendName, Cidr, ConfigError, KernelAddress, LinkFaults, Settings};
use crate::control::mailbox::ControlMailbox;
use crate::dhcp::Follower;
use crate::losses::BRIDGES_MAX;
use crate::portal::{self, Portal};
use crate::runtime::{BackendChoice, BoxError, BuildError};

/// The address of an interface that was given none: the documentation network (RFC 5737).
const ADDRESS: IpCidr = IpCidr {
    addr: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    prefix: 24,
};
/// The addresses of a runtime without a device.
const LOOPBACK: [IpCidr; 2] = [
    IpCidr {
        addr: IpAddr::V4(Ipv4Addr::LOCALHOST),
        prefix: 8,
    },
    IpCidr {
        addr: IpAddr::V6(Ipv6Addr::LOCALHOST),
        prefix: 128,
    },
];
/// The TAP interface of a configuration that names none.
const TAP_NAME: &str = "janus0";
/// Error of a configuration without an interface.
const NO_INTERFACE: &str = "`backend = \"xdp\"` wants the interface to take packets from in `xdp_interface`; `ip link` lists them";
/// Frames that can wait between two queues of the portal's wire.
const PORTAL_DEPTH: u32 = 1024;
/// On the portal's wire nothing is old: what a TIME-WAIT guards against cannot happen for longer than this.
const PORTAL_TIME_WAIT: Duration = Duration::from_millis(20);

/// Wrappers that the settings put around a device.
struct Opened {
    queues: Vec<Box<dyn Queue>>,
    trace: Option<Trace>,
    faults: Option<Arc<FaultCounters>>,
    losses: Option<Box<LossesFn>>,
}

/// An open device.
pub(super) struct Device {
    pub(super) queues: Vec<Box<dyn Queue>>,
    pub(super) interface: Interface,
    pub(super) portal: Option<Portal>,
    /// The portal is the daemon's: the first port that it offers as it is.
    pub(super) portal_of_daemon: Option<u16>,
    /// Strangers' packets come in here.
    pub(super) leads_outside: bool,
    /// Writes down what passes.
    pub(super) trace: Option<Trace>,
    /// Counts of what a bad link did to it, where the settings ask for one.
    pub(super) faults: Option<Arc<FaultCounters>>,
    /// Reader of what it loses, where it counts that.
    pub(super) losses: Option<Box<LossesFn>>,
    /// The addresses of which it hands over packets, where they may change.
    pub(super) taken: Option<Ours>,
    /// Where to ask for ports, where others have our addresses too.
    pub(super) member: Option<Ports>,
    /// Addresses of a daemon's device, which may change.
    pub(super) follower: Option<Follower>,
}

pub(super) fn open(
    settings: &Settings,
    choice: BackendChoice,
    depot: &Arc<Depot>,
    growth: &Growth,
    steering_key: &[u8; 40],
    clock: Clock,
    mailbox: &Arc<ControlMailbox>,
) -> Result<Device, BuildError> {
    if settings.address.dhcp {
        may_ask(settings, &choice)?;
    }
    let named = |device: Option<_>, hint: &str| device.ok_or_else(|| ConfigError::new(hint.into()));
    let opened = match (choice, settings.backend) {
        (BackendChoice::Portal, _)
        | (BackendChoice::Auto, BackendName::Auto | BackendName::Portal) => {
            open_portal(settings, depot, growth, clock, mailbox)
        }
        (BackendChoice::Tap { name }, _) => {
            let mut tap = Tap::new(name);
            tap.offloads &= !settings.faults.corrupts();
            tap.shared = settings.tap_shared;
            open_outside(settings, clock, Box::new(tap))
        }
        (BackendChoice::Auto, BackendName::Tap) => {
            open_outside(settings, clock, Box::new(configured_tap(settings)))
        }
        (BackendChoice::Dpdk { device }, _) => {
            dpdk::open(settings, &device, depot, steering_key, |backend| {
                open_outside(settings, clock, backend)
            })
        }
        (BackendChoice::Auto, BackendName::Dpdk) => {
            let device = named(settings.dpdk_device.as_deref(), dpdk::NO_DEVICE)?;
            dpdk::open(settings, device, depot, steering_key, |backend| {
                open_outside(settings, clock, backend)
            })
        }
        (BackendChoice::Xdp { interface, ports }, _) => open_outside(
            settings,
            clock,
            on_interface(settings, &interface, &ports, depot),
        ),
        (BackendChoice::Auto, BackendName::Xdp) => {
            let interface = named(settings.xdp_interface.as_deref(), NO_INTERFACE)?;
            let ports = &settings.xdp_ports;
            open_outside(
                settings,
                clock,
                on_interface(settings, interface, ports, depot),
            )
        }
        (BackendChoice::Auto, BackendName::None) => open_none(settings, clock),
        (BackendChoice::Daemon { .. }, _) | (BackendChoice::Auto, BackendName::Daemon) => {
            Err("a daemon's device goes with buffers that it has mapped".into())
        }
        (BackendChoice::Custom(backend), _) => {
            // Only the program knows whether it does; what it brings may be a wire in memory.
            open_outside(settings, clock, backend).map(|device| Device {
                leads_outside: false,
                ..device
            })
        }
        (BackendChoice::BehindPortal(backend), _) => {
            open_outside(settings, clock, backend).map(behind_portal)
        }
    };
    opened.map_err(BuildError::Device)
}

/// A wire without another end.
fn open_none(settings: &Settings, clock: Clock) -> Result<Device, BoxError> {
    let queues = [settings.queues(), 1];
    let (near, far) = wire::pair(wire::Config {
        queues,
        ..wire::Config::default()
    })?;
    // Frames sent there must find a wire for as long as the runtime lives, and that is not known here.
    std::mem::forget(far);
    let mut device = open_outside(settings, clock, Box::new(near))?;
    if settings.address.given.is_empty() {
        device.interface.addresses = LOOPBACK.to_vec();
    }
    device.leads_outside = false;
    Ok(device)
}

/// A device at whose other end a portal is.
pub(super) fn behind_portal(device: Device) -> Device {
    let mut interface = Interface {
        any_local: true,
        ..device.interface
    };
    interface.addresses = LOOPBACK.to_vec();
    Device {
        interface,
        leads_outside: false,
        ..device
    }
}

/// Whether a server can be asked for an address over what is chosen: not where addresses decide what reaches us at all.
fn may_ask(settings: &Settings, choice: &BackendChoice) -> Result<(), ConfigError> {
    let by_name = matches!(choice, BackendChoice::Auto);
    if matches!(choice, BackendChoice::Xdp { .. })
        || by_name && settings.backend == BackendName::Xdp
    {
        let problem = "AF_XDP takes packets for addresses that are known beforehand: name the address instead of `dhcp`";
        return Err(ConfigError::value("address", problem.into()));
    }
    Ok(())
}

/// A device whose far end is not ours, with an interface of its own address.
pub(super) fn open_outside(
    settings: &Settings,
    clock: Clock,
    backend: Box<dyn Backend>,
) -> Result<Device, BoxError> {
    let Opened {
        queues,
        trace,
        faults,
        losses,
    } = open_queues(settings, backend, clock)?;
    let caps = queues
        .first()
        .ok_or("the backend opened without a queue")?
        .caps();
    let interface = Interface {
        link: caps.link,
        mac: caps.mac.unwrap_or_default(),
        addresses: addresses(settings),
        any_local: false,
        gateway: settings.gateway,
        gateway_v6: settings.gateway_v6,
        routes: routes(settings),
        tx_checksum: caps.tx_checksum,
        rx_checksum: caps.rx_checksum,
        ..Interface::ip(caps.mtu)
    };
    Ok(Device {
        queues,
        interface,
        portal: None,
        portal_of_daemon: None,
        leads_outside: true,
        trace,
        faults,
        losses,
        taken: None,
        member: None,
        follower: None,
    })
}

/// As many queues as are polled, with the trace of what passes the device and the faults behind it, where they are wanted.
fn open_queues(
    settings: &Settings,
    mut backend: Box<dyn Backend>,
    clock: Clock,
) -> Result<Opened, BoxError> {
    let trace = settings.trace.as_deref().map(Trace::create).transpose()?;
    if let Some(trace) = &trace {
        trace.set_filter(settings.trace_filter.clone());
        backend = Box::new(TracedBackend::new(backend, trace.clone()));
    }
    let mut faults = None;
    if !settings.faults.is_none() {
        let LinkFaults { received, sent } = settings.faults;
        let mut faulty = FaultyBackend::new(backend, received).with_sent(sent);
        if clock.jumps().is_some() {
            // A sleeping core lets the time jump over frames under way; with a clock of its own it does not.
            let real = clock.outside();
            faulty = faulty.with_clock(Arc::new(move || real.now().as_nanos()));
        }
        faults = Some(faulty.counters());
        backend = Box::new(faulty);
    }
    Ok(Opened {
        losses: backend.losses(),
        queues: backend.open(settings.queues())?,
        trace,
        faults,
    })
}

fn routes(settings: &Settings) -> Vec<Route> {
    let given = settings.route.iter();
    given
        .map(|via| Route::new(via.to.network(), via.gateway))
        .collect()
}

pub(super) fn addresses(settings: &Settings) -> Vec<IpCidr> {
    let given = settings.address.given.iter().copied().map(Cidr::network);
    let mut addresses: Vec<IpCidr> = given.collect();
    if addresses.is_empty() && !settings.address.dhcp {
        addresses.push(ADDRESS);
    }
    addresses
}

/// The TAP device the configuration describes. Its kernel side gets an address too, so that two settings make a server
/// that the machine itself can reach, unless `tap_kernel_address = "none"` says that somebody else sets it up.
fn configured_tap(settings: &Settings) -> Tap {
    let name = settings.tap_name.as_deref().unwrap_or(TAP_NAME);
    let mut tap = Tap::new(name);
    // A device that fills in checksums would make good again what is spoilt on the way.
    tap.offloads = settings.tap_offloads && !settings.faults.corrupts();
    tap.shared = settings.tap_shared;
    let kernel = match settings.tap_kernel_address {
        None => {
            let near = addresses(settings).into_iter().find_map(neighbor);
            let mut given = settings.address.given.iter().map(|own| own.address());
            if let (None, Some(alone)) = (near, given.find(IpAddr::is_ipv4)) {
                eprintln!(
                    "janus: no network of {alone} has room for the kernel's side of {name}: give `address` its prefix length, \
                     as in 192.0.2.1/24, or set up the interface and say so by `tap_kernel_address = \"none\"`"
                );
            }
            near
        }
        Some(KernelAddress::Given(addr, prefix)) => Some((addr, prefix)),
        Some(KernelAddress::None) => None,
    };
    match kernel {
        Some((addr, prefix)) => tap.with_kernel_address(addr, prefix),
        None => tap,
    }
}

/// The AF_XDP device on an interface: packets for our addresses, received into our buffers.
fn on_interface(
    settings: &Settings,
    interface: &str,
    ports: &xdp::Ports,
    depot: &Arc<Depot>,
) -> Box<Xdp> {
    let xdp = Xdp::new(interface, depot.clone()).with_mode(settings.xdp_mode);
    let own = addresses(settings).into_iter().map(|own| own.addr);
    let xdp = own.fold(xdp, Xdp::with_address);
    let xdp = ports.tcp.iter().cloned().fold(xdp, Xdp::with_ports);
    Box::new(ports.udp.iter().cloned().fold(xdp, Xdp::with_udp_ports))
}

/// The first address of an IPv4 network that is not our own; none where the network has no room for two.
fn neighbor(own: IpCidr) -> Option<(Ipv4Addr, u8)> {
    let IpAddr::V4(addr) = own.addr else {
        return None;
    };
    let room = 32_u32.checked_sub(u32::from(own.prefix))?;
    if !(2..32).contains(&room) {
        return None;
    }
    let network = addr.to_bits() & (u32::MAX << room);
    let near = [network + 1, network + 2]
        .map(Ipv4Addr::from_bits)
        .into_iter()
        .find(|near| *near != addr)?;
    Some((near, own.prefix))
}

fn open_portal(
    settings: &Settings,
    depot: &Arc<Depot>,
    growth: &Growth,
    clock: Clock,
    mailbox: &Arc<ControlMailbox>,
) -> Result<Device, BoxError> {
    let config = wire::Config {
        link: Link::Ip,
        depth: PORTAL_DEPTH,
        queues: [settings.queues(), 1],
        // Each packet costs much and its bytes little.
        mtu: wire::MAX_MTU,
        ..wire::Config::default()
    };
    let mtu = config.mtu;
    let (near, far) = wire::pair(config)?;
    let interface = Interface {
        addresses: LOOPBACK.to_vec(),
        ..Interface::ip(mtu)
    };
    let bridges = BRIDGES_MAX as u32;
    let mut tcp = Config {
        max_connections: bridges,
        max_hot: bridges,
        max_time_wait: bridges,
        time_wait: PORTAL_TIME_WAIT,
        ..Config::default()
    };
    portal::answers_all(&mut tcp, bridges);
    // Another seed than the server's: the two stacks know nothing of each other.
    let (secrets, _) = super::secrets::secrets(settings.seed.map(|seed| !seed))?;
    let stack = Stack::new(tcp, interface.clone(), secrets, depot.pool(), growth)?;
    let inner = portal::Inner {
        queues: Box::new(far).open(1)?,
        stack,
        pool: depot.pool(),
        clock: clock.outside(),
        reach: settings.portal_reach.clone(),
        mailbox: mailbox.clone(),
    };
    let opened = open_queues(settings, Box::new(near), clock)?;
    Ok(Device {
        queues: opened.queues,
        interface,
        portal: Some(Portal::start(inner, settings.portal_listen.clone())?),
        portal_of_daemon: None,
        leads_outside: false,
        trace: opened.trace,
        faults: opened.faults,
        losses: opened.losses,
        taken: None,
        member: None,
        follower: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_the_first_neighbor() {
        let near = |text: &str| {
            neighbor(text.parse::<Cidr>().unwrap().network()).map(|(near, _)| near.to_string())
        };
        assert_eq!(near("192.0.2.1/24").as_deref(), Some("192.0.2.2"));
        assert_eq!(near("192.0.2.7/24").as_deref(), Some("192.0.2.1"));
        assert_eq!(near("192.0.2.1/32"), None);
        assert_eq!(near("192.0.2.1/31"), None);
        assert_eq!(near("2001:db8::1/64"), None);
    }
}
