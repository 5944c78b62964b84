//! Fixed-size slots of one type, numbered by `u32`, at addresses that never move: connection blocks, records, timers.
//! No generation and no occupancy lives here; whoever hands out numbers to strangers adds those to `T`.

use crate::growth::{Grown, Growth, Notice};
use crate::prefetch::{prefetch, prefetch_to_write};
use crate::region::MemError;
use crate::rested::Rested;
use core::fmt;
use core::ops::{Index, IndexMut};
use core::ptr::NonNull;
use std::sync::Arc;

/// Slots of `T` indexed by `u32`.
///
/// Every slot below the high-water mark always holds a valid `T`: a fresh slot starts as `T::default()`, a slot that
/// comes back keeps what its last owner left there, and the most recently freed slot is handed out first, warm.
/// So an index that was once valid can never reach anything but a `T`, whatever the caller confuses.
pub struct Slab<T> {
    base: NonNull<T>,
    /// Slots ever handed out: the valid prefix.
    fresh: u32,
    /// Slots that fit the memory that is ready.
    limit: u32,
    /// When `fresh` gets here the next chunk is asked for.
    kick: u32,
    notice: Notice,
    max: u32,
    free: FreeStack,
    /// Free ids, where they are reused in the order they came; `free` is empty then. `None`: the last freed is reused first.
    rested: Option<Rested<u32>>,
    grown: Arc<Grown>,
    #[cfg(debug_assertions)]
    live: Vec<u64>,
}

// SAFETY: the slab owns its slots as a Vec would; the raw base is only reached through `&self` and `&mut self`.
unsafe impl<T: Send> Send for Slab<T> {}
// SAFETY: shared access gives out `&T` only.
unsafe impl<T: Sync> Sync for Slab<T> {}

impl<T: Default> Slab<T> {
    /// A slab of at most `max` slots. Addresses for all of them are reserved, memory comes in chunks.
    pub fn new(max: u32, growth: &Growth) -> Result<Self, MemError> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= crate::region::PAGE) };
        if max == 0 || max == u32::MAX {
            return Err(MemError::BadSize);
        }
        let bytes = size_of::<T>()
            .checked_mul(max as usize)
            .ok_or(MemError::BadSize)?;
        let grown = Grown::new(bytes, growth)?;
        let mut slab = Self {
            base: grown.region().base().cast(),
            fresh: 0,
            limit: 0,
            kick: 0,
            notice: Notice::SHORT,
            max,
            free: FreeStack::new(max)?,
            rested: None,
            grown,
            #[cfg(debug_assertions)]
            live: Vec::new(),
        };
        slab.refresh_limit();
        Ok(slab)
    }

    /// Takes a slot: the most recently freed one, or a fresh `T::default()`. `None` when all `max` are in use or the
    /// machine has no memory left.
    #[inline(always)]
    pub fn alloc(&mut self) -> Option<u32> {
        let id = match self.free.pop() {
            Some(id) => id,
            None => self.alloc_other()?,
        };
        #[cfg(debug_assertions)]
        self.mark(id, true);
        Some(id)
    }

    /// Like [`alloc`](Self::alloc), with the slot.
    #[inline(always)]
    pub fn alloc_slot(&mut self) -> Option<(u32, &mut T)> {
        let id = self.alloc()?;
        // SAFETY: `alloc` gives only numbers below the high-water mark, where every slot holds a valid `T`.
        Some((id, unsafe { &mut *self.base.as_ptr().add(id as usize) }))
    }

    /// No slot was freed lately.
    #[inline]
    fn alloc_other(&mut self) -> Option<u32> {
        let rested = self.rested.as_mut().and_then(Rested::pop);
        rested.or_else(|| self.alloc_fresh())
    }

    #[inline]
    fn alloc_fresh(&mut self) -> Option<u32> {
        let id = self.fresh;
        if id >= self.kick && !self.extend() {
            return None;
        }
        // SAFETY: `id < limit` (checked by `extend`, or `kick <= limit`): the slot lies in ready memory and, being at the high-water mark,
        // has no reference to it.
        unsafe { self.base.as_ptr().add(id as usize).write(T::default()) };
        self.fresh = id + 1;
        Some(id)
    }

    /// Asks for the next chunk, or gets it when the last one is used up. False when there is no room.
    #[cold]
    fn extend(&mut self) -> bool {
        if self.fresh < self.limit {
            self.grown.ask_ahead();
            self.kick = self.limit;
            return true;
        }
        if self.fresh == self.max {
            return false;
        }
        let mut seen = self.refresh_limit();
        if self.fresh == self.limit {
            self.notice.was_short();
            // A chunk can be smaller than a slot: grow until one fits.
            while self.fresh == self.limit && self.grown.grow_past(seen) {
                seen = self.refresh_limit();
            }
        }
        self.fresh < self.limit
    }

    /// From now on the slot that has been free for longest is handed out first; so many, as far as there are, are free at once,
    /// in no order. What warm reuse is worth is seen beside this.
    ///
    /// # Panics
    /// When slots were handed out before.
    pub fn reuse_oldest_first(&mut self, spread: usize) {
        assert!(self.fresh == 0, "slab: set before anything is taken");
        let slots = (0..spread).map_while(|_| self.alloc_fresh()).collect();
        self.rested = Some(Rested::shuffled(slots));
    }

    /// Looks how much memory is ready; returns its bytes.
    fn refresh_limit(&mut self) -> usize {
        let ready = self.grown.ready();
        self.limit = (ready / size_of::<T>()).min(self.max as usize) as u32;
        self.kick = self.notice.place(self.fresh, self.limit);
        ready
    }
}

