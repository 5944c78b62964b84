//! Received bytes brought together: small ones copied into a neighbour's buffer, chains that move as a whole.

use janus_mem::{HEADROOM, Pool, SLOT_SIZE};
use janus_wire::SeqNum;

use super::{SegList, Segments};
use crate::store::keys::SegId;
use crate::store::reorder::{COPY_BELOW, Range};

impl Segments {
    /// Copies `bytes` behind a segment's, in its buffer, if that has the room.
    pub(crate) fn join_behind(&mut self, id: Option<SegId>, bytes: &[u8]) -> bool {
        let seg = &mut self.slab[id];
        let (from, len, n) = (usize::from(seg.off), usize::from(seg.len), bytes.len());
        let Some(buf) = &mut seg.buf else {
            return false;
        };
        let slot = buf.bytes_mut();
        if from + len + n > SLOT_SIZE {
            let front = usize::from(HEADROOM);
            if front + len + n > SLOT_SIZE {
                return false;
            }
            slot.copy_within(from..from + len, front);
            seg.off = HEADROOM;
        }
        let end = usize::from(seg.off) + len;
        slot[end..end + n].copy_from_slice(bytes);
        seg.len += n as u16;
        true
    }

    /// Copies `bytes`, which begin at `seq`, before a segment's, in its buffer, if that has the room.
    pub(crate) fn join_before(&mut self, id: Option<SegId>, bytes: &[u8], seq: SeqNum) -> bool {
        let seg = &mut self.slab[id];
        let (from, len, n) = (usize::from(seg.off), usize::from(seg.len), bytes.len());
        let Some(buf) = &mut seg.buf else {
            return false;
        };
        let (slot, front) = (buf.bytes_mut(), usize::from(HEADROOM));
        if from < front + n {
            if front + len + n > SLOT_SIZE {
                return false;
            }
            // To the far end, so that the next one finds room.
            slot.copy_within(from..from + len, SLOT_SIZE - len);
            seg.off = (SLOT_SIZE - len) as u16;
        }
        seg.off -= n as u16;
        seg.len += n as u16;
        seg.seq = seq;
        let start = usize::from(seg.off);
        slot[start..start + n].copy_from_slice(bytes);
        true
    }

    /// Copies the bytes of `second` behind those of `first` and frees it, if they are few and fit there.
    pub(crate) fn merge(
        &mut self,
        first: Option<SegId>,
        second: Option<SegId>,
        pool: &mut Pool,
    ) -> bool {
        if usize::from(self.slab[second].len) > COPY_BELOW {
            return false;
        }
        let Some(buf) = self.slab[second].buf.take() else {
            return false;
        };
        let seg = &self.slab[second];
        let (from, to) = (
            usize::from(seg.off),
            usize::from(seg.off) + usize::from(seg.len),
        );
        let merged = self.join_behind(first, &buf.bytes()[from..to]);
        self.slab[second].buf = Some(buf);
        if merged {
            self.free(second, pool);
        }
        merged
    }

    /// Appends the chain of a whole range, whatever its length, in one step.
    pub(crate) fn append_chain(&mut self, list: &mut SegList, mut range: Range, pool: &mut Pool) {
        list.bytes += range.len();
        if list.tail.is_none() {
            list.head = range.head;
        } else {
            let second = self.slab[range.head].next;
            if self.merge(list.tail, range.head, pool) {
                range.head = second;
                range.slots -= 1;
            }
            self.slab[list.tail].next = range.head;
        }
        if range.head.is_some() {
            list.tail = range.tail;
        }
        list.count += range.slots;
    }

    /// Frees a chain that is in no queue.
    pub(crate) fn free_chain(&mut self, head: Option<SegId>, pool: &mut Pool) {
        let mut at = head;
        while at.is_some() {
            let next = self.slab[at].next;
            self.free(at, pool);
            at = next;
        }
    }
}
