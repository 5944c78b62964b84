//! Time for tasks: [`sleep`], [`timeout`], [`interval`] and their relatives, over the engine's timing wheel. They read the shard's clock,
//! which is set once a turn, so a test may run it at any speed.

mod interval;
mod paused;
mod sleep;
mod timeout;

#[cfg(test)]
mod tests;

pub use core::time::Duration;
pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use janus_tcp::Instant;
pub use paused::{advance, pause, resume};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};

use crate::task::context;

/// Returns the time of the core's present turn: the time stands still while tasks run, and is equal for all of them.
///
/// # Panics
/// Where no Janus core runs.
pub fn now() -> Instant {
    context::with(|core| core.now()).expect("janus::time was asked where no Janus core runs")
}
