//! Settings of a runtime: defaults, then `janus.toml`, then `JANUS_*` variables, then the builder. One table names every key
//! for all three; nothing here opens a device or starts a thread.

mod addresses;
mod effective;
mod error;
mod impair;
mod keys;
mod live;
mod policy;
mod shown;
mod source;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use janus_io::filter::Filter;
use janus_io::{Batching, xdp};
use janus_tcp::BufferSizes;

use crate::control::watch::PolicyName;
use crate::portal::{Listen, Reach};

pub(crate) use effective::Said;
pub use effective::{Effective, Origin};
pub use error::ConfigError;
use impair::ImpairPartial;
pub(crate) use impair::Impairment;
pub(crate) use keys::{Cidr, DHCP, Via};
pub(crate) use live::Live;
use policy::{PolicyPartial, PolicySettings};
pub(crate) use source::{from_environment, from_file};

/// Most shards one runtime may have: a [`janus_csb::ShardId`] is one byte and one value is kept free.
pub const CORES_MAX: usize = 255;

/// With fewer, what threads and devices have in stock would leave none for packets.
const PACKET_BUFFERS_MIN: u32 = 1024;

/// Between two looks of a balancing policy.
const BALANCE_INTERVAL: Duration = Duration::from_millis(100);

/// Threads for blocking calls, at most. They wait rather than work, so there may be more of them than processors.
const BLOCKING_THREADS: usize = 256;

/// Four times what fits a slot of the tasks' arena: such a future costs more than its connection.
const WARN_FUTURE_BYTES: usize = 16 * 1024;
/// Packets that came meanwhile have filled their ring by then.
const WARN_BLOCKED: Duration = Duration::from_millis(100);

/// How long a DHCP server is waited for before the start is given up.
const DHCP_WAIT: Duration = Duration::from_secs(30);

/// How long connections may go on when a signal ends the runtime, if nothing says so: with `drain_ms` less than the ten seconds
/// after which container engines lose patience.
const SHUTDOWN: Duration = Duration::from_secs(8);

/// Cores that poll the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Every shard polls a queue of its own and hands its neighbours what belongs to them.
    Combined,
    /// Dedicated I/O cores poll the queues; shards only see rings.
    Split {
        /// How many I/O cores, each with one queue.
        io_cores: usize,
    },
}

/// A backend that configuration can name. Backends that are values come through the builder only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendName {
    Auto,
    Portal,
    Tap,
    Dpdk,
    Xdp,
}

/// The kernel's own address on a TAP interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelAddress {
    /// The first address of our network that is not ours.
    Neighbour,
    Given(Ipv4Addr, u8),
    /// The interface is configured by other means.
    None,
}

/// Settings of one source; `None` where it was silent. Later sources win field by field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partial {
    /// File and environment, word by word, in order: of two the later counts.
    pub(crate) said: Vec<Said>,
    pub(crate) cores: Option<usize>,
    /// Where the cores run, one for each; said together with `cores`.
    pub(crate) processors: Option<Vec<usize>>,
    pub(crate) placement: Option<PlacementName>,
    pub(crate) io_cores: Option<usize>,
    pub(crate) backend: Option<BackendName>,
    pub(crate) tap_name: Option<String>,
    pub(crate) tap_kernel_address: Option<KernelAddress>,
    pub(crate) tap_offloads: Option<bool>,
    pub(crate) tap_shared: Option<bool>,
    pub(crate) dpdk_device: Option<String>,
    pub(crate) dpdk_eal: Option<Vec<String>>,
    pub(crate) dpdk_exception: Option<String>,
    pub(crate) dpdk_sleep: Option<Duration>,
    pub(crate) xdp_interface: Option<String>,
    pub(crate) xdp_ports: Option<xdp::Ports>,
    pub(crate) xdp_mode: Option<xdp::Mode>,
    pub(crate) addresses: Option<Vec<Cidr>>,
    pub(crate) dhcp: Option<bool>,
    pub(crate) dhcp_wait: Option<Duration>,
    pub(crate) dhcp_file: Option<PathBuf>,
    pub(crate) gateway: Option<Ipv4Addr>,
    pub(crate) gateway_v6: Option<Ipv6Addr>,
    pub(crate) routes: Option<Vec<Via>>,
    pub(crate) name_servers: Option<Vec<SocketAddr>>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) trace_filter: Option<Filter>,
    pub(crate) seed: Option<u64>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) receive_buffer: Option<u32>,
    pub(crate) receive_buffer_max: Option<u32>,
    pub(crate) send_buffer: Option<u32>,
    pub(crate) send_buffer_max: Option<u32>,
    pub(crate) packet_buffers: Option<u32>,
    pub(crate) batch: Option<Batching>,
    pub(crate) backlog: Option<usize>,
    pub(crate) blocking_threads: Option<usize>,
    pub(crate) warn_future_bytes: Option<usize>,
    pub(crate) warn_blocked: Option<Duration>,
    pub(crate) drain: Option<Duration>,
    pub(crate) balance: Option<PolicyName>,
    pub(crate) balance_interval: Option<Duration>,
    pub(crate) owner_bits: Option<bool>,
    pub(crate) tokio: Option<bool>,
    pub(crate) policy: PolicyPartial,
    pub(crate) impair: ImpairPartial,
    pub(crate) portal_reach: Option<Reach>,
    pub(crate) portal_listen: Option<Listen>,
    pub(crate) signals: Option<bool>,
    pub(crate) shutdown: Option<Duration>,
    pub(crate) admin: Option<SocketAddr>,
}

