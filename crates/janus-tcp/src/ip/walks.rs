//! Numbers that strangers see, must not foresee, and that come back late: source ports (RFC 6056 section 3.3.4, the
//! double-hash algorithm) and identifications of fragments (RFC 7739 section 5.3). Each destination goes through all numbers in
//! an order of its own, an offset and a stride that a keyed hash gives it. Where it stands says a counter that it shares with
//! the destinations of the same hash, and which moves on by a little more than was used: so whoever is one of them cannot
//! count what the others were given, and whoever is not sees nothing of it at all.

use std::net::IpAddr;

use janus_wire::siphash::{siphash_1_3, words_of};

use crate::time::Instant;

/// Counters of a stack: of so many destinations, two share one on average.
const COUNTERS: usize = 1_024;
/// The most that a counter moves on for one number.
const MOST: u64 = 4;

/// The orders of all destinations.
pub(crate) struct Walks {
    key: (u64, u64),
    /// Made when there is a number to give.
    counters: Vec<u32>,
}

/// The order of one destination, from where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    first: u32,
    /// Odd: of any power of two of numbers, all are passed before one comes again.
    stride: u32,
    counter: usize,
}

impl Walk {
    /// The number that comes after `step` others.
    #[inline]
    pub(crate) fn number(&self, step: u32) -> u32 {
        self.first.wrapping_add(self.stride.wrapping_mul(step))
    }
}

impl Walks {
    /// Orders that only a holder of `key` knows. The key is used for nothing else.
    pub(crate) fn new(key: (u64, u64)) -> Walks {
        Walks {
            key,
            counters: Vec::new(),
        }
    }

    /// The order of what goes from `from` to `port` of `to`.
    pub(crate) fn walk(&mut self, from: IpAddr, to: IpAddr, port: u16, now: Instant) -> Walk {
        if self.counters.is_empty() {
            // A stack that takes the place of another with the same secrets does not begin where that did.
            self.counters = vec![now.as_micros() as u32; COUNTERS];
        }
        let ([f0, f1], [t0, t1]) = (words_of(from), words_of(to));
        let words = [f0, f1, t0, t1, u64::from(port)];
        let hash = siphash_1_3(self.key, words);
        let (offset, stride) = (hash as u32, (hash >> 32) as u32 | 1);
        // By bits that no number of 16 shows.
        let counter = (hash >> 20) as usize % COUNTERS;
        let done = stride.wrapping_mul(self.counters[counter]);
        Walk {
            first: offset.wrapping_add(done),
            stride,
            counter,
        }
    }

    /// The first `count` numbers of `walk` are not to come again soon.
    pub(crate) fn use_up(&mut self, walk: &Walk, count: u32) {
        let counter = &mut self.counters[walk.counter];
        let words = [walk.counter as u64, u64::from(*counter)];
        let more = siphash_1_3(self.key, words) % MOST;
        *counter = counter.wrapping_add(count + more as u32);
    }

    /// The next number for what goes from `from` to `port` of `to`.
    pub(crate) fn next(&mut self, from: IpAddr, to: IpAddr, port: u16, now: Instant) -> u32 {
        let walk = self.walk(from, to, port, now);
        self.use_up(&walk, 1);
        walk.number(0)
    }
}

#[cfg(test)]
mod tests;
