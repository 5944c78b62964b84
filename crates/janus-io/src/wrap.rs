//! Wrappers: a backend around a backend, or a queue around a queue, which passes frames on and does one thing to them on the way. None of
//! them is a device, and none steers.

pub mod aside;
pub mod exception;
pub mod faults;
pub mod filter;
pub mod trace;
