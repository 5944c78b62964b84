//! Reports of a core about itself. Taken on the core, between packets; `metrics` asks all of them.

use janus_io::DeviceLosses;
use janus_mem::DepotStats;
use janus_tcp::{Counters, MemoryReport};

use super::{ForwardCounters, LoopReport, OfferCounters, core_context};
use crate::losses::ShortageReport;
use crate::task::blocking::BlockingReport;

/// A look at one core.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CoreReport {
    /// Which core, from 0.
    pub core: usize,
    /// Connections, those not yet accepted and those let go but unfinished included.
    pub connections: usize,
    /// Connections of these that are at rest: no task waits for what comes ([`net::serve`](crate::net::serve)).
    pub resting: usize,
    /// SYNs answered and not yet acknowledged.
    pub half_open: usize,
    /// Connections in TIME-WAIT.
    pub in_time_wait: usize,
    /// Connections with something in flight, queued, unread or timed.
    pub hot_in_use: usize,
    /// Bytes of memory TCP has committed, by purpose.
    pub memory: MemoryReport,
    /// The packet buffers, which all cores of the runtime share.
    pub buffers: DepotStats,
    /// Counters of TCP.
    pub tcp: Counters,
    /// Frames handed to other cores because the flow was theirs.
    pub forwards: ForwardCounters,
    /// Connections that waited long to be accepted.
    pub offers: OfferCounters,
    /// Tasks alive, those included that ended and wait to be joined.
    pub tasks: usize,
    /// Bytes of memory committed for tasks, their queue and their timers.
    pub task_bytes: usize,
    /// Tasks begun since the start.
    pub tasks_spawned: u64,
    /// Polls of tasks.
    pub task_polls: u64,
    /// Tasks that ended by a panic.
    pub tasks_panicked: u64,
    /// Futures too large for a slot, kept in a box.
    pub tasks_boxed: u64,
    /// Task slots out of use because no waker of an earlier task there could be told from a new one's.
    pub task_slots_retired: u64,
    /// Counters of the core's loop.
    pub turns: LoopReport,
    /// The threads for blocking calls, which all cores of the runtime share.
    pub blocking: BlockingReport,
    /// Messages from other threads that found the core's ring full; none is lost.
    pub messages_spilled: u64,
    /// Frames that the device lost before any core saw them; all zeros where it counts none. One device for all cores of the
    /// runtime.
    pub device: DeviceLosses,
    /// Shortages of what the system gives, for all cores of the runtime.
    pub shortages: ShortageReport,
}

/// A look at the core this is called on; `None` on a thread that is none. All cores at once:
/// [`metrics::gather`](crate::metrics::gather).
pub fn report() -> Option<CoreReport> {
    core_context::with(|ctx| {
        let stack = ctx.stack.borrow();
        let executor = ctx.executor.borrow();
        let executor = executor.as_ref();
        let tasks = executor
            .map(|executor| executor.counters())
            .unwrap_or_default();
        CoreReport {
            core: usize::from(ctx.core),
            connections: stack.connections(),
            resting: stack.resting(),
            half_open: stack.half_open(),
            in_time_wait: stack.in_time_wait(),
            hot_in_use: stack.hot_in_use(),
            memory: stack.memory(),
            buffers: ctx.pool.borrow().depot().stats(),
            tcp: *stack.counters(),
            forwards: ctx.forwarder.borrow().counters,
            offers: ctx.offer_counters(),
            tasks: executor.map_or(0, |executor| executor.tasks()),
            task_bytes: executor.map_or(0, |executor| executor.memory().total()),
            tasks_spawned: tasks.spawned,
            task_polls: tasks.polls,
            tasks_panicked: tasks.panicked,
            tasks_boxed: tasks.boxed,
            task_slots_retired: tasks.retired,
            turns: ctx.statistics.report(),
            blocking: ctx.shared.blocking.report(),
            messages_spilled: ctx.inbox.counters().spilled,
            device: ctx.shared.ingress.device_losses(),
            shortages: ShortageReport::new(ctx.shared.mailbox.shortages(), &ctx.shared.ingress),
        }
    })
}
