//! A program that a daemon takes in: addresses and ports are as the daemon says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use janus_io::member::{Member, NAME_MAX, Wishes};
use janus_mem::{Depot, Growth};
use janus_tcp::PortBlock;

use super::device::{self, Device};
use crate::clock::Clock;
use crate::config::{BackendName, ConfigError, DaemonMemory, Settings};
use crate::dhcp::Follower;
use crate::runtime::{BackendChoice, BuildError};

/// Where a daemon is if nothing else is said.
const SOCKET: &str = "/run/janus/io.sock";

/// The daemon's socket, if one is to have the device.
pub(super) fn socket(settings: &Settings, backend: &BackendChoice) -> Option<PathBuf> {
    match (backend, settings.backend) {
        (BackendChoice::Daemon { socket }, _) => Some(socket.clone()),
        (BackendChoice::Auto, BackendName::Daemon) => {
            let named = settings.daemon_socket.as_deref();
            Some(named.unwrap_or(Path::new(SOCKET)).to_owned())
        }
        _ => None,
    }
}

/// Joins the daemon, with buffers in memory that it can map, or that it lends.
pub(super) fn open(
    settings: &Settings,
    socket: &Path,
    growth: &Growth,
    clock: Clock,
) -> Result<(Arc<Depot>, Device), BuildError> {
    let given = &settings.address;
    if given.dhcp || !given.given.is_empty() {
        let problem = "the daemon has the addresses: leave this out, or give it to `janus daemon`";
        return Err(ConfigError::value("address", problem.into()).into());
    }
    if !settings.daemon_ports.is_power_of_two() {
        let problem = "a power of two, please: 256, 512, 1024 …";
        return Err(ConfigError::value("daemon_ports", problem.into()).into());
    }
    let group = settings.daemon_group.clone();
    if (group.as_ref()).is_some_and(|it| !(1..=NAME_MAX).contains(&it.len())) {
        let problem = format!("a name of at most {NAME_MAX} bytes, please");
        return Err(ConfigError::value("daemon_group", problem).into());
    }
    let wishes = Wishes {
        name: program(),
        group: group.unwrap_or_default(),
        ports: settings.daemon_ports,
        queues: settings.queues(),
        buffers: settings.packet_buffers,
        borrows: settings.daemon_memory == DaemonMemory::Shared,
        permit: settings.permit.clone(),
    };
    let joined = Member::join(socket, &wishes, growth);
    let member = joined.map_err(|error| BuildError::Device(error.into()))?;
    let (depot, (first, count)) = (member.depot(), member.welcome().ports);
    let (network, ports) = (member.network(), member.ports());
    let carrier = member.welcome().device;
    let opened = device::open_outside(settings, clock, Box::new(member));
    let mut device = opened.map_err(BuildError::Device)?;
    if let janus_io::member::Device::Portal(first_port) = carrier {
        device = device::behind_portal(device);
        device.portal_of_daemon = Some(first_port);
    }
    let interface = &mut device.interface;
    device.follower = Some(Follower::new(ports.clone(), network, interface));
    interface.answers = false;
    interface.ports = Some(PortBlock { first, count });
    device.member = Some(ports);
    Ok((depot, device))
}

/// The program's name, for people. What it was called by may have become a title, in which anything may stand.
fn program() -> String {
    let name = std::env::args().next().unwrap_or_default();
    let name = match name.contains(' ') {
        true => std::fs::read_to_string("/proc/self/comm").unwrap_or_default(),
        false => name,
    };
    let name = Path::new(name.trim_end()).file_name().unwrap_or_default();
    format!("{} {}", name.to_string_lossy(), std::process::id())
}
