//! How many frames a core takes at a time. A large batch is cheaper for each of its frames, but what came first waits for
//! the last: so while the queue is short a core takes little and answers soon, and when it grows it takes up to a whole
//! burst. Knows no queue, only how much the last look at it gave.

use crate::batch::BURST;

/// The fewest frames at a time: below this the cost of a turn is more than its frames'.
const LEAST: usize = 8;

/// How a core chooses the size of its batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// By the length of the queue, from 8 to [`BURST`] frames.
    #[default]
    Adaptive,
    /// At most so many at a time, 1 to [`BURST`].
    Fixed(usize),
}

/// What one core takes at a time now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    now: usize,
    /// Where it stays; equal to `most` when it is fixed.
    least: usize,
    most: usize,
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
        }
    }

    /// Frames to take at most.
    #[inline(always)]
    pub(crate) fn get(&self) -> usize {
        self.now
    }

    /// So many there were: as many as were asked for, then there may be more; less than half, then less is enough.
    #[inline]
    pub(crate) fn took(&mut self, frames: usize) {
        if frames >= self.now {
            self.now = (self.now * 2).min(self.most);
        } else if frames < self.now / 2 {
            self.now = (self.now / 2).max(self.least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of `waiting` frames, taken as the share says; the sizes of the batches.
    fn batches(share: &mut Share, mut waiting: usize) -> Vec<usize> {
        let mut sizes = Vec::new();
        while waiting > 0 {
            let taken = share.get().min(waiting);
            waiting -= taken;
            share.took(taken);
            sizes.push(taken);
        }
        sizes
    }

    #[test]
    fn a_short_queue_is_taken_at_once_and_a_long_one_in_growing_batches() {
        let mut share = Share::new(Batching::Adaptive);
        assert_eq!(batches(&mut share, 5), [5]);
        assert_eq!(batches(&mut share, 300), [8, 16, 32, 64, 64, 64, 52]);
        // It stays large while there is much, and comes down in steps when there is not.
        assert_eq!(batches(&mut share, 64), [64]);
        for expected in [32, 16, 8, 8] {
            share.took(1);
            assert_eq!(share.get(), expected);
        }
        // An empty look is a look.
        share.took(0);
        assert_eq!(share.get(), LEAST);
    }

    #[test]
    fn half_of_it_leaves_it_as_it_is() {
        let mut share = Share::new(Batching::Adaptive);
        batches(&mut share, 24);
        assert_eq!(share.get(), 32);
        share.took(16);
        assert_eq!(share.get(), 32);
        share.took(15);
        assert_eq!(share.get(), 16);
    }

    #[test]
    fn a_fixed_one_does_not_move_and_is_kept_within_bounds() {
        for (said, kept) in [(0, 1), (1, 1), (17, 17), (64, 64), (1000, BURST)] {
            let mut share = Share::new(Batching::Fixed(said));
            assert_eq!(batches(&mut share, 3 * BURST).first(), Some(&kept));
            share.took(0);
            assert_eq!(share.get(), kept);
        }
    }
}
