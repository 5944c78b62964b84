//! Waiting for a task's end, and aborting it. A handle is a plain name of a task (its core, its slot), or a share in the parcel in which a
//! result comes from elsewhere; it may be sent wherever its result may.

mod error;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use error::JoinError;

use super::arena::Slot;
use super::core::{Core, End};
use super::parcel::{self, Delivery, Order, Parcel};
use super::{context, coop, spawn};
use crate::inbox::TaskRef;

impl TaskRef {
    fn abort(self) {
        let here = on_own_core(self, |core, slot| slot.map_or((), |slot| core.abort(slot)));
        if here.is_none()
            && let Some(inbox) = self.inbox()
        {
            inbox.abort(self);
        }
    }

    /// Returns whether the task has ended. Away from its core this is not known while the core lives.
    fn is_finished(self) -> bool {
        let here = on_own_core(self, |core, slot| {
            slot.is_none_or(|slot| core.is_over(slot))
        });
        here.unwrap_or_else(|| self.inbox().is_none())
    }
}

/// Calls `f` with the core of `task` and its slot, if it still has one; `None` when the thread is not that core's.
#[inline]
fn on_own_core<R>(task: TaskRef, f: impl FnOnce(&Core, Option<Slot>) -> R) -> Option<R> {
    context::with(|core| {
        task.is_of(&core.identity)
            .then(|| f(core, core.slot_of(task)))
    })
    .flatten()
}

/// Handle to await a task's end. Dropping it lets the task go on alone.
///
/// It may be awaited and dropped on any core, if its result may be sent there; on the task's own core that costs no message.
///
/// ```
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let handle = janus::spawn(async { 6 * 7 });
/// assert_eq!(handle.await?, 42);
///
/// let endless = janus::spawn(std::future::pending::<()>());
/// endless.abort();
/// assert!(endless.await.unwrap_err().is_cancelled());
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Errors
/// A [`JoinError`] when the task panicked, was aborted, or ended with its core.
///
/// # Panics
/// When polled after it gave its output.
///
/// # Cancel safety
/// No result is lost when a poll of `&mut handle` is given up.
pub struct JoinHandle<T> {
    of: Of<T>,
}

enum Of<T> {
    /// A task of a core, with its output in its slot.
    Core(TaskRef),
    /// Work that runs elsewhere (on a core, on a thread for blocking calls), and whose output is sent; `None` once the output was taken,
    /// wherever it came from.
    Parcel(Option<Arc<Parcel<T>>>),
}

const _: () = assert!(size_of::<JoinHandle<String>>() == 16);

impl<T> JoinHandle<T> {
    /// # Safety
    /// The task's output is a `T`, it has the flag HANDLE, and no other handle.
    #[inline]
    pub(super) unsafe fn here(task: TaskRef) -> JoinHandle<T> {
        JoinHandle { of: Of::Core(task) }
    }

    pub(super) fn elsewhere(parcel: Arc<Parcel<T>>) -> JoinHandle<T> {
        JoinHandle {
            of: Of::Parcel(Some(parcel)),
        }
    }

    /// Aborts the task at its next await: its future is dropped, and awaiting the handle returns an error. A task that has ended is not
    /// affected. A blocking call that has begun goes on; one that waits for its thread does not begin.
    pub fn abort(&self) {
        match &self.of {
            Of::Core(task) => task.abort(),
            Of::Parcel(Some(parcel)) => parcel.order().abort(),
            Of::Parcel(None) => {}
        }
    }

    #[cfg(test)]
    pub(super) fn granule(&self) -> Option<u32> {
        self.task().map(TaskRef::granule)
    }

    #[cfg(test)]
    pub(super) fn task(&self) -> Option<TaskRef> {
        match self.of {
            Of::Core(task) => Some(task),
            _ => None,
        }
    }

    /// Returns whether the task has ended. On another core than that of a task begun by [`spawn`], this is not known before the handle was
    /// awaited there.
    pub fn is_finished(&self) -> bool {
        match &self.of {
            Of::Core(task) => task.is_finished(),
            Of::Parcel(Some(parcel)) => parcel.order().is_finished(),
            Of::Parcel(None) => true,
        }
    }

    /// Returns a handle that can only [`abort`](JoinHandle::abort) the task, and can be cloned.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle {
            of: match &self.of {
                Of::Core(task) => Abortable::Core(*task),
                Of::Parcel(Some(parcel)) => Abortable::Parcel(parcel.order().clone()),
                Of::Parcel(None) => Abortable::Over,
            },
        }
    }
}