/// `placement = "…"` before the number of I/O cores is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementName {
    Combined,
    Split,
}

impl Partial {
    /// Lays `over` on top of `self`.
    pub(crate) fn overlay(self, over: Partial) -> Partial {
        // Destructured whole: a new field does not compile until it is laid over too.
        let Partial {
            said,
            cores,
            processors,
            placement,
            io_cores,
            backend,
            tap_name,
            tap_kernel_address,
            tap_offloads,
            tap_shared,
            dpdk_device,
            dpdk_eal,
            dpdk_exception,
            dpdk_sleep,
            xdp_interface,
            xdp_ports,
            xdp_mode,
            addresses,
            dhcp,
            dhcp_wait,
            dhcp_file,
            gateway,
            gateway_v6,
            routes,
            name_servers,
            trace,
            trace_filter,
            seed,
            max_connections,
            receive_buffer,
            receive_buffer_max,
            send_buffer,
            send_buffer_max,
            packet_buffers,
            batch,
            backlog,
            blocking_threads,
            warn_future_bytes,
            warn_blocked,
            drain,
            balance,
            balance_interval,
            owner_bits,
            tokio,
            policy,
            impair,
            portal_reach,
            portal_listen,
            signals,
            shutdown,
            admin,
        } = over;
        Partial {
            said: [self.said, said].concat(),
            // The source that sets the number also sets the processors, or leaves them open.
            processors: match cores {
                Some(_) => processors,
                None => self.processors,
            },
            cores: cores.or(self.cores),
            placement: placement.or(self.placement),
            io_cores: io_cores.or(self.io_cores),
            backend: backend.or(self.backend),
            tap_name: tap_name.or(self.tap_name),
            tap_kernel_address: tap_kernel_address.or(self.tap_kernel_address),
            tap_offloads: tap_offloads.or(self.tap_offloads),
            tap_shared: tap_shared.or(self.tap_shared),
            dpdk_device: dpdk_device.or(self.dpdk_device),
            dpdk_eal: dpdk_eal.or(self.dpdk_eal),
            dpdk_exception: dpdk_exception.or(self.dpdk_exception),
            dpdk_sleep: dpdk_sleep.or(self.dpdk_sleep),
            xdp_interface: xdp_interface.or(self.xdp_interface),
            xdp_ports: xdp_ports.or(self.xdp_ports),
            xdp_mode: xdp_mode.or(self.xdp_mode),
            addresses: addresses.or(self.addresses),
            dhcp: dhcp.or(self.dhcp),
            dhcp_wait: dhcp_wait.or(self.dhcp_wait),
            dhcp_file: dhcp_file.or(self.dhcp_file),
            gateway: gateway.or(self.gateway),
            gateway_v6: gateway_v6.or(self.gateway_v6),
            routes: routes.or(self.routes),
            name_servers: name_servers.or(self.name_servers),
            trace: trace.or(self.trace),
            trace_filter: trace_filter.or(self.trace_filter),
            seed: seed.or(self.seed),
            max_connections: max_connections.or(self.max_connections),
            receive_buffer: receive_buffer.or(self.receive_buffer),
            receive_buffer_max: receive_buffer_max.or(self.receive_buffer_max),
            send_buffer: send_buffer.or(self.send_buffer),
            send_buffer_max: send_buffer_max.or(self.send_buffer_max),
            packet_buffers: packet_buffers.or(self.packet_buffers),
            batch: batch.or(self.batch),
            backlog: backlog.or(self.backlog),
            blocking_threads: blocking_threads.or(self.blocking_threads),
            warn_future_bytes: warn_future_bytes.or(self.warn_future_bytes),
            warn_blocked: warn_blocked.or(self.warn_blocked),
            drain: drain.or(self.drain),
            balance: balance.or(self.balance),
            balance_interval: balance_interval.or(self.balance_interval),
            owner_bits: owner_bits.or(self.owner_bits),
            tokio: tokio.or(self.tokio),
            policy: self.policy.overlay(policy),
            impair: self.impair.overlay(impair),
            portal_reach: portal_reach.or(self.portal_reach),
            portal_listen: portal_listen.or(self.portal_listen),
            signals: signals.or(self.signals),
            shutdown: shutdown.or(self.shutdown),
            admin: admin.or(self.admin),
        }
    }

