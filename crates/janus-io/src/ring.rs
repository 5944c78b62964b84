//! The ring between one producer and one consumer: a header and slots in one piece of memory, with indices instead of
//! pointers, so that two processes may map it at different addresses. Batches in, batches out; each side keeps a copy
//! of the other's index and looks at the shared one only when the copy says full or empty. Never blocks and never
//! wakes anybody (that is `park`'s business). Checked by loom.

use std::alloc::{Layout, handle_alloc_error};
use std::any::Any;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crossbeam::utils::CachePadded;

use crate::batch::Burst;
use crate::sync::{Arc, AtomicU32, Ordering, UnsafeCell, keep_alive};

/// The largest ring, in slots: far above any sensible queue, far below where index arithmetic would be ambiguous.
pub const MAX_CAPACITY: u32 = 1 << 24;

/// Says that a piece of memory holds a ring of this layout.
const MAGIC: u32 = 0x4a_52_49_31;

/// What stands at the beginning of the memory. The slots follow at `Shared::<T>::slots_offset()`.
#[repr(C)]
struct Header {
    magic: u32,
    capacity: u32,
    item_size: u32,
    /// Slots written so far, modulo 2^32. Written by the producer only.
    tail: CachePadded<AtomicU32>,
    /// Slots read so far, modulo 2^32. Written by the consumer only.
    head: CachePadded<AtomicU32>,
}

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// One end's view of the memory.
struct Shared<T> {
    header: NonNull<Header>,
    /// Keeps the memory mapped as long as an end is alive; the last owner drops the items left in it.
    _memory: Arc<dyn Any + Send + Sync>,
    items: PhantomData<T>,
}

impl<T> Shared<T> {
    const fn slots_offset() -> usize {
        size_of::<Header>().next_multiple_of(if align_of::<Slot<T>>() > 128 {
            align_of::<Slot<T>>()
        } else {
            128
        })
    }

