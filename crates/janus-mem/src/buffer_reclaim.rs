//! When the memory of a depot goes: the depot is gone and the last of its buffers is home, whichever comes last, and on
//! whatever thread. Counts buffers and keeps what is to be given back; knows neither slots nor memory. Checked by loom.

use std::sync::PoisonError;

use crate::sync::{AtomicBool, AtomicIsize, AtomicU32, Mutex, MutexGuard, Ordering};

/// Serves one depot after another: each brings its `M`, which is handed out again once.
pub(crate) struct BufferReclaim<M> {
    /// Slots ever handed out: those numbered 1 to this.
    fresh: AtomicU32,
    /// Buffers that are home; may be off for a moment, never too high while a pool lives.
    home: AtomicIsize,
    orphaned: AtomicBool,
    mapping: Mutex<Option<M>>,
}

/// State after all buffers are home and the depot is gone: nothing has a claim on the mapping any more.
pub(crate) struct Last<'a, M> {
    reclaim: &'a BufferReclaim<M>,
    /// Held lock: no other thread gets here meanwhile.
    _alone: MutexGuard<'a, Option<M>>,
    pub(crate) mapping: M,
}

impl<M> BufferReclaim<M> {
    pub(crate) fn new() -> Self {
        Self {
            fresh: AtomicU32::new(0),
            home: AtomicIsize::new(0),
            orphaned: AtomicBool::new(false),
            mapping: Mutex::new(None),
        }
    }

    fn mapping(&self) -> MutexGuard<'_, Option<M>> {
        self.mapping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A depot begins.
    pub(crate) fn begin(&self, mapping: M) {
        *self.mapping() = Some(mapping);
    }

    /// Slots ever handed out.
    #[inline]
    pub(crate) fn fresh(&self) -> &AtomicU32 {
        &self.fresh
    }

    /// Buffers that are home.
    #[inline]
    pub(crate) fn home(&self) -> isize {
        self.home.load(Ordering::Acquire)
    }

    /// [`home`](Self::home), a little out of date perhaps.
    #[inline]
    pub(crate) fn home_about(&self) -> isize {
        self.home.load(Ordering::Relaxed)
    }

    /// These came home, brought by a pool: its depot lives.
    #[inline]
    pub(crate) fn put_back(&self, buffers: usize) {
        self.home.fetch_add(buffers as isize, Ordering::AcqRel);
    }

    /// These went out again.
    #[inline]
    pub(crate) fn took(&self, buffers: usize) {
        self.home.fetch_sub(buffers as isize, Ordering::AcqRel);
    }

    /// One came home by itself. From here on the caller has no claim on the mapping, unless it is the last.
    pub(crate) fn put_back_one(&self) -> Option<Last<'_, M>> {
        // One of these two additions comes first, ours and the one in `last` after the flag: so either we see the flag, or
        // who dropped the depot sees our buffer.
        self.home.fetch_add(1, Ordering::AcqRel);
        if self.orphaned.load(Ordering::Acquire) {
            self.last()
        } else {
            None
        }
    }

    /// The depot and all its pools are gone.
    pub(crate) fn orphan(&self) -> Option<Last<'_, M>> {
        self.orphaned.store(true, Ordering::Release);
        self.last()
    }

    fn last(&self) -> Option<Last<'_, M>> {
        let mut alone = self.mapping();
        // An addition, although of nothing, sees the last of the others.
        let home = self.home.fetch_add(0, Ordering::AcqRel);
        let all_home = home == self.fresh.load(Ordering::Acquire) as isize;
        if !all_home || !self.orphaned.load(Ordering::Acquire) {
            return None;
        }
        let mapping = alone.take()?;
        Some(Last {
            reclaim: self,
            _alone: alone,
            mapping,
        })
    }
}

impl<M> Last<'_, M> {
    /// Ready for the next depot; what the last one left.
    pub(crate) fn finish(self) -> M {
        self.reclaim.orphaned.store(false, Ordering::Release);
        self.reclaim.fresh.store(0, Ordering::Release);
        self.reclaim.home.store(0, Ordering::Release);
        self.mapping
    }
}

#[cfg(all(test, loom))]
mod tests;
