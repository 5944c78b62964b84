//! A task's life: spawned, woken, polled, ended, joined. Everything that touches slots, on the executor's own thread. No borrow is held
//! while a future, an output or a foreign waker runs, is cloned or dropped: a task may spawn, wake, abort and join freely. The executor
//! decides when tasks are polled.

mod begin;

use std::cell::{Cell, RefCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use janus_mem::{Growth, MemError};
use janus_tcp::Instant;

use super::Room;
use super::arena::{Arena, Slot};
use super::class::Class;
use super::coop;
use super::executor::{TaskCounters, TaskId, TaskMemory};
use super::header::{
    ABORT, HANDLE, Header, JOINED, NAMELESS, PanicPayload, QUEUED, RUNNING, Stage, VTable,
};
use super::pulse::Pulse;
use super::ready::ReadyQueue;
use super::timers::Timers;
use super::waker;
use super::wakers::WakerTable;
use crate::inbox::{ShardIdentity, TaskRef, WakeWord};
use crate::warning::{Warning, Warnings, wants_tokio};

/// How many turns before its poll a task's memory is fetched.
const AHEAD: usize = 8;

/// Size in bytes below which futures are never warned of, and spawning does not check.
pub(crate) const LARGE_LEAST: usize = 1024;

/// Rounds in which a closing core drops tasks that the drop of others spawned. A drop that always spawns again is given up then, and its
/// last future leaks.
const CLOSE_ROUNDS: usize = 16;

/// Panics in a row, each in the drop of the payload before it, after which the last payload leaks.
const PAYLOADS_MAX: usize = 8;

/// State that the tasks of a core share.
pub(crate) struct Core {
    pub(super) identity: ShardIdentity,
    pub(super) arena: Arena,
    ready: RefCell<ReadyQueue>,
    /// Wakers of tasks that await another's end; the awaited task's header has the number.
    joiners: RefCell<WakerTable>,
    /// Tasks spawned and tasks gone, two counts: one of those there are would be written at each end, just before the next beginning reads
    /// it and its neighbor as one wide word, for which the processor waits.
    spawned: Cell<u64>,
    gone: Cell<u64>,
    counters: Cell<TaskCounters>,
    life: Cell<Life>,
    /// The task that is being polled, or was last polled.
    polling: Cell<Option<Slot>>,
    pub(super) now: Cell<Instant>,
    pub(crate) timers: Timers,
    pub(super) pulse: Arc<Pulse>,
    /// Size in bytes from which a future is warned of.
    pub(super) large_from: usize,
    pub(super) warnings: Option<Arc<Warnings>>,
}

/// Whether spawned tasks will be polled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Open,
    /// `close` is dropping all tasks.
    Closing,
    Closed,
}

/// How a task ended.
pub(super) enum End<T> {
    Output(T),
    Panicked(PanicPayload),
    Cancelled,
}

/// Waking.
impl Core {
    pub(super) fn new(
        identity: ShardIdentity,
        growth: &Growth,
        room: Room,
    ) -> Result<Core, MemError> {
        let timers = Timers::new(identity.incarnation(), growth, room.timers)?;
        Ok(Core {
            identity,
            arena: Arena::new(growth, room.pages)?,
            ready: RefCell::new(ReadyQueue::new()),
            joiners: RefCell::default(),
            spawned: Cell::new(0),
            gone: Cell::new(0),
            counters: Cell::default(),
            now: Cell::new(Instant::ZERO),
            timers,
            life: Cell::new(Life::Open),
            polling: Cell::new(None),
            pulse: Arc::default(),
            large_from: usize::MAX,
            warnings: None,
        })
    }

    /// Wakes the task of `word`. Returns false when the task belongs to another shard.
    #[inline]
    pub(super) fn wake_word(&self, word: WakeWord) -> bool {
        if word.shard() != self.identity.number() {
            return false;
        }
        // A task wakes itself most often: its slot is known, or was its a moment ago, and the generation tells.
        let polling = self.polling.get();
        let known = polling.filter(|slot| slot.granule() == word.granule());
        let known = known.map(|slot| self.arena.header(slot));
        match known.filter(|it| it.generation() == word.generation() && it.has(RUNNING)) {
            // It is queued after its poll.
            Some(header) => _ = header.wake(),
            None => self.wake_waiting(word),
        }
        true
    }

    /// Like [`wake_word`](Core::wake_word), for a task that is not being polled.
    #[inline(never)]
    fn wake_waiting(&self, word: WakeWord) {
        // The shard's number may have been another's before: the word may name no slot here.
        if let Some(slot) = self.arena.check(word.granule())
            && self.arena.header(slot).generation() == word.generation()
        {
            self.wake_slot(slot);
        }
    }

