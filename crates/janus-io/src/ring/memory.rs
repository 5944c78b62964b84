//! The memory of a ring: a header and slots in one piece, as both ends see it, laid out in memory of anybody's or on the heap.
//! Which slots are whose is the ends' business.

use std::alloc::Layout;
use std::any::Any;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crossbeam::utils::CachePadded;

use crate::sync::{Arc, AtomicU32, MODELED, Ordering, UnsafeCell};

/// The largest ring, in slots: far above any sensible queue, far below where index arithmetic would be ambiguous.
pub const MAX_CAPACITY: u32 = 1 << 24;

/// Says that a piece of memory holds a ring of this layout.
pub(super) const MAGIC: u32 = 0x4a_52_49_31;

/// Header at the beginning of the memory. The slots follow at `Shared::<T>::slots_offset()`.
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: u32,
    pub(super) capacity: u32,
    pub(super) item_size: u32,
    /// Slots written so far, modulo 2^32. Written by the producer only.
    pub(super) tail: CachePadded<AtomicU32>,
    /// Slots read so far, modulo 2^32. Written by the consumer only.
    pub(super) head: CachePadded<AtomicU32>,
}

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// One end's view of the memory.
pub(super) struct Shared<T> {
    pub(super) header: NonNull<Header>,
    /// Keeps the memory mapped as long as an end is alive; the last owner drops the items left in it.
    pub(super) _memory: Arc<dyn Any + Send + Sync>,
    pub(super) items: PhantomData<T>,
}

impl<T> Shared<T> {
    const fn slots_offset() -> usize {
        size_of::<Header>().next_multiple_of(if align_of::<Slot<T>>() > 128 {
            align_of::<Slot<T>>()
        } else {
            128
        })
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: `header` points to an initialised header for as long as `_memory` lives; only its atomics change.
        unsafe { self.header.as_ref() }
    }

    /// The first slot. Derived from the memory's own pointer, so it may reach all of them.
    #[inline(always)]
    fn slots(&self) -> *mut Slot<T> {
        // SAFETY: the slots lie behind the header in the same piece of memory.
        unsafe {
            self.header
                .as_ptr()
                .cast::<u8>()
                .add(Self::slots_offset())
                .cast()
        }
    }

    #[inline(always)]
    pub(super) fn slot(&self, index: u32, mask: u32) -> &Slot<T> {
        // SAFETY: `mask` is capacity − 1, so this is one of the `capacity` initialised cells.
        unsafe { &*self.slots().add((index & mask) as usize) }
    }

    /// Moves `count` items from `source` into the slots from `index` on: two copies at most, one on each side of the wrap.
    ///
    /// # Safety
    /// The slots are free and the caller's; `source` is valid for reads, and its items are no longer anybody else's.
    #[inline]
    pub(super) unsafe fn fill(&self, index: u32, mask: u32, source: *const T, count: usize) {
        if MODELED {
            for i in 0..count {
                // SAFETY: as asked of the caller.
                let write =
                    |slot: *mut MaybeUninit<T>| unsafe { _ = (*slot).write(source.add(i).read()) };
                self.slot(index.wrapping_add(i as u32), mask)
                    .with_mut(write);
            }
        } else {
            let (first, at) = (self.slots().cast::<T>(), (index & mask) as usize);
            let run = count.min(mask as usize + 1 - at);
            // SAFETY: cells are laid out like their items; `run` ends at the last slot, the rest begins at the first.
            unsafe {
                core::ptr::copy_nonoverlapping(source, first.add(at), run);
                core::ptr::copy_nonoverlapping(source.add(run), first, count - run);
            }
        }
    }

