//! The one source of chance: a small generator whose whole state is its seed, so that a seed is a run.

use std::ops::Range;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that always gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range, which must not be empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.bits() % (range.end - range.start)
    }

    /// True `times` in a million.
    pub fn chance_in_a_million(&mut self, times: u32) -> bool {
        times > 0 && self.within(0..1_000_000) < u64::from(times)
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u16) -> bool {
        permille > 0 && self.within(0..1_000) < u64::from(permille)
    }
}
