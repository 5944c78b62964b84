//! The pool that all threads share: one region of packet buffers, exchanged with the threads' pools in whole
//! magazines over a lock-free stack. The per-thread side, where the speed is, is `pool.rs`.

use crate::frame::SLOT_SIZE;
use crate::growth::{Grown, Growth, Life};
use crate::part::SLOT_BITS;
use crate::pool::{MAGAZINE, MAGAZINES, Pool, RESERVE_MAX};
use crate::region::{HUGE_PAGE, MemError, RegionKind};
use crate::registry::{self, Entry};
use crate::stacks::NONE;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(miri))]
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Divisor of the depot's capacity: this part is what all pools together may have in stock, and the same part again is for their reserves.
/// Stock in a pool must not starve the other pools.
const STOCKED: u32 = 8;

/// A region of packet buffers and the stock of those no thread holds.
pub struct Depot {
    entry: &'static Entry,
    grown: Arc<Grown>,
    /// Buffers that are this depot's: all that are in the region, unless they are lent.
    capacity: u32,
    /// Buffers in the region.
    slots: u32,
    /// How many share it.
    pools: AtomicU32,
    /// Buffers that devices are to have to receive into, as they say.
    posted: AtomicU32,
    /// How many of those are not there.
    lacking: AtomicU32,
}

/// Number of a depot's buffers that are posted to a device for receiving, counted as long as this lives.
#[derive(Debug)]
pub struct Posted {
    depot: Arc<Depot>,
    count: u32,
    lacking: u32,
}

impl Posted {
    /// Tells how many of them the device does not have: it found no buffer. What it lacks is not free for others, or it would never get it.
    #[inline]
    pub fn lacks(&mut self, lacking: u32) {
        if lacking != self.lacking {
            // Wraps where fewer are lacking now, and so is a subtraction.
            let more = lacking.wrapping_sub(self.lacking);
            self.depot.lacking.fetch_add(more, Ordering::Relaxed);
            self.lacking = lacking;
        }
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        self.lacks(0);
        self.depot.posted.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// Buffers of a depot, by where they are.
/// Exhaustive: the metrics take it apart, so that no field is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepotStats {
    /// All buffers there can be.
    pub capacity: usize,
    /// Buffers no pool and no handle holds.
    pub free: usize,
    /// Buffers alive as handles or cached in pools.
    pub outstanding: usize,
    /// Buffers that came back one by one through `Drop`: the slow path.
    pub strays: u64,
    /// Times a thread had to grow the region itself although a toucher is there to do it.
    pub late: u64,
    /// Bytes of buffers made ready.
    pub committed_bytes: usize,
}

/// The memory of a depot's buffers, for a device that must know it beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The first byte of slot 1.
    pub base: NonNull<u8>,
    /// How many slots of [`SLOT_SIZE`] bytes follow each other.
    pub count: u32,
    /// Bytes of memory from `base` on, in whole pages: the slots and what the last page has more.
    pub len: usize,
    /// The region's number, as handles have it.
    pub region: u16,
    /// Kind of memory that backs the region.
    pub kind: RegionKind,
}

impl Depot {
    /// A depot of `buffers` packet buffers, less than 2^27 of them. Addresses are reserved for all, memory comes in chunks.
    pub fn new(buffers: u32, growth: &Growth) -> Result<Arc<Self>, MemError> {
        let grown = Grown::new(Self::bytes(buffers)?, growth)?;
        Self::of(buffers, grown)
    }

    /// One whose memory another process can map, by the descriptor: as long as the buffers are, in whole huge pages.
    #[cfg(not(miri))]
    pub fn shared(buffers: u32, growth: &Growth) -> Result<(Arc<Self>, OwnedFd), MemError> {
        let (grown, memory) = Grown::shared(Self::bytes(buffers)?, growth)?;
        Ok((Self::of(buffers, grown)?, memory))
    }

    /// One of buffers that another process lends: of the `slots` in its memory those with these numbers, from 0. They may be exchanged for
    /// others there, by whoever knows which. `life` is dropped once nothing of the memory is used any more.
    #[cfg(not(miri))]
    pub fn lent(
        memory: BorrowedFd<'_>,
        slots: u32,
        given: &[u32],
        life: Life,
    ) -> Result<Arc<Self>, MemError> {
        if given.is_empty() || given.iter().any(|slot| *slot >= slots) {
            return Err(MemError::BadSize);
        }
        let bytes = Self::bytes(slots)?.next_multiple_of(HUGE_PAGE);
        let grown = Grown::lent(memory, bytes, life)?;
        let depot = Self {
            entry: registry::register(&grown, slots)?,
            grown,
            capacity: given.len() as u32,
            slots,
            pools: AtomicU32::new(0),
            posted: AtomicU32::new(0),
            lacking: AtomicU32::new(0),
        };
        let fresh = depot.entry.reclaim.fresh();
        fresh.store(depot.capacity, Ordering::Release);
        for some in given.chunks(MAGAZINE) {
            let mut magazine = [0; MAGAZINE];
            for (place, slot) in magazine.iter_mut().zip(some) {
                *place = slot + 1;
            }
            depot.put(&magazine[..some.len()]);
        }
        Ok(Arc::new(depot))
    }

