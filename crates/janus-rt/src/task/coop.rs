//! Bounds the work of a task in one poll. Operations that are ready at once (received data, a waiting connection, a due timer) never make
//! a task wait, so a task could go on with them forever. Each takes one from the poll's budget; when that is used up, operations return
//! `Pending` and wake the task, so that other tasks and packets have their turn.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Operations in one poll of a task.
const BUDGET: u8 = 128;
/// Budget outside of a Janus task, and within [`unconstrained`].
const UNLIMITED: u8 = u8::MAX;

thread_local! {
    static LEFT: Cell<u8> = const { Cell::new(UNLIMITED) };
}

/// Called at the beginning of a task's poll.
#[inline]
pub(super) fn refill() {
    LEFT.set(BUDGET);
}

/// Removes the limit for anything polled from here on that is not a Janus task.
#[inline]
pub(super) fn lift() {
    LEFT.set(UNLIMITED);
}

/// Called before an operation. Pending: the budget is used up, and the task is woken for its next poll.
#[inline]
pub(crate) fn proceed(cx: &Context<'_>) -> Poll<()> {
    if LEFT.get() == 0 {
        return wait(cx);
    }
    Poll::Ready(())
}

#[cold]
fn wait(cx: &Context<'_>) -> Poll<()> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Called after an operation that was ready at once.
#[inline]
pub(crate) fn spend() {
    let left = LEFT.get();
    if left != UNLIMITED {
        LEFT.set(left.saturating_sub(1));
    }
}

/// Runs `f` without a budget.
pub(crate) fn without_limit<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(u8);
    impl Drop for Restore {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _restore = Restore(LEFT.replace(UNLIMITED));
    f()
}

/// Runs `future` without the budget, for as long as it finds things ready. For work that must not be interrupted half-way; the core runs
/// no other task meanwhile.
pub fn unconstrained<F: Future>(future: F) -> Unconstrained<F> {
    Unconstrained { future }
}

/// See [`unconstrained`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Unconstrained<F> {
    future: F,
}

impl<F: Future> Future for Unconstrained<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the field is pinned because the whole is: this is its only access, and there is no Drop impl.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.future) };
        without_limit(|| future.poll(cx))
    }
}

/// Takes one from the task's budget, and waits for the next turn when none is left: for loops that await nothing else that does.
pub fn consume_budget() -> impl Future<Output = ()> {
    std::future::poll_fn(|cx| {
        let polled = proceed(cx);
        if polled.is_ready() {
            spend();
        }
        polled
    })
}
