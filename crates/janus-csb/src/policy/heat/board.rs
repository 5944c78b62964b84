//! Where polling cores leave samples of keys for whoever plans: one packet in [`HeatSampler::EVERY`], an addition each.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{BUCKET_BITS, BUCKETS};

/// Samples not yet taken, counted by part of the circle.
pub struct HeatBoard {
    counts: Box<[AtomicU32]>,
}

impl HeatBoard {
    /// Nothing on it.
    pub fn new() -> HeatBoard {
        HeatBoard {
            counts: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn put(&self, key: u32) {
        let bucket = (key >> (u32::BITS - BUCKET_BITS)) as usize;
        // Numbers that nothing else depends on.
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn take(&self, mut each: impl FnMut(usize, u32)) {
        for (bucket, count) in self.counts.iter().enumerate() {
            if count.load(Ordering::Relaxed) > 0 {
                each(bucket, count.swap(0, Ordering::Relaxed));
            }
        }
    }
}

impl fmt::Debug for HeatBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeatBoard").finish_non_exhaustive()
    }
}

impl Default for HeatBoard {
    fn default() -> HeatBoard {
        HeatBoard::new()
    }
}

/// One core's samples.
#[derive(Debug)]
pub struct HeatSampler {
    board: Arc<HeatBoard>,
    /// Packets until the next that is sampled.
    left: Cell<u32>,
}

impl HeatSampler {
    /// One packet in so many is sampled; no burst is longer.
    pub const EVERY: u32 = 64;

    /// Samples for this board.
    pub fn new(board: Arc<HeatBoard>) -> HeatSampler {
        HeatSampler {
            board,
            left: Cell::new(HeatSampler::EVERY - 1),
        }
    }

    /// Which packet of a burst of `count`, 64 at most, is to be sampled, if one is.
    #[inline]
    pub fn due(&self, count: usize) -> Option<usize> {
        let (left, count) = (self.left.get(), count as u32);
        if count <= left {
            self.left.set(left - count);
            return None;
        }
        self.left.set(left + HeatSampler::EVERY - count);
        Some(left as usize)
    }

    /// The sampled packet has this key.
    #[inline]
    pub fn sample(&self, key: u32) {
        self.board.put(key);
    }
}
