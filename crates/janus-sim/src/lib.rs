//! Tests of the stack that need no kernel and no clock: a runner for packetdrill-syntax scripts, and a virtual-time
//! network of hosts with seeded loss, reordering, duplication, corruption, delay and rate.
//!
//! A run that fails names its seed and the file with its packets: `JANUS_SEED=17 cargo test -p janus-sim NAME` takes
//! exactly the same course again, `JANUS_SEED=0..20000` runs many.
//! What never lives here: anything a program needs at run time.

#![forbid(unsafe_code)]

pub mod goodput;
pub mod hostile;
pub mod net;
pub mod run;
pub mod script;
pub mod segment;