    /// Moves `count` items out of the slots from `index` on; see [`fill`](Self::fill).
    ///
    /// # Safety
    /// The slots hold items that are the caller's to take; `target` is valid for writes.
    #[inline]
    pub(super) unsafe fn drain(&self, index: u32, mask: u32, target: *mut T, count: usize) {
        if MODELED {
            for i in 0..count {
                // SAFETY: as asked of the caller.
                let read = |slot: *const MaybeUninit<T>| unsafe {
                    target.add(i).write((*slot).assume_init_read())
                };
                self.slot(index.wrapping_add(i as u32), mask).with(read);
            }
        } else {
            let (first, at) = (self.slots().cast::<T>(), (index & mask) as usize);
            let run = count.min(mask as usize + 1 - at);
            // SAFETY: as in `fill`.
            unsafe {
                core::ptr::copy_nonoverlapping(first.add(at), target, run);
                core::ptr::copy_nonoverlapping(first, target.add(run), count - run);
            }
        }
    }

    fn layout(capacity: u32) -> Layout {
        let bytes = Self::slots_offset() + size_of::<Slot<T>>() * capacity as usize;
        let align = align_of::<Header>().max(align_of::<Slot<T>>()).max(128);
        Layout::from_size_align(bytes, align).expect("a ring's size is bounded by MAX_CAPACITY")
    }
}

/// Bytes of memory a ring of `capacity` items takes, and their alignment: for rings in shared memory.
#[must_use]
pub fn layout<T>(capacity: u32) -> Layout {
    Shared::<T>::layout(rounded(capacity))
}

fn rounded(capacity: u32) -> u32 {
    assert!(
        (1..=MAX_CAPACITY).contains(&capacity),
        "a ring holds 1 to {MAX_CAPACITY} items, not {capacity}"
    );
    capacity.next_power_of_two()
}

/// Lays an empty ring of at least `capacity` items into `memory`.
///
/// # Safety
/// `memory` is valid for writes of [`layout::<T>(capacity)`](layout) and not in use yet.
pub unsafe fn init_at<T>(memory: NonNull<u8>, capacity: u32) {
    let capacity = rounded(capacity);
    let header = Header {
        magic: MAGIC,
        capacity,
        item_size: size_of::<T>() as u32,
        tail: CachePadded::new(AtomicU32::new(0)),
        head: CachePadded::new(AtomicU32::new(0)),
    };
    // SAFETY: the caller gives memory of the ring's layout; header and slots lie within it, aligned.
    unsafe {
        memory.cast::<Header>().write(header);
        let slots = memory.add(Shared::<T>::slots_offset()).cast::<Slot<T>>();
        for i in 0..capacity as usize {
            slots.add(i).write(UnsafeCell::new(MaybeUninit::uninit()));
        }
    }
}

/// Heap memory of a ring made by [`ring`](super::ring); drops what was never popped.
pub(super) struct HeapMemory<T> {
    pub(super) base: NonNull<u8>,
    pub(super) layout: Layout,
    pub(super) items: PhantomData<fn(T)>,
}

// SAFETY: the memory is reached only through the two ends; `drop` runs when both are gone. `T: Send` is asked by `ring`.
unsafe impl<T> Send for HeapMemory<T> {}
// SAFETY: a shared reference to it offers nothing.
unsafe impl<T> Sync for HeapMemory<T> {}

impl<T> Drop for HeapMemory<T> {
    fn drop(&mut self) {
        // SAFETY: both ends are gone (each holds this in an Arc), so the memory is ours alone; the slots between head and tail hold items
        // that were not read. Cells and header are dropped in place before the memory goes.
        unsafe {
            let header = self.base.cast::<Header>();
            let (capacity, tail) = (
                header.as_ref().capacity,
                header.as_ref().tail.load(Ordering::Acquire),
            );
            let mut head = header.as_ref().head.load(Ordering::Acquire);
            let slots = self.base.add(Shared::<T>::slots_offset()).cast::<Slot<T>>();
            while head != tail {
                let slot = slots.add((head & (capacity - 1)) as usize);
                slot.as_ref().with_mut(|p| (*p).assume_init_drop());
                head = head.wrapping_add(1);
            }
            for i in 0..capacity as usize {
                slots.add(i).drop_in_place();
            }
            header.drop_in_place();
            std::alloc::dealloc(self.base.as_ptr(), self.layout);
        }
    }
}