impl<T> Slab<T> {
    /// Gives a slot back. Its contents stay as they are for the next owner.
    ///
    /// # Panics
    /// When `id` was never handed out; in debug builds also when it is free already.
    #[inline(always)]
    pub fn free(&mut self, id: u32) {
        assert!(id < self.fresh, "slab: free of a slot never handed out");
        #[cfg(debug_assertions)]
        self.mark(id, false);
        match &mut self.rested {
            None => self.free.push(id),
            Some(rested) => rested.push(id),
        }
    }

    /// Brings the slot close that is handed out after `before` others, for its new owner to write; any number is allowed.
    #[inline]
    pub fn prefetch_next(&self, before: u32) {
        let id = match self.free.len.checked_sub(before) {
            Some(left @ 1..) => self.free.at(left - 1),
            _ => self.fresh.wrapping_add(before - self.free.len),
        };
        let at = self.base.as_ptr().wrapping_add(id as usize).cast::<u8>();
        prefetch_to_write(at);
        prefetch_to_write(at.wrapping_add(size_of::<T>() - 1));
    }

    /// Brings the slot's cache lines close (of one larger than two lines, the first two); any number is allowed.
    #[inline(always)]
    pub fn prefetch(&self, id: u32) {
        let at = self.base.as_ptr().wrapping_add(id as usize).cast::<u8>();
        prefetch(at);
        if size_of::<T>() > 64 {
            prefetch(at.wrapping_add(64));
        }
        // Slots that do not divide a line can end in one more.
        if size_of::<T>() < 128 && !64usize.is_multiple_of(size_of::<T>()) {
            prefetch(at.wrapping_add(size_of::<T>() - 1));
        }
    }

