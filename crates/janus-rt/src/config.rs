//! Settings of a runtime: defaults, then `janus.toml`, then `JANUS_*` variables, then the builder. One list declares every key
//! (`keys`); nothing here opens a device or starts a thread.

mod addresses;
mod cidr;
mod declare;
mod effective;
mod error;
mod forms;
mod keys;
mod link_faults;
mod live;
mod manual;
mod place;
mod resolve;
mod source;
#[cfg(test)]
mod tests;
mod values;

pub use cidr::Cidr;
pub(crate) use declare::{Change, Key};
pub use effective::{Effective, Origin};
pub use error::ConfigError;
pub(crate) use keys::{KEYS, Partial, Settings};
pub(crate) use link_faults::LinkFaults;
pub(crate) use live::LiveSettings;
pub use manual::manual;
pub(crate) use place::is_ours;
pub(crate) use source::{from_environment, from_file};
pub(crate) use values::{BackendName, Cores, KernelAddress, PlacementName, Via};
pub use values::{DaemonMemory, SpeculativeAccept};

/// Most shards one runtime may have: a [`janus_csb::ShardId`] is one byte and one value is kept free.
pub const CORES_MAX: usize = 255;

/// Cores that poll the device.
/// Exhaustive: a queue is polled by a shard or by an I/O core.
///
/// ```
/// use janus::{Placement, Runtime};
///
/// let builder = Runtime::builder().ignore_environment().placement(Placement::Split { io_cores: 1 });
/// assert_eq!(builder.effective()?.value("io_cores"), Some("1"));
/// # Ok::<(), janus::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Every shard polls a queue of its own and hands other shards what belongs to them.
    Combined,
    /// Dedicated I/O cores poll the queues; shards only see rings.
    Split {
        /// How many I/O cores, each with one queue.
        io_cores: usize,
    },
}

/// Processors this process may run on.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