    /// Fills the silent fields with defaults and checks what only makes sense together.
    pub(crate) fn resolve(self) -> Result<Settings, ConfigError> {
        let processors = processors();
        let cores = self.cores.unwrap_or_else(|| processors.min(CORES_MAX));
        if cores == 0 || cores > CORES_MAX {
            return Err(ConfigError::value(
                "cores",
                format!("{cores} is not between 1 and {CORES_MAX}"),
            ));
        }
        let placement = match (self.placement, self.io_cores) {
            (Some(PlacementName::Split), io_cores) => Placement::Split {
                io_cores: io_cores.unwrap_or(1),
            },
            (Some(PlacementName::Combined), Some(_)) => {
                return Err(ConfigError::value(
                    "io_cores",
                    "only `placement = \"split\"` has I/O cores".into(),
                ));
            }
            (None, Some(io_cores)) => Placement::Split { io_cores },
            (Some(PlacementName::Combined) | None, None) => Placement::Combined,
        };
        if let Placement::Split { io_cores } = placement
            && (io_cores == 0 || io_cores > CORES_MAX)
        {
            return Err(ConfigError::value(
                "io_cores",
                format!("{io_cores} is not between 1 and {CORES_MAX}"),
            ));
        }
        if let Some(few) = self.packet_buffers.filter(|few| *few < PACKET_BUFFERS_MIN) {
            let problem = format!(
                "{few} is too few for cores that keep some in stock: {PACKET_BUFFERS_MIN} or more"
            );
            return Err(ConfigError::value("packet_buffers", problem));
        }
        if self.blocking_threads == Some(0) {
            let problem = "must be 1 at least".into();
            return Err(ConfigError::value("blocking_threads", problem));
        }
        // Where it can be, it is unless told otherwise: who asks for the feature has code that needs it.
        if self.tokio == Some(true) && !cfg!(feature = "tokio") {
            let problem =
                "this program has no tokio in it: build it with the feature `tokio` of janus-rt";
            return Err(ConfigError::value("tokio", problem.into()));
        }
        if self.trace_filter.is_some() && self.trace.is_none() {
            let problem = "means something only with a file in `trace`";
            return Err(ConfigError::value("trace_filter", problem.into()));
        }
        let threads = match placement {
            Placement::Combined => cores,
            Placement::Split { io_cores } => cores + io_cores,
        };
        let settings = Settings {
            cores,
            on: self.processors,
            placement,
            backend: self.backend.unwrap_or(BackendName::Auto),
            tap_name: self.tap_name,
            tap_kernel_address: self.tap_kernel_address.unwrap_or(KernelAddress::Neighbour),
            tap_offloads: self.tap_offloads.unwrap_or(true),
            tap_shared: self.tap_shared.unwrap_or(false),
            dpdk_device: self.dpdk_device,
            dpdk_eal: self.dpdk_eal.unwrap_or_default(),
            dpdk_exception: self.dpdk_exception,
            dpdk_sleep: self.dpdk_sleep,
            xdp_interface: self.xdp_interface,
            xdp_ports: self.xdp_ports.unwrap_or_default(),
            xdp_mode: self.xdp_mode.unwrap_or_default(),
            addresses: self.addresses.unwrap_or_default(),
            dhcp: self.dhcp.unwrap_or(false),
            dhcp_wait: self.dhcp_wait.unwrap_or(DHCP_WAIT),
            dhcp_file: self.dhcp_file,
            gateway: self.gateway,
            gateway_v6: self.gateway_v6,
            routes: self.routes.unwrap_or_default(),
            name_servers: self.name_servers.unwrap_or_default(),
            trace: self.trace,
            trace_filter: self.trace_filter,
            seed: self.seed,
            max_connections: self.max_connections,
            receive_buffer: self.receive_buffer,
            receive_buffer_max: self.receive_buffer_max,
            send_buffer: self.send_buffer,
            send_buffer_max: self.send_buffer_max,
            packet_buffers: self.packet_buffers.unwrap_or(64 * 1024),
            batch: self.batch.unwrap_or_default(),
            backlog: self.backlog.unwrap_or(1024),
            blocking_threads: self.blocking_threads.unwrap_or(BLOCKING_THREADS),
            warn_future_bytes: self.warn_future_bytes.unwrap_or(WARN_FUTURE_BYTES),
            warn_blocked: self.warn_blocked.unwrap_or(WARN_BLOCKED),
            drain: self.drain.unwrap_or(Duration::from_millis(500)),
            balance: self.balance.unwrap_or_default(),
            balance_interval: self.balance_interval.unwrap_or(BALANCE_INTERVAL),
            owner_bits: self.owner_bits.unwrap_or(false),
            #[cfg(feature = "tokio")]
            tokio: self.tokio.unwrap_or(true),
            policy: self.policy.resolve()?,
            impair: self.impair.resolve()?,
            portal_reach: self.portal_reach.unwrap_or_default(),
            portal_listen: self.portal_listen.unwrap_or_default(),
            signals: self.signals.unwrap_or(true),
            shutdown: self.shutdown.unwrap_or(SHUTDOWN),
            admin: self.admin,
            pin: threads <= processors && threads > 1,
        };
        addresses::check(&settings)?;
        Ok(settings)
    }
}

