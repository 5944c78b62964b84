//! The few primitives the lock-free parts are built from, in one place so that the loom model checker can stand in for them
//! (`sync/model.rs`, under `--cfg loom`). Never holds logic: only names for `std`'s types.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Whether the model checker runs this code.
pub(crate) const MODELED: bool = false;

/// `std`'s cell behind loom's closure interface.
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// The owner of memory that somebody else looks at through pointers, its type forgotten.
pub(crate) fn keep_alive(
    memory: impl std::any::Any + Send + Sync,
) -> Arc<dyn std::any::Any + Send + Sync> {
    Arc::new(memory)
}