    /// As many that were [lent](Self::lent) went back, and do not come home.
    pub fn give_up(&self, buffers: u32) {
        self.entry.reclaim.put_back(buffers as usize);
    }

    fn bytes(buffers: u32) -> Result<usize, MemError> {
        match buffers == 0 || buffers >= 1 << SLOT_BITS {
            true => Err(MemError::BadSize),
            false => Ok(buffers as usize * SLOT_SIZE),
        }
    }

    fn of(buffers: u32, grown: Arc<Grown>) -> Result<Arc<Self>, MemError> {
        let entry = registry::register(&grown, buffers)?;
        Ok(Arc::new(Self {
            entry,
            grown,
            capacity: buffers,
            slots: buffers,
            pools: AtomicU32::new(0),
            posted: AtomicU32::new(0),
            lacking: AtomicU32::new(0),
        }))
    }

    /// A thread's own end of the depot.
    pub fn pool(self: &Arc<Self>) -> Pool {
        Pool::new(Arc::clone(self))
    }

    /// Where the buffers are. Exact while no other thread is at work.
    pub fn stats(&self) -> DepotStats {
        let reclaim = &self.entry.reclaim;
        let fresh = reclaim.fresh().load(Ordering::Acquire) as usize;
        let home = reclaim.home().clamp(0, fresh as isize) as usize;
        DepotStats {
            capacity: self.capacity as usize,
            free: self.capacity as usize - fresh + home,
            outstanding: fresh - home,
            strays: self.entry.strays.load(Ordering::Relaxed),
            late: self.grown.late(),
            committed_bytes: self.grown.ready(),
        }
    }

    /// Makes the memory of every buffer ready and says where it is. It stays there as long as the depot lives.
    pub fn ready_all(&self) -> Result<Slots, MemError> {
        self.grown.grow_all()?;
        Ok(self.slots())
    }

    /// Where the buffers are, or will be.
    pub fn slots(&self) -> Slots {
        let region = self.grown.region();
        Slots {
            base: region.base(),
            count: self.slots,
            len: region.committed(),
            region: self.entry.id,
            kind: region.kind(),
        }
    }

    /// All buffers there can be.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Buffers alive as handles or cached in pools: what [`DepotStats::outstanding`] says, without the rest and cheaply. A
    /// little out of date while other threads are at work.
    #[inline]
    pub fn in_use(&self) -> usize {
        let fresh = self.entry.reclaim.fresh().load(Ordering::Relaxed) as usize;
        fresh.saturating_sub(usize::try_from(self.entry.reclaim.home_about()).unwrap_or(0))
    }

    /// A device keeps `count` buffers to receive into: they are in use, and yet no sign of shortage.
    #[must_use]
    pub fn posted(self: &Arc<Self>, count: u32) -> Posted {
        self.posted.fetch_add(count, Ordering::Relaxed);
        Posted {
            depot: self.clone(),
            count,
            lacking: 0,
        }
    }

