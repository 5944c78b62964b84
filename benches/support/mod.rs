//! What the benchmarks share: the report writer, the reader of memory figures, the kernel's interfaces and its sockets, and the far end of
//! the wire (the load generator). No benchmark's own procedure lives here.

// Each benchmark is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod busy;
pub mod clock;
pub mod connects;
pub mod engine;
pub mod far;
pub mod fleet;
pub mod kernel;
pub mod link;
pub mod memory;
pub mod meter;
pub mod plot;
pub mod report;
pub mod scale;
pub mod served;
pub mod side;
pub mod stages;
pub mod stream;
pub mod thread_time;
pub mod valgrind;
pub mod witness;

pub use scale::Scale;
