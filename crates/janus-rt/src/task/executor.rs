//! The executor of one core: the arena with its tasks, the queue of those that are ready, and the polling.
//! No borrow is held while a future is polled or dropped, so a task may spawn, wake, abort and join freely.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use janus_mem::{Growth, MemError, SizeClass, SlotArena};
use janus_tcp::Instant;

use super::context::Entered;
use super::header::{Header, Task, state};
use super::identity::ShardIdentity;
use super::join::{JoinError, JoinHandle};
use super::waker;
use super::word::{GENERATION_MAX, GRANULE_BITS, WakeWord};
use crate::time::Timers;

/// A task of this core: the granule its slot begins at. Fits the stack's token.
pub(crate) type TaskId = u32;

/// No task.
const NONE: TaskId = u32::MAX;
/// Granules of the arena: 64 GiB of tasks (an interpreter that has no lazy memory gets a small one).
const GRANULES: u32 = if cfg!(miri) {
    1 << 12
} else {
    1 << GRANULE_BITS
};

/// Rounds in which a dropped executor drops tasks that the drop of others spawned.
const DROP_ROUNDS: usize = 16;

/// What has happened to the tasks of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskCounters {
    /// Tasks begun.
    pub(crate) spawned: u64,
    /// Polls.
    pub(crate) polls: u64,
    /// Tasks that ended by a panic.
    pub(crate) panicked: u64,
    /// Futures too large for a slot, kept in a box.
    pub(crate) boxed: u64,
    /// Slots that will not be used again because their generations are used up.
    pub(crate) retired: u64,
}

/// What the tasks of a core share.
pub(crate) struct Core {
    pub(super) identity: ShardIdentity,
    arena: RefCell<SlotArena>,
    ready: RefCell<VecDeque<TaskId>>,
    /// A bit for each granule at which a slot begins, so that all tasks can be found.
    starts: RefCell<Vec<u64>>,
    /// Who waits for a task's end, and how tasks without an output ended.
    pub(super) joiners: RefCell<HashMap<TaskId, Waker>>,
    pub(super) failures: RefCell<HashMap<TaskId, JoinError>>,
    running: Cell<TaskId>,
    tasks: Cell<usize>,
    counters: Cell<TaskCounters>,
    now: Cell<Instant>,
    pub(crate) timers: Timers,
}

/// One core's executor. Dropping it drops every task.
pub(crate) struct Executor {
    core: Rc<Core>,
}

impl Executor {
    /// An executor whose wakers carry `identity`.
    pub(crate) fn new(identity: ShardIdentity, growth: &Growth) -> Result<Executor, MemError> {
        Ok(Executor {
            core: Rc::new(Core {
                identity,
                arena: RefCell::new(SlotArena::new(GRANULES, growth)?),
                ready: RefCell::new(VecDeque::with_capacity(1_024)),
                starts: RefCell::default(),
                joiners: RefCell::default(),
                failures: RefCell::default(),
                running: Cell::new(NONE),
                tasks: Cell::new(0),
                counters: Cell::default(),
                now: Cell::new(Instant::ZERO),
                timers: Timers::new(growth)?,
            }),
        })
    }

    /// Makes this the thread's executor until the guard is dropped: `spawn`, `sleep` and wakes find it.
    pub(crate) fn enter(&self) -> Entered {
        Entered::new(Rc::clone(&self.core))
    }