    /// Wakes a task by the id it left with the stack or a timer. A task that has ended is not woken; a later task in its slot is, which is
    /// legal.
    #[inline]
    pub(crate) fn wake_task(&self, task: TaskId) {
        if let Some(slot) = self.arena.check(task) {
            self.wake_slot(slot);
        }
    }

    #[inline]
    fn wake_slot(&self, slot: Slot) {
        if self.arena.header(slot).wake() {
            self.ready.borrow_mut().push(slot);
        }
    }

    pub(super) fn wake_all(&self) {
        self.each(|slot| self.wake_slot(slot));
    }

    /// Returns the task that `waker` wakes, if it is one of this core's.
    #[inline]
    pub(crate) fn task_of(&self, waker: &Waker) -> Option<TaskId> {
        let word = waker::word_of(waker)?;
        (word.shard() == self.identity.number()).then(|| word.granule())
    }

    fn each(&self, mut f: impl FnMut(Slot)) {
        let mut at = 0;
        while let Some(slot) = self.arena.slot_from(at) {
            f(slot);
            at = slot.granule() + 1;
        }
    }
}

/// Polling.
impl Core {
    /// Polls at most `budget` ready tasks; returns how many.
    pub(super) fn poll_ready(&self, budget: usize) -> usize {
        self.poll_each(budget, || {
            let slot = self.pop_ready();
            slot.map(|slot| self.poll(slot)).is_some()
        })
    }

    /// Calls `next`, which polls a task, until it returns that there is none, or `budget` times; returns how often there was one.
    #[inline]
    pub(super) fn poll_each(&self, budget: usize, mut next: impl FnMut() -> bool) -> usize {
        let polled = Cell::new(0);
        loop {
            // One `catch_unwind` around all: one around each costs as much as the poll of a small task.
            let fallen = catch_unwind(AssertUnwindSafe(|| {
                while polled.get() < budget {
                    polled.set(polled.get() + 1);
                    if !next() {
                        polled.set(polled.get() - 1);
                        break;
                    }
                }
            }));
            let Err(payload) = fallen else {
                return polled.get();
            };
            self.caught(payload);
        }
    }

    /// Ends a task that panicked; the others go on.
    #[cold]
    fn caught(&self, payload: PanicPayload) {
        match self.polling.get() {
            Some(slot) if self.arena.header(slot).has(RUNNING) => {
                self.count(|c| c.panicked += 1);
                if let Some(warnings) = &self.warnings
                    && wants_tokio(&*payload)
                {
                    let task = (self.arena.header(slot).vtable().name)();
                    warnings.tell(&Warning::NeedsTokio { task });
                }
                self.abandon(slot, Some(payload));
            }
            // Not in a task.
            _ => resume_unwind(payload),
        }
    }

    /// Returns the next ready task, and prefetches the memory of a later one.
    #[inline]
    fn pop_ready(&self) -> Option<Slot> {
        let mut ready = self.ready.borrow_mut();
        let slot = ready.pop()?;
        if let Some(later) = ready.ahead(AHEAD - 1) {
            self.arena.prefetch(later.granule());
        }
        Some(slot)
    }

