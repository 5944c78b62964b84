//! Memory of tasks: pages of 4 KiB from the huge-page arena, each cut into slots of one size (`class.rs`). A table beside the pages has
//! each page's class in a byte, so that any 32-bit number can be checked to be a slot without touching the slot: a number that went
//! through the stack or a timer, or came with the waker of an ended shard, is never trusted. The slot's content is defined in `header.rs`;
//! `core.rs` takes and frees slots.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use janus_mem::{Growth, MemError, PageArena, Rested, prefetch};

use super::class::{CLASSES, Class, GRANULE, PAGE_GRANULES};
use super::header::{Header, Stage};
use crate::inbox::GRANULE_BITS;

/// Bytes in a page.
pub(super) const PAGE: usize = PageArena::PAGE;
const PAGE_SHIFT: u32 = PAGE_GRANULES.trailing_zeros();
/// Bytes of a class that are used before a slot is reused, if reuse is cold: as much as a processor's last cache holds (four pages in
/// debug builds, where only correctness is tested).
const SPREAD: usize = if cfg!(debug_assertions) {
    16 << 10
} else {
    32 << 20
};
/// No slot.
const NONE: u32 = u32::MAX;
/// Pages at most: 32 GiB of tasks (an interpreter that has no lazy memory gets a small arena).
pub(super) const PAGES_MAX: u32 = if cfg!(miri) {
    64
} else {
    1 << (GRANULE_BITS - PAGE_SHIFT)
};

/// Number of a slot of this arena. Only the arena makes one, so its existence proves that there is a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

impl Slot {
    /// Returns the number that goes into wakers, tokens and timers.
    #[inline]
    pub(super) fn granule(self) -> u32 {
        self.0
    }
}

/// The slots of one class.
struct Slots {
    /// Last freed, first reused: its memory is still in the cache. The headers link the rest.
    free: Cell<u32>,
    /// Granule at which the newest page's unused part begins.
    fresh: Cell<u32>,
    fresh_end: Cell<u32>,
}

/// Slots by class; `None` for a class not yet used.
type RestedSlots = [Option<Rested<Slot>>; CLASSES];

/// All slots of one executor.
pub(super) struct Arena {
    base: NonNull<u8>,
    pages: RefCell<PageArena>,
    /// Class of each page's slots, counted from 1; 0 where the page is unused.
    class_of_page: Box<[Cell<u8>]>,
    slots: [Slots; CLASSES],
    used_bytes: Cell<usize>,
    retired: Cell<u64>,
    /// Free slots if reuse is cold; the classes' lists are empty then.
    rested: Option<Box<RefCell<RestedSlots>>>,
}

/// Allocates a byte for every possible page: only the part in use takes memory.
fn no_classes() -> Box<[Cell<u8>]> {
    let zeroed = Box::<[Cell<u8>]>::new_zeroed_slice(PAGES_MAX as usize);
    // SAFETY: a zero byte is a valid `Cell<u8>`.
    unsafe { zeroed.assume_init() }
}

impl Arena {
    /// Makes an arena with room for so many pages, [`PAGES_MAX`] at most.
    pub(super) fn new(growth: &Growth, pages: u32) -> Result<Arena, MemError> {
        let pages = PageArena::new(pages, growth)?;
        Ok(Arena {
            base: pages.base(),
            pages: RefCell::new(pages),
            class_of_page: no_classes(),
            slots: std::array::from_fn(|_| Slots {
                free: Cell::new(NONE),
                fresh: Cell::new(0),
                fresh_end: Cell::new(0),
            }),
            used_bytes: Cell::new(0),
            retired: Cell::new(0),
            rested: None,
        })
    }

    /// Has the slot reused first that has been free for longest, after at least [`SPREAD`] bytes of its class. To be called before the
    /// first allocation.
    pub(super) fn reuse_oldest_first(&mut self) {
        self.rested = Some(Box::default());
    }

    /// Returns a vacant slot; `None` when the arena or the machine's memory is full.
    #[inline]
    pub(super) fn alloc(&self, class: Class) -> Option<Slot> {
        let list = &self.slots[class.index()];
        let free = list.free.get();
        let slot = if free != NONE {
            let slot = Slot(free);
            let next = self.header(slot).link();
            list.free.set(next);
            // The next spawn takes that slot, and needs the link in it.
            self.prefetch(next);
            slot
        } else if self.rested.is_some() {
            self.long_rested(class)?
        } else {
            self.fresh(class)?
        };
        self.used_bytes.set(self.used_bytes.get() + class.bytes());
        Some(slot)
    }

