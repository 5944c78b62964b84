//! The devices a runtime can be built on.

use std::path::PathBuf;

use janus_io::Backend;
use janus_io::xdp::Ports;

/// Which device carries the packets.
///
/// ```
/// use janus::{BackendChoice, Runtime, wire};
///
/// let (near, _far) = wire::pair(wire::Config::default())?;
/// let runtime = Runtime::builder()
///     .ignore_environment()
///     .cores(1)
///     .address("192.0.2.1/24".parse()?)
///     .backend(BackendChoice::wire(near))
///     .build()?;
/// # Ok::<(), janus::BoxError>(())
/// ```
#[derive(Default)]
#[non_exhaustive]
pub enum BackendChoice {
    /// What the configuration names, else the portal.
    #[default]
    Auto,
    /// A kernel listener on 127.0.0.1 (or where [`Builder::portal_listen`](crate::Builder::portal_listen) says) for each bound port; needs no
    /// privilege.
    Portal,
    /// A TAP device, whose other end is a network interface of the kernel. Needs `CAP_NET_ADMIN`, or a device that
    /// was made for this user.
    Tap {
        /// The interface's name.
        name: String,
    },
    /// A device that DPDK has a driver for: a virtual one with its arguments (`net_tap0,iface=jt0`) or a place on a bus
    /// (`0000:03:00.0`). Needs the feature `dpdk` or `dpdk-dlopen`.
    Dpdk {
        /// The device.
        device: String,
    },
    /// An interface of this machine whose packets for our addresses the kernel hands over before its own stack sees them
    /// (AF_XDP); all others stay the kernel's. Needs root, or `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_BPF`.
    Xdp {
        /// The interface's name.
        interface: String,
        /// Ports that are ours, such as `"80,53/udp".parse()?`; none: all packets for our addresses are.
        ports: Ports,
    },
    /// The device of a daemon, which other programs share.
    Daemon {
        /// The daemon's socket.
        socket: PathBuf,
    },
    /// A device that the program brings.
    Custom(Box<dyn Backend>),
    /// The inner end of a wire at whose other end another process's [portal](crate::Portal) is, for a program that carries its packets.
    #[doc(hidden)]
    BehindPortal(Box<dyn Backend>),
}

impl BackendChoice {
    /// One end of an in-memory wire.
    pub fn wire(end: janus_io::wire::End) -> BackendChoice {
        BackendChoice::Custom(Box::new(end))
    }
}
