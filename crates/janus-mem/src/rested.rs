//! Free places in the order they came, instead of the last first: memory that is handed out again is as cold as there is, and
//! what it is worth that it is warm otherwise is seen beside that. The first round is in no order, so that no processor
//! foresees which place comes next; and as all later rounds follow the first, they are in none either.

use std::collections::VecDeque;

/// Unused places of a store, first in first out.
#[derive(Debug)]
pub struct Rested<T> {
    places: VecDeque<T>,
}

impl<T> Rested<T> {
    /// Begins with these, shuffled: in the same way each time.
    #[must_use]
    pub fn shuffled(mut places: Vec<T>) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for left in (2..=places.len()).rev() {
            // xorshift64: Marsaglia, "Xorshift RNGs", the first triple of the paper.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            places.swap(left - 1, (state % left as u64) as usize);
        }
        Self {
            places: places.into(),
        }
    }

    /// Takes the place that has been free for longest.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.places.pop_front()
    }

    /// A place is free.
    #[inline]
    pub fn push(&mut self, place: T) {
        self.places.push_back(place);
    }

    /// Places in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes it takes itself.
    #[must_use]
    pub fn committed_bytes(&self) -> usize {
        self.places.capacity() * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_comes_once_a_round_and_rounds_are_alike_and_in_no_order() {
        let mut rested = Rested::shuffled((0..1_000_u32).collect());
        let mut round = || -> Vec<u32> {
            let taken: Vec<u32> = std::iter::from_fn(|| rested.pop()).collect();
            taken.iter().for_each(|&place| rested.push(place));
            taken
        };
        let first = round();
        assert_eq!(first, round());
        let neighbors = first.windows(2).filter(|w| w[0].abs_diff(w[1]) < 8);
        assert!(neighbors.count() < 100, "{first:?}");
        let mut sorted = first;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1_000));
    }
}
