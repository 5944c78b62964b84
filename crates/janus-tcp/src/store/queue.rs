//! A queue of small values in a ring whose size is a power of two: a push is a mask and a store, where the standard library's
//! queue takes twice as much. It doubles when it is full, and never shrinks.

/// The queue: first in, first out.
pub(crate) struct Queue<T> {
    ring: Vec<T>,
    /// Place of the oldest value.
    first: usize,
    len: usize,
}

impl<T: Copy> Queue<T> {
    /// A queue with room for so many values, a power of two; `any` fills it.
    pub(crate) fn new(room: usize, any: T) -> Queue<T> {
        assert!(room.is_power_of_two(), "places are found by a mask");
        Queue {
            ring: vec![any; room],
            first: 0,
            len: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn push_back(&mut self, value: T) {
        if self.len == self.ring.len() {
            self.grow();
        }
        let mask = self.ring.len() - 1;
        self.ring[(self.first + self.len) & mask] = value;
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let value = self.ring[self.first];
        self.first = (self.first + 1) & (self.ring.len() - 1);
        self.len -= 1;
        Some(value)
    }

    /// All values, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        let mask = self.ring.len() - 1;
        (0..self.len).map(move |at| self.ring[(self.first + at) & mask])
    }

    #[cold]
    fn grow(&mut self) {
        self.ring.rotate_left(self.first);
        self.first = 0;
        self.ring.extend_from_within(..);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn is_like_the_standard_queue(steps in proptest::collection::vec(any::<Option<u8>>(), 0..300)) {
            let (mut queue, mut model) = (Queue::new(2, 0), VecDeque::new());
            for step in steps {
                match step {
                    Some(value) => {
                        queue.push_back(value);
                        model.push_back(value);
                    }
                    None => prop_assert_eq!(queue.pop_front(), model.pop_front()),
                }
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                prop_assert!(queue.iter().eq(model.iter().copied()));
            }
        }
    }
}
