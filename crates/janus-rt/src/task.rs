//! Tasks: stackless futures in an arena of size-classed slots, woken by a word instead of a counted pointer.
//!
//! `executor` is what a core's loop drives, `core` a task's life; `header` and `arena` are its memory. A waker is 64 bits (`inbox/word`) with
//! shard, slot and generation, so that cloning and dropping one is free and a stale one harmless. `join` waits for a task's end from
//! anywhere, `spawn_on` and `blocking` run things elsewhere and `parcel` brings their results, a `movable` task goes from core to core, `join_set` waits for many; `coop` bounds
//! the work of one poll. This module does not know how packets or timers come to wake a task.

mod arena;
pub(crate) mod blocking;
mod class;
pub(crate) mod context;
pub(crate) mod coop;
mod core;
mod executor;
pub(crate) mod foreign;
mod header;
mod join;
mod join_set;
mod movable;
mod parcel;
mod pulse;
mod ready;
mod spawn_on;
mod thread;
mod timers;
mod waker;
pub(crate) mod wakers;

#[cfg(test)]
pub(crate) mod tests;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub(crate) use context::Entered;
pub use coop::{Unconstrained, consume_budget, unconstrained};
pub(crate) use executor::{Executor, TaskId};
pub use join::{AbortHandle, JoinError, JoinHandle};
pub use join_set::JoinSet;
pub(crate) use movable::{Wish, set_wish, wish};
pub(crate) use pulse::{Beat, Pulse};
pub(crate) use spawn_on::Cores;
pub(crate) use thread::Account;
pub(crate) use timers::Armed;
#[cfg(test)]
pub(crate) use timers::FIRED_MAX;

/// Most memory that a core has for tasks, of which addresses are reserved at the start.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Pages of the arena.
    pages: u32,
    timers: u32,
}

impl Room {
    pub(crate) const FULL: Room = Room {
        pages: arena::PAGES_MAX,
        timers: timers::TIMERS_MAX,
    };
    /// For a core in virtual time, of which one process holds many: valgrind has addresses for three full ones.
    pub(crate) const SMALL: Room = Room {
        pages: if cfg!(miri) {
            arena::PAGES_MAX
        } else {
            1 << 16
        },
        timers: if cfg!(miri) {
            timers::TIMERS_MAX
        } else {
            1 << 20
        },
    };
}

/// Spawns a task on this core. It need not be `Send`: it stays here. Dropping the handle lets the task go on; awaiting the handle returns
/// the task's output, or an error if it panicked.
///
/// ```
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let five = janus::spawn(async { 2 + 3 });
/// assert_eq!(five.await.unwrap(), 5);
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When no Janus core runs on this thread.
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    let Some(handle) = context::with(|core| core.spawn(future)) else {
        panic!(
            "janus::spawn was called where no Janus core runs: call it from a runtime's main or its tasks"
        );
    };
    handle
}

/// Spawns a task that was sent here. Where the tasks are gone it is dropped, which whoever waits for it is told.
pub(crate) fn spawn_sent<F: Future + 'static>(future: F) {
    context::with(|core| drop(core.spawn(future)));
}

/// Spawns the task that `make` makes, without a handle, on this thread's core, and polls it: its memory does not wear out. To be called by
/// what [`Executor::run_with`] calls.
#[inline]
pub(crate) fn begin<F: Future<Output = ()> + 'static>(make: impl FnOnce() -> F) {
    context::with(|core| core.begin(make));
}

/// Returns the id of the task that `waker` wakes, if it is a task of this thread's core.
#[inline]
pub(crate) fn local_id(waker: &Waker) -> Option<TaskId> {
    context::with(|core| core.task_of(waker)).flatten()
}

/// Wakes a task of this thread's core by its id.
#[inline]
pub(crate) fn wake_local(task: TaskId) {
    context::with(|core| core.wake_task(task));
}

/// Wakes a waker of another executor. If that panics, the core goes on.
pub(crate) fn wake_foreign(waker: Waker) {
    foreign::woken();
    context::with(|core| core.quietly(|| waker.wake()));
}

/// Fetches the memory of a task that will be woken soon; any number is allowed.
#[inline]
pub(crate) fn prefetch_local(task: TaskId) {
    context::with(|core| core.arena.prefetch(task));
}

/// Yields to the other ready tasks.
pub fn yield_now() -> impl Future<Output = ()> {
    Yield { yielded: false }
}

struct Yield {
    yielded: bool,
}

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
