//! Activity of a core, for the watchdog that checks that no task blocks it: the turn it is in, and the future it polls. Costs two stores
//! to a cache line of its own.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::header::VTable;
use super::thread::{Account, Thread};

/// Activity of one core.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Pulse {
    turn: AtomicU64,
    /// Null between tasks.
    polling: AtomicPtr<VTable>,
    /// The core's thread; `None` inside where the system does not tell.
    thread: OnceLock<Option<Thread>>,
}

/// Activity at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) turn: u64,
    /// Type of the future that is being polled.
    pub(crate) task: Option<&'static str>,
}

impl Pulse {
    /// Assigns the calling thread.
    pub(crate) fn beats_here(&self) {
        // Set once: a core stays on its thread.
        let _ = self.thread.set(Thread::current());
    }

    /// Returns the thread's accounting, if the system tells.
    pub(crate) fn account(&self) -> Option<Account> {
        let thread = self.thread.get().copied().flatten();
        thread.and_then(Thread::account)
    }

    /// Notes that a turn begins.
    #[inline]
    pub(super) fn turns(&self) {
        // There is no other writer.
        let next = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(next, Ordering::Relaxed);
    }

    /// Notes that a task is about to be polled.
    #[inline]
    pub(super) fn polls(&self, task: &'static VTable) {
        let task = ptr::from_ref(task).cast_mut();
        self.polling.store(task, Ordering::Relaxed);
    }

    /// Notes that no task is being polled any more.
    #[inline]
    pub(super) fn rests(&self) {
        self.polling.store(ptr::null_mut(), Ordering::Relaxed);
    }

    pub(crate) fn look(&self) -> Beat {
        let turn = self.turn.load(Ordering::Relaxed);
        let polling = self.polling.load(Ordering::Relaxed);
        // SAFETY: null, or made from a `&'static VTable` by `polls`; a table is never written to.
        let task = unsafe { polling.as_ref() }.map(|task| (task.name)());
        Beat { turn, task }
    }
}
