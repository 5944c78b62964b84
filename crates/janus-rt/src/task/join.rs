//! Waiting for a task's end.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::arena::Slot;
use super::core::{Core, End};

/// Why a task gave no output.
pub struct JoinError {
    /// The panic's payload; `None`: cancelled.
    payload: Option<Box<dyn Any + Send>>,
}

impl JoinError {
    pub(super) fn panicked(payload: Box<dyn Any + Send>) -> JoinError {
        JoinError {
            payload: Some(payload),
        }
    }

    pub(super) fn cancelled() -> JoinError {
        JoinError { payload: None }
    }

    /// The task was aborted, or its runtime ended.
    pub fn is_cancelled(&self) -> bool {
        self.payload.is_none()
    }

    /// The task panicked.
    pub fn is_panic(&self) -> bool {
        self.payload.is_some()
    }

    /// What the task panicked with, for `std::panic::resume_unwind`.
    ///
    /// # Errors
    /// The error itself, when the task did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self.payload {
            Some(payload) => Ok(payload),
            None => Err(self),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(payload) = &self.payload else {
            return f.write_str("the task was cancelled");
        };
        let text = payload.downcast_ref::<&str>().copied();
        match text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)) {
            Some(text) => write!(f, "the task panicked: {text}"),
            None => f.write_str("the task panicked"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for JoinError {}

/// A task's end, to be awaited. Dropping it lets the task go on alone.
pub struct JoinHandle<T> {
    core: Rc<Core>,
    /// `None` once the output was taken: the slot is not this handle's any more.
    slot: Option<Slot>,
    output: PhantomData<fn() -> T>,
}

impl<T> JoinHandle<T> {
    /// # Safety
    /// The slot's task gives a `T`, has the flag HANDLE, and no other handle.
    pub(super) unsafe fn new(core: Rc<Core>, slot: Slot) -> JoinHandle<T> {
        JoinHandle {
            core,
            slot: Some(slot),
            output: PhantomData,
        }
    }

    /// Ends the task at its next await: its future is dropped, and awaiting the handle gives an error. One that
    /// has ended already is not affected.
    pub fn abort(&self) {
        if let Some(slot) = self.slot {
            self.core.abort(slot);
        }
    }

    #[cfg(test)]
    pub(super) fn slot(&self) -> Option<Slot> {
        self.slot
    }

    /// The task has ended.
    pub fn is_finished(&self) -> bool {
        self.slot.is_none_or(|slot| self.core.is_over(slot))
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = self.slot else {
            panic!("a JoinHandle was polled after it gave its output");
        };
        if !self.core.is_over(slot) {
            self.core.join(slot, cx.waker());
            return Poll::Pending;
        }
        self.slot = None;
        // SAFETY: `T` is what the task gives (`new`), it is over, and this handle, the only one, lets go of the slot.
        let end = unsafe { self.core.take_end::<T>(slot) };
        Poll::Ready(match end {
            End::Output(output) => Ok(output),
            End::Panicked(payload) => Err(JoinError::panicked(payload)),
            End::Cancelled => Err(JoinError::cancelled()),
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.core.detach(slot);
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Some(slot) => write!(f, "JoinHandle(task {})", slot.granule()),
            None => f.write_str("JoinHandle(joined)"),
        }
    }
}
