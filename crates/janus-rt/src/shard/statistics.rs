//! Statistics of a core's loop: how many turns, how many of them for something, how long it worked and slept, how
//! much came at a time.

use std::cell::Cell;
use std::time::Duration;

use janus_tcp::Instant;

/// Classes of batches by size: none, 1, 2 and 3, 4 to 7, and so on; the last is open.
pub const BATCH_CLASSES: usize = 9;

/// Since the start of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopReport {
    /// Turns of the loop.
    pub turns: u64,
    /// Of these, such in which something moved.
    pub working_turns: u64,
    /// Time in those.
    pub busy: Duration,
    /// The longest of them.
    pub longest_turn: Duration,
    /// Time asleep. The rest of the time, neither busy nor asleep, it looked for work.
    pub asleep: Duration,
    /// Times it slept.
    pub sleeps: u64,
    /// Packets taken in.
    pub packets: u64,
    /// Turns by how many packets they took: none, 1, 2 and 3, 4 to 7, and so on, the last class 128 and more.
    pub batches: [u64; BATCH_CLASSES],
    /// Turns in which more tasks were ready than packets may wait for: the rest had its turn in the next.
    pub task_budget_used_up: u64,
}

/// The same while it grows: a cell for each, as a turn changes few.
#[derive(Default)]
pub(crate) struct LoopStatistics {
    turns: Cell<u64>,
    working_turns: Cell<u64>,
    busy: Cell<Duration>,
    longest_turn: Cell<Duration>,
    asleep: Cell<Duration>,
    sleeps: Cell<u64>,
    packets: Cell<u64>,
    batches: [Cell<u64>; BATCH_CLASSES],
    task_budget_used_up: Cell<u64>,
    /// When the turn before this one began, if anything moved in it.
    began: Cell<Option<Instant>>,
}

impl LoopStatistics {
    /// A turn begins: by that the one before has ended.
    #[inline]
    pub(super) fn turn(&self, now: Instant) {
        self.ends(now);
        add(&self.turns, 1);
    }

    #[inline]
    fn ends(&self, now: Instant) {
        let Some(began) = self.began.take() else {
            return;
        };
        let took = now.saturating_since(began);
        self.busy.set(self.busy.get() + took);
        if took > self.longest_turn.get() {
            self.longest_turn.set(took);
        }
    }

    /// Something moved in the turn that began at `now`.
    #[inline]
    pub(super) fn worked(&self, now: Instant) {
        self.began.set(Some(now));
        add(&self.working_turns, 1);
    }

    /// A batch came; an empty one too.
    #[inline]
    pub(super) fn took(&self, packets: usize) {
        let class = (usize::BITS - packets.leading_zeros()) as usize;
        add(&self.batches[class.min(BATCH_CLASSES - 1)], 1);
        add(&self.packets, packets as u64);
    }

    #[inline]
    pub(super) fn budget_used_up(&self) {
        add(&self.task_budget_used_up, 1);
    }

    /// It slept from `before` to `after`.
    pub(crate) fn slept(&self, before: Instant, after: Instant) {
        self.ends(before);
        let slept = after.saturating_since(before);
        self.asleep.set(self.asleep.get() + slept);
        add(&self.sleeps, 1);
    }

    pub(crate) fn report(&self) -> LoopReport {
        LoopReport {
            turns: self.turns.get(),
            working_turns: self.working_turns.get(),
            busy: self.busy.get(),
            longest_turn: self.longest_turn.get(),
            asleep: self.asleep.get(),
            sleeps: self.sleeps.get(),
            packets: self.packets.get(),
            batches: std::array::from_fn(|class| self.batches[class].get()),
            task_budget_used_up: self.task_budget_used_up.get(),
        }
    }
}

#[inline]
fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_work_or_to_sleep_or_to_neither() {
        let at = Instant::from_millis;
        let ms = Duration::from_millis;
        let statistics = LoopStatistics::default();
        statistics.turn(at(10));
        statistics.took(3);
        statistics.worked(at(10));
        statistics.turn(at(14));
        statistics.took(200);
        statistics.worked(at(14));
        // Five turns in vain, then a sleep.
        for turn in 0..5 {
            statistics.turn(at(15 + turn));
            statistics.took(0);
        }
        statistics.slept(at(20), at(50));
        statistics.turn(at(50));
        let report = statistics.report();
        assert_eq!((report.turns, report.working_turns), (8, 2));
        assert_eq!((report.busy, report.longest_turn), (ms(5), ms(4)));
        assert_eq!((report.asleep, report.sleeps), (ms(30), 1));
        assert_eq!(report.packets, 203);
        assert_eq!(report.batches, [5, 0, 1, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_turn_that_goes_to_sleep_ends_there() {
        let at = Instant::from_millis;
        let statistics = LoopStatistics::default();
        statistics.turn(at(10));
        statistics.worked(at(10));
        statistics.slept(at(12), at(1000));
        statistics.turn(at(1000));
        let report = statistics.report();
        assert_eq!(report.busy, Duration::from_millis(2));
        assert_eq!(report.longest_turn, Duration::from_millis(2));
    }
}
