//! How a shard comes to its end. Told that the runtime shuts down, it takes no new connections and goes on until those it has
//! are done, or the time for that is over; told that the runtime stops, it drops its tasks, lets what they wrote arrive and
//! their connections end in order for a while, and resets what is left.

use std::time::Duration;

use janus_tcp::Instant;

use super::Shard;
use crate::control::ending::Ending;
use crate::task::Executor;

/// Rounds in which resets leave at the very end: a device that takes nothing more is not waited for.
const RESET_ROUNDS: usize = 1_000;

/// How long handshakes are waited for that were half done when the doors closed: with what a flood leaves there is no end.
const HANDSHAKES: Duration = Duration::from_secs(1);

/// How long connections at rest are kept when the doors close: a request may be under way already, and is answered.
const RESTS: Duration = Duration::from_secs(1);
/// Places looked at in a turn for connections at rest, and how many of these are closed: each takes a packet.
const REST_PLACES: usize = 2_048;
const RESTS_CLOSED: usize = 128;

/// Where the shard stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// No new connections; those there are go on, and handshakes that are half done are waited for a little.
    Finishing {
        until: Instant,
        handshakes: Option<Instant>,
        rests: Option<Instant>,
    },
    /// It has nothing more to do, or no more time; others may.
    Finished,
    /// Tasks are gone; connections end.
    Closing {
        until: Instant,
    },
    /// Nothing more of its own; packets still go through it to other shards.
    Closed {
        until: Instant,
    },
}

impl Phase {
    /// When the next step is due, whatever happens.
    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Phase::Serving | Phase::Finished => None,
            Phase::Finishing {
                until,
                handshakes,
                rests,
            } => [Some(until), handshakes, rests].into_iter().flatten().min(),
            Phase::Closing { until } | Phase::Closed { until } => Some(until),
        }
    }

    /// Whether the runtime has gone on to what this phase waits for.
    pub(super) fn has_news(self, ending: &Ending) -> bool {
        match self {
            Phase::Serving => !ending.serving(),
            Phase::Finishing { .. } | Phase::Finished => ending.stopping(),
            Phase::Closing { .. } => false,
            Phase::Closed { .. } => ending.all_closed(),
        }
    }
}

impl Shard {
    /// The runtime is on its way to its end: a step of this shard's. Answers whether that is reached.
    #[cold]
    pub(super) fn ended(&mut self) -> bool {
        let now = self.clock.now();
        let stopping = self.ctx.shared.ending.stopping();
        match self.work.phase {
            Phase::Serving | Phase::Finishing { .. } | Phase::Finished if stopping => {
                // Dropping the tasks closes what they hold; the stack then says goodbye to the peers.
                let executor = self.ctx.executor.take();
                drop(executor);
                self.ctx.drop_handlers();
                let until = now + self.ctx.shared.settings.get().close;
                self.work.phase = Phase::Closing { until };
            }
            Phase::Serving => {
                let until = self.close_doors(now);
                self.finish(now, until, Some(now + HANDSHAKES), Some(now + RESTS));
            }
            Phase::Finishing {
                until,
                handshakes,
                rests,
            } => self.finish(now, until, handshakes, rests),
            Phase::Finished => {}
            Phase::Closing { until } => self.close_rest(now, until),
            Phase::Closed { until } => {
                return now >= until || self.ctx.shared.ending.all_closed();
            }
        }
        false
    }

    fn close_doors(&mut self, now: Instant) -> Instant {
        self.ctx.stack.borrow_mut().close_doors();
        // Whoever wants to know looks again.
        self.tasks(Executor::wake_all);
        let waiting = self.ctx.closing.take();
        waiting.into_values().for_each(std::task::Waker::wake);
        now + self.ctx.shared.ending.within()
    }

    fn finish(
        &mut self,
        now: Instant,
        until: Instant,
        handshakes: Option<Instant>,
        mut rests: Option<Instant>,
    ) {
        let handshakes = handshakes.filter(|at| *at > now);
        if rests.is_none_or(|at| at <= now) {
            // One more turn at once while there are some.
            rests = self.close_resting(now).then_some(now);
        }
        let done = {
            let stack = self.ctx.stack.borrow();
            stack.connections() == 0 && (stack.half_open() == 0 || handshakes.is_none())
        };
        self.work.phase = if done || now >= until {
            self.ctx.shared.ending.finished();
            Phase::Finished
        } else {
            Phase::Finishing {
                until,
                handshakes,
                rests,
            }
        };
    }

    /// Closes some of the connections at rest, on from where the last call stopped. Returns whether there are more.
    fn close_resting(&mut self, now: Instant) -> bool {
        let mut stack = self.ctx.stack.borrow_mut();
        if stack.resting() > 0 {
            let from = self.work.rests_closed.unwrap_or(0);
            self.work.rests_closed = stack.close_resting(now, from, REST_PLACES, RESTS_CLOSED);
        }
        stack.resting() > 0
    }

    fn close_rest(&mut self, now: Instant, until: Instant) {
        let resting = self.close_resting(now);
        let quiet = !resting && {
            let stack = self.ctx.stack.borrow();
            let waits = stack.wants_transmit() || stack.has_looped();
            stack.hot_in_use() == 0 && !waits && self.work.leaving.is_empty()
        };
        if !quiet && now < until {
            return;
        }
        if !quiet {
            self.reset_rest(now);
        }
        self.ctx.shared.ending.closed();
        // Those of others take no longer than this, whenever they began to close.
        let until = until.max(now + Duration::from_millis(1));
        self.work.phase = Phase::Closed { until };
    }

    /// The peers of what is left learn that it is over.
    fn reset_rest(&mut self, now: Instant) {
        let mut from = Some(0);
        for _ in 0..RESET_ROUNDS {
            if let Some(place) = from {
                from = self.ctx.stack.borrow_mut().reset_from(now, place);
            }
            let sent = self.send(now);
            if !sent && from.is_none() {
                return;
            }
        }
    }
}
