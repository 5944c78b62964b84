//! Janus: an async runtime that brings its own TCP stack.
//! One copy of `main` runs on every TCP core; each core's loop takes packets, runs TCP, polls the futures that
//! became ready and sends what they wrote. This file only names the rooms of the crate.

pub mod balance;
mod clock;
pub mod compat;
mod config;
mod control;
mod dhcp;
mod inbox;
#[cfg(test)]
mod lockstep;
pub mod net;
pub mod policy;
mod portal;
mod runtime;
mod shard;
pub mod signal;
mod task;
pub mod time;
mod warning;

/// ```no_run
/// # async fn serve(stream: janus::net::TcpStream, peer: std::net::SocketAddr) {}
/// #[janus::main]
/// async fn main() -> janus::Result<()> {
///     let listener = janus::net::TcpListener::bind("0.0.0.0:80").await?;
///     loop {
///         let (stream, peer) = listener.accept().await?;
///         janus::spawn(async move { serve(stream, peer).await });
///     }
/// }
/// ```
///
/// What cannot work is refused where it stands, with what would be right:
///
/// ```compile_fail
/// #[janus::main] // needs an `async fn`
/// fn main() {}
/// ```
///
/// ```compile_fail
/// #[janus::main] // takes a function without arguments
/// async fn main(port: u16) {}
/// ```
///
/// ```compile_fail
/// #[janus::main(cores = 0)] // `cores` is 1 to 256, or "auto"
/// async fn main() {}
/// ```
///
/// ```compile_fail
/// #[janus::main(threads = 4)] // unknown option
/// async fn main() {}
/// ```
pub use janus_macros::main;

/// ```
/// # use std::time::Duration;
/// #[janus::test(cores = 2)]
/// async fn two_cores_sleep() {
///     janus::time::sleep(Duration::from_millis(1)).await;
/// }
/// ```
pub use janus_macros::test;

pub use config::{CORES_MAX, ConfigError, Effective, Origin, Placement};
pub use dhcp::Lease;
pub use janus_io::Batching;
pub use janus_io::impair::{FaultCounters, Faults, WayCounters};
pub use janus_io::xdp::Ports as XdpPorts;
pub use runtime::{
    BackendChoice, BoxError, Builder, CoreReport, Handle, MainResult, Reloaded, Result, Runtime,
    ShuttingDown, core_id, cores, handle, is_shutting_down, once, report, shutting_down,
};
pub use shard::{BATCH_CLASSES, ForwardCounters, LoopReport};
pub use task::blocking::BlockingReport;
pub use task::{
    AbortHandle, JoinError, JoinHandle, JoinSet, Unconstrained, consume_budget, spawn,
    spawn_blocking, spawn_on, unconstrained, yield_now,
};
pub use warning::Warning;
