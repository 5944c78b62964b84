//! A core that is drained gives away what no task of it has: connections at rest, those that wait to be accepted, handshakes, what the
//! stack finishes alone. Each goes to the shard that the ring names for it. A pass over all flows goes on a slice a turn; where stubs have been
//! left an update is asked for, which tells of the moves and lets the stubs go.

use std::time::Duration;

use janus_csb::ShardId;
use janus_tcp::Instant;
use janus_wire::FlowKey;

use super::core_context::CoreContext;

/// Places looked at in a turn.
const SLICE: usize = 128;
/// How long after a pass the next one begins at the earliest: tasks come to rest.
const PAUSE: Duration = Duration::from_millis(100);
/// A pass that moved nothing is followed by a pause of as many times its length.
const GAP: u32 = 9;

/// Where it stands.
#[derive(Default)]
pub(crate) struct Emptying {
    /// Place at which the pass goes on; `None`: none is on.
    cursor: Option<u64>,
    /// When the next begins.
    next: Option<Instant>,
    /// When this one began, and what it has moved.
    begun: Instant,
    moved: u64,
}

impl CoreContext {
    /// Gives flows away if this core is drained. Returns whether there is more to do at once.
    pub(super) fn empty(&self, now: Instant) -> bool {
        if !self.shared.mailbox.empties(self.core) {
            if self.emptying.borrow().next.is_some() {
                self.emptying.take();
            }
            return false;
        }
        let mut emptying = self.emptying.borrow_mut();
        if self.on_stack(|stack, _| stack.flows_held()) == 0 {
            *emptying = Emptying::default();
            return false;
        }
        let begins = emptying.next.is_none_or(|at| now >= at);
        let Some(cursor) = emptying.cursor.or(begins.then_some(0)) else {
            return false;
        };
        if cursor == 0 {
            (emptying.begun, emptying.moved) = (now, 0);
        }
        if !self.may_leave_stubs() {
            self.shared.mailbox.want_tidy();
            (emptying.cursor, emptying.next) = (Some(cursor), Some(now + PAUSE));
            return false;
        }
        let mut flows: Vec<FlowKey> = Vec::new();
        let next =
            self.on_stack(|stack, _| stack.visit_flows(cursor, SLICE, |flow| flows.push(*flow)));
        for flow in flows {
            let to = self.owner_of(&flow);
            if to != ShardId(self.core) {
                emptying.moved += u64::from(self.move_flow(&flow, to));
            }
        }
        let length = now.saturating_since(emptying.begun);
        emptying.cursor = next;
        emptying.next = Some(match emptying.moved {
            0 => now + PAUSE.max(length * GAP),
            _ => now + PAUSE,
        });
        next.is_some()
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
