//! The time, the counters and the little else that all rules share.

use crate::rules::config::Secrets;
use crate::store::counters::Counters;
use crate::store::outgoing::Outgoing;
use crate::store::paths::PathKnowledge;
use crate::time::Instant;

/// In one place, so that a loan has one reference instead of four.
pub(crate) struct Env {
    /// The latest time that was handed in; [`Env::set_now`] sets it.
    pub(crate) now: Instant,
    /// `now` in whole microseconds and milliseconds, which go round: made once, as each segment asks for them several times.
    pub(crate) now_us: u32,
    pub(crate) now_ms: u32,
    pub(crate) counters: Counters,
    pub(crate) paths: PathKnowledge,
    /// Segments without payload that a rule asks for, between its loan and their way out.
    pub(crate) answers: Vec<Outgoing>,
}

impl Env {
    pub(crate) fn new(secrets: &Secrets) -> Env {
        Env {
            paths: PathKnowledge::new(secrets.table_key()),
            now: Instant::ZERO,
            now_us: 0,
            now_ms: 0,
            counters: Counters::default(),
            answers: Vec::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn set_now(&mut self, now: Instant) {
        if now != self.now {
            self.begin_turn(now);
        }
    }

    /// Once a turn, and away from where it is asked for each call: inlined, its divisions are done though not needed.
    #[inline(never)]
    fn begin_turn(&mut self, now: Instant) {
        self.now = now;
        (self.now_us, self.now_ms) = (now.as_micros() as u32, now.as_millis() as u32);
    }
}