    fn header(&self) -> &Header {
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
    fn slot(&self, index: u32, mask: u32) -> &Slot<T> {
        // SAFETY: `mask` is capacity − 1, so this is one of the `capacity` initialised cells.
        unsafe { &*self.slots().add((index & mask) as usize) }
    }

    /// Moves `count` items from `source` into the slots from `index` on: two copies at most, one on each side of the wrap.
    ///
    /// # Safety
    /// The slots are free and the caller's; `source` is valid for reads, and its items are no longer anybody else's.
    #[inline]
    unsafe fn fill(&self, index: u32, mask: u32, source: *const T, count: usize) {
        #[cfg(loom)]
        for i in 0..count {
            // SAFETY: as asked of the caller.
            let write =
                |slot: *mut MaybeUninit<T>| unsafe { _ = (*slot).write(source.add(i).read()) };
            self.slot(index.wrapping_add(i as u32), mask)
                .with_mut(write);
        }
        #[cfg(not(loom))]
        {
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
    unsafe fn drain(&self, index: u32, mask: u32, target: *mut T, count: usize) {
        #[cfg(loom)]
        for i in 0..count {
            // SAFETY: as asked of the caller.
            let read = |slot: *const MaybeUninit<T>| unsafe {
                target.add(i).write((*slot).assume_init_read())
            };
            self.slot(index.wrapping_add(i as u32), mask).with(read);
        }
        #[cfg(not(loom))]
        {
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
/// `memory` is valid for writes of [`layout::<T>(capacity)`](layout) and nobody uses it yet.
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

/// The producer's end of a ring laid out by [`init_at`], in this process's mapping of it.
///
/// # Safety
/// `memory` was laid out for the same `T`, stays mapped while `keep` lives, holds a `T` that means the same in every
/// process that maps it, and no other producer is attached.
#[must_use]
pub unsafe fn attach_producer<T: Send>(
    memory: NonNull<u8>,
    keep: Arc<dyn Any + Send + Sync>,
) -> Producer<T> {
    // SAFETY: passed on to the caller.
    let shared = unsafe { attach::<T>(memory, keep) };
    let (tail, head) = (
        shared.header().tail.load(Ordering::Relaxed),
        shared.header().head.load(Ordering::Acquire),
    );
    Producer {
        mask: shared.header().capacity - 1,
        shared,
        tail,
        head_seen: head,
    }
}

/// The consumer's end; see [`attach_producer`].
///
/// # Safety
/// As for [`attach_producer`], with "consumer" in place of "producer".
#[must_use]
pub unsafe fn attach_consumer<T: Send>(
    memory: NonNull<u8>,
    keep: Arc<dyn Any + Send + Sync>,
) -> Consumer<T> {
    // SAFETY: passed on to the caller.
    let shared = unsafe { attach::<T>(memory, keep) };
    let (tail, head) = (
        shared.header().tail.load(Ordering::Acquire),
        shared.header().head.load(Ordering::Relaxed),
    );
    Consumer {
        mask: shared.header().capacity - 1,
        shared,
        head,
        tail_seen: tail,
    }
}

unsafe fn attach<T>(memory: NonNull<u8>, keep: Arc<dyn Any + Send + Sync>) -> Shared<T> {
    let shared = Shared {
        header: memory.cast(),
        _memory: keep,
        items: PhantomData,
    };
    let header = shared.header();
    assert!(
        header.magic == MAGIC && header.item_size == size_of::<T>() as u32,
        "this memory holds no such ring"
    );
    shared
}

/// Heap memory of a ring made by [`ring`]; drops what was never popped.
struct HeapMemory<T> {
    base: NonNull<u8>,
    layout: Layout,
    items: PhantomData<fn(T)>,
}

// SAFETY: the memory is reached only through the two ends; `drop` runs when both are gone. `T: Send` is asked by `ring`.
unsafe impl<T> Send for HeapMemory<T> {}
// SAFETY: a shared reference to it offers nothing.
unsafe impl<T> Sync for HeapMemory<T> {}

impl<T> Drop for HeapMemory<T> {
    fn drop(&mut self) {
        // SAFETY: both ends are gone (each holds this in an Arc), so the memory is ours alone; the slots between head
        // and tail hold items nobody has read. Cells and header are dropped in place before the memory goes.
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

/// A ring of at least `capacity` items (rounded up to a power of two) on the heap.
#[must_use]
pub fn ring<T: Send + 'static>(capacity: u32) -> (Producer<T>, Consumer<T>) {
    let layout = layout::<T>(capacity);
    // SAFETY: the layout is not empty, it holds at least the header.
    let Some(base) = NonNull::new(unsafe { std::alloc::alloc(layout) }) else {
        handle_alloc_error(layout)
    };
    // SAFETY: fresh memory of that layout, freed by `HeapMemory` after both ends are gone.
    unsafe {
        init_at::<T>(base, capacity);
        let memory = keep_alive(HeapMemory::<T> {
            base,
            layout,
            items: PhantomData,
        });
        (
            attach_producer(base, memory.clone()),
            attach_consumer(base, memory),
        )
    }
}

/// The end that puts items in.
pub struct Producer<T> {
    shared: Shared<T>,
    mask: u32,
    /// This end's own index; the shared one follows it at the end of each batch.
    tail: u32,
    /// The consumer's index when last looked at.
    head_seen: u32,
}

// SAFETY: the items are `Send`, one thread at a time uses an end (`&mut self`), and the memory is shared by atomics.
unsafe impl<T: Send> Send for Producer<T> {}

impl<T> Producer<T> {
    /// Items the ring can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// Items that surely fit now. Looks at the consumer's index.
    #[inline]
    pub fn room(&mut self) -> usize {
        self.head_seen = self.shared.header().head.load(Ordering::Acquire);
        self.room_seen()
    }

    #[inline]
    fn room_seen(&self) -> usize {
        // A broken peer in shared memory could write any index; the room never exceeds the capacity.
        self.capacity()
            .saturating_sub(self.tail.wrapping_sub(self.head_seen) as usize)
    }

    /// Puts one item in, or hands it back when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        // Not as a batch of one: what is asked and remembered for a batch costs as much as the item.
        if self.room_seen() == 0 && self.room() == 0 {
            return Err(item);
        }
        self.shared.slot(self.tail, self.mask).with_mut(|slot| {
            // SAFETY: there is room: the consumer has given this slot back (or it was never used), so it belongs to the
            // producer until the new tail is published.
            unsafe { (*slot).write(item) };
        });
        self.tail = self.tail.wrapping_add(1);
        let published = &self.shared.header().tail;
        published.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Puts items in for as long as they fit and publishes them at once; returns how many. An item that does not fit
    /// is never asked for.
    #[inline]
    pub fn push_from(&mut self, items: &mut impl Iterator<Item = T>) -> usize {
        let wanted = items.size_hint().0.max(1);
        let mut room = self.room_seen();
        if room < wanted {
            room = self.room();
        }
        let first = self.tail;
        let mut publish = Publish {
            first,
            index: first,
            target: &self.shared.header().tail,
        };
        while room > 0 {
            let Some(item) = items.next() else { break };
            self.shared.slot(publish.index, self.mask).with_mut(|slot| {
                // SAFETY: `room` says that the consumer has given this slot back (or it was never used), so it belongs
                // to the producer until the new tail is published.
                unsafe { (*slot).write(item) };
            });
            publish.index = publish.index.wrapping_add(1);
            self.tail = publish.index;
            room -= 1;
        }
        publish.index.wrapping_sub(first) as usize
    }

    /// Moves what fits from the front of `burst`; the rest stays there.
    #[inline]
    pub fn push_batch<const N: usize>(&mut self, burst: &mut Burst<T, N>) -> usize {
        let count = self.room_for(burst.len());
        // SAFETY: `count` of the burst's items move out of it, and it forgets them at once.
        unsafe {
            self.push_run(burst.as_ptr(), count);
            burst.forget_front(count);
        }
        count
    }

    /// Moves what fits from the front of `items`; the rest stays there.
    #[inline]
    pub fn push_vec(&mut self, items: &mut Vec<T>) -> usize {
        let count = self.room_for(items.len());
        let left = items.len() - count;
        // SAFETY: `count` of the vector's items move out of it; the others move to its front and are all it counts.
        unsafe {
            self.push_run(items.as_ptr(), count);
            items.set_len(left);
            core::ptr::copy(items.as_ptr().add(count), items.as_mut_ptr(), left);
        }
        count
    }

    /// Whether so many items fit. Looks at the consumer's index only when it seems needed.
    #[inline]
    pub(crate) fn fits(&mut self, items: usize) -> bool {
        self.room_for(items) == items
    }

    /// How many of `wanted` items fit. Looks at the consumer's index only when it seems needed.
    #[inline]
    fn room_for(&mut self, wanted: usize) -> usize {
        if self.room_seen() < wanted {
            self.room();
        }
        self.room_seen().min(wanted)
    }

    /// # Safety
    /// There is room for `count` items; they move out of `source`.
    #[inline]
    unsafe fn push_run(&mut self, source: *const T, count: usize) {
        if count > 0 {
            // SAFETY: room means that the consumer has given these slots back; the tail that gives them away follows.
            unsafe { self.shared.fill(self.tail, self.mask, source, count) };
            self.tail = self.tail.wrapping_add(count as u32);
            self.shared
                .header()
                .tail
                .store(self.tail, Ordering::Release);
        }
    }

    /// Items the consumer has not taken yet.
    pub fn in_flight(&mut self) -> usize {
        self.capacity() - self.room()
    }
}

/// Makes the items of a batch visible, also when the iterator they come from panics.
struct Publish<'a> {
    first: u32,
    index: u32,
    target: &'a AtomicU32,
}

impl Drop for Publish<'_> {
    #[inline]
    fn drop(&mut self) {
        // Nothing moved: leave the line where it is.
        if self.index != self.first {
            self.target.store(self.index, Ordering::Release);
        }
    }
}

/// The end that takes items out.
pub struct Consumer<T> {
    shared: Shared<T>,
    mask: u32,
    /// This end's own index.
    head: u32,
    /// The producer's index when last looked at.
    tail_seen: u32,
}

// SAFETY: as for `Producer`.
unsafe impl<T: Send> Send for Consumer<T> {}

impl<T> Consumer<T> {
    /// Items the ring can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// Items waiting now. Looks at the producer's index.
    #[inline]
    pub fn waiting(&mut self) -> usize {
        self.tail_seen = self.shared.header().tail.load(Ordering::Acquire);
        self.waiting_seen()
    }

    /// How far the producer has come: a mark for [`has_passed`](Self::has_passed).
    #[inline]
    pub fn mark(&self) -> u32 {
        self.shared.header().tail.load(Ordering::Acquire)
    }

    /// Whether everything that had been put in when `mark` was taken has been taken out.
    #[inline]
    #[must_use]
    pub fn has_passed(&self, mark: u32) -> bool {
        self.head.wrapping_sub(mark).cast_signed() >= 0
    }

    #[inline]
    fn waiting_seen(&self) -> usize {
        (self.tail_seen.wrapping_sub(self.head) as usize).min(self.capacity())
    }

    /// Whether nothing waits. Looks at the producer's index.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.header().tail.load(Ordering::Acquire) == self.head
    }

    /// Takes one item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.waiting_seen() == 0 && self.waiting() == 0 {
            return None;
        }
        let item = self.shared.slot(self.head, self.mask).with(|slot| {
            // SAFETY: the slot lies between the consumer's and the producer's published index, so it holds an item; the
            // head moves past it before anybody else may touch it, so it is read once.
            unsafe { (*slot).assume_init_read() }
        });
        self.head = self.head.wrapping_add(1);
        let published = &self.shared.header().head;
        published.store(self.head, Ordering::Release);
        Some(item)
    }

    /// Takes up to `max` items, gives their slots back at once and returns how many there were.
    #[inline]
    pub fn pop_each(&mut self, max: usize, mut take: impl FnMut(T)) -> usize {
        let count = self.waiting_for(max);
        if count == 0 {
            return 0;
        }
        let mut publish = Publish {
            first: self.head,
            index: self.head,
            target: &self.shared.header().head,
        };
        for _ in 0..count {
            let item = self.shared.slot(publish.index, self.mask).with(|slot| {
                // SAFETY: `index` lies between the consumer's and the producer's published index, so the slot holds an
                // item; the head moves past it before anybody else may touch it, so it is read once.
                unsafe { (*slot).assume_init_read() }
            });
            publish.index = publish.index.wrapping_add(1);
            self.head = publish.index;
            take(item);
        }
        count
    }

    /// Takes what fits into `burst`.
    #[inline]
    pub fn pop_batch<const N: usize>(&mut self, burst: &mut Burst<T, N>) -> usize {
        let count = self.waiting_for(burst.room());
        // SAFETY: the burst has room for `count` items behind those it holds, and counts them once they are there.
        unsafe {
            self.pop_run(burst.spare(), count);
            burst.count_more(count);
        }
        count
    }

    /// Takes up to `max` items onto the end of `items`.
    #[inline]
    pub fn pop_vec(&mut self, items: &mut Vec<T>, max: usize) -> usize {
        let count = self.waiting_for(max);
        items.reserve(count);
        // SAFETY: there is room for `count` items behind those it holds, and they are counted once they are there.
        unsafe {
            self.pop_run(items.as_mut_ptr().add(items.len()), count);
            items.set_len(items.len() + count);
        }
        count
    }

    /// How many items there are, up to `max`. Looks at the producer's index only when it seems needed.
    #[inline]
    fn waiting_for(&mut self, max: usize) -> usize {
        if self.waiting_seen() < max {
            self.waiting();
        }
        self.waiting_seen().min(max)
    }

    /// # Safety
    /// `count` items wait; `target` has room for them.
    #[inline]
    unsafe fn pop_run(&mut self, target: *mut T, count: usize) {
        if count > 0 {
            // SAFETY: these slots hold items; the head that gives them back follows, so they are taken once.
            unsafe { self.shared.drain(self.head, self.mask, target, count) };
            self.head = self.head.wrapping_add(count as u32);
            self.shared
                .header()
                .head
                .store(self.head, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