    /// Prefetches the first tasks of a round.
    #[inline]
    pub(super) fn prefetch_ready(&self) {
        let ready = self.ready.borrow();
        for slot in (0..AHEAD).map_while(|turns| ready.ahead(turns)) {
            self.arena.prefetch(slot.granule());
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn ready(&self) -> usize {
        self.ready.borrow().len()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// Polls a task that stands in no queue. [`caught`](Core::caught) handles its panic.
    #[inline]
    fn poll(&self, slot: Slot) {
        let header = self.arena.header(slot);
        debug_assert!(header.stage() == Stage::Future);
        header.begin();
        if header.has(ABORT) {
            self.abandon(slot, None);
            return;
        }
        let vtable = header.vtable();
        // SAFETY: the stage is Future, so the slot holds the future its table was made for. RUNNING keeps everybody
        // else from its payload: only `abandon`, `detach` and `take_end` touch one, and they look.
        let polled = self.poll_with(slot, header, vtable, |pointer, cx| unsafe {
            (vtable.poll)(pointer, cx)
        });
        match polled {
            Poll::Pending => self.paused(slot, header),
            // It has no output, and no handle.
            Poll::Ready(()) if header.has(NAMELESS) => self.free(slot),
            Poll::Ready(()) => self.ended(slot),
        }
    }

    /// Polls a task that is RUNNING and in stage Future, by a function of its table. The header is the slot's.
    #[inline]
    fn poll_with(
        &self,
        slot: Slot,
        header: &Header,
        vtable: &'static VTable,
        poll: impl FnOnce(NonNull<Header>, &mut Context<'_>) -> Poll<()>,
    ) -> Poll<()> {
        let word = WakeWord::new(self.identity.number(), slot.granule(), header.generation());
        // Not dropped: a waker owns nothing.
        let waker = ManuallyDrop::new(waker::waker(word));
        let mut cx = Context::from_waker(&waker);
        self.pulse.polls(vtable);
        self.polling.set(Some(slot));
        coop::refill();
        poll(self.arena.pointer(slot), &mut cx)
    }

    /// Handles the end of a poll after which the task waits.
    #[inline]
    fn paused(&self, slot: Slot, header: &Header) {
        if header.pause() {
            self.ready.borrow_mut().push(slot);
        }
    }

    /// Drops the future of a task that is RUNNING, and ends the task.
    #[cold]
    fn abandon(&self, slot: Slot, payload: Option<PanicPayload>) {
        let header = self.arena.header(slot);
        let pointer = self.arena.pointer(slot);
        let vtable = header.vtable();
        if header.stage() == Stage::Future {
            header.set_stage(Stage::Empty);
            // SAFETY: the slot held the future, and its stage says no more that it does, should this panic.
            self.quietly(|| unsafe { (vtable.drop_future)(pointer) });
        }
        if let Some(payload) = payload {
            if header.has(HANDLE) {
                // SAFETY: the payload of the slot is empty (the future is gone and no output came), and every slot's
                // has room for this.
                unsafe { (vtable.panic)(pointer).write(payload) };
                header.set_stage(Stage::Panic);
            } else {
                self.quietly(|| drop(payload));
            }
        }
        self.ended(slot);
    }

    /// Handles the end of a task whose future is gone: its slot waits for the join handle, or is freed.
    #[inline]
    fn ended(&self, slot: Slot) {
        let header = self.arena.header(slot);
        let joined = header.has(JOINED);
        header.clear(RUNNING | QUEUED | JOINED);
        if !header.has(HANDLE) {
            self.discard(slot);
        } else if joined {
            let joiner = self.joiners.borrow_mut().remove(header.link());
            // Last, since a foreign waker may do anything, such as drop the handle.
            self.quietly(|| joiner.map_or((), Waker::wake));
        }
    }

    /// Drops an output that has no handle any more, and frees the slot.
    #[inline]
    fn discard(&self, slot: Slot) {
        let header = self.arena.header(slot);
        let pointer = self.arena.pointer(slot);
        let vtable = header.vtable();
        match header.stage() {
            Stage::Output => {
                header.set_stage(Stage::Empty);
                // SAFETY: the slot held the output, and its stage says no more that it does.
                self.quietly(|| unsafe { (vtable.drop_output)(pointer) });
            }
            Stage::Panic => {
                header.set_stage(Stage::Empty);
                // SAFETY: the slot held the panic's payload; it is read once, the stage says so.
                let payload = unsafe { (vtable.panic)(pointer).read() };
                self.quietly(|| drop(payload));
            }
            Stage::Vacant | Stage::Future | Stage::Empty => {}
        }
        self.free(slot);
    }

    #[inline]
    fn free(&self, slot: Slot) {
        self.free_of(slot, self.arena.header(slot).vtable().class);
    }

    #[inline]
    fn free_of(&self, slot: Slot, class: Class) {
        self.gone.set(self.gone.get() + 1);
        self.arena.free(slot, class);
    }

    /// Runs foreign code, catching its panic; the panic hook has printed it.
    #[inline]
    pub(super) fn quietly(&self, f: impl FnOnce()) {
        let Err(mut payload) = catch_unwind(AssertUnwindSafe(f)) else {
            return;
        };
        self.count(|c| c.panicked += 1);
        // The payload's own drop may panic, as may the drop of that panic's payload.
        for _ in 0..PAYLOADS_MAX {
            match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                Ok(()) => return,
                Err(next) => payload = next,
            }
        }
        std::mem::forget(payload);
    }

    /// Drops every task, ended ones included; from now on, spawned tasks too.
    pub(super) fn close(&self) {
        self.life.set(Life::Closing);
        self.pulse.rests();
        // A drop may spawn; that task goes in the next round.
        for _ in 0..CLOSE_ROUNDS {
            if self.abandon_all() + self.discard_all() == 0 {
                break;
            }
        }
        self.life.set(Life::Closed);
    }

    /// Drops outputs that wait for their handles: they must not outlive their thread. Returns how many.
    fn discard_all(&self) -> usize {
        let mut discarded = 0;
        self.each(|slot| {
            let header = self.arena.header(slot);
            if header.has(HANDLE) && self.is_over(slot) {
                header.clear(HANDLE);
                self.discard(slot);
                discarded += 1;
            }
        });
        discarded
    }

    /// Drops every future that is not being polled now; returns how many.
    fn abandon_all(&self) -> usize {
        let mut abandoned = 0;
        self.each(|slot| {
            let header = self.arena.header(slot);
            if header.stage() == Stage::Future && !header.has(RUNNING) {
                header.begin();
                self.abandon(slot, None);
                abandoned += 1;
            }
        });
        // The entries' tasks are gone, or never polled.
        self.ready.borrow_mut().clear();
        abandoned
    }
}

/// Operations of a `JoinHandle`. Each concerns a slot whose handle exists, so the slot is still its task's.
impl Core {
    /// Returns the slot of `task`, if the task is of this core and not gone.
    #[inline]
    pub(super) fn slot_of(&self, task: TaskRef) -> Option<Slot> {
        if !task.is_of(&self.identity) {
            return None;
        }
        let slot = self.arena.check(task.granule())?;
        (self.arena.header(slot).generation() == task.generation()).then_some(slot)
    }

    pub(super) fn is_over(&self, slot: Slot) -> bool {
        let header = self.arena.header(slot);
        header.stage() != Stage::Future && !header.has(RUNNING)
    }

    pub(super) fn abort(&self, slot: Slot) {
        let header = self.arena.header(slot);
        if header.stage() == Stage::Future {
            header.set(ABORT);
            self.wake_slot(slot);
        }
    }

    /// Replaces the waker that is woken at the task's end.
    pub(super) fn join(&self, slot: Slot, waker: &Waker) {
        let header = self.arena.header(slot);
        if header.has(JOINED) {
            let joiners = self.joiners.borrow();
            if joiners
                .get(header.link())
                .is_some_and(|w| w.will_wake(waker))
            {
                return;
            }
        }
        let waker = waker.clone();
        self.unjoin(header);
        header.set_link(self.joiners.borrow_mut().insert(waker));
        header.set(JOINED);
    }

    fn unjoin(&self, header: &Header) {
        if header.has(JOINED) {
            header.clear(JOINED);
            let joiner = self.joiners.borrow_mut().remove(header.link());
            drop(joiner);
        }
    }

    /// Handles the drop of the handle: the task goes on alone, or its output is dropped. Called once for each handle.
    #[inline]
    pub(super) fn detach(&self, slot: Slot) {
        let header = self.arena.header(slot);
        header.clear(HANDLE);
        let over = self.is_over(slot);
        if header.has(JOINED) {
            self.unjoin(header);
        }
        if over {
            self.discard(slot);
        }
    }

    /// Takes the output of a task that has ended, and frees the slot.
    ///
    /// # Safety
    /// `T` is the type of the task's output, the task has ended, and its handle gives up the slot.
    pub(super) unsafe fn take_end<T>(&self, slot: Slot) -> End<T> {
        let header = self.arena.header(slot);
        let pointer = self.arena.pointer(slot);
        let vtable = header.vtable();
        let stage = header.stage();
        header.set_stage(Stage::Empty);
        let end = match stage {
            Stage::Output => {
                let mut output = MaybeUninit::<T>::uninit();
                // SAFETY: the slot held the output, a `T` by the caller's promise; the stage says no more that it does.
                End::Output(unsafe {
                    (vtable.take_output)(pointer, output.as_mut_ptr().cast());
                    output.assume_init()
                })
            }
            // SAFETY: the slot held the payload; it is read once, the stage says so.
            Stage::Panic => End::Panicked(unsafe { (vtable.panic)(pointer).read() }),
            Stage::Vacant | Stage::Future | Stage::Empty => End::Cancelled,
        };
        self.free(slot);
        end
    }
}

/// Counters.
impl Core {
    /// Adds the polls of a round.
    #[inline]
    pub(super) fn count_polls(&self, polls: usize) {
        self.count(|c| c.polls += polls as u64);
    }

    /// Counts a panic that was caught elsewhere.
    pub(super) fn count_panic(&self) {
        self.count(|c| c.panicked += 1);
    }

    #[inline]
    fn count(&self, change: impl FnOnce(&mut TaskCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    pub(super) fn tasks(&self) -> usize {
        (self.spawned.get() - self.gone.get()) as usize
    }

    pub(super) fn counters(&self) -> TaskCounters {
        TaskCounters {
            spawned: self.spawned.get(),
            retired: self.arena.retired(),
            ..self.counters.get()
        }
    }

    pub(super) fn memory(&self) -> TaskMemory {
        TaskMemory {
            committed: self.arena.committed_bytes(),
            used: self.arena.used_bytes(),
            queue: self.ready.borrow().bytes(),
            joiners: self.joiners.borrow().bytes(),
            timers: self.timers.bytes(),
        }
    }

    /// Returns the time of this turn.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }
}
