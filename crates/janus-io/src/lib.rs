//! How packets get in and out: rings and inboxes between cores, packet backends, the I/O core loop.
//!
//! Everything moves in bursts of up to [`BURST`] frames, and a frame is a 16-byte handle: nothing here touches more of a
//! packet than its header lines. A full queue is a counted drop, never a wait. This crate knows the wire's formats, the
//! buffers and the steering; it knows nothing of TCP and of tasks.

mod batch;
pub mod mpsc;
pub mod park;
pub mod ring;
mod sync;

pub use batch::{BURST, Burst, Pull};

#[cfg(not(loom))]
pub mod aside;
#[cfg(not(loom))]
mod batching;
#[cfg(not(loom))]
mod core_loop;
#[cfg(not(loom))]
mod counter;
#[cfg(not(loom))]
mod dispatch;
#[cfg(all(feature = "_dpdk", not(loom)))]
pub mod dpdk;
#[cfg(not(loom))]
pub mod exception;
#[cfg(not(loom))]
pub mod filter;
#[cfg(not(loom))]
mod idle;
#[cfg(not(loom))]
pub mod impair;
#[cfg(not(loom))]
mod large;
#[cfg(not(loom))]
pub mod machine;
#[cfg(not(loom))]
pub mod policy;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod sound;
#[cfg(not(loom))]
pub mod steer;
#[cfg(not(loom))]
pub mod tap;
#[cfg(all(test, not(loom)))]
mod testing;
#[cfg(not(loom))]
pub mod trace;
#[cfg(not(loom))]
pub mod wire;
#[cfg(not(loom))]
pub mod xdp;

#[cfg(not(loom))]
pub use batching::Batching;
#[cfg(not(loom))]
pub use core_loop::{IoCore, Vigil};
#[cfg(not(loom))]
pub use counter::Counter;
#[cfg(not(loom))]
pub use dispatch::{IoCounters, KEPT_FROM_SYNS};
#[cfg(not(loom))]
pub use idle::Idle;
#[cfg(not(loom))]
pub use port::{Port, RING_DEPTH, combined, split};
#[cfg(not(loom))]
pub use queue::{Backend, Batch, Caps, DeviceLosses, LossesFn, Queue};
