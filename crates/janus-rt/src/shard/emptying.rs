//! A core that is drained gives away what no task of it has: connections at rest, those that wait to be accepted, handshakes, what the
//! stack finishes alone. Each goes to the shard that the ring names for it. A pass over all flows goes on in slices that are short and far
//! apart enough for what is served meanwhile, on this core and on the one that takes in; where stubs have been left an update is asked for, which tells of the moves and lets the stubs go.

use std::sync::atomic::Ordering;
use std::time::Duration;

use janus_csb::ShardId;
use janus_tcp::Instant;
use janus_wire::FlowKey;

use super::core_context::CoreContext;

/// Places looked at between two looks at the clock, and in a slice at most.
const ROUND: usize = 32;
const PLACES_MAX: usize = 4_096;
/// A slice ends with the round in which it has lasted so long: a round takes 10 us.
const SLICE: Duration = Duration::from_micros(80);
/// Slices begin so many times their length apart: moving has three tenths of the time, of a core that gives and of one that takes.
const EVERY: (u32, u32) = (10, 3);
/// A slice that begins late is made up for, but by no more than this: a turn may be long, and a share of it is due.
const LATE_MAX: Duration = Duration::from_millis(1);
/// How long after a pass the next one begins at the earliest: tasks come to rest.
const PAUSE: Duration = Duration::from_millis(100);
/// A pass that moved nothing is followed by a pause of as many times its length.
const GAP: u32 = 9;
/// How long a pass waits for stubs to go when there are too many, and until the core that flows go to has taken some in.
const STUBS_WAIT: Duration = Duration::from_millis(1);
const ROOM_WAIT: Duration = Duration::from_micros(20);

/// Where it stands.
#[derive(Default)]
pub(crate) struct Emptying {
    /// Place at which the pass goes on; `None`: none is on.
    cursor: Option<u64>,
    /// Flows of places before that which have not been moved yet, the next one last.
    found: Vec<FlowKey>,
    /// When the next slice, or the next pass, begins.
    next: Option<Instant>,
    /// When this pass began, and what it has moved.
    begun: Instant,
    moved: u64,
}

impl CoreContext {
    /// Gives flows away if this core is drained. Returns whether it has looked at any.
    pub(super) fn empty(&self, now: Instant) -> bool {
        if !self.shared.mailbox.empties(self.core) {
            if self.emptying.borrow().next.is_some() {
                self.emptying.take();
            }
            return false;
        }
        self.emptying.borrow().next.is_none_or(|at| now >= at) && self.empty_slice(now)
    }

    #[inline(never)]
    fn empty_slice(&self, now: Instant) -> bool {
        let mut emptying = self.emptying.borrow_mut();
        if self.stack.borrow().flows_held() == 0 {
            *emptying = Emptying::default();
            return false;
        }
        if self.has_many_stubs() {
            self.shared.mailbox.want_tidy();
        }
        if !self.may_leave_stubs() {
            emptying.next = Some(now + STUBS_WAIT);
            return false;
        }
        let clock = self.shared.clock;
        let from = clock.now();
        let due = emptying.next.map_or(now, |at| no_later(at, now));
        if emptying.cursor.is_none() {
            (emptying.begun, emptying.moved) = (now, 0);
            emptying.cursor = Some(0);
        }
        let (mut places, mut moved) = (0, 0);
        let took = loop {
            let goes_on = self.empty_round(&mut emptying, from, &mut moved);
            places += ROUND;
            let took = clock.now().saturating_since(from);
            if !goes_on || places >= PLACES_MAX || took >= SLICE {
                break took;
            }
        };
        emptying.moved += moved;
        let board = self.shared.mailbox.board(self.core);
        board.moved.add(moved);
        board.moving_ns.add(took.as_nanos() as u64);
        let next = due + (took * EVERY.0 / EVERY.1).max(ROOM_WAIT);
        let length = now.saturating_since(emptying.begun);
        emptying.next = Some(next);
        if emptying.cursor.is_none() {
            if emptying.moved > 0 {
                self.shared.mailbox.want_tidy();
            }
            emptying.next = Some(match emptying.moved {
                0 => now + PAUSE.max(length * GAP),
                _ => next.max(now + PAUSE),
            });
        }
        true
    }

    /// Moves what the next places have. Returns whether the slice may go on: not after the last place, nor where what takes flows in has no
    /// room now.
    fn empty_round(&self, emptying: &mut Emptying, now: Instant, moved: &mut u64) -> bool {
        if emptying.found.is_empty() {
            let Some(cursor) = emptying.cursor else {
                return false;
            };
            let found = &mut emptying.found;
            let stack = self.stack.borrow();
            emptying.cursor = stack.visit_flows(cursor, ROUND, |flow| {
                stack.prefetch_flow(flow);
                found.push(*flow);
            });
            found.reverse();
        }
        while let Some(flow) = emptying.found.pop() {
            let to = self.owner_of(&flow);
            if to == ShardId(self.core) {
                continue;
            }
            if !self.has_room(to) || !self.welcomes(to, now) {
                emptying.found.push(flow);
                // The pass is not over.
                emptying.cursor = emptying.cursor.or(Some(u64::MAX));
                return false;
            }
            *moved += u64::from(self.move_flow(&flow, to));
        }
        emptying.cursor.is_some()
    }

    /// Whether a core is to be sent more by now.
    fn welcomes(&self, to: ShardId, now: Instant) -> bool {
        let at_ns = &self.shared.mailbox.board(to.0).welcomes_ns;
        at_ns.load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// This core has taken in what came, which has lasted from then until now.
    pub(super) fn has_taken_in(&self, from: Instant) {
        let now = self.shared.clock.now();
        let took = now.saturating_since(from);
        let at_ns = &self.shared.mailbox.board(self.core).welcomes_ns;
        let due = no_later(Instant::from_nanos(at_ns.load(Ordering::Relaxed)), from);
        let next = due + took * EVERY.0 / EVERY.1;
        at_ns.store(next.as_nanos(), Ordering::Relaxed);
    }

    fn owner_of(&self, flow: &FlowKey) -> ShardId {
        let key = self.shared.toeplitz.key_of(flow);
        let steering = self.steering.borrow();
        steering.steering().newest().owner(key, flow.local_port())
    }

    /// When the core must look again.
    pub(super) fn empties_at(&self) -> Option<Instant> {
        self.emptying.borrow().next
    }
}

/// When something began that was due and begins now: no more than a bounded lateness is made up for.
fn no_later(due: Instant, now: Instant) -> Instant {
    let late = now.saturating_since(due).min(LATE_MAX);
    Instant::from_nanos(now.as_nanos() - late.as_nanos() as u64).max(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_late_is_made_up_for_but_not_all_of_it() {
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        assert_eq!(no_later(at(5_000), at(5_000)), at(5_000));
        assert_eq!(no_later(at(5_000), at(5_300)), at(5_000));
        assert_eq!(no_later(at(5_000), at(9_000)), at(8_000));
        // It is not due yet: who asks nevertheless begins when it is.
        assert_eq!(no_later(at(5_000), at(4_000)), at(5_000));
    }
}
