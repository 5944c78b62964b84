//! Janus: an async runtime that brings its own TCP stack.
//! One copy of `main` runs on every TCP core; each core's loop takes packets, runs TCP, polls the futures that
//! became ready and sends what they wrote. This file only names the rooms of the crate.
// The rooms are being joined; this line goes when the shard loop calls them.
#![allow(dead_code, unused_imports)]

mod clock;
mod config;
mod control;
mod inbox;
mod portal;
mod task;
pub mod time;

pub use config::{CORES_MAX, ConfigError, Placement};
pub use task::{JoinError, JoinHandle, spawn, yield_now};