    /// Returns a slot that was never used.
    #[inline]
    fn fresh(&self, class: Class) -> Option<Slot> {
        let list = &self.slots[class.index()];
        if list.fresh.get() + class.granules() > list.fresh_end.get() {
            self.new_page(class)?;
        }
        let granule = list.fresh.get();
        list.fresh.set(granule + class.granules());
        Some(Slot(granule))
    }

    /// Returns the slot that has been free for longest, else a fresh one.
    #[cold]
    fn long_rested(&self, class: Class) -> Option<Slot> {
        let mut rested = self.rested.as_ref()?.borrow_mut();
        let slots = rested[class.index()].get_or_insert_with(|| {
            let spread = 0..SPREAD / class.bytes();
            Rested::shuffled(spread.map_while(|_| self.fresh(class)).collect())
        });
        slots.pop().or_else(|| self.fresh(class))
    }

    #[cold]
    fn new_page(&self, class: Class) -> Option<()> {
        let page = self.pages.borrow_mut().take()?;
        self.class_of_page[page as usize].set(class.index() as u8 + 1);
        let list = &self.slots[class.index()];
        list.fresh.set(page * PAGE_GRANULES);
        list.fresh_end.set((page + 1) * PAGE_GRANULES);
        Some(())
    }

    /// Frees the slot of a task that has ended, or retires the slot after its last generation.
    #[inline]
    pub(super) fn free(&self, slot: Slot, class: Class) {
        let header = self.header(slot);
        debug_assert!(header.stage() != Stage::Vacant, "a slot is freed once");
        debug_assert_eq!(self.class_at(slot.0), Some(class));
        self.used_bytes.set(self.used_bytes.get() - class.bytes());
        if !header.vacate() {
            self.retired.set(self.retired.get() + 1);
            return;
        }
        if let Some(rested) = &self.rested {
            if let Some(slots) = &mut rested.borrow_mut()[class.index()] {
                slots.push(slot);
            }
            return;
        }
        let list = &self.slots[class.index()];
        header.set_link(list.free.get());
        list.free.set(slot.0);
    }

    /// Returns the class of the granule's page, if the page is in use.
    #[inline]
    fn class_at(&self, granule: u32) -> Option<Class> {
        let class = self.class_of_page.get((granule >> PAGE_SHIFT) as usize)?;
        Class::at(usize::from(class.get()).wrapping_sub(1))
    }

    /// Returns the slot that begins at this granule, if one does.
    #[inline]
    pub(super) fn check(&self, granule: u32) -> Option<Slot> {
        let class = self.class_at(granule)?;
        class.begins(granule).then_some(Slot(granule))
    }

    #[inline]
    pub(super) fn header(&self, slot: Slot) -> &Header {
        // SAFETY: a `Slot` is only made for a place where a slot begins, in a page that was taken and is never given
        // back; a page is zero when it comes, which is a valid header, and only headers are ever written to the first
        // 16 bytes of a slot. Shared only: all its fields are cells, and the arena is not `Sync`.
        unsafe { self.pointer(slot).as_ref() }
    }

    /// Returns a pointer to the slot, valid for all of its bytes.
    #[inline]
    pub(super) fn pointer(&self, slot: Slot) -> NonNull<Header> {
        // SAFETY: within the reserved range, as `header` says, so neither null nor wrapped.
        unsafe { self.base.byte_add(slot.0 as usize * GRANULE).cast() }
    }

    /// Prefetches the beginning of a slot; any number is allowed.
    #[inline]
    pub(super) fn prefetch(&self, granule: u32) {
        prefetch(self.address(granule));
    }

    /// Returns an address to prefetch from, for any number.
    #[inline]
    fn address(&self, granule: u32) -> *const u8 {
        self.base
            .as_ptr()
            .wrapping_add((granule as usize).wrapping_mul(GRANULE))
    }

