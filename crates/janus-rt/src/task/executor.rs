//! The executor of one core, as seen by the loop that drives it: time goes in, ready tasks are polled, wakes from other threads are
//! handled. The life of a single task is in `core`.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use janus_mem::{Growth, MemError};
use janus_tcp::Instant;

use crate::inbox::{Job, ShardIdentity, TaskRef, WakeWord};
use crate::warning::Warnings;

use super::Room;
use super::context::Entered;
use super::coop;
use super::core::Core;
use super::join::JoinHandle;
use super::pulse::Pulse;

/// Id of a task of this core: the granule its slot begins at. Fits the stack's token (30 bits).
pub(crate) type TaskId = u32;

/// Counters of a core's tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskCounters {
    /// Tasks spawned.
    pub(crate) spawned: u64,
    /// Polls.
    pub(crate) polls: u64,
    /// Panics caught: in tasks, in the drop of their values, in wakers they left.
    pub(crate) panicked: u64,
    /// Futures too large for a slot, kept in a box.
    pub(crate) boxed: u64,
    /// Slots that will not be used again because their generations are used up.
    pub(crate) retired: u64,
}

/// Bytes that the tasks of a core take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskMemory {
    /// Committed for slots.
    pub(crate) committed: usize,
    /// In slots in use.
    pub(crate) used: usize,
    /// In the ready queue.
    pub(crate) queue: usize,
    /// For the wakers of tasks that await another's end.
    pub(crate) joiners: usize,
    /// In timers.
    pub(crate) timers: usize,
}

impl TaskMemory {
    /// Returns all committed bytes.
    pub(crate) fn total(&self) -> usize {
        self.committed + self.queue + self.joiners + self.timers
    }
}

/// One core's executor. Dropping it drops every task.
pub(crate) struct Executor {
    core: Rc<Core>,
}

impl Executor {
    /// An executor whose wakers carry `identity`, with room for tasks.
    pub(crate) fn new(
        identity: ShardIdentity,
        growth: &Growth,
        room: Room,
    ) -> Result<Executor, MemError> {
        Ok(Executor {
            core: Rc::new(Core::new(identity, growth, room)?),
        })
    }

    /// Shows its activity in `pulse`, and warns of futures of `large_from` bytes and more.
    pub(crate) fn watched(
        mut self,
        pulse: Arc<Pulse>,
        warnings: Arc<Warnings>,
        large_from: usize,
    ) -> Executor {
        if let Some(core) = Rc::get_mut(&mut self.core) {
            core.pulse = pulse;
            core.large_from = large_from;
            core.warnings = Some(warnings);
        }
        self
    }

    /// Makes no task reuse memory that is still in the cache: for comparison, like `warm_reuse` of the stack's configuration.
    pub(crate) fn reusing_nothing(mut self) -> Executor {
        if let Some(core) = Rc::get_mut(&mut self.core) {
            core.arena.reuse_oldest_first();
        }
        self
    }

    /// Makes this the thread's executor until the guard is dropped: `spawn`, `sleep` and wakes find it.
    pub(crate) fn enter(&self) -> Entered {
        Entered::new(Rc::clone(&self.core))
    }

    /// Spawns a task.
    pub(crate) fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.core.spawn(future)
    }

    /// Handles a wake from another thread.
    pub(crate) fn wake_word(&self, word: WakeWord) {
        self.core.wake_word(word);
    }

    /// Aborts a task for another thread.
    pub(crate) fn abort(&self, task: TaskRef) {
        if let Some(slot) = self.core.slot_of(task) {
            self.core.abort(slot);
        }
    }

    /// Handles the drop of a task's handle on another thread.
    pub(crate) fn detach(&self, task: TaskRef) {
        if let Some(slot) = self.core.slot_of(task) {
            self.core.detach(slot);
        }
    }

    /// Runs a closure from another thread. Its panic is counted, and ends nothing.
    pub(crate) fn run_job(&self, job: Job) {
        self.core.quietly(job);
    }

    /// Wakes every task.
    pub(crate) fn wake_all(&self) {
        self.core.wake_all();
    }

    /// Returns the number of tasks that are ready.
    #[cfg(feature = "tokio")]
    pub(crate) fn ready(&self) -> usize {
        self.core.ready()
    }

    /// Returns whether a task is ready to be polled.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.core.has_ready()
    }

    /// Sets the time of this turn and wakes the tasks whose timers are due.
    #[inline]
    pub(crate) fn advance(&self, now: Instant) {
        self.core.now.set(now);
        self.core.pulse.turns();
        self.core
            .timers
            .advance(now, |task| self.core.wake_task(task));
    }

    /// Returns when the next timer is due.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.core.timers.next()
    }

    /// Prefetches the tasks that are polled first.
    #[inline]
    pub(crate) fn fetch(&self) {
        self.core.prefetch_ready();
    }

    /// Polls at most `budget` ready tasks; returns how many. The executor must be entered.
    #[cfg(test)]
    pub(crate) fn run(&self, budget: usize) -> usize {
        self.run_with(budget, || false)
    }

    /// Polls at most `budget` tasks; returns how many. The executor must be entered. `begin` begins one where that is due, and returns false
    /// when none is; what is ready has half of the budget at least.
    pub(crate) fn run_with(&self, budget: usize, begin: impl FnMut() -> bool) -> usize {
        let core = &*self.core;
        let share = match core.has_ready() {
            true => budget.div_ceil(2),
            false => budget,
        };
        let begun = core.poll_each(share, begin);
        let polled = begun + core.poll_ready(budget - begun);
        core.count_polls(polled);
        core.pulse.rests();
        coop::lift();
        polled
    }

    /// Returns the number of tasks, those included that have ended and wait to be joined.
    pub(crate) fn tasks(&self) -> usize {
        self.core.tasks()
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> TaskCounters {
        self.core.counters()
    }

    /// Returns the memory that tasks take.
    pub(crate) fn memory(&self) -> TaskMemory {
        self.core.memory()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Entered, so that values of the futures (streams, handles) find their core when they are dropped.
        let _entered = self.enter();
        self.core.close();
    }
}
