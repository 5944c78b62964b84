//! Sets of descriptors' numbers, which no lock guards: a bit for each.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that words of so many bits each have a place for.
pub struct Numbers<W>(W);

/// A set with room for numbers below 64 times that.
pub type Fixed<const WORDS: usize> = Numbers<[AtomicU64; WORDS]>;

impl<const WORDS: usize> Fixed<WORDS> {
    /// With none in it.
    #[must_use]
    pub const fn none() -> Self {
        Numbers([const { AtomicU64::new(0) }; WORDS])
    }
}

impl Numbers<Box<[AtomicU64]>> {
    /// With none in it, and room for numbers below 64 times that.
    pub(crate) fn with_room(words: usize) -> Self {
        Numbers((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl<W: AsRef<[AtomicU64]>> Numbers<W> {
    #[inline]
    fn place(&self, fd: RawFd) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.as_ref().get(fd / 64)?, 1 << (fd % 64)))
    }

    /// Whether a number is in it.
    #[inline]
    pub fn has(&self, fd: RawFd) -> bool {
        self.place(fd)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Puts one into it. Whether there was room for it.
    pub fn add(&self, fd: RawFd) -> bool {
        let place = self.place(fd);
        let added = place.map(|(word, bit)| word.fetch_or(bit, Ordering::Relaxed));
        added.is_some()
    }

    /// Takes one out of it.
    pub fn remove(&self, fd: RawFd) {
        if let Some((word, bit)) = self.place(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Takes all of these out of it.
    pub(crate) fn remove_from_to(&self, first: RawFd, last: RawFd) {
        let place = |fd: RawFd| fd.max(0) as usize / 64;
        let words = self.0.as_ref().iter().zip((0..).step_by(64));
        for (word, begin) in words.take(place(last) + 1).skip(place(first)) {
            if word.load(Ordering::Relaxed) != 0 {
                let numbers = (begin..begin + 64).filter(|fd| (first..=last).contains(fd));
                numbers.for_each(|fd| self.remove(fd));
            }
        }
    }

    /// All of them, in their order.
    pub fn all(&self) -> Vec<RawFd> {
        let words = self.0.as_ref().iter().zip((0..).step_by(64));
        let bits = words.map(|(word, first)| (word.load(Ordering::Relaxed), first));
        let some = bits.filter(|(bits, _)| *bits != 0);
        let set = |(bits, first): (u64, RawFd)| {
            let places = (0..64).filter(move |place| bits >> place & 1 != 0);
            places.map(move |place| first + place)
        };
        some.flat_map(set).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_there_until_it_is_taken_out() {
        static SET: Fixed<2> = Fixed::none();
        let numbers = [0, 1, 63, 64, 127];
        for fd in numbers {
            assert!(!SET.has(fd) && SET.add(fd) && SET.has(fd), "{fd}");
        }
        assert_eq!(SET.all(), numbers);
        for fd in [-1, RawFd::MIN, 128, RawFd::MAX] {
            assert!(!SET.add(fd) && !SET.has(fd), "{fd}");
            SET.remove(fd);
        }
        for fd in numbers {
            SET.remove(fd);
            assert!(!SET.has(fd), "{fd}");
        }
        assert_eq!(SET.all(), [-1; 0]);
        let other = Numbers::with_room(3);
        let all = || (0..192).all(|fd| other.add(fd));
        assert!(all() && !other.add(192));
        for (first, last) in [
            (0, 0),
            (5, 130),
            (63, 64),
            (-7, 70),
            (100, RawFd::MAX),
            (9, 8),
        ] {
            assert!(all());
            other.remove_from_to(first, last);
            let left = (0..192).filter(|fd| !(first..=last).contains(fd));
            assert_eq!(other.all(), left.collect::<Vec<_>>(), "{first} to {last}");
        }
    }
}
