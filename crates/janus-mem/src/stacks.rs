//! The two stacks of a depot's free slots: whole magazines, each named by one of its slots, and strays that came back one
//! by one. Both are chained through one table of links, one word for each slot, that the caller brings along. What a
//! magazine holds, and how many are home, is not known here. Checked by loom.

use crossbeam::utils::CachePadded;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// A stack of magazines. A name stands in it at most once, and belongs to whoever took it out.
pub(crate) struct Magazines {
    /// The topmost name in the low half, a tag in the high half.
    head: CachePadded<AtomicU64>,
}

impl Magazines {
    pub(crate) fn new() -> Self {
        Self {
            head: CachePadded::new(AtomicU64::new(u64::from(NONE))),
        }
    }

    /// Puts a magazine in; whoever takes it out sees what was written before.
    pub(crate) fn push<'a>(&self, name: u32, link: impl Fn(u32) -> &'a AtomicU32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link(name).store(head as u32, Ordering::Relaxed);
            let new = (head & !u64::from(NONE)) | u64::from(name);
            match self
                .head
                .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes one out; it is the caller's alone.
    pub(crate) fn pop<'a>(&self, link: impl Fn(u32) -> &'a AtomicU32) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let name = head as u32;
            if name == NONE {
                return None;
            }
            let next = link(name).load(Ordering::Relaxed);
            // The tag makes a head that went away and came back look different: its link may be another by now.
            let tag = (head >> 32).wrapping_add(1) << 32;
            match self.head.compare_exchange_weak(
                head,
                tag | u64::from(next),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(name),
                Err(now) => head = now,
            }
        }
    }

    /// Forgets all entries; no other thread may use the stack meanwhile.
    pub(crate) fn clear(&self) {
        self.head.store(u64::from(NONE), Ordering::Release);
    }
}

/// Single slots, put in one by one and taken all together, which leaves no room for a head that comes back.
pub(crate) struct Strays {
    head: CachePadded<AtomicU32>,
}

impl Strays {
    pub(crate) fn new() -> Self {
        Self {
            head: CachePadded::new(AtomicU32::new(NONE)),
        }
    }

    pub(crate) fn push<'a>(&self, slot: u32, link: impl Fn(u32) -> &'a AtomicU32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link(slot).store(head, Ordering::Relaxed);
            match self
                .head
                .compare_exchange_weak(head, slot, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// The first of a chain that is the caller's now; [`NONE`] ends it.
    pub(crate) fn take_all(&self) -> u32 {
        if self.head.load(Ordering::Relaxed) == NONE {
            return NONE;
        }
        self.head.swap(NONE, Ordering::AcqRel)
    }

    /// Forgets all entries; no other thread may use the stack meanwhile.
    pub(crate) fn clear(&self) {
        self.head.store(NONE, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests;
