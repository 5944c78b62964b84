//! Ticks at a fixed distance.

use super::{Duration, Instant, Sleep, sleep_until};
use crate::task::context;

/// Ticks every `period`, at once for the first time. A tick that was missed is made up for at once, and those
/// after it keep to the original rhythm.
///
/// # Panics
/// When `period` is zero, or where no Janus core runs.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval's period must not be zero");
    let now = context::with(|core| core.now());
    let now = now.expect("janus::time::interval was called where no Janus core runs");
    Interval {
        period,
        next: now,
        sleep: sleep_until(now),
    }
}

/// See [`interval`].
pub struct Interval {
    period: Duration,
    next: Instant,
    sleep: Sleep,
}

impl Interval {
    /// Waits for the next tick and gives the moment it was meant for.
    pub async fn tick(&mut self) -> Instant {
        (&mut self.sleep).await;
        let tick = self.next;
        self.next = tick + self.period;
        self.sleep.reset(self.next);
        tick
    }
}
