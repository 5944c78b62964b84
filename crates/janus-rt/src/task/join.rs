//! Waiting for a task's end.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::executor::{Core, TaskId};
use super::header::state;

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
    task: TaskId,
    generation: u32,
    /// The output was taken: the slot is not this handle's any more.
    taken: bool,
    output: PhantomData<fn() -> T>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(core: Rc<Core>, task: TaskId, generation: u32) -> JoinHandle<T> {
        JoinHandle {
            core,
            task,
            generation,
            taken: false,
            output: PhantomData,
        }
    }

    /// Ends the task at its next await: its future is dropped, and awaiting the handle gives an error. One that
    /// has ended already is not affected.
    pub fn abort(&self) {
        if !self.taken {
            self.core.abort(self.task);
        }
    }

    #[cfg(test)]
    pub(super) fn task_id(&self) -> TaskId {
        self.task
    }

    /// The task has ended.
    pub fn is_finished(&self) -> bool {
        self.taken || self.core.header(self.task).has(state::DONE)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(
            !self.taken,
            "a JoinHandle was polled after it gave its output"
        );
        let (core, task) = (Rc::clone(&self.core), self.task);
        debug_assert_eq!(core.header(task).generation.get(), self.generation);
        if !core.header(task).has(state::DONE) {
            let replaced = core.joiners.borrow_mut().insert(task, cx.waker().clone());
            drop(replaced);
            return Poll::Pending;
        }
        self.taken = true;
        let failure = core.failures.borrow_mut().remove(&task);
        let output = core.take_output(task);
        Poll::Ready(match (output, failure) {
            (Some(output), _) => Ok(output),
            (None, Some(error)) => Err(error),
            (None, None) => Err(JoinError::cancelled()),
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let header = self.core.header(self.task);
        header.clear(state::JOINABLE);
        let done = header.has(state::DONE);
        if !self.core.joiners.borrow().is_empty() {
            let joiner = self.core.joiners.borrow_mut().remove(&self.task);
            drop(joiner);
        }
        if done {
            let failure = self.core.failures.borrow_mut().remove(&self.task);
            drop(failure);
            self.core.discard(self.task);
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinHandle(task {})", self.task)
    }
}
