//! Where tasks live: pages of 4 KiB from the huge-page arena, each cut into slots of one size. A page's class is known
//! from a byte on the side, so that any 32-bit number can be told to be a slot or not without touching the slot: a
//! number that went through the stack or a timer, or came with the waker of a shard long gone, is never trusted.
//! What a slot holds is the header's; when it is taken or freed is the core's.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use janus_mem::{GRANULE, Growth, MemError, SizeClass, SlotArena, prefetch};

use super::header::{Header, Stage};
use super::word::GRANULE_BITS;

const PAGE: SizeClass = SizeClass::B4096;
const PAGE_GRANULES: u32 = (PAGE.bytes() / GRANULE) as u32;
const PAGE_SHIFT: u32 = PAGE_GRANULES.trailing_zeros();
const CLASSES: usize = SizeClass::ALL.len();
/// No slot.
const NONE: u32 = u32::MAX;
/// Granules at most: 64 GiB of tasks (an interpreter that has no lazy memory gets a small arena).
const GRANULES_MAX: u32 = if cfg!(miri) {
    1 << 12
} else {
    1 << GRANULE_BITS
};

/// The number of a slot of this arena. Only the arena makes one, so to have one is to know that there is a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

impl Slot {
    /// The number that goes into wakers, tokens and timers.
    #[inline]
    pub(super) fn granule(self) -> u32 {
        self.0
    }
}

/// The slots of one size.
struct Class {
    /// Last freed, first taken: its memory is still in the cache. The rest hangs on the headers' links.
    free: Cell<u32>,
    /// The part of the newest page that was never used.
    fresh: Cell<u32>,
    fresh_end: Cell<u32>,
}

/// All slots of one executor.
pub(super) struct Arena {
    base: NonNull<u8>,
    pages: RefCell<SlotArena>,
    /// By page: the class of its slots.
    class_of_page: RefCell<Vec<u8>>,
    classes: [Class; CLASSES],
    used_bytes: Cell<usize>,
    retired: Cell<u64>,
}

impl Arena {
    pub(super) fn new(growth: &Growth) -> Result<Arena, MemError> {
        let pages = SlotArena::new(GRANULES_MAX, growth)?;
        Ok(Arena {
            base: pages.ptr(0),
            pages: RefCell::new(pages),
            class_of_page: RefCell::default(),
            classes: std::array::from_fn(|_| Class {
                free: Cell::new(NONE),
                fresh: Cell::new(0),
                fresh_end: Cell::new(0),
            }),
            used_bytes: Cell::new(0),
            retired: Cell::new(0),
        })
    }

    /// A vacant slot; `None` when the arena or the machine's memory is full.
    #[inline]
    pub(super) fn alloc(&self, class: SizeClass) -> Option<Slot> {
        let list = &self.classes[class as usize];
        let free = list.free.get();
        let slot = if free != NONE {
            let slot = Slot(free);
            let next = self.header(slot).link();
            list.free.set(next);
            // The one after is wanted at the next spawn, and its link is in that slot.
            self.prefetch(next);
            slot
        } else {
            if list.fresh.get() == list.fresh_end.get() {
                self.new_page(class)?;
            }
            let granule = list.fresh.get();
            list.fresh.set(granule + (1 << class as u32));
            Slot(granule)
        };
        self.used_bytes.set(self.used_bytes.get() + class.bytes());
        Some(slot)
    }

    #[cold]
    fn new_page(&self, class: SizeClass) -> Option<()> {
        let granule = self.pages.borrow_mut().alloc(PAGE)?;
        let mut class_of_page = self.class_of_page.borrow_mut();
        // Only whole pages are ever taken, so they lie at multiples of the page, one after the other.
        assert_eq!(granule, class_of_page.len() as u32 * PAGE_GRANULES);
        class_of_page.push(class as u8);
        let list = &self.classes[class as usize];
        list.fresh.set(granule);
        list.fresh_end.set(granule + PAGE_GRANULES);
        Some(())
    }

    /// A task is over; its slot waits for the next, or is retired with its last generation.
    #[inline]
    pub(super) fn free(&self, slot: Slot, class: SizeClass) {
        let header = self.header(slot);
        debug_assert!(header.stage() != Stage::Vacant, "a slot is freed once");
        debug_assert_eq!(
            self.class_of_page.borrow()[(slot.0 >> PAGE_SHIFT) as usize],
            class as u8
        );
        self.used_bytes.set(self.used_bytes.get() - class.bytes());
        if !header.vacate() {
            self.retired.set(self.retired.get() + 1);
            return;
        }
        let list = &self.classes[class as usize];
        header.set_link(list.free.get());
        list.free.set(slot.0);
    }

