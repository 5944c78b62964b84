//! What a core can say about itself. Taken on the core, between packets; whoever wants all cores asks each.

use janus_tcp::{Counters, MemoryReport};

use crate::shard::{ForwardCounters, here};

/// A look at one core.
#[derive(Clone, Copy, Debug)]
pub struct CoreReport {
    /// Which core, from 0.
    pub core: usize,
    /// Connections, those not yet accepted and those let go but unfinished included.
    pub connections: usize,
    /// SYNs answered and not yet acknowledged.
    pub half_open: usize,
    /// Connections in TIME-WAIT.
    pub in_time_wait: usize,
    /// Connections with something in flight, queued, unread or timed.
    pub hot_in_use: usize,
    /// Bytes of memory TCP has committed, by purpose.
    pub memory: MemoryReport,
    /// What TCP counted.
    pub tcp: Counters,
    /// Frames handed to other cores because the flow was theirs.
    pub forwards: ForwardCounters,
}

/// A look at the core this is called on; `None` on a thread that is none.
pub fn report() -> Option<CoreReport> {
    here::with(|here| {
        let stack = here.stack.borrow();
        CoreReport {
            core: usize::from(here.core),
            connections: stack.connections(),
            half_open: stack.half_open(),
            in_time_wait: stack.in_time_wait(),
            hot_in_use: stack.hot_in_use(),
            memory: stack.memory(),
            tcp: *stack.counters(),
            forwards: here.neighbours.borrow().counters,
        }
    })
}
