//! A burst of items on the stack: the unit in which everything in this crate moves. Never allocates, never grows.

use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

use crate::debug::opaque;

/// Frames a device is asked for, or given, at a time.
pub const BURST: usize = 64;

/// Up to `N` items in order, on the stack.
pub struct Burst<T, const N: usize = BURST> {
    len: usize,
    /// At most `N`.
    limit: usize,
    items: [MaybeUninit<T>; N],
}

impl<T, const N: usize> Burst<T, N> {
    /// An empty burst.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            len: 0,
            limit: N,
            items: [const { MaybeUninit::uninit() }; N],
        }
    }

    /// From now on it takes only so many items, at most `N`; those it holds stay.
    #[inline]
    pub fn set_limit(&mut self, items: usize) {
        self.limit = if items < N { items } else { N };
    }

    /// Items that still fit.
    #[inline]
    #[must_use]
    pub const fn room(&self) -> usize {
        self.limit.saturating_sub(self.len)
    }

    /// Whether nothing more fits.
    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// Appends one item, or hands it back when the burst is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.is_full() {
            return Err(item);
        }
        self.items[self.len].write(item);
        self.len += 1;
        Ok(())
    }

    /// Takes the last item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        // SAFETY: slots below the old `len` are initialised; the lower `len` gives this one's ownership to the caller.
        Some(unsafe { self.items[self.len].assume_init_read() })
    }

    /// An iterator that takes items from the front. Whatever it was not asked for is still in the burst afterwards,
    /// moved to the front: "a frame that was not taken stays".
    #[inline]
    pub fn pull(&mut self) -> Pull<'_, T, N> {
        let end = self.len;
        // Until the iterator is dropped the burst counts as empty, so a leaked iterator leaks items, never doubles them.
        self.len = 0;
        Pull {
            burst: self,
            next: 0,
            end,
        }
    }

    /// Moves all items to the end of `to`, as a piece.
    #[inline]
    pub fn append_to(&mut self, to: &mut Vec<T>) {
        let (count, before) = (self.len, to.len());
        to.reserve(count);
        self.len = 0;
        // SAFETY: the first `count` slots were initialised and, since the burst counts as empty, have no owner; `to` has room for
        // them behind its own items, and is another allocation.
        unsafe {
            let from = self.items.as_ptr().cast::<T>();
            core::ptr::copy_nonoverlapping(from, to.as_mut_ptr().add(before), count);
            to.set_len(before + count);
        }
    }

    /// Takes the first `count` items of `from`, or as many as there are and fit, as a piece. How many.
    #[inline]
    pub fn take_front(&mut self, from: &mut Vec<T>, count: usize) -> usize {
        let count = count.min(from.len()).min(self.room());
        let left = from.len() - count;
        // SAFETY: `count` slots behind the items are within the array (`room`), and as many items are in `from`; what is behind those
        // moves to its front, and it is shorter by what was taken, so that each item has one owner.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), self.spare(), count);
            from.set_len(left);
            if left > 0 {
                let base = from.as_mut_ptr();
                core::ptr::copy(base.add(count), base, left);
            }
            self.count_more(count);
        }
        count
    }

    /// Where the next items belong, [`room`](Self::room) of them.
    #[inline]
    pub(crate) fn spare(&mut self) -> *mut T {
        self.items[self.len..].as_mut_ptr().cast()
    }

    /// # Safety
    /// That many items were written to [`spare`](Self::spare).
    #[inline]
    pub(crate) unsafe fn count_more(&mut self, items: usize) {
        debug_assert!(items <= self.room());
        self.len += items;
    }

    /// Closes up over items that somebody else has taken.
    ///
    /// # Safety
    /// The first `items` were moved out, and there were as many.
    #[inline]
    pub(crate) unsafe fn forget_front(&mut self, items: usize) {
        debug_assert!(items <= self.len);
        self.len -= items;
        if self.len > 0 && items > 0 {
            let base = self.items.as_mut_ptr();
            // SAFETY: the slots behind the first `items` are initialised and move to the front.
            unsafe { core::ptr::copy(base.add(items), base, self.len) };
        }
    }

    /// Drops all items.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T, const N: usize> Default for Burst<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Drop for Burst<T, N> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<T, const N: usize> Deref for Burst<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` slots are initialised, and `MaybeUninit<T>` has the layout of `T`.
        unsafe { core::slice::from_raw_parts(self.items.as_ptr().cast(), self.len) }
    }
}

impl<T, const N: usize> DerefMut for Burst<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.items.as_mut_ptr().cast(), self.len) }
    }
}

/// Appends as much as fits; the rest of the iterator is not asked for.
impl<T, const N: usize> Extend<T> for Burst<T, N> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        let mut items = items.into_iter();
        while !self.is_full() {
            let Some(item) = items.next() else { return };
            let _ = self.push(item);
        }
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for Burst<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Takes items from the front of a [`Burst`]; see [`Burst::pull`].
pub struct Pull<'a, T, const N: usize> {
    burst: &'a mut Burst<T, N>,
    next: usize,
    end: usize,
}

opaque!([T, const N: usize] Pull<'_, T, N>);

impl<T, const N: usize> Iterator for Pull<'_, T, N> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        let at = self.next;
        self.next += 1;
        // SAFETY: slots `next..end` are initialised and owned by this iterator; `next` has moved past this one.
        Some(unsafe { self.burst.items[at].assume_init_read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl<T, const N: usize> ExactSizeIterator for Pull<'_, T, N> {}

impl<T, const N: usize> Drop for Pull<'_, T, N> {
    #[inline]
    fn drop(&mut self) {
        let left = self.end - self.next;
        if left > 0 && self.next > 0 {
            let base = self.burst.items.as_mut_ptr();
            // SAFETY: `next..end` are initialised slots of the array; the copy moves them to its front, and the slots
            // that were read out before are not counted by the length set below.
            unsafe { core::ptr::copy(base.add(self.next), base, left) };
        }
        self.burst.len = left;
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
