//! Timers that many connections want for one moment: those of connections that were written to in one batch, say. A call
//! serves so many ([`MAX_FIRED`]); the timers of the others are put that much later, a tick for each such number, so that
//! what they send is spread too. RFC 6298 section 5 asks that no retransmission be early, and lets it be late.
//!
//! Only moments that are crowded are spread: the timer of a connection among few fires when it should.

use core::time::Duration;

use crate::store::schedule::MAX_FIRED;
use crate::store::wheel::TICK;
use crate::time::Instant;

/// Moments that are counted at a time, each in the place that its number gives.
const MOMENTS: usize = 64;
/// Part of the wait by which a timer is late at most.
const LATE_PART: u32 = 8;

/// How many timers were armed for each of the moments that were named last.
pub(crate) struct Crowds([(u64, u32); MOMENTS]);

impl Default for Crowds {
    fn default() -> Crowds {
        Crowds([(0, 0); MOMENTS])
    }
}

impl Crowds {
    /// Returns how long after `deadline` a timer armed for it at `now` fires.
    pub(crate) fn delay(&mut self, deadline: Instant, now: Instant) -> Duration {
        let moment = deadline.as_nanos() / TICK.as_nanos() as u64;
        let place = &mut self.0[moment as usize % MOMENTS];
        if place.0 != moment {
            *place = (moment, 0);
        }
        let ahead = place.1 / MAX_FIRED as u32;
        place.1 = place.1.saturating_add(1);
        if ahead == 0 {
            return Duration::ZERO;
        }
        let most = deadline.saturating_since(now) / LATE_PART;
        let ticks = (most.as_nanos() / TICK.as_nanos()) as u32;
        // Those for whom there is no room within the bound share its moments.
        TICK * (ahead % ticks.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_in_time_and_many_are_spread_over_an_eighth_of_the_wait() {
        let (mut crowds, now) = (Crowds::default(), Instant::from_millis(1_000));
        let deadline = now + Duration::from_millis(200);
        for _ in 0..MAX_FIRED {
            assert_eq!(crowds.delay(deadline, now), Duration::ZERO);
        }
        let mut at = std::collections::BTreeMap::<Duration, usize>::new();
        for _ in MAX_FIRED..20_000 {
            *at.entry(crowds.delay(deadline, now)).or_default() += 1;
        }
        let latest = *at.keys().last().expect("some");
        assert!(latest > Duration::from_millis(15) && latest <= Duration::from_millis(25));
        assert!(at.values().all(|&n| n <= MAX_FIRED));
        // More than fit are spread evenly, and none is later.
        for _ in 20_000..100_000 {
            *at.entry(crowds.delay(deadline, now)).or_default() += 1;
        }
        assert!(*at.keys().last().expect("some") <= Duration::from_millis(25));
        assert!(
            at.values()
                .all(|&n| n <= 100_000 / at.len() + 2 * MAX_FIRED)
        );
    }

    #[test]
    fn other_moments_are_not_crowded() {
        let (mut crowds, now) = (Crowds::default(), Instant::from_millis(1_000));
        for i in 0..100_000u32 {
            let deadline = now + Duration::from_millis(200) + TICK * (i / 100);
            assert_eq!(crowds.delay(deadline, now), Duration::ZERO);
        }
    }
}
