//! Times that connections wait to be accepted. Kept in ticks of about a microsecond, which wrap after 73 minutes: whoever waits longer is
//! overdue a little later once more.

use std::time::Duration;

use crate::time::Instant;

/// Nanoseconds of a tick, as a power of two.
const TICK_SHIFT: u32 = 10;
/// Bounds of the time after which a connection is overdue: 100 us and 5 ms.
const PATIENCE: (u32, u32) = (100_000 >> TICK_SHIFT, 5_000_000 >> TICK_SHIFT);

#[inline(always)]
pub(super) fn tick(now: Instant) -> u32 {
    (now.as_nanos() >> TICK_SHIFT) as u32
}

pub(super) fn time(ticks: u32) -> Duration {
    Duration::from_nanos(u64::from(ticks) << TICK_SHIFT)
}

/// Times that connections of a stack wait to be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcceptDelays {
    /// The median, about.
    pub median: Duration,
    /// Twice that, within 100 us and 5 ms: a connection that waits longer is overdue.
    pub patience: Duration,
    /// That of the connection that was accepted last.
    pub last: Duration,
    /// Connections that were accepted when they were overdue.
    pub late: u64,
}

#[derive(Default)]
pub(super) struct Delays {
    /// The median of the last, which it nears in small steps.
    median: u32,
    /// The last.
    last: u32,
    late: u64,
}

impl Delays {
    /// A connection was accepted that had waited so many ticks.
    #[inline(always)]
    pub(super) fn accepted(&mut self, waited: u32) {
        self.last = waited;
        if waited != self.median {
            self.step(waited);
        }
    }

    #[inline(never)]
    fn step(&mut self, waited: u32) {
        self.late += u64::from(waited >= self.patience());
        let step = 1 + self.median / 16;
        self.median = match waited > self.median {
            true => self.median.saturating_add(step),
            false => self.median - step.min(self.median),
        };
    }

    pub(super) fn patience(&self) -> u32 {
        let (least, most) = PATIENCE;
        self.median.saturating_mul(2).clamp(least, most)
    }

    pub(super) fn seen(&self) -> AcceptDelays {
        AcceptDelays {
            median: time(self.median),
            patience: time(self.patience()),
            last: time(self.last),
            late: self.late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_found_and_patience_is_bounded() {
        let mut delays = Delays::default();
        assert_eq!(delays.seen().patience, time(PATIENCE.0));
        // Two of three take a millisecond, one takes eighty.
        for round in 0..3_000 {
            delays.accepted(if round % 3 == 0 { 80_000 } else { 1_000 });
        }
        let seen = delays.seen();
        let near = Duration::from_micros(700)..Duration::from_micros(2_000);
        assert!(near.contains(&seen.median), "{seen:?}");
        assert_eq!(seen.patience, 2 * seen.median);
        assert!(seen.late >= 900, "{seen:?}");
        (0..100).for_each(|_| delays.accepted(u32::MAX));
        assert_eq!(delays.seen().patience, time(PATIENCE.1));
    }
}
