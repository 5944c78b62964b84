//! What a core shows of itself while it works, for whoever watches that no task keeps it: the turn it is in, and whose
//! future it is polling. Two stores to a line of its own, and nothing else.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::header::VTable;
use super::thread::{Account, Thread};

/// One core's.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Pulse {
    turn: AtomicU64,
    /// Null between tasks.
    polling: AtomicPtr<VTable>,
    /// Where it works; nothing where the system does not tell.
    thread: OnceLock<Option<Thread>>,
}

/// What a look saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) turn: u64,
    /// The type of the future that is being polled.
    pub(crate) task: Option<&'static str>,
}

impl Pulse {
    /// It is the calling thread's.
    pub(crate) fn beats_here(&self) {
        // A core stays on its thread.
        let _ = self.thread.set(Thread::current());
    }

    /// What its thread did so far, if that can be told.
    pub(crate) fn account(&self) -> Option<Account> {
        let thread = self.thread.get().copied().flatten();
        thread.and_then(Thread::account)
    }

    /// A turn begins.
    #[inline]
    pub(super) fn turns(&self) {
        // Nobody else writes.
        let next = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.turn.store(next, Ordering::Relaxed);
    }

    /// A task is about to be polled.
    #[inline]
    pub(super) fn polls(&self, task: &'static VTable) {
        let task = ptr::from_ref(task).cast_mut();
        self.polling.store(task, Ordering::Relaxed);
    }

    /// No task is being polled any more.
    #[inline]
    pub(super) fn rests(&self) {
        self.polling.store(ptr::null_mut(), Ordering::Relaxed);
    }

    pub(crate) fn look(&self) -> Beat {
        let turn = self.turn.load(Ordering::Relaxed);
        let polling = self.polling.load(Ordering::Relaxed);
        // SAFETY: null, or made from a `&'static VTable` by `polls`; nobody writes to a table.
        let task = unsafe { polling.as_ref() }.map(|task| (task.name)());
        Beat { turn, task }
    }
}
