//! Janus: an async runtime that brings its own TCP stack.
//! One copy of `main` runs on every TCP core; each core's loop takes packets, runs TCP, polls the futures that
//! became ready and sends what they wrote. This file only names the rooms of the crate.

// Parts of the task room are read by its tests only, while it is being finished.
#![allow(dead_code, unused_imports)]

mod clock;
mod config;
mod control;
mod inbox;
pub mod net;
mod portal;
mod runtime;
mod shard;
mod task;
pub mod time;

pub use janus_macros::{main, test};

pub use config::{CORES_MAX, ConfigError, Placement};
pub use runtime::{
    BackendChoice, BoxError, Builder, CoreReport, Handle, MainResult, Result, Runtime, core_id,
    cores, handle, once, report,
};
pub use shard::ForwardCounters;
pub use task::{JoinError, JoinHandle, spawn, yield_now};
