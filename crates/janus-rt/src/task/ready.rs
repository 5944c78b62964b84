//! The tasks that want to be polled, in the order they were woken. Blocks of numbers, so that ten million wakes never
//! copy what is already there, and the next ones can be looked at before their turn. A task stands here at most once,
//! so the queue is bounded by the number of tasks.

use std::collections::VecDeque;

use super::arena::Slot;

/// Slots in one block.
const BLOCK: usize = 1024;
/// Empty blocks kept for the next burst; more go back to the heap.
const SPARE_MAX: usize = 16;

type Block = Vec<Slot>;

/// First in, first out.
pub(super) struct ReadyQueue {
    /// The first is being read, the last is being written. All but the last are full. Never empty.
    blocks: VecDeque<Block>,
    spare: Vec<Block>,
    /// Where to read in the first block.
    head: usize,
}

fn block() -> Block {
    Vec::with_capacity(BLOCK)
}

impl ReadyQueue {
    pub(super) fn new() -> ReadyQueue {
        ReadyQueue {
            blocks: VecDeque::from([block()]),
            spare: Vec::with_capacity(SPARE_MAX),
            head: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.len() == 1 && self.blocks[0].len() == self.head
    }

    #[cfg(any(test, feature = "tokio"))]
    pub(super) fn len(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum::<usize>() - self.head
    }

    #[inline]
    pub(super) fn push(&mut self, slot: Slot) {
        let last = self.blocks.len() - 1;
        if self.blocks[last].len() < BLOCK {
            self.blocks[last].push(slot);
        } else {
            self.push_to_new(slot);
        }
    }

    #[cold]
    fn push_to_new(&mut self, slot: Slot) {
        let mut block = self.spare.pop().unwrap_or_else(block);
        block.push(slot);
        self.blocks.push_back(block);
    }

    /// The oldest.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Slot> {
        let slot = *self.blocks[0].get(self.head)?;
        self.head += 1;
        if self.head == self.blocks[0].len() {
            self.drop_first();
        }
        Some(slot)
    }

    /// The one whose turn comes `turns` after the next; none across blocks, which costs a prefetch now and then.
    #[inline]
    pub(super) fn ahead(&self, turns: usize) -> Option<Slot> {
        self.blocks[0].get(self.head + turns).copied()
    }

    /// The first block was read to its end: begin again where the cache is warm, or go to the next.
    fn drop_first(&mut self) {
        self.head = 0;
        if self.blocks.len() == 1 {
            self.blocks[0].clear();
        } else if let Some(mut block) = self.blocks.pop_front()
            && self.spare.len() < SPARE_MAX
        {
            block.clear();
            self.spare.push(block);
        }
    }

    pub(super) fn clear(&mut self) {
        self.blocks.truncate(1);
        self.blocks[0].clear();
        self.head = 0;
    }

    pub(super) fn bytes(&self) -> usize {
        (self.blocks.len() + self.spare.len()) * BLOCK * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use janus_mem::{Growth, SizeClass};

    use super::super::arena::Arena;
    use super::*;

    fn slots(n: usize) -> Vec<Slot> {
        let arena = Arena::new(&Growth::Inline).expect("memory");
        (0..n)
            .map(|_| arena.alloc(SizeClass::B64).expect("room"))
            .collect()
    }

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let slots = slots(3 * BLOCK + 5);
        let mut queue = ReadyQueue::new();
        let (mut pushed, mut popped) = (0, 0);
        let rounds = if cfg!(miri) { 50 } else { 5000 };
        for round in 0..rounds {
            for _ in 0..(round * 7) % 97 {
                queue.push(slots[pushed % slots.len()]);
                pushed += 1;
            }
            assert_eq!(queue.len(), pushed - popped);
            for _ in 0..(round * 5) % 101 {
                let ahead = queue.ahead(0);
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
        assert!(queue.bytes() <= (SPARE_MAX + 1) * BLOCK * size_of::<Slot>());
        queue.push(slots[0]);
        queue.clear();
        assert!(queue.is_empty());
    }
}
