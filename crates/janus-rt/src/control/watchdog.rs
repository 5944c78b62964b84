//! Watches that no task keeps a core for long, and names such a task while it still runs: one that never returns would otherwise never be
//! named. Looks twice in the time that is allowed, seldom while nothing happens anywhere. Only the time counts that the core's thread had a
//! processor for: on an overloaded machine every task takes long, and none is to blame.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::task::{Account, Beat, Pulse};
use crate::warning::{Warning, Warnings};

/// Factor by which looks are rarer while no core takes a turn.
const IDLE: u32 = 20;

/// The watchdog of one runtime.
pub(crate) struct Watchdog {
    cores: Vec<Core>,
    /// Whether one task keeps the core, for each core; read by other threads.
    blocked: Arc<[AtomicBool]>,
    warnings: Arc<Warnings>,
    /// Longest time a task may keep its core; zero: no limit.
    limit: Duration,
    next: Instant,
}

struct Core {
    pulse: Arc<Pulse>,
    last: Beat,
    /// Time at which that was last seen, and the thread's account at that moment.
    seen: Instant,
    account: Option<Account>,
    /// Time for which the core has been doing that already.
    kept: Duration,
}

impl Watchdog {
    pub(crate) fn new(
        pulses: Vec<Arc<Pulse>>,
        warnings: Arc<Warnings>,
        limit: Duration,
    ) -> Watchdog {
        let now = Instant::now();
        let cores = pulses.into_iter().map(|pulse| Core {
            pulse,
            last: Beat::default(),
            seen: now,
            account: None,
            kept: Duration::ZERO,
        });
        let cores: Vec<Core> = cores.collect();
        Watchdog {
            blocked: cores.iter().map(|_| AtomicBool::new(false)).collect(),
            cores,
            warnings,
            limit,
            next: now,
        }
    }

    /// Returns, for each core, whether one task keeps it, as of the last look.
    pub(crate) fn blocked(&self) -> Arc<[AtomicBool]> {
        self.blocked.clone()
    }

    /// Sets the limit; zero: nothing is too long.
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
        self.next = Instant::now();
        for blocked in self.blocked.iter() {
            blocked.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the time until the next look; `None`: there is none.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let wait = || self.next.saturating_duration_since(Instant::now());
        (!self.limit.is_zero()).then(wait)
    }

    /// Returns whether a task kept its core at the last look: its end must be seen.
    pub(crate) fn names_one(&self) -> bool {
        let mut blocked = self.blocked.iter();
        blocked.any(|blocked| blocked.load(Ordering::Relaxed))
    }

    /// Looks, if it is time.
    pub(crate) fn look(&mut self) {
        if self.limit.is_zero() {
            return;
        }
        let now = Instant::now();
        if now >= self.next {
            let idle = self.look_at(now);
            self.next = now + self.limit / 2 * if idle { IDLE } else { 1 };
        }
    }

    /// Returns whether nothing has happened since the last look, and nothing is being polled.
    fn look_at(&mut self, now: Instant) -> bool {
        let mut idle = true;
        for (number, core) in self.cores.iter_mut().enumerate() {
            let beat = core.pulse.look();
            idle &= beat.task.is_none() && beat.turn == core.last.turn;
            core.goes_on(beat, now);
            let kept = beat.task.filter(|_| core.kept >= self.limit);
            self.blocked[number].store(kept.is_some(), Ordering::Relaxed);
            if let Some(task) = kept {
                self.warnings.tell(&Warning::CoreBlocked {
                    core: number,
                    task,
                    time: core.kept,
                });
            }
        }
        idle
    }
}

impl Core {
    /// Takes in what the core does now.
    fn goes_on(&mut self, beat: Beat, now: Instant) {
        let account = beat.task.and_then(|_| self.pulse.account());
        let time = now.saturating_duration_since(self.seen);
        if beat == self.last {
            let both = account.zip(self.account);
            // Where the system keeps no account, all of the time counts.
            self.kept += both.map_or(time, |(after, before)| after.kept_since(&before, time));
        } else {
            self.kept = Duration::ZERO;
        }
        (self.last, self.seen, self.account) = (beat, now, account);
    }
}