    /// Returns the first slot at or after `granule`, vacant or not: for walks over all tasks.
    pub(super) fn slot_from(&self, granule: u32) -> Option<Slot> {
        let class = self.class_at(granule)?;
        let in_page = granule % PAGE_GRANULES;
        let next = in_page.next_multiple_of(class.granules());
        let page = granule - in_page;
        // The rest of the page is too short for a slot: the next page begins with one.
        self.check(page + next)
            .or_else(|| self.check(page + PAGE_GRANULES))
    }

    pub(super) fn committed_bytes(&self) -> usize {
        let pages = self.pages.borrow();
        pages.committed_bytes() + pages.taken() as usize
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    pub(super) fn retired(&self) -> u64 {
        self.retired.get()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn arena() -> Arena {
        Arena::new(&Growth::Inline, PAGES_MAX).expect("memory")
    }

    /// Returns the class for this number of bytes.
    fn class(bytes: usize) -> Class {
        Class::of(bytes, 8).expect("a page holds it")
    }

    #[test]
    fn only_the_beginnings_of_slots_are_slots() {
        let arena = arena();
        assert!(arena.check(0).is_none());
        for kind in Class::all() {
            let first = arena.alloc(kind).expect("room").granule();
            let begins: Vec<u32> = (0..PAGE_GRANULES)
                .filter(|&at| arena.check(first + at).is_some())
                .collect();
            let slots = PAGE_GRANULES / kind.granules();
            let all: Vec<u32> = (0..slots).map(|n| n * kind.granules()).collect();
            assert_eq!(begins, all, "{kind:?}");
            assert!(arena.check(first + PAGE_GRANULES).is_none());
        }
        for number in [1 << 29, u32::MAX >> 2, u32::MAX] {
            assert!(arena.check(number).is_none());
        }
    }

    #[test]
    fn slots_share_no_memory() {
        let arena = arena();
        let mut taken = BTreeSet::new();
        let rounds = if cfg!(miri) { 3 } else { 300 };
        for _ in 0..rounds {
            for kind in Class::all() {
                let slot = arena.alloc(kind).expect("room");
                assert_eq!(arena.check(slot.granule()), Some(slot));
                for piece in 0..kind.granules() {
                    assert!(taken.insert(slot.granule() + piece), "handed out twice");
                }
            }
        }
        assert_eq!(arena.used_bytes(), taken.len() * GRANULE);
    }

    /// With cold reuse, all of a class's slots are used before one is reused.
    #[test]
    fn slots_can_be_used_in_turn() {
        let mut arena = arena();
        arena.reuse_oldest_first();
        let class = Class::of(1_024, 8).expect("a class");
        let slots = SPREAD / class.bytes();
        let turn = || {
            let slot = arena.alloc(class).expect("room");
            arena.header(slot).set_stage(Stage::Future);
            arena.free(slot, class);
            slot.granule()
        };
        let first: Vec<u32> = (0..slots).map(|_| turn()).collect();
        let second: Vec<u32> = (0..slots).map(|_| turn()).collect();
        assert_eq!(first, second);
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), slots);
        let all: BTreeSet<u32> = (0..slots + 20)
            .map(|_| arena.alloc(class).expect("room").granule())
            .collect();
        assert_eq!(all.len(), slots + 20, "then the fresh ones");
    }

    #[test]
    fn the_walk_meets_every_slot_once() {
        let arena = arena();
        let mut taken = BTreeSet::new();
        for bytes in [64, 96, 256, PAGE, 64] {
            taken.insert(arena.alloc(class(bytes)).expect("room").granule());
        }
        let (mut at, mut slots) = (0, 0);
        while let Some(slot) = arena.slot_from(at) {
            taken.remove(&slot.granule());
            at = slot.granule() + 1;
            slots += 1;
        }
        assert!(taken.is_empty());
        assert_eq!(slots, 64 + 42 + 16 + 1);
    }

    #[test]
    fn memory_is_used_to_the_end_of_each_page() {
        let arena = arena();
        for kind in Class::all() {
            let before = arena.pages.borrow().taken();
            for _ in 0..3 * (PAGE / kind.bytes()) {
                arena.alloc(kind).expect("room");
            }
            assert_eq!(arena.pages.borrow().taken() - before, 3, "{kind:?}");
        }
    }
}