    /// The slot that begins at this number, if one does.
    #[inline]
    pub(super) fn check(&self, granule: u32) -> Option<Slot> {
        let class_of_page = self.class_of_page.borrow();
        let &class = class_of_page.get((granule >> PAGE_SHIFT) as usize)?;
        (granule & ((1 << class) - 1) == 0).then_some(Slot(granule))
    }

    #[inline]
    pub(super) fn header(&self, slot: Slot) -> &Header {
        // SAFETY: a `Slot` is only made for a place where a slot begins, in a page that was taken and is never given
        // back; a page is zero when it comes, which is a valid header, and only headers are ever written to the first
        // 16 bytes of a slot. Shared only: all its fields are cells, and the arena is not `Sync`.
        unsafe { self.pointer(slot).as_ref() }
    }

    /// The slot itself, with the right to all of its bytes.
    #[inline]
    pub(super) fn pointer(&self, slot: Slot) -> NonNull<Header> {
        // SAFETY: within the reserved range, as `header` says, so neither null nor wrapped.
        unsafe { self.base.byte_add(slot.0 as usize * GRANULE).cast() }
    }

    /// Brings the beginning of a slot close; any number is allowed.
    #[inline]
    pub(super) fn prefetch(&self, granule: u32) {
        prefetch(self.address(granule));
    }

    /// An address to prefetch from, for any number.
    #[inline]
    fn address(&self, granule: u32) -> *const u8 {
        self.base
            .as_ptr()
            .wrapping_add((granule as usize).wrapping_mul(GRANULE))
    }

    /// The first slot at or after `granule`, vacant or not: for walks over all tasks.
    pub(super) fn slot_from(&self, granule: u32) -> Option<Slot> {
        let class = *self
            .class_of_page
            .borrow()
            .get((granule >> PAGE_SHIFT) as usize)?;
        // Rounding up ends at the page's end at the latest, and there a slot begins if there is one more page.
        self.check(granule.next_multiple_of(1 << class))
    }

    pub(super) fn committed_bytes(&self) -> usize {
        self.pages.borrow().committed_bytes() + self.class_of_page.borrow().capacity()
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
        Arena::new(&Growth::Inline).expect("memory")
    }

    #[test]
    fn only_the_beginnings_of_slots_are_slots() {
        let arena = arena();
        assert!(arena.check(0).is_none());
        let small = arena.alloc(SizeClass::B64).expect("room").granule();
        let large = arena.alloc(SizeClass::B1024).expect("room").granule();
        assert!(arena.check(small).is_some() && arena.check(small + 1).is_some());
        assert!(arena.check(large).is_some() && arena.check(large + 16).is_some());
        for inside in 1..16 {
            assert!(arena.check(large + inside).is_none());
        }
        assert!(arena.check(large + PAGE_GRANULES).is_none());
        assert!(arena.check(u32::MAX).is_none());
    }

    #[test]
    fn classes_share_no_memory() {
        let arena = arena();
        let mut taken = BTreeSet::new();
        let rounds = if cfg!(miri) { 3 } else { 300 };
        for _ in 0..rounds {
            for class in SizeClass::ALL {
                let granule = arena.alloc(class).expect("room").granule();
                for piece in 0..(class.bytes() / GRANULE) as u32 {
                    assert!(taken.insert(granule + piece), "handed out twice");
                }
            }
        }
        assert_eq!(arena.used_bytes(), taken.len() * GRANULE);
    }

    #[test]
    fn the_walk_meets_every_slot_once() {
        let arena = arena();
        let mut taken = BTreeSet::new();
        for class in [
            SizeClass::B64,
            SizeClass::B256,
            SizeClass::B4096,
            SizeClass::B64,
        ] {
            taken.insert(arena.alloc(class).expect("room").granule());
        }
        let (mut at, mut slots) = (0, 0);
        while let Some(slot) = arena.slot_from(at) {
            taken.remove(&slot.granule());
            at = slot.granule() + 1;
            slots += 1;
        }
        assert!(taken.is_empty());
        assert_eq!(slots, 64 + 16 + 1);
    }
}
