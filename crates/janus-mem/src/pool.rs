//! A thread's own end of a depot: a small stack of slot numbers. Taking and giving back a buffer is a handful of
//! instructions, with no atomic among them; only whole magazines go to and from the depot.

use crate::depot::Depot;
use crate::frame::PacketBuf;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU32;
use std::sync::Arc;

/// Buffers exchanged with the depot at a time, at most: fewer where the depot is small for its threads.
pub const MAGAZINE: usize = 64;
/// Most buffers a pool can hold in reserve.
pub const RESERVE_MAX: usize = 64;
/// Magazines in stock, over the reserve: two, so that a thread on the edge does not go to the depot each time.
pub(crate) const MAGAZINES: usize = 2;
const POOL_MAX: usize = RESERVE_MAX + MAGAZINES * MAGAZINE;

/// A thread's stock of packet buffers. Dropping it returns the stock to the depot.
pub struct Pool {
    /// Slots held; always at most `POOL_MAX`.
    held: u32,
    /// The lowest so many are the reserve: not for [`alloc`](Self::alloc).
    floor: u32,
    /// With so many a magazine goes back to the depot.
    most: u32,
    /// The reserve that was asked for; the depot may be too small for that.
    wanted: u32,
    region: u16,
    slots: [u32; POOL_MAX],
    depot: Arc<Depot>,
    refused: u64,
    not_sync: PhantomData<Cell<()>>,
}

impl Pool {
    pub(crate) fn new(depot: Arc<Depot>) -> Self {
        depot.pool_begins();
        Self {
            held: 0,
            floor: 0,
            most: (MAGAZINES * depot.batch()) as u32,
            wanted: 0,
            region: depot.region(),
            slots: [0; POOL_MAX],
            depot,
            refused: 0,
            not_sync: PhantomData,
        }
    }

    /// Takes a buffer, its offset at [`HEADROOM`](crate::HEADROOM), its contents whatever they were. `None` when all
    /// are in use (the reserve is not touched).
    #[inline(always)]
    pub fn alloc(&mut self) -> Option<PacketBuf> {
        if self.held <= self.floor && !self.refill() {
            return None;
        }
        Some(self.pop())
    }

    /// Takes a buffer even from the reserve: for what frees memory or keeps a device alive, such as ACKs and the
    /// refill of a receive queue.
    #[inline]
    pub fn alloc_reserved(&mut self) -> Option<PacketBuf> {
        if self.held <= self.floor && !self.refill() && self.held == 0 {
            return None;
        }
        Some(self.pop())
    }

    /// Takes up to `n` buffers; returns how many there were.
    pub fn alloc_many(&mut self, n: usize, out: &mut impl Extend<PacketBuf>) -> usize {
        let mut got = 0;
        out.extend(core::iter::from_fn(|| {
            let buf = if got < n { self.alloc() } else { None };
            got += usize::from(buf.is_some());
            buf
        }));
        got
    }

    /// Gives a buffer back. One of another region goes home by itself.
    #[inline(always)]
    pub fn free(&mut self, buf: PacketBuf) {
        if buf.region() != self.region {
            return drop(buf);
        }
        if self.held >= self.most {
            self.spill();
        }
        let slot = buf.into_slot();
        // SAFETY: `held < most <= POOL_MAX`: `spill` made room if there was none, and `fit` keeps `most` within bounds.
        unsafe { *self.slots.get_unchecked_mut(self.held as usize) = slot };
        self.held += 1;
    }

    #[inline(always)]
    fn pop(&mut self) -> PacketBuf {
        debug_assert!(self.held > 0);
        self.held -= 1;
        // SAFETY: `held` was in `1..=POOL_MAX`: the callers checked that it is not zero. Entries below it are slot
        // numbers, counted from 1.
        let slot =
            unsafe { NonZeroU32::new_unchecked(*self.slots.get_unchecked(self.held as usize)) };
        PacketBuf::new(self.region, slot)
    }

    /// Keeps `n` buffers (at most [`RESERVE_MAX`], and a pool's share of an eighth of the depot) back for
    /// [`alloc_reserved`](Self::alloc_reserved) and fills the reserve now. Returns how many it holds at once; it fills up
    /// as buffers are freed.
    pub fn set_reserve(&mut self, n: usize) -> usize {
        self.wanted = n.min(RESERVE_MAX) as u32;
        self.fit();
        while self.held < self.floor && self.fetch((self.floor - self.held) as usize) > 0 {}
        self.held.min(self.floor) as usize
    }

    /// Buffers in this pool, the reserve among them.
    pub fn cached(&self) -> usize {
        self.held as usize
    }

    /// Whether there is one above the reserve without asking the depot.
    #[inline]
    pub fn has_spare(&self) -> bool {
        self.held > self.floor
    }

    /// How often a buffer was wanted and the depot had none.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether this is one of the buffers that all pools of its depot share.
    #[inline]
    pub fn shares(&self, buf: &PacketBuf) -> bool {
        buf.region() == self.region
    }

    /// The depot behind this pool.
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    /// Returns everything but the reserve to the depot.
    pub fn flush(&mut self) {
        while self.held > self.floor {
            let n = ((self.held - self.floor) as usize).min(self.depot.batch());
            let from = self.held as usize - n;
            self.depot.put(&self.slots[from..from + n]);
            self.held -= n as u32;
        }
    }

    /// Reserve and stock as large as the depot has room for now: other pools may have come or gone. What a magazine is
    /// now.
    fn fit(&mut self) -> usize {
        let batch = self.depot.batch();
        self.floor = self.wanted.min(self.depot.reserve());
        self.most = self.floor + (MAGAZINES * batch) as u32;
        debug_assert!(self.most as usize <= POOL_MAX);
        batch
    }

    /// Gets magazines until there is something above the reserve. Whether there is.
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> bool {
        let batch = self.fit();
        // At most `RESERVE_MAX` turns when the depot hands out single slots.
        while self.held <= self.floor {
            if self.fetch(batch) == 0 {
                self.refused += 1;
                return false;
            }
        }
        true
    }

    /// Gets a magazine, `most` of it at most. How many there were.
    fn fetch(&mut self, most: usize) -> usize {
        let mut magazine = [0; MAGAZINE];
        let n = self.depot.take(&mut magazine);
        let (kept, rest) = magazine[..n].split_at(n.min(most));
        // It was filled when there were fewer pools.
        if !rest.is_empty() {
            self.depot.put(rest);
        }
        let from = self.held as usize;
        self.slots[from..from + kept.len()].copy_from_slice(kept);
        self.held += kept.len() as u32;
        kept.len()
    }

    /// Sends the coldest magazines above the reserve to the depot, until there is room for one more buffer.
    #[cold]
    #[inline(never)]
    fn spill(&mut self) {
        let batch = self.fit();
        let from = self.floor as usize;
        while self.held >= self.most {
            let n = batch.min(self.held as usize - from);
            self.depot.put(&self.slots[from..from + n]);
            self.slots.copy_within(from + n..self.held as usize, from);
            self.held -= n as u32;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.floor = 0;
        self.flush();
        self.depot.pool_ends();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("region", &self.region)
            .field("held", &self.held)
            .field("reserve", &self.floor)
            .finish()
    }
}
