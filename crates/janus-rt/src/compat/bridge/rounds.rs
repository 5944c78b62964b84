//! When tokio has a round while the shard has work. Tokio does not say whether anything of its is ready, and looking costs
//! a system call; so it has one at once where it is known to have something, soon where it may have, and ever more
//! seldom where it never has.

use std::time::Duration;

use janus_tcp::Instant;
use tokio::runtime::RuntimeMetrics;

/// Between two rounds, if anything may have become ready.
const SOON: Duration = Duration::from_micros(10);
/// Between two rounds, at most: so long after one that found something, and at last so long while none does.
const EVERY_MIN: Duration = Duration::from_micros(50);
const EVERY_MAX: Duration = Duration::from_millis(1);

pub(super) struct Rounds {
    last: Instant,
    every: Duration,
    owed: bool,
}

impl Rounds {
    pub(super) fn new(now: Instant) -> Rounds {
        Rounds {
            last: now,
            every: EVERY_MIN,
            owed: true,
        }
    }

    /// After a turn at `now` in which something moved or not.
    #[inline]
    pub(super) fn due(&self, now: Instant, worked: bool, tokio: &RuntimeMetrics) -> bool {
        if self.owed || tokio.global_queue_depth() > 0 {
            return true;
        }
        let since = now.saturating_since(self.last);
        if since < SOON {
            return false;
        }
        // In a turn that moved something, our tasks may have woken tokio's; one that moved nothing leaves time.
        !worked || since >= self.every || tokio.num_alive_tasks() > 0
    }

    /// A round was at `now`; `found`: something came of it, or may.
    pub(super) fn had_one(&mut self, now: Instant, found: bool) {
        self.every = if found {
            EVERY_MIN
        } else {
            (self.every * 2).min(EVERY_MAX)
        };
        self.last = now;
        self.owed = false;
    }

    /// One is due after the next turn, whatever the clock says.
    pub(super) fn owe(&mut self) {
        self.owed = true;
    }
}
