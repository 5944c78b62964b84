//! A mutex without poison. What this crate changes under a lock is changed completely or not at all, so that a panic leaves nothing half
//! done, and one in a task must not hide a runtime's tables from the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A [`Mutex`] that a panic does not close.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