    /// The slot, if it was ever handed out.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        // SAFETY: below the high-water mark every slot holds a valid `T`.
        (id < self.fresh).then(|| unsafe { &*self.base.as_ptr().add(id as usize) })
    }

    /// The slot, if it was ever handed out.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        // SAFETY: below the high-water mark every slot holds a valid `T`, and `&mut self` makes the access exclusive.
        (id < self.fresh).then(|| unsafe { &mut *self.base.as_ptr().add(id as usize) })
    }

    /// All slots ever handed out, in order, those that are free meanwhile included.
    #[inline]
    pub fn slots(&self) -> &[T] {
        // SAFETY: below the high-water mark every slot holds a valid `T`, and they lie side by side in ready memory.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.fresh as usize) }
    }

    /// Slots in use.
    #[inline]
    pub fn len(&self) -> usize {
        let rested = self.rested.as_ref().map_or(0, Rested::len);
        (self.fresh - self.free.len - self.free.lost) as usize - rested
    }

    /// Whether no slot is in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots ever in use at once.
    #[inline]
    pub fn high_water(&self) -> u32 {
        self.fresh
    }

    /// Most slots there can be.
    #[inline]
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Memory made ready for slots, plus the part of the free list ever used.
    pub fn committed_bytes(&self) -> usize {
        let rested = self.rested.as_ref().map_or(0, Rested::committed_bytes);
        self.grown.ready() + self.free.deepest as usize * size_of::<u32>() + rested
    }

    /// How often a chunk was not there in time although a toucher grows this slab.
    pub fn late(&self) -> u64 {
        self.grown.late()
    }

    #[cfg(debug_assertions)]
    fn mark(&mut self, id: u32, live: bool) {
        let (word, bit) = (id as usize / 64, 1u64 << (id % 64));
        if word >= self.live.len() {
            self.live.resize(word + 1, 0);
        }
        assert!(
            (self.live[word] & bit != 0) != live,
            "slab: slot {id} allocated or freed twice"
        );
        self.live[word] ^= bit;
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        match self.get(id) {
            Some(slot) => slot,
            None => out_of_bounds(self, id),
        }
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        if id >= self.fresh {
            out_of_bounds(self, id);
        }
        // SAFETY: below the high-water mark every slot holds a valid `T`, and `&mut self` makes the access exclusive.
        unsafe { &mut *self.base.as_ptr().add(id as usize) }
    }
}

#[cold]
#[inline(never)]
fn out_of_bounds<T>(slab: &Slab<T>, id: u32) -> ! {
    // The number is read here, not by all who only compare with it.
    panic!("slab: slot {id} of {}", slab.fresh)
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() {
            for id in 0..self.fresh as usize {
                // SAFETY: every slot below the high-water mark holds a valid `T`, dropped here once.
                unsafe { self.base.as_ptr().add(id).drop_in_place() };
            }
        }
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab")
            .field("len", &self.len())
            .field("high_water", &self.fresh)
            .field("max", &self.max)
            .finish()
    }
}

/// The freed slot numbers, last in first out. A stack beside the slots costs nothing until something is freed, and
/// its top stays in cache, which a list threaded through the slots would not.
struct FreeStack {
    base: NonNull<u32>,
    len: u32,
    /// Entries that fit the committed memory.
    limit: u32,
    deepest: u32,
    /// Slots that could not be remembered because the machine had no memory for it.
    lost: u32,
    grown: Arc<Grown>,
}

impl FreeStack {
    fn new(max: u32) -> Result<Self, MemError> {
        // Four bytes a slot, written in order: a page fault each thousand frees at most, so nothing is touched ahead.
        let grown = Grown::in_pages(max as usize * size_of::<u32>())?;
        let limit = entries(&grown);
        Ok(Self {
            base: grown.region().base().cast(),
            len: 0,
            limit,
            deepest: 0,
            lost: 0,
            grown,
        })
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let id = self.at(self.len - 1);
        self.len -= 1;
        Some(id)
    }

    /// The entry at a place, which must be below `len`.
    #[inline(always)]
    fn at(&self, place: u32) -> u32 {
        debug_assert!(place < self.len);
        // SAFETY: entries below `len` were written by `push` into committed memory.
        unsafe { *self.base.as_ptr().add(place as usize) }
    }

    #[inline(always)]
    fn push(&mut self, id: u32) {
        if self.len == self.deepest && !self.deepen() {
            return;
        }
        // SAFETY: `len < deepest <= limit`: the entry lies in committed memory that only this stack uses.
        unsafe { self.base.as_ptr().add(self.len as usize).write(id) };
        self.len += 1;
    }

    #[cold]
    fn deepen(&mut self) -> bool {
        while self.len == self.limit {
            if !self.grown.grow_past(self.grown.ready()) {
                self.lost += 1;
                return false;
            }
            self.limit = entries(&self.grown);
        }
        // In steps, so that a stack that grows one by one stays on the fast path.
        self.deepest = (self.deepest + 1024).min(self.limit);
        true
    }
}

fn entries(grown: &Grown) -> u32 {
    (grown.ready() / size_of::<u32>()).min(u32::MAX as usize) as u32
}

#[cfg(test)]
mod tests;
