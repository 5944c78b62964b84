//! A shard's part in an update of the balancer, between two batches: one slice of the traversal a turn, of a length that
//! the clock measures; and rule 9's rounds, by marks in the rings that lead here. Without an update it is one look at
//! the steering.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shard;
use super::traversal::StackFlows;

/// A slice aims at this: the aim is 50 µs at most, and what a place costs varies.
const SLICE: Duration = Duration::from_micros(20);
/// Places looked at in a slice.
const PLACES_MIN: usize = 64;
const PLACES_MAX: usize = 1 << 14;

/// What the loop keeps of updates between turns.
pub(crate) struct UpdateWork {
    /// Places in the next slice.
    pub(crate) places: usize,
    /// No more than this, whatever the clock says.
    pub(crate) places_max: usize,
    /// The round that the marks are of.
    round: u32,
    ports: Vec<u32>,
    forwarded: u32,
}

impl Default for UpdateWork {
    fn default() -> UpdateWork {
        UpdateWork {
            places: PLACES_MIN,
            places_max: PLACES_MAX,
            round: 0,
            ports: Vec::new(),
            forwarded: 0,
        }
    }
}

impl Shard {
    /// Does what an update asks for in this turn; answers whether there is more of it.
    #[inline]
    pub(super) fn serve_update(&mut self) -> bool {
        let work = self.ctx.steering.borrow().work();
        match work {
            janus_csb::Work::Nothing => false,
            janus_csb::Work::Traverse => self.traverse(),
            janus_csb::Work::Drain(round) => self.drain_round(round),
        }
    }

    #[cold]
    fn traverse(&mut self) -> bool {
        let ctx = &*self.ctx;
        let update = &mut self.work.update;
        let before = self.clock.now();
        let finished = {
            let mut stack = ctx.stack.borrow_mut();
            let claims = ctx.tuple_claims.borrow();
            let over = ctx.moves.borrow().over();
            let shared = &ctx.shared;
            let (toeplitz, names) = (&shared.toeplitz, &shared.flow_names);
            let mut flows = StackFlows::new(&mut stack, toeplitz, names, &claims, over);
            ctx.steering.borrow_mut().slice(&mut flows, update.places)
        };
        let took = self.clock.now().saturating_since(before);
        // Twice or half, no finer: one slice that was interrupted says nothing of the next.
        update.places = match took {
            took if took > SLICE => (update.places / 2).max(PLACES_MIN),
            took if took < SLICE / 2 => (update.places * 2).min(PLACES_MAX),
            _ => update.places,
        }
        .min(update.places_max);
        let board = ctx.shared.mailbox.board(ctx.core);
        board.slices.add(1);
        let took_ns = took.as_nanos() as u64;
        if took_ns > board.slice_ns_max.load(Ordering::Relaxed) {
            board.slice_ns_max.store(took_ns, Ordering::Relaxed);
        }
        if finished || ctx.steering.borrow().is_laden() {
            ctx.shared.mailbox.ring();
        }
        !finished
    }

    /// Rule 9. Called when all that was taken out of the rings has been processed, and what was to be passed on of it
    /// has been.
    #[cold]
    fn drain_round(&mut self, round: u32) -> bool {
        let update = &mut self.work.update;
        if update.round != round {
            update.round = round;
            self.port.mark(&mut update.ports);
            update.forwarded = self.forwarded.mark();
        }
        let passed =
            self.port.has_passed(&update.ports) && self.forwarded.has_passed(update.forwarded);
        if passed {
            self.ctx.steering.borrow_mut().drained(round);
            self.ctx.shared.mailbox.ring();
        }
        !passed
    }
}
