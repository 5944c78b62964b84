//! Where on the circle the load is: a histogram of keys that I/O cores fill by sampling packets, and the measure that
//! the planner cuts the circle by. Without a histogram the load is taken to lie evenly, which the hash sees to as long
//! as no flow is much heavier than the others.

mod board;
#[cfg(test)]
mod tests;

pub use board::{HeatBoard, HeatSampler};

const BUCKET_BITS: u32 = 12;
const BUCKETS: usize = 1 << BUCKET_BITS;
/// Keys in a bucket.
const WIDTH: u64 = 1 << (u32::BITS - BUCKET_BITS);
/// Samples before a histogram says more than its own noise: an arc of one bucket needs some tens.
const ENOUGH: u64 = 64 * BUCKETS as u64;

/// How often packets of each part of the circle were seen: 4,096 counters, 16 KiB.
#[derive(Clone, Debug)]
pub struct Heat {
    counts: Box<[u32]>,
}

impl Default for Heat {
    fn default() -> Heat {
        Heat::new()
    }
}

impl Heat {
    /// Nothing seen yet.
    pub fn new() -> Heat {
        Heat {
            counts: vec![0; BUCKETS].into_boxed_slice(),
        }
    }

    /// A packet of this key was seen. One in 64 is enough.
    #[inline]
    pub fn record(&mut self, key: u32) {
        let count = &mut self.counts[(key >> (u32::BITS - BUCKET_BITS)) as usize];
        *count = count.saturating_add(1);
    }

    /// Adds what another core has seen.
    pub fn merge(&mut self, other: &Heat) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }

    /// Adds what cores have put on a board since the last time.
    pub fn take(&mut self, board: &HeatBoard) {
        board.take(|bucket, seen| {
            let count = &mut self.counts[bucket];
            *count = count.saturating_add(seen);
        });
    }

    /// Halves all counts, so that what is past fades.
    pub fn age(&mut self) {
        for count in &mut self.counts {
            *count /= 2;
        }
    }

    /// Whether enough was seen to plan by.
    pub(super) fn is_enough(&self) -> bool {
        self.counts
            .iter()
            .map(|&count| u64::from(count))
            .sum::<u64>()
            >= ENOUGH
    }
}

/// A measure of the circle: what part of all load the keys of an arc have. All of it is 1.
#[derive(Clone, Debug)]
pub(super) enum Density {
    Even,
    /// `before[i]`: the load of all keys below bucket `i`; one entry more than buckets. Inside a bucket it is even.
    Measured(Box<[f64]>),
}

impl Density {
    /// The measure by what was seen; even while that is too little.
    pub(super) fn of(heat: Option<&Heat>) -> Density {
        let Some(heat) = heat.filter(|heat| heat.is_enough()) else {
            return Density::Even;
        };
        // One added everywhere: no arc is without load, so every position can be found from the load before it.
        let total: u64 = heat.counts.iter().map(|&count| u64::from(count) + 1).sum();
        let mut below = 0;
        let before = std::iter::once(0.0).chain(heat.counts.iter().map(|&count| {
            below += u64::from(count) + 1;
            below as f64 / total as f64
        }));
        Density::Measured(before.collect())
    }

    /// The load of all keys below `key`, which may be 2^32.
    fn below(&self, key: u64) -> f64 {
        match self {
            Density::Even => key as f64 / (1u64 << 32) as f64,
            Density::Measured(before) => {
                let bucket = ((key / WIDTH) as usize).min(BUCKETS - 1);
                let inside = (key - bucket as u64 * WIDTH) as f64 / WIDTH as f64;
                before[bucket] + inside * (before[bucket + 1] - before[bucket])
            }
        }
    }

    /// The load of the keys after `after` up to and including `end`, clockwise; the whole circle when they are equal.
    pub(super) fn between(&self, after: u32, end: u32) -> f64 {
        let part = self.below(u64::from(end) + 1) - self.below(u64::from(after) + 1);
        if end > after { part } else { part + 1.0 }
    }

    /// The key up to which, going clockwise from `after`, there is this much load.
    pub(super) fn key_after(&self, after: u32, load: f64) -> u32 {
        let mut wanted = self.below(u64::from(after) + 1) + load;
        wanted -= wanted.floor();
        let key = match self {
            Density::Even => wanted * (1u64 << 32) as f64,
            Density::Measured(before) => {
                let bucket = before[1..BUCKETS].partition_point(|&below| below <= wanted);
                let (low, high) = (before[bucket], before[bucket + 1]);
                (bucket as f64 + (wanted - low) / (high - low)) * WIDTH as f64
            }
        };
        // `below(key + 1)` is what includes `key`; the conversion saturates.
        (key as u64).wrapping_sub(1) as u32
    }
}
