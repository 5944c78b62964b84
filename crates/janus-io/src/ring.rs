//! The ring between one producer and one consumer: a header and slots in one piece of memory, with indices instead of
//! pointers, so that two processes may map it at different addresses. Batches in, batches out; each side keeps a copy
//! of the other's index and looks at the shared one only when the copy says full or empty. Never blocks and never
//! wakes anybody (that is `park`'s business). Checked by loom.

mod memory;

use std::alloc::handle_alloc_error;
use std::any::Any;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::batch::Burst;
use crate::debug::opaque;
use crate::sync::{Arc, AtomicU32, MODELED, Ordering, keep_alive};
use memory::{HeapMemory, MAGIC, Shared};
pub use memory::{MAX_CAPACITY, init_at, layout};

/// Part of the ring whose slots a consumer of single items gives back together, or earlier when nothing waits: the producer reads the
/// index, and a cache line that two cores write and read for every item is what an item costs.
const TOGETHER: u32 = if MODELED { 2 } else { 32 };

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
        published: head,
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

opaque!([T] Producer<T>);

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
    /// Index that the producer sees: at most [`TOGETHER`]'s part behind.
    published: u32,
    /// The producer's index when last looked at.
    tail_seen: u32,
}

opaque!([T] Consumer<T>);

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

    /// Takes one item. Its slot is given back a little later, with others, unless the ring is small; at the latest when
    /// there is no further item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.tail_seen == self.head && self.waiting() == 0 {
            self.publish();
            return None;
        }
        let item = self.shared.slot(self.head, self.mask).with(|slot| {
            // SAFETY: the slot lies between the consumer's and the producer's published index, so it holds an item; the
            // head moves past it before anybody else may touch it, so it is read once.
            unsafe { (*slot).assume_init_read() }
        });
        self.head = self.head.wrapping_add(1);
        if self.head.wrapping_sub(self.published) > self.mask / TOGETHER {
            self.publish();
        }
        Some(item)
    }

    /// Gives the slots back that were emptied.
    #[inline]
    fn publish(&mut self) {
        // Nothing moved: leave the line where it is.
        if self.published != self.head {
            self.published = self.head;
            let head = &self.shared.header().head;
            head.store(self.head, Ordering::Release);
        }
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
        self.published = self.head;
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
            self.publish();
        }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // Whoever frees the memory drops what has not been taken.
        self.publish();
    }
}

#[cfg(test)]
mod tests;
