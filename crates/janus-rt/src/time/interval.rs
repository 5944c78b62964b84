//! Ticks at a fixed distance.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Duration, Instant, Sleep, now, sleep_until};

/// A tick that comes later than this after its moment was missed; the chosen behavior decides what follows.
const LATE: Duration = Duration::from_millis(5);

/// Ticks every `period`, at once for the first time. Ticks that were missed are made up for at once, and those after
/// them keep to the original rhythm, unless another [`MissedTickBehavior`] is chosen.
///
/// # Panics
/// When `period` is zero, or where no Janus core runs.
pub fn interval(period: Duration) -> Interval {
    interval_at(now(), period)
}

/// [`interval`], the first tick of which is at `start`.
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
pub enum MissedTickBehavior {
    /// They are made up for at once, one after the other; the rhythm stays.
    #[default]
    Burst,
    /// They are left out, and a new rhythm begins with the late one.
    Delay,
    /// They are left out; the rhythm stays.
    Skip,
}

impl MissedTickBehavior {
    /// When the tick after the one for `meant` is, which came at `came`.
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
pub struct Interval {
    period: Duration,
    missed: MissedTickBehavior,
    next: Instant,
    sleep: Sleep,
}

impl Interval {
    /// Waits for the next tick and gives the moment it was meant for. Dropped before, it loses none.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// The poll of [`tick`](Interval::tick).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let tick = self.next;
        self.restart(self.missed.next(tick, now(), self.period));
        Poll::Ready(tick)
    }

    /// The next tick is one period from now.
    pub fn reset(&mut self) {
        self.restart(now() + self.period);
    }

    /// The next tick is now.
    pub fn reset_immediately(&mut self) {
        self.restart(now());
    }

    /// The next tick is so long from now.
    pub fn reset_after(&mut self, after: Duration) {
        self.restart(now() + after);
    }

    /// The next tick is at `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.restart(deadline);
    }

    fn restart(&mut self, next: Instant) {
        self.next = next;
        self.sleep.reset(next);
    }

    /// The time from tick to tick.
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
            // A little late is in time.
            assert_eq!(next(behavior, 105), at(110), "{behavior:?}");
        }
        assert_eq!(next(MissedTickBehavior::Burst, 137), at(110));
        assert_eq!(next(MissedTickBehavior::Delay, 137), at(147));
        assert_eq!(next(MissedTickBehavior::Skip, 137), at(140));
        assert_eq!(next(MissedTickBehavior::Skip, 140), at(150));
    }
}
