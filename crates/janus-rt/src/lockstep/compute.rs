//! Time that a task keeps its core for, in a world where code takes none.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

thread_local! {
    /// How long the core whose turn it is computes after it.
    static DEBT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The calling task computes for so long: its core's loop stands still, and what the task does next comes after that. Of several tasks that
/// compute on one core the next begins when one is done.
pub async fn compute(time: Duration) {
    let mut begun = time.is_zero();
    poll_fn(|cx| {
        if begun && DEBT.get().is_zero() {
            return Poll::Ready(());
        }
        if DEBT.get().is_zero() {
            DEBT.set(time);
            begun = true;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Takes what the core whose turn is over has still to compute.
pub(super) fn take_debt() -> Duration {
    DEBT.take()
}
