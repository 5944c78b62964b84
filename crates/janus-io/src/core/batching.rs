//! How many frames a core takes at a time. A large batch is cheaper for each of its frames, but what came first waits for
//! the last. So a core that has time takes little at first and answers soon, and more with each look while there is more;
//! one that has none takes all it can. Whether it has time it knows from the looks that gave nothing: they pay for the
//! turns that small batches cost. Knows no queue, only how much the last look at it gave.

use crate::batch::BURST;

/// The fewest frames at a time: below this the cost of a turn is more than its frames'.
const LEAST: usize = 8;

/// Looks that gave nothing, for one turn more than the largest batches would take. A turn costs about what such a look does,
/// so small batches take from an idle core this part of its idleness at most, and from one that is never idle nothing.
const PRICE: u32 = 16;

/// Most looks that can be saved up: a core that was idle for long can afford to begin small so many times.
const SAVED_MAX: u32 = 8 * PRICE;

/// Choice of the size of a core's batches.
/// Exhaustive: a configuration has a word for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// By the length of the queue and the time the core has, from 8 to [`BURST`] frames.
    #[default]
    Adaptive,
    /// At most so many at a time, 1 to [`BURST`].
    Fixed(usize),
}

/// Batch size of one core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    now: usize,
    /// Where it begins; equal to `most` when it is fixed.
    least: usize,
    most: usize,
    /// Looks that gave nothing and have paid for nothing yet.
    saved: u32,
}

impl Share {
    pub(crate) fn new(batching: Batching) -> Self {
        let (least, most) = match batching {
            Batching::Adaptive => (LEAST, BURST),
            Batching::Fixed(frames) => {
                let frames = frames.clamp(1, BURST);
                (frames, frames)
            }
        };
        Self {
            now: least,
            least,
            most,
            saved: SAVED_MAX,
        }
    }

    /// Frames to take at most.
    #[inline(always)]
    pub(crate) fn get(&self) -> usize {
        self.now
    }

    /// Adapts the size to the `frames` that the last look gave. As many as were asked for: there may be more, and it takes one more turn,
    /// which has to be paid for. Fewer: the next frames are a new batch.
    #[inline]
    pub(crate) fn took(&mut self, frames: usize) {
        let is_full = frames >= self.now;
        if is_full && self.now < self.most {
            self.saved = self.saved.saturating_sub(PRICE);
        } else if frames == 0 {
            self.saved = (self.saved + 1).min(SAVED_MAX);
        }
        self.now = match (self.saved >= PRICE, is_full) {
            (false, _) => self.most,
            (true, false) => self.least,
            (true, true) => (self.now * 2).min(self.most),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of `waiting` frames, taken as the share says until a look finds nothing; the sizes of the batches.
    fn batches(share: &mut Share, mut waiting: usize) -> Vec<usize> {
        let mut sizes = Vec::new();
        while waiting > 0 {
            let taken = share.get().min(waiting);
            waiting -= taken;
            share.took(taken);
            sizes.push(taken);
        }
        share.took(0);
        sizes
    }

    fn idle(share: &mut Share, looks: u32) {
        (0..looks).for_each(|_| share.took(0));
    }

    #[test]
    fn a_short_queue_is_taken_at_once_and_a_long_one_in_growing_batches() {
        let mut share = Share::new(Batching::Adaptive);
        assert_eq!(batches(&mut share, 5), [5]);
        assert_eq!(batches(&mut share, 300), [8, 16, 32, 64, 64, 64, 52]);
        // The next frames are a new batch, which begins small again.
        assert_eq!(batches(&mut share, 32), [8, 16, 8]);
    }

    #[test]
    fn who_has_no_time_takes_all_there_is() {
        let mut share = Share::new(Batching::Adaptive);
        // Never idle: what was saved at the beginning pays for eight turns, and then nothing does.
        let mut small = 0;
        for _ in 0..1000 {
            small += u32::from(share.get() < BURST);
            share.took(share.get());
            // The queue runs empty from time to time, but no look finds it so.
            share.took(1);
        }
        assert!(small <= 2 * SAVED_MAX / PRICE, "{small} small batches");
        assert_eq!(batches(&mut share, 40), [40]);
        // Time comes back with idleness, a turn for so many looks.
        idle(&mut share, PRICE);
        assert_eq!(batches(&mut share, 40), [8, 32]);
        idle(&mut share, SAVED_MAX);
        assert_eq!(batches(&mut share, 40), [8, 16, 16]);
    }

    #[test]
    fn small_batches_cost_no_more_than_a_part_of_the_idleness() {
        // Bursts of all sizes with gaps of all lengths.
        let (mut share, mut random) = (Share::new(Batching::Adaptive), 1u64);
        let (mut turns, mut least, mut empty) = (0, 0, 0);
        for _ in 0..100_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            let (burst, gap) = ((random >> 33) as usize % 200 + 1, (random >> 60) as u32);
            turns += batches(&mut share, burst).len();
            least += burst.div_ceil(BURST);
            idle(&mut share, gap);
            empty += gap + 1;
        }
        let paid = (empty + SAVED_MAX) / PRICE;
        assert!(turns - least <= paid as usize, "{turns} for {least}");
        assert!(turns > least, "it was idle, and never began small");
    }

    #[test]
    fn a_fixed_one_does_not_move_and_is_kept_within_bounds() {
        for (said, kept) in [(0, 1), (1, 1), (17, 17), (64, 64), (1000, BURST)] {
            let mut share = Share::new(Batching::Fixed(said));
            assert_eq!(batches(&mut share, 3 * BURST).first(), Some(&kept));
            idle(&mut share, 2 * SAVED_MAX);
            assert_eq!(share.get(), kept);
        }
    }
}
