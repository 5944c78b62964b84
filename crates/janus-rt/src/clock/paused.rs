//! A clock for tests: it stands still while a core has something to do, and jumps to the next timer when all sleep. So a
//! test of a day's work takes no time, and a timer never fires because the machine was slow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use janus_io::park::Unparker;
use janus_tcp::Instant;

use super::OFFSET_NS;

/// Of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Paused {
    elapsed_ns: AtomicU64,
    /// One for each core.
    sleepers: Mutex<Vec<Sleeper>>,
}

struct Sleeper {
    bell: Unparker,
    /// When it is awake: `None`. Else when it is to be woken, if ever.
    asleep: Option<Option<Instant>>,
}

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.asleep)
    }
}

/// What a core that has nothing to do does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The clock has jumped: something is due here.
    Due,
    Sleep,
}

impl Paused {
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns.load(Ordering::Acquire)
    }

    /// These are the cores that must sleep before it jumps.
    pub(crate) fn governs(&self, bells: &[Unparker]) {
        let sleepers = bells.iter().map(|bell| Sleeper {
            bell: bell.clone(),
            asleep: None,
        });
        *self.lock() = sleepers.collect();
    }

    /// `core` has nothing to do, and listens to its bell already. If that goes for all, and nothing else `holds` the
    /// clock, it jumps.
    pub(crate) fn falls_asleep(
        &self,
        core: usize,
        deadline: Option<Instant>,
        holds: bool,
    ) -> Verdict {
        let mut sleepers = self.lock();
        sleepers[core].asleep = Some(deadline);
        // One whose bell was rung is as good as awake: whatever this core has left for others, it has rung for.
        let sleeps = |(other, sleeper): (usize, &Sleeper)| {
            other == core || sleeper.asleep.is_some() && sleeper.bell.would_wake()
        };
        if holds || !sleepers.iter().enumerate().all(sleeps) {
            return Verdict::Sleep;
        }
        let deadlines = sleepers
            .iter()
            .filter_map(|sleeper| sleeper.asleep.flatten());
        let Some(next) = deadlines.min() else {
            return Verdict::Sleep;
        };
        let elapsed_ns = next.as_nanos().saturating_sub(OFFSET_NS);
        self.elapsed_ns.fetch_max(elapsed_ns, Ordering::AcqRel);
        let mut verdict = Verdict::Sleep;
        for (number, sleeper) in sleepers.iter_mut().enumerate() {
            let due = sleeper.asleep.flatten().is_some_and(|at| at <= next);
            if due && number == core {
                verdict = Verdict::Due;
            } else if due {
                sleeper.bell.wake();
            }
        }
        verdict
    }

    pub(crate) fn wakes(&self, core: usize) {
        self.lock()[core].asleep = None;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sleeper>> {
        // Nothing in a lock's scope can be left half done.
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
