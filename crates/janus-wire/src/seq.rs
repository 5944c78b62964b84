//! TCP sequence numbers: arithmetic modulo 2^32 (RFC 9293 section 3.4). No window logic lives here.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number. Comparison is by signed distance, so it is not transitive over the whole circle and there is
/// deliberately no `Ord`: use [`SeqNum::lt`] and its siblings on numbers less than 2^31 apart.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// How far `self` lies behind `earlier` on the circle; negative when `self` comes first.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }

    /// `self` comes before `other`.
    #[inline(always)]
    pub const fn lt(self, other: Self) -> bool {
        self.since(other) < 0
    }

    /// `self` comes before `other` or is the same.
    #[inline(always)]
    pub const fn le(self, other: Self) -> bool {
        self.since(other) <= 0
    }

    /// `self` comes after `other`.
    #[inline(always)]
    pub const fn gt(self, other: Self) -> bool {
        self.since(other) > 0
    }

    /// `self` comes after `other` or is the same.
    #[inline(always)]
    pub const fn ge(self, other: Self) -> bool {
        self.since(other) >= 0
    }

    /// `start <= self < start + length`, for any length up to 2^32 - 1.
    #[inline(always)]
    pub const fn within(self, start: Self, length: u32) -> bool {
        self.0.wrapping_sub(start.0) < length
    }

    /// The later of two numbers.
    #[inline(always)]
    pub const fn later(self, other: Self) -> Self {
        if self.lt(other) { other } else { self }
    }

    /// The earlier of two numbers.
    #[inline(always)]
    pub const fn earlier(self, other: Self) -> Self {
        if other.lt(self) { other } else { self }
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;
    #[inline(always)]
    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for SeqNum {
    #[inline(always)]
    fn add_assign(&mut self, n: u32) {
        self.0 = self.0.wrapping_add(n);
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;
    #[inline(always)]
    fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}

impl Sub for SeqNum {
    type Output = i32;
    #[inline(always)]
    fn sub(self, earlier: Self) -> i32 {
        self.since(earlier)
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq {}", self.0)
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::SeqNum;
    use proptest::prelude::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let old = SeqNum(u32::MAX - 1);
        let new = old + 3;
        assert_eq!(new, SeqNum(1));
        assert!(old.lt(new) && new.gt(old) && old.le(old) && old.ge(old));
        assert_eq!(new - old, 3);
        assert_eq!(old - new, -3);
        assert_eq!(old.later(new), new);
        assert_eq!(old.earlier(new), old);
        assert!(SeqNum(0).within(old, 3) && !SeqNum(1).within(old, 3) && !old.within(old, 0));
    }

    proptest! {
        #[test]
        fn distance_is_what_was_added(base: u32, step in 0..i32::MAX as u32) {
            let base = SeqNum(base);
            let ahead = base + step;
            prop_assert_eq!(ahead - base, step as i32);
            prop_assert_eq!(ahead - step, base);
            prop_assert_eq!(base.lt(ahead), step > 0);
            prop_assert_eq!(base.within(base - step, step + 1), true);
        }

        #[test]
        fn nothing_panics(a: u32, b: u32, n: u32) {
            let (a, b) = (SeqNum(a), SeqNum(b));
            let _ = (a - b, a + n, a - n, a.lt(b), a.le(b), a.gt(b), a.ge(b), a.within(b, n), a.later(b), a.earlier(b));
            // Exactly half a circle apart is the one distance where both directions compare alike.
            prop_assert!(a.lt(b) != a.ge(b));
        }
    }
}
