//! Raw pages for tasks: taken one after the other from one reserved range, and kept. What is inside a page, and what a
//! part of one is used for again, is the executor's.

use crate::growth::{Grown, Growth, Notice};
use crate::region::{MemError, PAGE};
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

/// Pages of 4 KiB in one reserved range; addresses never move. A page is all zero when it is taken.
pub struct PageArena {
    base: NonNull<u8>,
    /// Pages taken so far.
    taken: u32,
    /// Pages that are ready.
    limit: u32,
    /// When so many are taken, more are asked for.
    kick: u32,
    notice: Notice,
    max: u32,
    grown: Arc<Grown>,
}

// SAFETY: the arena owns its range; pages are only handed out as raw addresses, whose use is the caller's promise.
unsafe impl Send for PageArena {}

impl PageArena {
    /// Bytes in a page.
    pub const PAGE: usize = PAGE;

    /// An arena of at most `max` pages.
    pub fn new(max: u32, growth: &Growth) -> Result<Self, MemError> {
        if max == 0 || max == u32::MAX {
            return Err(MemError::BadSize);
        }
        let grown = Grown::new(max as usize * PAGE, growth)?;
        let mut arena = Self {
            base: grown.region().base(),
            taken: 0,
            limit: 0,
            kick: 0,
            notice: Notice::SHORT,
            max,
            grown,
        };
        arena.refresh_limit();
        Ok(arena)
    }

    /// Takes a page that was never taken before and returns its number; pages are counted from 0. `None` when all are taken or the machine
    /// has no memory left.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        let page = self.taken;
        if page >= self.kick && !self.extend() {
            return None;
        }
        self.taken = page + 1;
        Some(page)
    }

    #[cold]
    fn extend(&mut self) -> bool {
        if self.taken < self.limit {
            self.grown.ask_ahead();
            self.kick = self.limit;
            return true;
        }
        if self.taken == self.max {
            return false;
        }
        let mut seen = self.refresh_limit();
        if self.taken == self.limit {
            self.notice.was_short();
        }
        while self.taken == self.limit && self.grown.grow_past(seen) {
            seen = self.refresh_limit();
        }
        self.taken < self.limit
    }

    /// Looks how much memory is ready; returns its bytes.
    fn refresh_limit(&mut self) -> usize {
        let ready = self.grown.ready();
        self.limit = (ready / PAGE).min(self.max as usize) as u32;
        self.kick = self.notice.place(self.taken, self.limit);
        ready
    }

    /// The address of the first page. Only pages that were taken may be accessed.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Pages taken so far.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Memory made ready for pages.
    pub fn committed_bytes(&self) -> usize {
        self.grown.ready()
    }

    /// How often a chunk was not there in time although a toucher grows this arena.
    pub fn late(&self) -> u64 {
        self.grown.late()
    }
}

impl fmt::Debug for PageArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageArena")
            .field("taken", &self.taken)
            .field("committed_bytes", &self.committed_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_and_are_zero() {
        let many = if cfg!(miri) { 30 } else { 3_000 };
        let mut arena = PageArena::new(many, &Growth::Inline).unwrap();
        for page in 0..many {
            assert_eq!(arena.take(), Some(page));
            // SAFETY: the page was just taken, so it is ready, and nothing else refers to it.
            let bytes = unsafe {
                let at = arena.base().add(page as usize * PAGE);
                core::slice::from_raw_parts_mut(at.as_ptr(), PAGE)
            };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(0xa5);
        }
        assert!(arena.committed_bytes() >= many as usize * PAGE);
    }

    #[test]
    fn a_full_arena_says_so() {
        let mut arena = PageArena::new(100, &Growth::Inline).unwrap();
        assert_eq!(core::iter::from_fn(|| arena.take()).count(), 100);
        assert_eq!((arena.take(), arena.taken()), (None, 100));
    }

    #[test]
    fn one_of_no_pages_is_refused() {
        for max in [0, u32::MAX] {
            let refused = PageArena::new(max, &Growth::Inline).unwrap_err();
            assert_eq!(refused, MemError::BadSize);
        }
    }
}
