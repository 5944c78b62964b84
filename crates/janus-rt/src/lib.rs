//! An async runtime that brings its own TCP stack.
//!
//! One copy of `main` runs on every TCP core; each core's loop takes packets, runs TCP, polls the futures that
//! became ready and sends what they wrote. A connection, its task and its timers live on one core, so a future need not be
//! `Send`, and nothing on the way of a packet takes a lock.
//!
//! ```no_run
//! use janus::net::{TcpListener, TcpStream};
//!
//! #[janus::main]
//! async fn main() -> janus::Result<()> {
//!     let listener = TcpListener::bind("0.0.0.0:7007").await?;
//!     janus::once(|| println!("listening on {}", listener.reachable_at()));
//!     loop {
//!         let (stream, _peer) = listener.accept().await?;
//!         janus::spawn(echo(stream));
//!     }
//! }
//!
//! async fn echo(stream: TcpStream) -> std::io::Result<()> {
//!     loop {
//!         // Sent from the packet buffer it arrived in. An idle connection holds no buffer.
//!         let Some(piece) = stream.recv().await? else { return Ok(()) };
//!         stream.send_buf(piece).await?;
//!     }
//! }
//! ```
//!
//! Runs without any privilege: where nothing is configured, the port is offered on 127.0.0.1 (see [`BackendChoice`]). An error
//! or a panic in any copy of `main` ends the program.
//!
//! # Where things are
//!
//! | for | there is |
//! |---|---|
//! | connections, datagrams, names | [`net`], with the names that tokio has for them |
//! | waiting | [`time`], [`signal`] |
//! | tasks on this core | [`spawn`], [`JoinSet`], [`yield_now`] |
//! | tasks elsewhere | [`spawn_on`] a core, [`spawn_blocking`] for calls that block |
//! | which core this is, code that runs once although `main` runs on all | [`core_id`], [`cores`], [`once()`] |
//! | a runtime built by hand, several in a process | [`Runtime::builder`], [`Builder`] |
//! | shutdown, changes at run time, from any thread | [`Handle`], [`handle`], [`shutting_down`]; signals: [`Builder::signals`]
//! |
//! | how cores share connections, packet rules, counters | [`balance`], [`admission`], [`report`](report()), [`metrics`] |
//! | tests, also with a clock that jumps | [`test`](macro@test) |
//! | hyper, tower, tokio | [`compat`]; an HTTP server of Janus's own is the crate `janus-http` |
//!
//! # Configuration
//!
//! Settings that the program does not give are read from `janus.toml` in the working directory and from `JANUS_*` variables:
//! the device, its addresses, how many cores, bounds, a trace. `docs/configuration.md` in the repository has every key; `janus
//! config` prints the settings in force, and `janus doctor` the capabilities of the machine.
//!
//! # Features
//!
//! None is on by default. `futures-io`, `tokio-io`, `hyper` and `tower` implement those crates' traits for streams and timers;
//! `tokio` lets code that needs tokio's runtime run in tasks; `tonic` lets its server accept streams; `tracing` turns warnings
//! into events ([`Warning`]); `dpdk` (linked) and `dpdk-dlopen` (loaded) bring the DPDK backend.
#![warn(missing_debug_implementations)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Janus runs on Linux only: its backends are the Linux kernel's TAP, AF_XDP and sockets, and DPDK."
);
// This file only lists the modules of the crate.

mod admin;
pub mod admission;
pub mod balance;
mod clock;
pub mod compat;
mod config;
mod control;
mod debug;
mod dhcp;
#[cfg(doctest)]
mod documents;
mod inbox;
mod lock;
#[cfg(any(test, feature = "lockstep"))]
#[doc(hidden)]
pub mod lockstep;
mod losses;
pub mod metrics;
pub mod net;
mod portal;
mod runtime;
mod shard;
pub mod signal;
mod spawn;
mod task;
pub mod time;
mod warning;

/// Makes an `async fn main` the main of a Janus runtime.
///
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
/// Wrong uses are compile errors, with a message that says what would be right:
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

/// Makes an `async fn` a test on a Janus runtime of its own.
///
/// ```
/// # use std::time::Duration;
/// #[janus::test(cores = 2)]
/// async fn two_cores_sleep() {
///     janus::time::sleep(Duration::from_millis(1)).await;
/// }
/// ```
pub use janus_macros::test;

pub use config::{
    CORES_MAX, Cidr, ConfigError, DaemonMemory, Effective, Origin, Placement, manual,
};
pub use control::supervisor::Supervisor;
pub use dhcp::Lease;
pub use janus_io::faults::{FaultCounters, Faults, WayCounters};
pub use janus_io::member::Permit;
pub use janus_io::wire;
pub use janus_io::xdp::Ports as XdpPorts;
pub use janus_io::{Backend, Batching, DeviceLosses, ParseError};
pub use janus_mem::DepotStats;
pub use janus_tcp::{Addressing, Config as TcpConfig, Counters as TcpCounters, MemoryReport};
pub use losses::ShortageReport;
pub use portal::{Portal, PortalListen, PortalReach};
pub use runtime::{
    BackendChoice, BoxError, BuildError, Builder, Handle, Leases, MainResult, OpenDevice, Places,
    Reloaded, Result, Runtime, Seat, SeatCrew, Seats, ShuttingDown, core_id, cores, exit_code,
    handle, is_shutting_down, once, shutting_down,
};
pub use shard::{BATCH_CLASSES, CoreReport, ForwardCounters, LoopReport, OfferCounters, report};
pub use spawn::{MoveTo, move_to, spawn_blocking, spawn_movable, spawn_on};
pub use task::blocking::BlockingReport;
pub use task::{
    AbortHandle, JoinError, JoinHandle, JoinSet, Unconstrained, consume_budget, spawn,
    unconstrained, yield_now,
};
pub use warning::Warning;
