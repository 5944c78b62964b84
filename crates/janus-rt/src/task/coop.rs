//! How much a task may do in one poll. Operations that are ready at once (data that lies there, a connection that waits, a
//! timer that is due) never make a task wait by themselves, so a task could go on with them forever. Each takes one from
//! the poll's budget, and at its end they say "not yet" once, and wake the task: the others have their turn, and packets.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Operations in one poll of a task.
const BUDGET: u8 = 128;
/// Outside of a task of ours, and within [`unconstrained`].
const UNLIMITED: u8 = u8::MAX;

thread_local! {
    static LEFT: Cell<u8> = const { Cell::new(UNLIMITED) };
}

/// A task's poll begins.
#[inline]
pub(super) fn refill() {
    LEFT.set(BUDGET);
}

/// What is polled from here on is no task of ours.
#[inline]
pub(super) fn lift() {
    LEFT.set(UNLIMITED);
}

/// Asked before an operation. Pending: enough for this time; the task is woken for the next.
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

/// An operation was ready at once.
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

/// Lets `future` go on for as long as it finds things ready, whatever its task has done already. For what must not be
/// interrupted half-way; the core serves nobody else meanwhile.
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

/// Takes one from the task's budget, and waits for the next turn when there is none left: for loops that await nothing
/// that does.
pub fn consume_budget() -> impl Future<Output = ()> {
    std::future::poll_fn(|cx| {
        let polled = proceed(cx);
        if polled.is_ready() {
            spend();
        }
        polled
    })
}