impl<T: 'static> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if coop::proceed(cx).is_pending() {
            return Poll::Pending;
        }
        let polled = match &self.of {
            Of::Core(task) => poll_here(*task, cx).unwrap_or_else(|| self.send_for(cx)),
            Of::Parcel(Some(parcel)) => parcel.poll(cx),
            Of::Parcel(None) => panic!("a JoinHandle was polled after it gave its output"),
        };
        if polled.is_ready() {
            self.of = Of::Parcel(None);
            coop::spend();
        }
        polled
    }
}

/// Polls for the end of a task of this thread's core; `None`: the task is another core's.
fn poll_here<T>(task: TaskRef, cx: &mut Context<'_>) -> Option<Poll<Result<T, JoinError>>> {
    on_own_core(task, |core, slot| {
        let Some(slot) = slot else {
            // Its core has ended.
            return Poll::Ready(Err(JoinError::cancelled()));
        };
        if !core.is_over(slot) {
            core.join(slot, cx.waker());
            return Poll::Pending;
        }
        // SAFETY: `T` is what the task gives (`here`), it is over, and its handle, the only one, lets go of the slot.
        let end = unsafe { core.take_end::<T>(slot) };
        Poll::Ready(match end {
            End::Output(output) => Ok(output),
            End::Panicked(payload) => Err(JoinError::panicked(payload)),
            End::Cancelled => Err(JoinError::cancelled()),
        })
    })
}

impl<T: 'static> JoinHandle<T> {
    /// Requests the output of another core's task: a task on that core awaits it and sends it here.
    #[cold]
    fn send_for(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        /// Values that only go to the task's own thread.
        struct There<T>(T);
        // SAFETY: made by this function only. What it holds is a way for a `T` to come to this thread. That is allowed: a
        // `JoinHandle<T>` may only be sent where its `T` may (by `Of::Parcel` the compiler knows), and this thread,
        // which is not the task's, has one.
        unsafe impl<T> Send for There<T> {}

        let (parcel, delivery) = parcel::pair();
        let task = std::mem::replace(self, JoinHandle::elsewhere(parcel.clone()));
        let inbox = match &task.of {
            Of::Core(task) => task.inbox(),
            _ => None,
        };
        let there = There(Relay {
            task,
            delivery: Some(delivery),
        });
        let relay = move || {
            // Moves the whole value; else only its parts would be captured.
            let there: There<Relay<T>> = there;
            drop(spawn(there.0));
        };
        // Where it cannot run it is dropped, which reports a cancelled task.
        let _ = inbox.map(|inbox| inbox.run(Box::new(relay)));
        parcel.poll(cx)
    }
}

/// Awaits a task on its own core for another thread.
struct Relay<T: 'static> {
    task: JoinHandle<T>,
    /// `None` once the output is sent.
    delivery: Option<Delivery<T>>,
}

impl<T> Future for Relay<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.delivery.as_ref().is_some_and(|d| d.is_aborted(cx)) {
            self.task.abort();
        }
        let Poll::Ready(end) = Pin::new(&mut self.task).poll(cx) else {
            return Poll::Pending;
        };
        if let Some(delivery) = self.delivery.take() {
            delivery.deliver(end);
        }
        Poll::Ready(())
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        let Of::Core(task) = self.of else { return };
        let here = on_own_core(task, |core, slot| slot.map_or((), |slot| core.detach(slot)));
        if here.is_none()
            && let Some(inbox) = task.inbox()
        {
            inbox.detach(task);
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Of::Core(task) => write!(f, "JoinHandle(task {})", task.granule()),
            Of::Parcel(Some(_)) => f.write_str("JoinHandle(elsewhere)"),
            Of::Parcel(None) => f.write_str("JoinHandle(joined)"),
        }
    }
}

/// Aborts a task from anywhere; see [`JoinHandle::abort_handle`].
#[derive(Clone)]
pub struct AbortHandle {
    of: Abortable,
}

#[derive(Clone)]
enum Abortable {
    Core(TaskRef),
    Parcel(Arc<Order>),
    Over,
}

impl AbortHandle {
    /// Aborts the task, as [`JoinHandle::abort`] does.
    pub fn abort(&self) {
        match &self.of {
            Abortable::Core(task) => task.abort(),
            Abortable::Parcel(order) => order.abort(),
            Abortable::Over => {}
        }
    }

    /// Returns whether the task has ended, as [`JoinHandle::is_finished`] does.
    pub fn is_finished(&self) -> bool {
        match &self.of {
            Abortable::Core(task) => task.is_finished(),
            Abortable::Parcel(order) => order.is_finished(),
            Abortable::Over => true,
        }
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AbortHandle(finished: {})", self.is_finished())
    }
}
