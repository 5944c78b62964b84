//! Opening the device: what the user chose, the interface that goes with it, and the far end where that is ours too.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use janus_io::{Backend, Queue, wire};
use janus_mem::{Depot, Growth};
use janus_tcp::{Config, Interface, Ipv4Cidr, Stack};
use janus_wire::Link;

use crate::clock::Clock;
use crate::config::{BackendName, Cidr, Settings};
use crate::portal::{self, Portal};
use crate::runtime::{BackendChoice, BoxError};

/// The address of an interface that was given none: the documentation network (RFC 5737).
const ADDRESS: Cidr = Cidr {
    address: Ipv4Addr::new(192, 0, 2, 1),
    prefix: 24,
};
/// Frames that can wait between two queues of the portal's wire.
const PORTAL_DEPTH: u32 = 1024;
/// On the portal's wire nothing is old: what a TIME-WAIT guards against cannot happen for longer than this.
const PORTAL_TIME_WAIT: Duration = Duration::from_millis(20);

/// An open device.
pub(super) struct Device {
    pub(super) queues: Vec<Box<dyn Queue>>,
    pub(super) interface: Interface,
    pub(super) portal: Option<Portal>,
}

pub(super) fn open(
    settings: &Settings,
    choice: BackendChoice,
    depot: &Arc<Depot>,
    growth: &Growth,
    clock: Clock,
) -> Result<Device, BoxError> {
    match (choice, settings.backend) {
        (BackendChoice::Portal, _)
        | (BackendChoice::Auto, BackendName::Auto | BackendName::Portal) => {
            open_portal(settings, depot, growth, clock)
        }
        (BackendChoice::Tap { name }, _) => open_tap(settings, name),
        (BackendChoice::Auto, BackendName::Tap) => {
            let name = settings.tap_name.clone().unwrap_or_else(|| "janus0".into());
            open_tap(settings, name)
        }
        (BackendChoice::Custom(backend), _) => open_backend(settings, backend),
    }
}

fn open_backend(settings: &Settings, backend: Box<dyn Backend>) -> Result<Device, BoxError> {
    let queues = backend.open(settings.queues())?;
    let caps = queues
        .first()
        .ok_or("the backend opened without a queue")?
        .caps();
    let mut addresses: Vec<Ipv4Cidr> = settings.addresses.iter().copied().map(cidr).collect();
    if addresses.is_empty() {
        addresses.push(cidr(ADDRESS));
    }
    let interface = Interface {
        link: caps.link,
        mac: caps.mac.unwrap_or_default(),
        addresses,
        any_local: false,
        gateway: settings.gateway,
        tx_checksum: caps.tx_checksum,
        rx_checksum: caps.rx_checksum,
        ..Interface::ip(caps.mtu)
    };
    Ok(Device {
        queues,
        interface,
        portal: None,
    })
}

fn open_tap(_settings: &Settings, _name: String) -> Result<Device, BoxError> {
    Err("TAP is not there yet".into())
}

fn open_portal(
    settings: &Settings,
    depot: &Arc<Depot>,
    growth: &Growth,
    clock: Clock,
) -> Result<Device, BoxError> {
    let config = wire::Config {
        link: Link::Ip,
        depth: PORTAL_DEPTH,
        queues: [settings.queues(), 1],
        ..wire::Config::default()
    };
    let mtu = config.mtu;
    let (near, far) = wire::pair(config)?;
    let interface = Interface {
        addresses: vec![Ipv4Cidr {
            addr: Ipv4Addr::LOCALHOST,
            prefix: 8,
        }],
        ..Interface::ip(mtu)
    };
    let bridges = portal::BRIDGES_MAX as u32;
    let tcp = Config {
        max_connections: bridges,
        max_hot: bridges,
        max_half_open: 1,
        max_time_wait: bridges,
        time_wait: PORTAL_TIME_WAIT,
        ..Config::default()
    };
    // Another seed than the server's: the two stacks know nothing of each other.
    let secrets = super::seed::secrets(settings.seed.map(|seed| !seed))?;
    let stack = Stack::new(tcp, interface.clone(), secrets, depot.pool(), growth)?;
    let inner = portal::Inner {
        queues: Box::new(far).open(1)?,
        stack,
        pool: depot.pool(),
        clock,
    };
    Ok(Device {
        queues: Box::new(near).open(settings.queues())?,
        interface,
        portal: Some(Portal::start(inner)?),
    })
}

fn cidr(cidr: Cidr) -> Ipv4Cidr {
    Ipv4Cidr {
        addr: cidr.address,
        prefix: cidr.prefix,
    }
}
