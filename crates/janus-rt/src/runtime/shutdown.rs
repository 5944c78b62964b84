//! Notice of the runtime's end to its tasks.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::shard::core_context;
use crate::task;

/// Waits until the runtime is told to shut down ([`Handle::shutdown`](crate::Handle::shutdown)): for a server's tasks, a
/// reason not to wait for the next request.
///
/// ```
/// use std::time::Duration;
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let server = janus::spawn(janus::shutting_down());
/// janus::handle().unwrap().shutdown(Duration::from_secs(1));
/// server.await?;
/// assert!(janus::is_shutting_down());
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When polled where no Janus core runs.
///
/// # Cancel safety
/// Nothing is lost when the future is dropped: what has begun does not end again.
pub fn shutting_down() -> ShuttingDown {
    ShuttingDown { place: None }
}

/// Whether the runtime of this core is shutting down; false where no Janus core runs.
#[inline]
pub fn is_shutting_down() -> bool {
    core_context::with(|ctx| !ctx.shared.ending.serving()).unwrap_or(false)
}

/// See [`shutting_down`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct ShuttingDown {
    /// Under which a waker that is no task's stands with the core.
    place: Option<u64>,
}

impl Future for ShuttingDown {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = core_context::with(|ctx| {
            if !ctx.shared.ending.serving() {
                return Poll::Ready(());
            }
            // All tasks are woken when it begins; who is none leaves a waker.
            if task::local_id(cx.waker()).is_none() {
                let place = *self.place.get_or_insert_with(|| ctx.next_place());
                let waker = cx.waker().clone();
                let old = ctx.closing.borrow_mut().insert(place, waker);
                drop(old);
            }
            Poll::Pending
        });
        polled.expect("janus::shutting_down was awaited where no Janus core runs")
    }
}

impl Drop for ShuttingDown {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let old = core_context::with(|ctx| ctx.closing.borrow_mut().remove(&place));
            drop(old);
        }
    }
}
