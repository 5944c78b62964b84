//! Decides when tokio has a round while the shard has work. Tokio does not say whether its tasks are ready, and polling costs a system
//! call. A round comes at once when tokio is known to have work, soon when it may have, and ever more seldom when it has none.

use std::time::Duration;

use janus_tcp::Instant;
use tokio::runtime::RuntimeMetrics;

use crate::task::foreign::take_woken;

/// Time between two rounds, if anything may have become ready.
const SOON: Duration = Duration::from_micros(10);
/// Longest time between two rounds: the least value after one that found work, growing to the greatest while none does.
const EVERY_MIN: Duration = Duration::from_micros(50);
const EVERY_MAX: Duration = Duration::from_millis(1);

pub(super) struct Rounds {
    last: Instant,
    every: Duration,
    owed: bool,
    /// Number of tokio's tasks at its last round.
    alive: usize,
    /// Whether anything moved since: our tasks may have woken tokio's.
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

    /// Returns whether a round is due after a turn at `now`; `worked`: something moved in the turn.
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

    /// Notes a round at `now`; `found`: it made tasks of ours ready.
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

    /// Makes a round due after the next turn, at any time.
    pub(super) fn owe(&mut self) {
        self.owed = true;
    }
}
