//! The ranges of one connection that wait beyond a gap, ordered by sequence number: a treap in a slab. A peer chooses
//! where its segments lie, but not the ranks, so finding, adding and removing take logarithmic time whatever it sends.
//! What the ranges hold is `reorder`'s concern.

use janus_mem::{Growth, MemError, Slab};
use janus_wire::SeqNum;

use crate::store::cold::NONE;
use crate::store::keys::SegId;

/// Contiguous bytes beyond a gap, in a chain of segments. No two ranges of a connection overlap or touch.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) start: SeqNum,
    pub(crate) end: SeqNum,
    /// First and last segment of the chain.
    pub(crate) head: Option<SegId>,
    pub(crate) tail: Option<SegId>,
    /// Segments in the chain.
    pub(crate) slots: u32,
    left: u32,
    right: u32,
    rank: u32,
}

const _: () = assert!(size_of::<Range>() == 32);

impl Default for Range {
    fn default() -> Range {
        Range {
            start: SeqNum(0),
            end: SeqNum(0),
            head: None,
            tail: None,
            slots: 0,
            left: NONE,
            right: NONE,
            rank: 0,
        }
    }
}

impl Range {
    /// A range of one segment.
    pub(crate) fn of_one(start: SeqNum, end: SeqNum, seg: Option<SegId>) -> Range {
        Range {
            start,
            end,
            head: seg,
            tail: seg,
            slots: 1,
            ..Range::default()
        }
    }

    /// Bytes in it.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        (self.end - self.start) as u32
    }
}

/// The slab of ranges of all connections. A tree is named by its root.
pub(crate) struct Ranges {
    slab: Slab<Range>,
    dice: u64,
}

impl Ranges {
    pub(crate) fn new(max: u32, seed: u64, growth: &Growth) -> Result<Ranges, MemError> {
        Ok(Ranges {
            slab: Slab::new(max, growth)?,
            dice: seed | 1,
        })
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.slab.committed_bytes()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The range that begins last of those that begin at `seq` or before, or `NONE`.
    #[inline]
    pub(crate) fn floor(&self, root: u32, seq: SeqNum) -> u32 {
        let (mut at, mut found) = (root, NONE);
        while at != NONE {
            let range = &self.slab[at];
            if range.start.le(seq) {
                found = at;
                at = range.right;
            } else {
                at = range.left;
            }
        }
        found
    }

    /// The range that begins first of those that begin at `seq` or later, or `NONE`.
    #[inline]
    pub(crate) fn ceiling(&self, root: u32, seq: SeqNum) -> u32 {
        let (mut at, mut found) = (root, NONE);
        while at != NONE {
            let range = &self.slab[at];
            if range.start.ge(seq) {
                found = at;
                at = range.left;
            } else {
                at = range.right;
            }
        }
        found
    }

    #[inline]
    pub(crate) fn first(&self, root: u32) -> u32 {
        self.outermost(root, |range| range.left)
    }

    #[inline]
    pub(crate) fn last(&self, root: u32) -> u32 {
        self.outermost(root, |range| range.right)
    }

    #[inline]
    fn outermost(&self, root: u32, side: impl Fn(&Range) -> u32) -> u32 {
        let mut at = root;
        while at != NONE && side(&self.slab[at]) != NONE {
            at = side(&self.slab[at]);
        }
        at
    }

    /// Adds a range. Gives the new root and the range's place; `None` when the slab is full.
    pub(crate) fn add(&mut self, root: u32, range: Range) -> Option<(u32, u32)> {
        let id = self.slab.alloc()?;
        // xorshift: a peer does not know the seed.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.slab[id] = Range {
            left: NONE,
            right: NONE,
            rank: (self.dice >> 32) as u32,
            ..range
        };
        Some((self.link(root, id), id))
    }

    /// Removes a range. Gives the new root and what the range was.
    pub(crate) fn remove(&mut self, root: u32, id: u32) -> (u32, Range) {
        let root = self.unlink(root, id);
        let range = self.slab[id];
        self.slab.free(id);
        (root, range)
    }

    // The depth of what follows is that of the tree: logarithmic, for the ranks are secret.