    /// Buffers in use, and how many there are, of those that are not for devices to receive into. What devices lack is as good as
    /// used. Threads' stocks count, as what lies in one is no help to a device that lacks some.
    #[inline]
    pub fn fill(&self) -> (usize, usize) {
        // Whatever devices say: never without a rest to look at.
        let posted = self.posted.load(Ordering::Relaxed).min(self.capacity / 2);
        let there = posted.saturating_sub(self.lacking.load(Ordering::Relaxed));
        let used = self.in_use().saturating_sub(there as usize);
        (used, self.capacity() - posted as usize)
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> u16 {
        self.entry.id
    }

    pub(crate) fn pool_begins(&self) {
        self.pools.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pool_ends(&self) {
        self.pools.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns how many buffers each pool may hold of the part for stocks.
    fn share(&self) -> u32 {
        self.capacity / STOCKED / self.pools.load(Ordering::Relaxed).max(1)
    }

    /// Buffers exchanged at a time: as many as make a stock, less than [`MAGAZINE`] in a depot that is small for its pools.
    pub(crate) fn batch(&self) -> usize {
        (self.share() as usize / MAGAZINES).clamp(1, MAGAZINE)
    }

    /// The largest reserve of a pool.
    pub(crate) fn reserve(&self) -> u32 {
        self.share().clamp(1, RESERVE_MAX as u32)
    }

    /// Fills the front of `out` with free slots: a magazine that came back, else strays, else fresh ones. Returns how
    /// many; 0 when the depot is empty.
    pub(crate) fn take(&self, out: &mut [u32; MAGAZINE]) -> usize {
        let n = self.pop_magazine(out);
        if n > 0 {
            return n;
        }
        let n = self.take_strays(out);
        if n > 0 {
            return n;
        }
        self.take_fresh(out)
    }

    /// Gives back a magazine of free slots the caller owns.
    pub(crate) fn put(&self, slots: &[u32]) {
        self.push_magazine(slots);
        self.entry.reclaim.put_back(slots.len());
    }

    fn push_magazine(&self, slots: &[u32]) {
        debug_assert!(!slots.is_empty() && slots.len() <= MAGAZINE);
        let name = slots[0];
        // SAFETY: the caller owns `name`'s slot and it is free, so its memory is ours to keep the list in:
        // at most 65 words in 2,048 bytes, aligned.
        unsafe {
            let list = self.slot_words(name);
            list.write(slots.len() as u32);
            core::ptr::copy_nonoverlapping(slots.as_ptr(), list.add(1), slots.len());
        }
        self.entry
            .magazines
            .push(name, |slot| self.entry.link(slot));
    }

    fn pop_magazine(&self, out: &mut [u32; MAGAZINE]) -> usize {
        let Some(name) = self.entry.magazines.pop(|slot| self.entry.link(slot)) else {
            return 0;
        };
        // SAFETY: the magazine is ours alone now, and what `push_magazine` wrote can be seen.
        let n = unsafe {
            let list = self.slot_words(name);
            let n = (list.read() as usize).min(MAGAZINE);
            core::ptr::copy_nonoverlapping(list.add(1), out.as_mut_ptr(), n);
            n
        };
        self.entry.reclaim.took(n);
        n
    }

    /// Takes the chain of single returns: a magazine for the caller, the rest into magazines for others.
    fn take_strays(&self, out: &mut [u32; MAGAZINE]) -> usize {
        let mut at = self.entry.returned.take_all();
        let mut taken = 0;
        while at != NONE && taken < MAGAZINE {
            out[taken] = at;
            taken += 1;
            at = self.entry.link(at).load(Ordering::Relaxed);
        }
        let (mut rest, batch) = ([0; MAGAZINE], self.batch());
        let mut n = 0;
        // Bounded by the capacity: each stray is met once.
        while at != NONE {
            let next = self.entry.link(at).load(Ordering::Relaxed);
            rest[n] = at;
            n += 1;
            if n == batch || next == NONE {
                self.push_magazine(&rest[..n]);
                n = 0;
            }
            at = next;
        }
        self.entry.reclaim.took(taken);
        taken
    }

    fn take_fresh(&self, out: &mut [u32; MAGAZINE]) -> usize {
        let fresh = self.entry.reclaim.fresh();
        let (mut from, batch) = (fresh.load(Ordering::Relaxed), self.batch() as u32);
        loop {
            let ready = self.grown.ready();
            let limit = ((ready / SLOT_SIZE) as u32).min(self.capacity);
            if from >= limit {
                if limit == self.capacity || !self.grown.grow_past(ready) {
                    return 0;
                }
                continue;
            }
            let n = (limit - from).min(batch);
            match fresh.compare_exchange_weak(from, from + n, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    for (place, slot) in out.iter_mut().zip(from + 1..=from + n) {
                        *place = slot;
                    }
                    if limit < self.capacity && limit - from - n <= ahead(limit, batch) {
                        self.grown.ask_ahead();
                    }
                    return n as usize;
                }
                Err(now) => from = now,
            }
        }
    }

    fn slot_words(&self, slot: u32) -> *mut u32 {
        registry::base(self.entry.id)
            .wrapping_add(slot as usize * SLOT_SIZE)
            .cast()
    }
}

/// Buffers that are left of `limit` ready ones when the next chunk is asked for: an eighth, or 8 magazines. Below a huge page a quarter,
/// as a chunk that is late costs little there, and a server that is idle keeps what was once made ready.
fn ahead(limit: u32, batch: u32) -> u32 {
    if limit < HUGE_PAGE as u32 / SLOT_SIZE as u32 {
        limit / 4
    } else {
        (limit / 8).max(8 * batch)
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        self.entry.orphan();
    }
}

impl fmt::Debug for Depot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Depot")
            .field("region", &self.entry.id)
            .field("stats", &self.stats())
            .finish()
    }
}

#[cfg(test)]
mod tests;