    /// Begins a task.
    pub(crate) fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        Core::spawn(&self.core, future)
    }

    /// The number its wakers carry.
    pub(crate) fn shard(&self) -> u16 {
        self.core.identity.number()
    }

    /// Serves a wake that came from another thread.
    pub(crate) fn wake_word(&self, word: WakeWord) {
        self.core.wake_word(word);
    }

    /// Wakes every task.
    pub(crate) fn wake_all(&self) {
        self.core.each_task(|core, task| core.schedule(task));
    }

    /// Whether a task is ready to be polled.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.core.ready.borrow().is_empty()
    }

    /// Sets the time of this turn and wakes the sleepers it reaches.
    #[inline]
    pub(crate) fn advance(&self, now: Instant) {
        self.core.now.set(now);
        self.core
            .timers
            .advance(now, |task| self.core.wake_task(task));
    }

    /// When a sleeper is due next.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.core.timers.next()
    }

    /// Polls at most `budget` ready tasks; gives how many. The executor must be entered.
    pub(crate) fn run(&self, budget: usize) -> usize {
        let mut polled = 0;
        while polled < budget {
            let Some(task) = self.core.pop_ready() else {
                break;
            };
            self.core.poll(task);
            polled += 1;
        }
        polled
    }

    /// Tasks alive, those included that ended and wait to be joined.
    pub(crate) fn tasks(&self) -> usize {
        self.core.tasks.get()
    }

    /// What has happened so far.
    pub(crate) fn counters(&self) -> TaskCounters {
        self.core.counters.get()
    }

    /// Bytes of memory committed for tasks.
    pub(crate) fn committed_bytes(&self) -> usize {
        self.core.arena.borrow().committed_bytes()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Entered, so that what the futures drop (streams, handles) finds its core.
        let _entered = self.enter();
        // A future's drop may spawn; what is spawned goes too, within bounds.
        for _ in 0..DROP_ROUNDS {
            let begun = self.core.counters.get().spawned;
            self.core.each_task(Core::cancel);
            if self.core.counters.get().spawned == begun {
                break;
            }
        }
    }
}