    fn link(&mut self, at: u32, id: u32) -> u32 {
        if at == NONE {
            return id;
        }
        let (start, rank) = (self.slab[id].start, self.slab[id].rank);
        if rank > self.slab[at].rank {
            let (left, right) = self.split(at, start);
            (self.slab[id].left, self.slab[id].right) = (left, right);
            return id;
        }
        if start.lt(self.slab[at].start) {
            self.slab[at].left = self.link(self.slab[at].left, id);
        } else {
            self.slab[at].right = self.link(self.slab[at].right, id);
        }
        at
    }

    fn unlink(&mut self, at: u32, id: u32) -> u32 {
        debug_assert_ne!(at, NONE, "the range is in the tree");
        if at == id || at == NONE {
            return match at {
                NONE => NONE,
                _ => self.join(self.slab[at].left, self.slab[at].right),
            };
        }
        if self.slab[id].start.lt(self.slab[at].start) {
            self.slab[at].left = self.unlink(self.slab[at].left, id);
        } else {
            self.slab[at].right = self.unlink(self.slab[at].right, id);
        }
        at
    }

    /// Those that begin before `seq`, and the others.
    fn split(&mut self, at: u32, seq: SeqNum) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.slab[at].start.lt(seq) {
            let (less, more) = self.split(self.slab[at].right, seq);
            self.slab[at].right = less;
            (at, more)
        } else {
            let (less, more) = self.split(self.slab[at].left, seq);
            self.slab[at].left = more;
            (less, at)
        }
    }

    /// One tree of two, of which all in `left` come before all in `right`.
    fn join(&mut self, left: u32, right: u32) -> u32 {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        if self.slab[left].rank > self.slab[right].rank {
            self.slab[left].right = self.join(self.slab[left].right, right);
            left
        } else {
            self.slab[right].left = self.join(left, self.slab[right].left);
            right
        }
    }

    /// How deep the tree is: for tests.
    #[cfg(test)]
    pub(crate) fn depth(&self, root: u32) -> usize {
        if root == NONE {
            return 0;
        }
        let range = &self.slab[root];
        1 + self.depth(range.left).max(self.depth(range.right))
    }
}

impl core::ops::Index<u32> for Ranges {
    type Output = Range;

    #[inline]
    fn index(&self, id: u32) -> &Range {
        &self.slab[id]
    }
}

impl core::ops::IndexMut<u32> for Ranges {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Range {
        &mut self.slab[id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u32) -> Range {
        Range {
            start: SeqNum(start),
            end: SeqNum(start.wrapping_add(1)),
            ..Range::default()
        }
    }

    #[test]
    fn finds_its_neighbours_across_the_wrap() {
        let mut ranges = Ranges::new(100, 7, &Growth::Inline).expect("memory");
        let mut root = NONE;
        for start in [u32::MAX - 3, 4, 0, u32::MAX - 7, 8] {
            root = ranges.add(root, range(start)).expect("room").0;
        }
        let start = |id: u32| ranges[id].start.0;
        assert_eq!(start(ranges.first(root)), u32::MAX - 7);
        assert_eq!(start(ranges.last(root)), 8);
        assert_eq!(start(ranges.floor(root, SeqNum(3))), 0);
        assert_eq!(start(ranges.ceiling(root, SeqNum(3))), 4);
        assert_eq!(start(ranges.floor(root, SeqNum(u32::MAX))), u32::MAX - 3);
        assert_eq!(ranges.floor(root, SeqNum(u32::MAX - 8)), NONE);
        assert_eq!(ranges.ceiling(root, SeqNum(9)), NONE);
    }

    #[test]
    fn stays_shallow_whatever_the_order_and_empties() {
        type Order = fn(u32) -> u32;
        let orders: [Order; 3] = [|i| i, |i| 4_095 - i, |i| i * 1_365 % 4_096];
        for order in orders {
            let mut ranges = Ranges::new(4_096, 42, &Growth::Inline).expect("memory");
            let mut root = NONE;
            for i in 0..4_096 {
                root = ranges.add(root, range(order(i) * 2)).expect("room").0;
            }
            assert!(ranges.add(root, range(1)).is_none(), "the slab is full");
            assert!(
                ranges.depth(root) < 50,
                "{} levels for 4,096",
                ranges.depth(root)
            );
            for i in 0..4_096 {
                let first = ranges.first(root);
                let (rest, gone) = ranges.remove(root, first);
                assert_eq!(gone.start, SeqNum(i * 2));
                root = rest;
            }
            assert_eq!((root, ranges.len()), (NONE, 0));
        }
    }
}
