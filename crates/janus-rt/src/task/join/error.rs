//! The error of a task without an output.

use std::any::Any;
use std::fmt;

use crate::lock::Lock;
use crate::warning::words_of;

/// Error of a task that gave no output: it panicked, was aborted, or never begun.
pub struct JoinError {
    cause: Cause,
}

enum Cause {
    /// Aborted, or its runtime ended.
    Cancelled,
    /// Never begun, for this reason.
    Refused(&'static str),
    /// Payload of its panic. Locked only so that the error is `Sync`, as most are.
    Panic(Lock<Box<dyn Any + Send>>),
}

impl JoinError {
    pub(in crate::task) fn panicked(payload: Box<dyn Any + Send>) -> JoinError {
        let cause = Cause::Panic(Lock::new(payload));
        JoinError { cause }
    }

    pub(in crate::task) fn cancelled() -> JoinError {
        let cause = Cause::Cancelled;
        JoinError { cause }
    }

    pub(in crate::task) fn refused(why: &'static str) -> JoinError {
        let cause = Cause::Refused(why);
        JoinError { cause }
    }

    /// Returns whether the task was aborted, its runtime ended, or it was never begun because too many tasks waited.
    pub fn is_cancelled(&self) -> bool {
        !self.is_panic()
    }

    /// Returns whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.cause, Cause::Panic(_))
    }

    /// Returns the payload of the task's panic, for `std::panic::resume_unwind`.
    ///
    /// # Panics
    /// When the task did not panic.
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => panic!("into_panic was called on a task that did not panic: {error}"),
        }
    }

    /// Returns the payload of the task's panic, for `std::panic::resume_unwind`.
    ///
    /// # Errors
    /// The error itself, when the task did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self.cause {
            Cause::Panic(payload) => Ok(payload.into_inner()),
            cause => Err(JoinError { cause }),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = match &self.cause {
            Cause::Cancelled => return f.write_str("the task was cancelled"),
            Cause::Refused(why) => return write!(f, "the task was not begun: {why}"),
            Cause::Panic(payload) => payload.lock(),
        };
        match words_of(&**payload) {
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

impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> std::io::Error {
        std::io::Error::other(error)
    }
}