/// Everything decided.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) cores: usize,
    /// The processor of each core, if it was said.
    pub(crate) on: Option<Vec<usize>>,
    pub(crate) placement: Placement,
    pub(crate) backend: BackendName,
    pub(crate) tap_name: Option<String>,
    pub(crate) tap_kernel_address: KernelAddress,
    pub(crate) tap_offloads: bool,
    pub(crate) tap_shared: bool,
    pub(crate) dpdk_device: Option<String>,
    pub(crate) dpdk_eal: Vec<String>,
    pub(crate) dpdk_exception: Option<String>,
    pub(crate) dpdk_sleep: Option<Duration>,
    pub(crate) xdp_interface: Option<String>,
    pub(crate) xdp_ports: xdp::Ports,
    pub(crate) xdp_mode: xdp::Mode,
    pub(crate) addresses: Vec<Cidr>,
    pub(crate) dhcp: bool,
    pub(crate) dhcp_wait: Duration,
    pub(crate) dhcp_file: Option<PathBuf>,
    pub(crate) gateway: Option<Ipv4Addr>,
    pub(crate) gateway_v6: Option<Ipv6Addr>,
    pub(crate) routes: Vec<Via>,
    pub(crate) name_servers: Vec<SocketAddr>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) trace_filter: Option<Filter>,
    pub(crate) seed: Option<u64>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) receive_buffer: Option<u32>,
    pub(crate) receive_buffer_max: Option<u32>,
    pub(crate) send_buffer: Option<u32>,
    pub(crate) send_buffer_max: Option<u32>,
    pub(crate) packet_buffers: u32,
    pub(crate) batch: Batching,
    pub(crate) backlog: usize,
    pub(crate) blocking_threads: usize,
    /// 0: never.
    pub(crate) warn_future_bytes: usize,
    /// Zero: never.
    pub(crate) warn_blocked: Duration,
    pub(crate) drain: Duration,
    pub(crate) balance: PolicyName,
    pub(crate) balance_interval: Duration,
    pub(crate) owner_bits: bool,
    #[cfg(feature = "tokio")]
    pub(crate) tokio: bool,
    pub(crate) policy: PolicySettings,
    pub(crate) impair: Impairment,
    pub(crate) portal_reach: Reach,
    pub(crate) portal_listen: Listen,
    pub(crate) signals: bool,
    pub(crate) shutdown: Duration,
    /// Address of the admin port; `None`: there is none.
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) pin: bool,
}

impl Settings {
    /// What connections may hold whose options say nothing of it; where these settings say nothing either, the usual.
    pub(crate) fn buffers(&self, usual: BufferSizes) -> BufferSizes {
        BufferSizes {
            receive: self.receive_buffer.unwrap_or(usual.receive),
            receive_max: self.receive_buffer_max.unwrap_or(usual.receive_max),
            send: self.send_buffer.unwrap_or(usual.send),
            send_max: self.send_buffer_max.unwrap_or(usual.send_max),
        }
    }

    /// How many queues the backend is asked for.
    pub(crate) fn queues(&self) -> usize {
        match self.placement {
            Placement::Combined => self.cores,
            Placement::Split { io_cores } => io_cores,
        }
    }
}

/// Processors this process may run on.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
