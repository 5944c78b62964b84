//! When tokio has a round while the shard has work. Tokio does not say whether anything of its is ready, and looking costs
//! a system call; so it has one at once where it is known to have something, soon where it may have, and ever more
//! seldom where it never has.

use std::time::Duration;

use janus_tcp::Instant;
use tokio::runtime::RuntimeMetrics;

use crate::compat::foreign::take_woken;

/// Between two rounds, if anything may have become ready.
const SOON: Duration = Duration::from_micros(10);
/// Between two rounds, at most: so long after one that found something, and at last so long while none does.
const EVERY_MIN: Duration = Duration::from_micros(50);
const EVERY_MAX: Duration = Duration::from_millis(1);

pub(super) struct Rounds {
    last: Instant,
    every: Duration,
    owed: bool,
    /// Tokio's tasks when it had its last round.
    alive: usize,
    /// Something moved since: our tasks may have woken tokio's.
    moved: bool,
}

impl Rounds {
    pub(super) fn new(now: Instant) -> Rounds {
        Rounds {
            last: now,
            every: EVERY_MIN,
            owed: true,
            alive: 0,
            moved: false,
        }
    }

    /// After a turn at `now` in which something moved or not.
    #[inline]
    pub(super) fn due(&mut self, now: Instant, worked: bool, tokio: &RuntimeMetrics) -> bool {
        let alive = tokio.num_alive_tasks();
        if self.owed || take_woken() || alive > self.alive || tokio.global_queue_depth() > 0 {
            return true;
        }
        self.moved |= worked;
        let has_time = !worked;
        if has_time && self.moved && alive > 0 {
            return true;
        }
        let since = now.saturating_since(self.last);
        since >= self.every || since >= SOON && (has_time || alive > 0)
    }

    /// A round was at `now`; `found`: it made tasks of ours ready.
    pub(super) fn had_one(&mut self, now: Instant, found: bool, tokio: &RuntimeMetrics) {
        self.every = if found {
            EVERY_MIN
        } else {
            (self.every * 2).min(EVERY_MAX)
        };
        self.last = now;
        self.owed = false;
        self.alive = tokio.num_alive_tasks();
        self.moved = false;
    }

    /// One is due after the next turn, whatever the clock says.
    pub(super) fn owe(&mut self) {
        self.owed = true;
    }
}
