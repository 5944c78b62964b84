//! How packets get in and out: rings and inboxes between cores, packet backends, the I/O core loop.
//!
//! Everything moves in bursts of up to [`BURST`] frames, and a frame is a 16-byte handle: nothing here touches more of a
//! packet than its header lines. A full queue is a counted drop, never a wait. This crate knows the wire's formats, the
//! buffers and the steering; it knows nothing of TCP and of tasks.
#![warn(missing_debug_implementations)]

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
mod sync;

pub use batch::{BURST, Burst, Pull};

#[cfg(not(loom))]
mod backend;
#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
mod counter;
#[cfg(not(loom))]
pub mod machine;
#[cfg(not(loom))]
mod parse_error;
#[cfg(not(loom))]
mod queue;
#[cfg(all(test, not(loom)))]
mod testing;
#[cfg(not(loom))]
mod wrap;

#[cfg(not(loom))]
pub use {
    crate::core::{
        batching::Batching,
        core_loop::{IoCore, SleepObserver},
        dispatch::{IoCounters, KEPT_FROM_SYNS},
        idle::Idle,
        policy,
        port::{Port, RING_DEPTH, combined, split},
        steer,
    },
    backend::{tap, wire, xdp},
    counter::Counter,
    parse_error::ParseError,
    queue::{Backend, Batch, Caps, DeviceLosses, LossesFn, Queue},
    wrap::{aside, exception, faults, filter, trace},
};

#[cfg(all(feature = "_dpdk", not(loom)))]
pub use backend::dpdk;
