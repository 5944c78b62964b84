//! How packets get in and out: rings and inboxes between cores, packet backends, the I/O core loop.
//!
//! Everything moves in bursts of up to [`BURST`] frames, and a frame is a 16-byte handle: nothing here touches more of a
//! packet than its header lines. A full queue is a counted drop, never a wait. This crate knows the wire's formats, the
//! buffers and the steering; it knows nothing of TCP and of tasks.

mod batch;
#[cfg(not(loom))]
mod counter;
pub mod mpsc;
pub mod park;
#[cfg(not(loom))]
mod queue;
pub mod ring;
mod sync;
#[cfg(all(test, not(loom)))]
mod testing;
#[cfg(not(loom))]
pub mod wire;

pub use batch::{BURST, Burst, Pull};
#[cfg(not(loom))]
pub use counter::Counter;
#[cfg(not(loom))]
pub use queue::{Backend, Batch, Caps, Queue};
