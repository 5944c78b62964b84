//! Counters that one core writes and anybody reads: plain adds for the writer, no shared line between cores.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number, as a rule one that only grows and is written by one thread.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; to be called by the one writer only.
    #[inline]
    pub fn add(&self, n: u64) {
        // One writer: a load and a store, instead of a locked add.
        if n != 0 {
            self.0.store(
                self.0.load(Ordering::Relaxed).wrapping_add(n),
                Ordering::Relaxed,
            );
        }
    }

    /// For what goes up and down: stands at `n` from now on; to be called by the one writer only.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Adds; for what several threads count, rarely.
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
