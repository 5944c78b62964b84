//! How packets get in and out: rings and inboxes between cores, packet backends, the I/O core loop.
//!
//! Everything moves in bursts of up to [`BURST`] frames, and a frame is a 16-byte handle: nothing here touches more of a
//! packet than its header lines. A full queue is a counted drop, never a wait. This crate knows the wire's formats, the
//! buffers and the steering; it knows nothing of TCP and of tasks.
#![warn(missing_debug_implementations)]
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "janus-io runs on Linux only: its backends are the Linux kernel's TAP, AF_XDP and sockets, and DPDK."
);

// The model checker sees the lock-free parts only.
mod batch;
mod debug;
pub mod mpsc;
pub mod park;
pub mod ring;
#[cfg_attr(loom, path = "sync/model.rs")]
mod sync;

pub use batch::{BURST, Burst, Pull};
#[cfg(not(loom))]
pub use unmodeled::*;

/// All that the model checker does not see, as if it stood in the crate's root.
#[cfg(not(loom))]
#[path = "."]
mod unmodeled {
    pub(crate) mod backend;
    pub(crate) mod core;
    pub(crate) mod counter;
    pub mod machine;
    pub(crate) mod parse_error;
    pub(crate) mod queue;
    #[cfg(test)]
    pub(crate) mod testing;
    pub(crate) mod wrap;

    pub use self::core::{
        batching::Batching,
        core_loop::{IoCore, SleepObserver},
        dispatch::{IoCounters, KEPT_FROM_SYNS},
        idle::Idle,
        policy,
        port::{Port, RING_DEPTH, combined, split},
        steer,
    };
    #[cfg(feature = "_dpdk")]
    pub use backend::dpdk;
    pub use backend::{loans, member, tap, wire, xdp};
    pub use counter::Counter;
    pub use parse_error::ParseError;
    pub use queue::{Backend, Batch, Caps, DeviceLosses, LossesFn, Queue};
    pub use wrap::{aside, exception, faults, filter, trace};
}
