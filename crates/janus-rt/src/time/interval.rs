//! Ticks at fixed intervals.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Duration, Instant, Sleep, now, sleep_until};

/// A tick that comes later than this after its moment was missed; the chosen behavior decides what follows.
const LATE: Duration = Duration::from_millis(5);

/// Ticks every `period`, the first time at once. Missed ticks are made up for at once, and later ones keep the original rhythm, unless
/// another [`MissedTickBehavior`] is chosen.
///
/// ```
/// use janus::time::{Duration, interval, now};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let mut ticks = interval(Duration::from_millis(2));
/// let first = ticks.tick().await;
/// assert_eq!(ticks.tick().await, first + Duration::from_millis(2));
/// assert!(now() >= first + Duration::from_millis(2));
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When `period` is zero, or when no Janus core runs on this thread.
pub fn interval(period: Duration) -> Interval {
    interval_at(now(), period)
}

/// Like [`interval`], but with the first tick at `start`.
///
/// ```
/// use janus::time::{Duration, interval_at, now};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let start = now() + Duration::from_millis(1);
/// let mut ticks = interval_at(start, Duration::from_millis(2));
/// assert_eq!(ticks.tick().await, start);
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When `period` is zero.
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval's period must not be zero");
    Interval {
        period,
        missed: MissedTickBehavior::Burst,
        next: start,
        sleep: sleep_until(start),
    }
}

/// Treatment of ticks that came too late, because no task waited for them or the core was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTickBehavior {
    /// Missed ticks are made up for at once, one after the other; the rhythm is kept.
    #[default]
    Burst,
    /// Missed ticks are left out, and a new rhythm begins with the late one.
    Delay,
    /// Missed ticks are left out; the rhythm is kept.
    Skip,
}

impl MissedTickBehavior {
    /// Returns the moment of the tick after the one that was due at `meant` and came at `came`.
    fn next(self, meant: Instant, came: Instant, period: Duration) -> Instant {
        let late = came.saturating_since(meant);
        if late <= LATE {
            return meant + period;
        }
        match self {
            MissedTickBehavior::Burst => meant + period,
            MissedTickBehavior::Delay => came + period,
            MissedTickBehavior::Skip => {
                let period_ns = period.as_nanos();
                let into_ns = late.as_nanos() % period_ns;
                let left = u64::try_from(period_ns - into_ns).unwrap_or(u64::MAX);
                came + Duration::from_nanos(left)
            }
        }
    }
}

/// See [`interval`].
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    missed: MissedTickBehavior,
    next: Instant,
    sleep: Sleep,
}

impl Interval {
    /// Waits for the next tick and returns the moment at which it was due.
    ///
    /// # Cancel safety
    /// No tick is lost when the future is dropped.
    ///
    /// # Panics
    /// When no Janus core runs on this thread.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick, as [`tick`](Interval::tick) does.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let tick = self.next;
        self.restart(self.missed.next(tick, now(), self.period));
        Poll::Ready(tick)
    }

    /// Sets the next tick to one period from now.
    pub fn reset(&mut self) {
        self.restart(now() + self.period);
    }

    /// Sets the next tick to now.
    pub fn reset_immediately(&mut self) {
        self.restart(now());
    }

    /// Sets the next tick to `after` from now.
    pub fn reset_after(&mut self, after: Duration) {
        self.restart(now() + after);
    }

    /// Sets the next tick to `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.restart(deadline);
    }

    fn restart(&mut self, next: Instant) {
        self.next = next;
        self.sleep.reset(next);
    }

    /// Returns the time from tick to tick.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns how ticks that came too late are treated.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets how ticks that came too late are treated.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_tick_is_followed_as_chosen() {
        let at = Instant::from_millis;
        let period = Duration::from_millis(10);
        let next = |behavior: MissedTickBehavior, came| behavior.next(at(100), at(came), period);
        for behavior in [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ] {
            // A little late counts as in time.
            assert_eq!(next(behavior, 105), at(110), "{behavior:?}");
        }
        assert_eq!(next(MissedTickBehavior::Burst, 137), at(110));
        assert_eq!(next(MissedTickBehavior::Delay, 137), at(147));
        assert_eq!(next(MissedTickBehavior::Skip, 137), at(140));
        assert_eq!(next(MissedTickBehavior::Skip, 140), at(150));
    }
}
