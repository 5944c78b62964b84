//! Data beyond a connection's gaps leaves a stack with it, and comes to one.

use janus_wire::SeqNum;

use super::{Memory, RECENT, Range, Reorders};
use crate::coded::coded;
use crate::store::cold::NONE;
use crate::store::keys::{HotId, SegId};
use crate::store::segment::Segment;

/// Out-of-order data of a connection that is in no stack.
pub(crate) struct Beyond {
    /// Each a run of segments that follow each other.
    pub(crate) ranges: Vec<Vec<Segment>>,
    pub(crate) fin: Option<SeqNum>,
    recent: [SeqNum; RECENT],
    recents: u8,
    fresh: u8,
    arrivals: u8,
}

coded!(Beyond {
    ranges,
    fin,
    recent,
    recents,
    fresh,
    arrivals
});

impl Beyond {
    /// Buffers that it holds.
    pub(crate) fn slots(&self) -> usize {
        self.ranges.iter().map(Vec::len).sum()
    }

    /// Whether it makes sense beyond `next`: ranges in order that do not touch, and an end behind them.
    pub(crate) fn is_sound(&self, next: SeqNum) -> bool {
        let mut end = next;
        for range in &self.ranges {
            let Some(first) = range.first() else {
                return false;
            };
            if first.seq.le(end) {
                return false;
            }
            end = first.seq;
            for seg in range {
                if seg.seq != end || !seg.is_sound() || seg.flags != 0 {
                    return false;
                }
                end = seg.end();
            }
        }
        let something = !self.ranges.is_empty() || self.fin.is_some();
        // An end that lies where the next byte belongs would have been taken.
        something
            && self.fin.is_none_or(|fin| fin.ge(end) && fin != next)
            && usize::from(self.recents) <= RECENT
            && self.fresh <= self.recents
    }
}

impl Reorders {
    /// Takes all out that waits in a block, and gives the block up.
    pub(crate) fn pack(&mut self, id: u32, memory: &mut Memory<'_>) -> Beyond {
        let mut ranges = Vec::new();
        while self.blocks[id].root != NONE {
            let first = self.ranges.first(self.blocks[id].root);
            let range = self.unlink(id, first);
            // Nothing that was received is on the wire.
            let segments = memory.segments.pack(range.head, 0, &mut Vec::new());
            ranges.push(segments);
        }
        self.queue.unlink(&mut self.blocks, id);
        let block = &self.blocks[id];
        let beyond = Beyond {
            ranges,
            fin: block.has_fin.then_some(block.fin),
            recent: block.recent,
            recents: block.recents,
            fresh: block.fresh,
            arrivals: block.arrivals,
        };
        self.blocks.free(id);
        beyond
    }

    /// Whether so many buffers more may wait.
    pub(crate) fn has_room_for(&self, slots: usize) -> bool {
        slots <= (self.max_slots - self.slots) as usize
    }

    /// Has it all wait for a connection's hot block, at reserved descriptors. `None`: there is no memory for it, and it is lost.
    pub(crate) fn unpack(
        &mut self,
        hot: HotId,
        beyond: Beyond,
        ids: &mut impl Iterator<Item = SegId>,
        memory: &mut Memory<'_>,
    ) -> Option<u32> {
        let id = self.attach(hot)?;
        for range in beyond.ranges {
            let (start, slots) = (range.first()?.seq, range.len() as u32);
            let end = range.last()?.end();
            let list = memory.segments.unpack(range, &[], ids);
            let mut range = Range::of_one(start, end, list.head);
            (range.tail, range.slots) = (list.tail, slots);
            let Some((root, _)) = self.ranges.add(self.blocks[id].root, range) else {
                memory.segments.free_chain(list.head, memory.pool);
                self.detach(id, memory);
                return None;
            };
            let block = &mut self.blocks[id];
            (block.root, block.high) = (root, end);
            block.slots += slots;
            self.slots += slots;
        }
        let block = &mut self.blocks[id];
        (block.has_fin, block.fin) = match beyond.fin {
            Some(fin) => (true, fin),
            None => (false, SeqNum(0)),
        };
        block.recent = beyond.recent;
        (block.recents, block.fresh, block.arrivals) =
            (beyond.recents, beyond.fresh, beyond.arrivals);
        Some(id)
    }
}