impl Core {
    pub(super) fn spawn<F: Future + 'static>(self: &Rc<Core>, future: F) -> JoinHandle<F::Output> {
        match class_for::<F>() {
            Some(class) => self.place(future, class),
            None => {
                self.count(|c| c.boxed += 1);
                let boxed = Box::pin(future);
                self.place(boxed, class_of_box::<F>())
            }
        }
    }

    fn place<F: Future + 'static>(
        self: &Rc<Core>,
        future: F,
        class: SizeClass,
    ) -> JoinHandle<F::Output> {
        let granule = self.arena.borrow_mut().alloc(class);
        let Some(task) = granule else {
            panic!("no memory for another task")
        };
        let header = self.header(task);
        // SAFETY: `class_for` chose a class that `Task<F>` fits, the arena gave this block to nobody else, and
        // blocks are aligned to 64 bytes, which `class_for` checked to suffice.
        unsafe { Task::<F>::write(self.slot(task), future) };
        if header.vtable.get().is_none() {
            self.note_start(task);
        }
        header.vtable.set(Some(const { &Task::<F>::VTABLE }));
        header.class.set(class as u8);
        header
            .state
            .set(state::LIVE | state::SCHEDULED | state::JOINABLE);
        self.tasks.set(self.tasks.get() + 1);
        self.count(|c| c.spawned += 1);
        self.ready.borrow_mut().push_back(task);
        JoinHandle::new(Rc::clone(self), task, header.generation.get())
    }

    #[inline]
    fn count(&self, change: impl FnOnce(&mut TaskCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    fn note_start(&self, task: TaskId) {
        let mut starts = self.starts.borrow_mut();
        let word = task as usize / 64;
        if starts.len() <= word {
            starts.resize(word + 1, 0);
        }
        starts[word] |= 1 << (task % 64);
    }

    #[inline]
    fn slot(&self, task: TaskId) -> NonNull<Header> {
        self.arena.borrow().ptr(task).cast()
    }

    /// The header of a block that was handed out once: its bytes stay a header for ever.
    #[inline]
    pub(super) fn header(&self, task: TaskId) -> &Header {
        debug_assert!(self.arena.borrow().contains(task));
        // SAFETY: only ids of blocks that the arena handed out come here; the first 16 bytes of such a block are a
        // header (all zero in a fresh one) and are only ever reached through its cells, on this thread. The arena
        // lives as long as `self` and blocks do not move.
        unsafe { &*self.slot(task).as_ptr() }
    }

    #[inline]
    fn word(&self, task: TaskId) -> WakeWord {
        WakeWord::new(
            self.identity.number(),
            task,
            self.header(task).generation.get(),
        )
    }

    /// Wakes the task of `word`. False when it belongs to another shard.
    #[inline]
    pub(super) fn wake_word(&self, word: WakeWord) -> bool {
        if word.shard() != self.identity.number() {
            return false;
        }
        let task = word.granule();
        // A number served another shard before: then its words may name blocks that do not exist here.
        if self.is_start(task) && self.header(task).generation.get() == word.generation() {
            self.schedule(task);
        }
        true
    }

    /// Whether a block begins there.
    fn is_start(&self, task: TaskId) -> bool {
        let starts = self.starts.borrow();
        starts
            .get(task as usize / 64)
            .is_some_and(|word| word & (1 << (task % 64)) != 0)
    }

    /// Wakes a task by the id it left with the stack or a timer. One that has ended is not woken; one that took
    /// its place is, which is legal.
    #[inline]
    pub(crate) fn wake_task(&self, task: TaskId) {
        self.schedule(task);
    }

    #[inline]
    pub(super) fn schedule(&self, task: TaskId) {
        let header = self.header(task);
        let now = header.state.get();
        if now & (state::LIVE | state::SCHEDULED | state::DONE) == state::LIVE {
            header.set(state::SCHEDULED);
            self.ready.borrow_mut().push_back(task);
        }
    }

    /// The next ready task; the ones after it are brought close meanwhile.
    #[inline]
    fn pop_ready(&self) -> Option<TaskId> {
        let mut ready = self.ready.borrow_mut();
        let task = ready.pop_front()?;
        if let Some(&later) = ready.get(2) {
            self.arena.borrow().prefetch(later);
        }
        Some(task)
    }

    fn poll(&self, task: TaskId) {
        let header = self.header(task);
        header.clear(state::SCHEDULED);
        if header.state.get() & (state::LIVE | state::DONE) != state::LIVE {
            return;
        }
        if header.has(state::ABORT) {
            self.cancel(task);
            return;
        }
        let Some(vtable) = header.vtable.get() else {
            return;
        };
        // Not dropped: a waker owns nothing.
        let waker = ManuallyDrop::new(waker::waker(self.word(task)));
        let mut cx = Context::from_waker(&waker);
        let before = self.running.replace(task);
        self.count(|c| c.polls += 1);
        // SAFETY: the slot is live and not done, so it holds the future that `vtable` was made for; nothing else
        // polls or drops it meanwhile: `cancel` puts off the task that runs.
        let polled = catch_unwind(AssertUnwindSafe(|| unsafe {
            (vtable.poll)(self.slot(task), &mut cx)
        }));
        self.running.set(before);
        match polled {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) => self.ended(task),
            Err(payload) => {
                self.count(|c| c.panicked += 1);
                if !header.has(state::DONE) {
                    self.drop_future(task);
                }
                self.failed(task, JoinError::panicked(payload));
            }
        }
    }

    /// The future is dropped where it stands; a task that runs is put off until it has been polled.
    fn cancel(&self, task: TaskId) {
        let header = self.header(task);
        if header.has(state::DONE) || !header.has(state::LIVE) {
            return;
        }
        if self.running.get() == task {
            header.set(state::ABORT);
            self.schedule(task);
            return;
        }
        self.drop_future(task);
        self.failed(task, JoinError::cancelled());
    }

    fn drop_future(&self, task: TaskId) {
        let header = self.header(task);
        header.set(state::DONE);
        let Some(vtable) = header.vtable.get() else {
            return;
        };
        // SAFETY: the slot held a future (it was not done), and is marked done before the drop, so nothing touches
        // it twice, not even when the drop panics.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe {
            (vtable.drop_future)(self.slot(task))
        }));
        if dropped.is_err() {
            self.count(|c| c.panicked += 1);
        }
    }

    fn failed(&self, task: TaskId, error: JoinError) {
        if self.header(task).has(state::JOINABLE) {
            self.failures.borrow_mut().insert(task, error);
        }
        self.ended(task);
    }

    /// The future is gone; the slot waits for whoever joins, or goes.
    fn ended(&self, task: TaskId) {
        if !self.header(task).has(state::JOINABLE) {
            self.discard(task);
            return;
        }
        if self.joiners.borrow().is_empty() {
            return;
        }
        let joiner = self.joiners.borrow_mut().remove(&task);
        if let Some(joiner) = joiner {
            joiner.wake();
        }
    }

    /// Drops an output nobody will take, and frees the slot.
    pub(super) fn discard(&self, task: TaskId) {
        let header = self.header(task);
        if header.has(state::OUTPUT) {
            header.clear(state::OUTPUT);
            if let Some(vtable) = header.vtable.get() {
                // SAFETY: the slot held an output, and the bit is cleared, so it is dropped once.
                let dropped = catch_unwind(AssertUnwindSafe(|| unsafe {
                    (vtable.drop_output)(self.slot(task))
                }));
                if dropped.is_err() {
                    self.count(|c| c.panicked += 1);
                }
            }
        }
        self.free(task);
    }

    /// Takes the output out of the slot and frees it.
    pub(super) fn take_output<T>(&self, task: TaskId) -> Option<T> {
        let header = self.header(task);
        if !header.has(state::OUTPUT) {
            self.free(task);
            return None;
        }
        header.clear(state::OUTPUT);
        let vtable = header.vtable.get()?;
        let mut output = MaybeUninit::<T>::uninit();
        let into = NonNull::from(&mut output).cast();
        // SAFETY: the slot holds an output; `T` is its type, because only the `JoinHandle<T>` that `place` made for
        // this task and generation asks.
        let output = unsafe {
            (vtable.take_output)(self.slot(task), into);
            output.assume_init()
        };
        self.free(task);
        Some(output)
    }

    fn free(&self, task: TaskId) {
        let header = self.header(task);
        header.state.set(0);
        self.tasks.set(self.tasks.get() - 1);
        if header.generation.get() == GENERATION_MAX {
            // Another task here could be woken by a waker of the first one.
            self.count(|c| c.retired += 1);
            return;
        }
        header.generation.set(header.generation.get() + 1);
        let class = SizeClass::ALL[usize::from(header.class.get())];
        // SAFETY: the block came from the arena with this class, and its task is gone.
        unsafe { self.arena.borrow_mut().free(task, class) };
    }

    /// Abort by a `JoinHandle`.
    pub(super) fn abort(&self, task: TaskId) {
        self.header(task).set(state::ABORT);
        self.schedule(task);
    }

    fn each_task(&self, mut f: impl FnMut(&Core, TaskId)) {
        let words = self.starts.borrow().len();
        for word in 0..words {
            let mut bits = self.starts.borrow()[word];
            while bits != 0 {
                let task = word as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if self.header(task).has(state::LIVE) {
                    f(self, task);
                }
            }
        }
    }

    /// The time of this turn.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// The task that `waker` wakes, when it is one of this core's.
    #[inline]
    pub(crate) fn task_of(&self, waker: &Waker) -> Option<TaskId> {
        let word = waker::word_of(waker)?;
        (word.shard() == self.identity.number()).then(|| word.granule())
    }
}

/// The size class a future of this type gets; `None`: it goes into a box.
const fn class_for<F: Future>() -> Option<SizeClass> {
    if align_of::<Task<F>>() > janus_mem::GRANULE {
        return None;
    }
    SizeClass::of(size_of::<Task<F>>())
}

const fn class_of_box<F: Future>() -> SizeClass {
    match class_for::<std::pin::Pin<Box<F>>>() {
        Some(class) => class,
        // The output lies in the slot too, and may be large: then the largest class, or none at all.
        None => panic!("a task's output must fit 4 KiB: return a Box"),
    }
}
