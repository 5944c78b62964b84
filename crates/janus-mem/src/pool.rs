//! A thread's own end of a depot: a small stack of slot numbers. Taking and giving back a buffer is a handful of
//! instructions, with no atomic among them; only whole magazines go to and from the depot.

use crate::depot::Depot;
use crate::frame::PacketBuf;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU32;
use std::sync::Arc;

/// Buffers exchanged with the depot at a time.
pub const MAGAZINE: usize = 64;
/// Most buffers a pool can hold in reserve.
pub const RESERVE_MAX: usize = 64;
/// Two magazines, so that a thread on the edge does not go to the depot each time, over the reserve.
const POOL_MAX: usize = RESERVE_MAX + 2 * MAGAZINE;

/// A thread's stock of packet buffers. Dropping it returns the stock to the depot.
pub struct Pool {
    /// Slots held; always at most `POOL_MAX`.
    held: u32,
    /// The lowest so many are the reserve: not for [`alloc`](Self::alloc).
    floor: u32,
    region: u16,
    slots: [u32; POOL_MAX],
    depot: Arc<Depot>,
    refused: u64,
    not_sync: PhantomData<Cell<()>>,
}

impl Pool {
    pub(crate) fn new(depot: Arc<Depot>) -> Self {
        Self {
            held: 0,
            floor: 0,
            region: depot.region(),
            slots: [0; POOL_MAX],
            depot,
            refused: 0,
            not_sync: PhantomData,
        }
    }

    /// Takes a buffer, its offset at [`HEADROOM`](crate::HEADROOM), its contents whatever they were. `None` when all
    /// are in use (the reserve is not touched).
    #[inline]
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
    #[inline]
    pub fn free(&mut self, buf: PacketBuf) {
        if buf.region() != self.region {
            return drop(buf);
        }
        if self.held as usize == POOL_MAX {
            self.spill();
        }
        let slot = buf.into_slot();
        // SAFETY: `held < POOL_MAX`: `spill` made room if there was none.
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

    /// Keeps `n` buffers (at most [`RESERVE_MAX`]) back for [`alloc_reserved`](Self::alloc_reserved) and fills the
    /// reserve now. Returns how many it holds at once; it fills up as buffers are freed.
    pub fn set_reserve(&mut self, n: usize) -> usize {
        self.floor = n.min(RESERVE_MAX) as u32;
        self.refill();
        (self.held as usize).min(self.floor as usize)
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

    /// Gets magazines until there is something above the reserve. Whether there is.
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> bool {
        let mut magazine = [0; MAGAZINE];
        // At most `RESERVE_MAX` turns when the depot hands out single slots.
        while self.held <= self.floor {
            let n = self.depot.take(&mut magazine);
            if n == 0 {
                self.refused += 1;
                return false;
            }
            let from = self.held as usize;
            self.slots[from..from + n].copy_from_slice(&magazine[..n]);
            self.held += n as u32;
        }
        true
    }

    /// Sends the coldest magazine above the reserve to the depot.
    #[cold]
    #[inline(never)]
    fn spill(&mut self) {
        let n = self.depot.batch();
        let from = self.floor as usize;
        self.depot.put(&self.slots[from..from + n]);
        self.slots.copy_within(from + n..self.held as usize, from);
        self.held -= n as u32;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.floor = 0;
        self.flush();
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
