//! Our packet buffers that other processes have, by whose each is: what one gives back it must have had, and what it had when it ended is
//! found by one look over all.

use std::sync::Arc;

use janus_mem::{Depot, PacketBuf, Pool, SLOT_SIZE};

use crate::backend::places::{Places, address};

/// Number of a borrower.
pub type Borrower = std::num::NonZeroU16;

/// The buffers of one depot, of which some are lent.
#[derive(Debug)]
pub struct Loans {
    places: Places,
    /// By slot, from 0.
    has: Vec<Option<Borrower>>,
}

impl Loans {
    /// None is lent.
    #[must_use]
    pub fn new(depot: &Arc<Depot>) -> Self {
        let slots = depot.slots();
        Self {
            places: Places::new(&slots),
            has: vec![None; slots.count as usize],
        }
    }

    /// How many buffers there are, lent or not.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.has.len() as u32
    }

    /// Number of the buffer that an address is in, from 0.
    #[must_use]
    pub fn number(address: u64) -> u32 {
        (address / SLOT_SIZE as u64) as u32
    }

    /// Lends a buffer: the address of its data. One of another depot comes back.
    ///
    /// # Errors
    /// That one.
    #[inline]
    pub fn lend(&mut self, buf: PacketBuf, to: Borrower) -> Result<u64, PacketBuf> {
        let (slot, off) = self.places.of(buf)?;
        self.has[slot] = Some(to);
        Ok(address(slot, off))
    }

    /// Takes back the buffer that `len` bytes at this address are in. `None` if `from` does not have it.
    #[inline]
    pub fn take_back(&mut self, address: u64, len: u32, from: Borrower) -> Option<PacketBuf> {
        let (slot, off) = self.places.at(address, len)?;
        let had = self.has[slot] == Some(from);
        if had {
            self.has[slot] = None;
        }
        // SAFETY: the table says that it was lent, so no handle exists; it says so no more.
        had.then(|| unsafe { self.places.handle(slot, off) })
    }

    /// Copies from a buffer that is lent. False if `from` does not have it.
    #[inline]
    #[must_use]
    pub fn peek(&mut self, address: u64, into: &mut [u8], from: Borrower) -> bool {
        let Some(buf) = self.take_back(address, into.len() as u32, from) else {
            return false;
        };
        let at = (address % SLOT_SIZE as u64) as usize;
        into.copy_from_slice(&buf.bytes()[at..at + into.len()]);
        let lent = self.lend(buf, from);
        debug_assert!(lent.is_ok(), "it has just been taken out of these");
        true
    }

    /// Takes back all that a borrower has, who is no more; how many.
    pub fn recall(&mut self, from: Borrower, pool: &mut Pool) -> u32 {
        let mut count = 0;
        for slot in 0..self.has.len() {
            if self.has[slot] == Some(from) {
                self.has[slot] = None;
                count += 1;
                // SAFETY: as in `take_back`.
                pool.free(unsafe { self.places.handle(slot, janus_mem::HEADROOM) });
            }
        }
        count
    }

    /// Lent buffers stay where they are for good; how many those are.
    pub fn forget(&mut self) -> u32 {
        let lent = self.has.iter_mut().filter_map(Option::take);
        lent.count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use janus_mem::Growth;

    #[test]
    fn what_is_lent_comes_back_once_and_from_who_had_it() {
        let depot = Depot::new(256, &Growth::Inline).unwrap();
        let mut loans = Loans::new(&depot);
        let [one, other] = [1, 2].map(|it| Borrower::new(it).unwrap());
        let mut pool = depot.pool();
        let mut buf = pool.alloc().unwrap();
        buf.bytes_mut()[200] = 7;
        buf.set_off(200);
        let at = loans.lend(buf, one).unwrap();
        let mut seen = [0];
        assert!(loans.peek(at, &mut seen, one));
        assert_eq!(seen, [7]);
        assert!(!loans.peek(at, &mut seen, other));
        assert!(!loans.peek(at, &mut [0; SLOT_SIZE], one), "beyond its slot");
        assert!(loans.take_back(at, 1, other).is_none());
        assert!(loans.take_back(u64::MAX, 1, one).is_none());
        let buf = loans.take_back(at, 1, one).unwrap();
        assert_eq!((buf.off(), buf.bytes()[200]), (200, 7));
        assert!(loans.take_back(at, 1, one).is_none(), "once");
        for _ in 0..10 {
            loans.lend(pool.alloc().unwrap(), one).unwrap();
            loans.lend(pool.alloc().unwrap(), other).unwrap();
        }
        let stranger = Depot::new(64, &Growth::Inline).unwrap();
        assert!(loans.lend(stranger.pool().alloc().unwrap(), one).is_err());
        assert_eq!(loans.recall(one, &mut pool), 10);
        assert_eq!(loans.recall(one, &mut pool), 0);
        assert_eq!(loans.recall(other, &mut pool), 10);
        drop((buf, pool));
        assert_eq!(depot.stats().outstanding, 0);
    }
}
