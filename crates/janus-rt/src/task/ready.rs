//! Queue of ready tasks, in the order they were woken. Made of blocks, so that ten million wakes never copy earlier entries, and later
//! entries can be prefetched before their turn. A task stands here at most once, so the queue is bounded by the number of tasks.

use std::collections::VecDeque;

use super::arena::Slot;

/// Slots in one block.
const BLOCK: usize = 1024;
/// Empty blocks kept for the next burst; more go back to the heap.
const SPARE_MAX: usize = 16;

type Block = Vec<Slot>;

/// First in, first out.
pub(super) struct ReadyQueue {
    /// Block that is read, from `head` on.
    first: Block,
    head: usize,
    /// Blocks between, all full.
    middle: VecDeque<Block>,
    /// Block that is written.
    last: Block,
    spare: Vec<Block>,
}

fn block() -> Block {
    Vec::with_capacity(BLOCK)
}

impl ReadyQueue {
    pub(super) fn new() -> ReadyQueue {
        ReadyQueue {
            first: block(),
            head: 0,
            middle: VecDeque::new(),
            last: block(),
            spare: Vec::with_capacity(SPARE_MAX),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // While there are blocks between, the last one is not empty.
        self.first.len() == self.head && self.last.is_empty()
    }

    #[cfg(any(test, feature = "tokio"))]
    pub(super) fn len(&self) -> usize {
        self.first.len() - self.head + self.middle.len() * BLOCK + self.last.len()
    }

    #[inline]
    pub(super) fn push(&mut self, slot: Slot) {
        // Compared as in `push`, so that the compiler does it once.
        if self.last.len() == self.last.capacity() {
            self.begin_another();
        }
        self.last.push(slot);
    }

    #[cold]
    fn begin_another(&mut self) {
        let fresh = self.spare.pop().unwrap_or_else(block);
        let full = std::mem::replace(&mut self.last, fresh);
        self.middle.push_back(full);
    }

    /// Returns the oldest entry.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Slot> {
        if self.head == self.first.len() {
            self.first.clear();
            self.head = 0;
            match self.middle.pop_front() {
                None => std::mem::swap(&mut self.first, &mut self.last),
                Some(next) => self.go_on_with(next),
            }
        }
        let slot = *self.first.get(self.head)?;
        self.head += 1;
        Some(slot)
    }

    /// Returns the entry whose turn comes `turns` after the next; less than a block.
    #[inline]
    pub(super) fn ahead(&self, turns: usize) -> Option<Slot> {
        let at = self.head + turns;
        let slot = self.first.get(at).or_else(|| {
            let next = self.middle.front().unwrap_or(&self.last);
            next.get(at - self.first.len())
        });
        slot.copied()
    }

    /// Goes on with a block between, after the first was read to its end.
    #[cold]
    fn go_on_with(&mut self, next: Block) {
        let read = std::mem::replace(&mut self.first, next);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(read);
        }
    }

    pub(super) fn clear(&mut self) {
        self.first.clear();
        self.head = 0;
        self.middle.clear();
        self.last.clear();
    }

    pub(super) fn bytes(&self) -> usize {
        (2 + self.middle.len() + self.spare.len()) * BLOCK * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use janus_mem::Growth;

    use super::super::arena::{Arena, PAGES_MAX};
    use super::super::class::Class;
    use super::*;

    fn slots(n: usize) -> Vec<Slot> {
        let arena = Arena::new(&Growth::Inline, PAGES_MAX).expect("memory");
        (0..n)
            .map(|_| arena.alloc(Class::LEAST).expect("room"))
            .collect()
    }

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let slots = slots(3 * BLOCK + 5);
        let mut queue = ReadyQueue::new();
        let (mut pushed, mut popped) = (0, 0);
        let rounds = if cfg!(miri) { 50 } else { 5000 };
        for round in 0..rounds {
            // Now and then as many as lie in several blocks.
            let burst = if round % 1_000 == 7 { 3 * BLOCK } else { 0 };
            for _ in 0..(round * 7) % 97 + burst {
                queue.push(slots[pushed % slots.len()]);
                pushed += 1;
            }
            assert_eq!(queue.len(), pushed - popped);
            for _ in 0..(round * 5) % 101 {
                let ahead = queue.ahead(0);
                // Also across the border of a block.
                for turns in 0..8 {
                    let later =
                        (popped + turns < pushed).then(|| slots[(popped + turns) % slots.len()]);
                    assert_eq!(queue.ahead(turns), later);
                }
                let got = queue.pop();
                assert_eq!(got, ahead);
                if popped == pushed {
                    assert!(got.is_none() && queue.is_empty());
                } else {
                    assert_eq!(got, Some(slots[popped % slots.len()]));
                    popped += 1;
                }
            }
        }
    }

    #[test]
    fn a_burst_does_not_stay_on_the_heap() {
        let slots = slots(1);
        let mut queue = ReadyQueue::new();
        for _ in 0..2 * SPARE_MAX * BLOCK {
            queue.push(slots[0]);
        }
        while queue.pop().is_some() {}
        assert!(queue.is_empty());
        assert!(queue.bytes() <= (SPARE_MAX + 2) * BLOCK * size_of::<Slot>());
        queue.push(slots[0]);
        queue.clear();
        assert!(queue.is_empty());
    }
}
