//! Wakers that are no task of this core: a stream polled through a combinator (`select`, `FuturesUnordered`) or by a
//! foreign executor. A slab beside the stack holds them; the top bit of a token says "look there". The common case, a
//! task polling with its own waker, never comes here: its id is the token.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::task::Waker;

use janus_tcp::Token;

/// Set in a token that names a slot here. Task ids are arena granules of 30 bits.
pub(crate) const STORED: u32 = 1 << 31;

/// What somebody waits for. With the connection's or listener's index it names the one slot that interest has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Read(u32),
    Write(u32),
    Accept(u32),
    /// Of a UDP socket, by its place.
    DatagramIn(u32),
    DatagramOut(u32),
}

/// Few bits, all of them our own numbers: a peer could not choose them to collide, and a stream in a task of another
/// executor's comes here for every wait.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        // An odd number near 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(29) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // The table takes its bits from both ends; the upper ones are the well mixed.
        self.0 ^ (self.0 >> 32)
    }
}

/// The slab. Bounded by what can be waited for: two slots a connection, one a listener.
#[derive(Default)]
pub(crate) struct Waiters {
    slots: Vec<Option<(Side, Waker)>>,
    free: Vec<u32>,
    by_side: HashMap<Side, u32, BuildHasherDefault<Mixed>>,
}

impl Waiters {
    /// Stores `waker` for `side`; answers its token and the waker it replaced, to be dropped by the caller outside
    /// any borrow: dropping a foreign waker may run anything.
    pub(crate) fn store(&mut self, side: Side, waker: Waker) -> (Token, Option<Waker>) {
        if let Some(&slot) = self.by_side.get(&side) {
            let old = self.slots[slot as usize].replace((side, waker));
            return (Token(slot | STORED), old.map(|(_, waker)| waker));
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some((side, waker));
        self.by_side.insert(side, slot);
        (Token(slot | STORED), None)
    }

    /// Takes the waker out whose token became ready.
    pub(crate) fn take(&mut self, token: u32) -> Option<Waker> {
        let slot = token & !STORED;
        let (side, waker) = self.slots.get_mut(slot as usize)?.take()?;
        self.by_side.remove(&side);
        self.free.push(slot);
        Some(waker)
    }

    /// Forgets what waited for `side`.
    pub(crate) fn forget(&mut self, side: Side) -> Option<Waker> {
        if self.by_side.is_empty() {
            return None;
        }
        let slot = self.by_side.remove(&side)?;
        self.free.push(slot);
        self.slots[slot as usize].take().map(|(_, waker)| waker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slot_for_one_interest() {
        let mut waiters = Waiters::default();
        let (first, old) = waiters.store(Side::Read(7), Waker::noop().clone());
        assert!(old.is_none());
        let (again, old) = waiters.store(Side::Read(7), Waker::noop().clone());
        assert_eq!(first, again);
        assert!(old.is_some());
        let (other, _) = waiters.store(Side::Write(7), Waker::noop().clone());
        assert_ne!(first, other);
        assert!(waiters.take(first.0).is_some());
        assert!(waiters.take(first.0).is_none());
        assert!(waiters.forget(Side::Write(7)).is_some());
        assert!(waiters.take(other.0).is_none());
        assert_eq!(waiters.free.len(), 2);
    }

    #[test]
    fn many_interests_are_told_apart() {
        let mut waiters = Waiters::default();
        let sides = |conn| [Side::Read(conn), Side::Write(conn), Side::Accept(conn)];
        let mut tokens = std::collections::HashSet::new();
        for side in (0..1000).flat_map(sides) {
            let (token, old) = waiters.store(side, Waker::noop().clone());
            assert!(old.is_none() && tokens.insert(token.0));
        }
        for side in (0..1000).flat_map(sides) {
            assert!(waiters.forget(side).is_some());
        }
        assert_eq!(waiters.free.len(), 3000);
    }
}
