//! The inbox: a bounded queue of many senders and one receiver (Vyukov's array queue with a single consumer). Carries
//! what is not a steady stream of packets: wakes, closes, forwarded frames, control. Full means the item comes back to
//! the sender; nothing here blocks, allocates or wakes. Checked by loom.

use std::mem::MaybeUninit;

use crossbeam::utils::CachePadded;

use crate::debug::opaque;
use crate::sync::{Arc, AtomicU32, Ordering, UnsafeCell};

/// The largest inbox, in items.
pub const MAX_CAPACITY: u32 = 1 << 24;

struct Slot<T> {
    /// Turn of the slot: `position` = free for the sender that claims it, `position + 1` = holds its item.
    turn: AtomicU32,
    item: UnsafeCell<MaybeUninit<T>>,
}

struct Shared<T> {
    /// The next position to claim; moved by senders.
    tail: CachePadded<AtomicU32>,
    /// 1 once the receiver is gone.
    closed: CachePadded<AtomicU32>,
    mask: u32,
    slots: Box<[Slot<T>]>,
}

// SAFETY: an item is written by the one sender that claimed its position and read by the one receiver, in that order
// (`turn`); `T: Send` lets it change threads.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

/// Reason for which an item came back.
/// Exhaustive: each needs an answer of its own, as the message comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// No slot is free now.
    Full(T),
    /// The receiver is gone for good.
    Closed(T),
}

/// An inbox for at least `capacity` items (rounded up to a power of two, at least 2).
#[must_use]
pub fn inbox<T: Send>(capacity: u32) -> (Sender<T>, Receiver<T>) {
    assert!(
        (1..=MAX_CAPACITY).contains(&capacity),
        "an inbox holds 1 to {MAX_CAPACITY} items, not {capacity}"
    );
    // With one slot, "free again" and "holds an item" would be the same number.
    let capacity = capacity.max(2).next_power_of_two();
    let slot = |i| Slot {
        turn: AtomicU32::new(i),
        item: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let shared = Arc::new(Shared {
        tail: CachePadded::new(AtomicU32::new(0)),
        closed: CachePadded::new(AtomicU32::new(0)),
        mask: capacity - 1,
        slots: (0..capacity).map(slot).collect(),
    });
    (
        Sender {
            shared: shared.clone(),
        },
        Receiver { shared, head: 0 },
    )
}

/// A sender's end; clone it freely.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

opaque!([T] Sender<T>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<T: Send> Sender<T> {
    /// Puts an item in. Retries only while other senders succeed.
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        let shared = &*self.shared;
        if shared.closed.load(Ordering::Relaxed) != 0 {
            return Err(SendError::Closed(item));
        }
        let mut position = shared.tail.load(Ordering::Relaxed);
        loop {
            let slot = &shared.slots[(position & shared.mask) as usize];
            let ahead = slot
                .turn
                .load(Ordering::Acquire)
                .wrapping_sub(position)
                .cast_signed();
            if ahead < 0 {
                // Still holds the item of a lap ago, unless `position` is stale.
                let now = shared.tail.load(Ordering::Relaxed);
                if now == position {
                    return Err(SendError::Full(item));
                }
                position = now;
            } else if ahead > 0 {
                position = shared.tail.load(Ordering::Relaxed);
            } else {
                let next = position.wrapping_add(1);
                match shared.tail.compare_exchange_weak(
                    position,
                    next,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: `turn == position` and the exchange gave this position to us alone.
                        slot.item.with_mut(|cell| unsafe {
                            (*cell).write(item);
                        });
                        slot.turn.store(next, Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                }
            }
        }
    }

    /// Items that it holds at most.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.shared.mask + 1
    }

    /// Whether so many more would fit now, which is no promise: others send too. False for more than the capacity.
    #[must_use]
    pub fn fits(&self, items: u32) -> bool {
        let shared = &*self.shared;
        if !(1..=self.capacity()).contains(&items) {
            return items == 0;
        }
        let last = shared.tail.load(Ordering::Relaxed).wrapping_add(items - 1);
        // They are given back in order, so if the last is free those before it are.
        let slot = &shared.slots[(last & shared.mask) as usize];
        let ahead = slot.turn.load(Ordering::Relaxed).wrapping_sub(last);
        ahead.cast_signed() >= 0
    }

    /// Whether the receiver is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Relaxed) != 0
    }
}

/// The receiver's end.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    head: u32,
}

opaque!([T] Receiver<T>);

impl<T: Send> Receiver<T> {
    /// Takes the next item. An item whose sender is still writing it hides those behind it until it is done; that
    /// sender wakes the receiver afterwards like any other.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let slot = &self.shared.slots[(self.head & self.shared.mask) as usize];
        if slot.turn.load(Ordering::Acquire) != self.head.wrapping_add(1) {
            return None;
        }
        // SAFETY: `turn == head + 1` says the item was written, and only this receiver takes it, once: `turn` moves on.
        let item = slot.item.with(|cell| unsafe { (*cell).assume_init_read() });
        slot.turn.store(
            self.head.wrapping_add(self.shared.mask).wrapping_add(1),
            Ordering::Release,
        );
        self.head = self.head.wrapping_add(1);
        Some(item)
    }

    /// Brings the next items close, of those that wait: each comes from another core's cache, and one by one each would be waited for.
    #[cfg(not(loom))]
    pub fn prefetch(&self, items: u32) {
        for ahead in 0..items.min(self.waiting() as u32) {
            let at = self.head.wrapping_add(ahead) & self.shared.mask;
            let slot = std::ptr::from_ref(&self.shared.slots[at as usize]);
            for line in (0..size_of::<Slot<T>>()).step_by(64) {
                janus_mem::prefetch(slot.cast::<u8>().wrapping_add(line));
            }
        }
    }

    /// Whether [`pop`](Self::pop) would give nothing now.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let slot = &self.shared.slots[(self.head & self.shared.mask) as usize];
        slot.turn.load(Ordering::Acquire) != self.head.wrapping_add(1)
    }

    /// How far the senders have come, those included that are still writing: a mark for
    /// [`has_passed`](Self::has_passed). What a sender had put in before it said so in another way is before the mark.
    #[must_use]
    pub fn mark(&self) -> u32 {
        self.shared.tail.load(Ordering::Relaxed)
    }

    /// Whether everything before `mark` has been taken.
    #[must_use]
    pub fn has_passed(&self, mark: u32) -> bool {
        self.head.wrapping_sub(mark).cast_signed() >= 0
    }

    /// Items claimed and not yet taken: an upper bound of what waits.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared
            .tail
            .load(Ordering::Relaxed)
            .wrapping_sub(self.head) as usize
    }

    /// A sender for this inbox.
    #[must_use]
    pub fn sender(&self) -> Sender<T> {
        Sender {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Items not taken are dropped with the memory, when the last sender is gone too: one may be writing now.
        self.shared.closed.store(1, Ordering::Relaxed);
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        for (i, slot) in self.slots.iter().enumerate() {
            // A free slot's turn is a position that falls on this slot; a full one's is one more.
            let turn = slot.turn.load(Ordering::Acquire);
            if turn & self.mask != i as u32 {
                // SAFETY: no sender and no receiver is left, and the turn says the slot holds an item that was not taken.
                slot.item
                    .with_mut(|cell| unsafe { (*cell).assume_init_drop() });
            }
        }
    }
}

#[cfg(test)]
mod tests;
