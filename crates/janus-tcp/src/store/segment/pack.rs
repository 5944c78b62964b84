//! Queues of segments that leave a stack with their connection, and come to one.

use janus_mem::{HEADROOM, SLOT_SIZE};

use super::homes::Ticket;
use super::{SegList, Segment, Segments, seg_flag};
use crate::coded::{Coded, Garbled, Shift, Source};
use crate::store::keys::SegId;

/// A buffer that stays on a wire while its segment moves: the segment's place in its queue, and the buffer's number.
pub(crate) type Away = (u32, Ticket);

impl Coded for Segment {
    fn put(&self, to: &mut Vec<u8>) {
        (self.seq, self.sent_us).put(to);
        (self.flags, self.len).put(to);
        to.extend_from_slice(self.payload());
    }

    fn take(from: &mut Source<'_>) -> Result<Segment, Garbled> {
        let (seq, sent_us) = Coded::take(from)?;
        let (flags, len): (u8, u16) = Coded::take(from)?;
        let mut seg = Segment {
            seq,
            sent_us,
            off: HEADROOM,
            len,
            flags,
            ..Segment::default()
        };
        if !seg.has(seg_flag::AWAY) {
            let to = usize::from(HEADROOM);
            let text = from.bytes(len.into())?;
            let mut buf = from.buffer()?;
            let slot = buf.bytes_mut().get_mut(to..to + text.len());
            slot.ok_or(Garbled)?.copy_from_slice(text);
            seg.buf = Some(buf);
        }
        Ok(seg)
    }

    fn shift(&mut self, by: &Shift) {
        by.us(&mut self.sent_us);
    }
}

impl Segment {
    /// Whether its text lies where it says, or is on a wire.
    pub(crate) fn is_sound(&self) -> bool {
        let end = usize::from(self.off) + usize::from(self.len);
        let marks = seg_flag::LOST | seg_flag::SACKED;
        end <= SLOT_SIZE
            && self.buf.is_some() != self.has(seg_flag::AWAY)
            && self.flags & marks != marks
            && !self.has(seg_flag::ORPHAN)
            && self.space() > 0
    }
}

impl Segments {
    /// Numbers of the segments from `head` on.
    pub(crate) fn chain(&self, head: Option<SegId>) -> impl Iterator<Item = SegId> {
        core::iter::successors(head, |&id| self.slab[id].next)
    }

    /// Takes a chain of segments out, for `to`. Those whose buffers are on the wire are named in `away`.
    pub(crate) fn pack(
        &mut self,
        head: Option<SegId>,
        to: u16,
        away: &mut Vec<Away>,
    ) -> Vec<Segment> {
        let mut packed = Vec::new();
        let mut at = head;
        while let Some(id) = at {
            let seg = &mut self.slab[id];
            at = seg.next;
            let mut free = true;
            packed.push(Segment {
                buf: seg.buf.take(),
                next: None,
                skip: None,
                ..*seg
            });
            if seg.has(seg_flag::AWAY) {
                let (ticket, waits) = self.leaves_wire_behind(id, to);
                away.push((packed.len() as u32 - 1, ticket));
                if waits {
                    self.slab[id].flags |= seg_flag::ORPHAN;
                    free = false;
                }
            }
            if free {
                self.slab.free(id);
            }
        }
        packed
    }

    /// Descriptors for so many segments; `None` when there are fewer, and then none is taken.
    pub(crate) fn reserve(&mut self, count: usize) -> Option<Vec<SegId>> {
        let mut ids = Vec::with_capacity(count.min(1 << 12));
        for _ in 0..count {
            let Some(id) = self.slab.alloc() else {
                self.give_back(ids);
                return None;
            };
            self.slab[id] = Segment::default();
            ids.push(id);
        }
        Some(ids)
    }

    /// Descriptors that were reserved and are not needed.
    pub(crate) fn give_back(&mut self, ids: Vec<SegId>) {
        for id in ids {
            self.slab.free(id);
        }
    }

    /// Hangs segments into an empty queue, at reserved descriptors.
    pub(crate) fn unpack(
        &mut self,
        packed: Vec<Segment>,
        away: &[Away],
        ids: &mut impl Iterator<Item = SegId>,
    ) -> SegList {
        let mut list = SegList::default();
        for (seg, id) in packed.into_iter().zip(ids) {
            self.slab[id] = seg;
            if let Some((_, ticket)) = away.iter().find(|(place, _)| *place == list.count) {
                self.expect(*ticket, id);
            }
            self.push_back(&mut list, id);
        }
        list
    }
}
