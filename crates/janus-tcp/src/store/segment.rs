//! Segments queued for sending, in flight, out of order, or received and not yet read: one slab of small
//! descriptors, in singly linked lists, so that queueing allocates nothing and the bytes stay where they are.
//!
//! A packet buffer has exactly one owner. While a segment is being transmitted its buffer is on the wire
//! (`AWAY`), the descriptor keeps the place, and the buffer comes home as a completion. A segment that is
//! acknowledged while its buffer is away becomes an `ORPHAN` and is freed when the buffer returns; a segment
//! whose buffer is away is not sent again. So there are no reference counts, and nothing is copied.

mod chains;
mod homes;
mod pack;

use janus_mem::{Growth, HEADROOM, MemError, PacketBuf, Pool, SLOT_SIZE};
use janus_wire::SeqNum;

use crate::store::keys::{Key, SegId, Slots};

pub use homes::{Homecoming, Ticket};
pub(crate) use pack::Away;

pub(crate) mod seg_flag {
    /// Ends a write: carries PSH.
    pub(crate) const PSH: u8 = 1 << 0;
    /// Carries FIN after its payload.
    pub(crate) const FIN: u8 = 1 << 1;
    /// The buffer is on the wire.
    pub(crate) const AWAY: u8 = 1 << 2;
    /// Acknowledged or given up while away.
    pub(crate) const ORPHAN: u8 = 1 << 3;
    /// Was sent more than once: no round-trip sample from it (Karn).
    pub(crate) const RESENT: u8 = 1 << 4;
    /// Believed lost, to be sent again.
    pub(crate) const LOST: u8 = 1 << 5;
    /// Not sent yet, and kept back by a cork since `sent_us`.
    pub(crate) const CORKED: u8 = 1 << 7;
    /// The peer says that it has it (RFC 2018). Never together with `LOST`; kept until it is acknowledged.
    pub(crate) const SACKED: u8 = 1 << 6;
}

/// One segment. Its payload is `buf[off..off + len]`.
#[derive(Default)]
pub(crate) struct Segment {
    pub(crate) buf: Option<PacketBuf>,
    pub(crate) seq: SeqNum,
    pub(crate) next: Option<SegId>,
    /// Microseconds, wrapping, of the last transmission.
    pub(crate) sent_us: u32,
    /// Of a SACKED segment: one of the same run of SACKED segments, as far behind it as is known, or itself.
    pub(crate) skip: Option<SegId>,
    pub(crate) off: u16,
    pub(crate) len: u16,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Segment>() <= 32);

impl Segment {
    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sequence space it takes: payload and FIN.
    #[inline]
    pub(crate) fn space(&self) -> u32 {
        u32::from(self.len) + u32::from(self.has(seg_flag::FIN))
    }

    #[inline]
    pub(crate) fn end(&self) -> SeqNum {
        self.seq + self.space()
    }

    /// The payload, when the buffer is at home.
    #[inline]
    pub(crate) fn payload(&self) -> &[u8] {
        let (from, to) = (
            usize::from(self.off),
            usize::from(self.off) + usize::from(self.len),
        );
        self.buf.as_ref().map_or(&[], |buf| &buf.bytes()[from..to])
    }
}

/// A queue of segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegList {
    pub(crate) head: Option<SegId>,
    pub(crate) tail: Option<SegId>,
    /// Payload bytes in it.
    pub(crate) bytes: u32,
    /// Segments in it.
    pub(crate) count: u32,
}

impl SegList {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }
}

/// Takes `first`, the first of `list`, out of its count.
#[inline(always)]
fn unlink_first(list: &mut SegList, first: &Segment) {
    list.head = first.next;
    if first.next.is_none() {
        list.tail = None;
    }
    list.bytes -= u32::from(first.len);
    list.count -= 1;
}

/// Gives the buffer back. False when that is on the wire, and waited for.
#[inline(always)]
fn let_go(seg: &mut Segment, pool: &mut Pool) -> bool {
    if seg.has(seg_flag::AWAY) {
        seg.flags |= seg_flag::ORPHAN;
        return false;
    }
    if let Some(buf) = seg.buf.take() {
        pool.free(buf);
    }
    true
}

/// The slab of segments.
pub(crate) struct Segments {
    slab: Slots<SegId, Segment>,
    homes: homes::Homes,
}

impl Segments {
    pub(crate) fn new(max: u32, growth: &Growth) -> Result<Segments, MemError> {
        Ok(Segments {
            slab: Slots::new(max, growth)?,
            homes: homes::Homes::default(),
        })
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.slab.committed_bytes()
    }

    /// From now on what has been free for longest is taken first, of `spread` at least.
    pub(crate) fn reuse_oldest_first(&mut self, spread: usize) {
        self.slab.reuse_oldest_first(spread);
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The segment that a completion's cookie names, if there ever was one of that number.
    #[inline]
    pub(crate) fn named(&self, cookie: u32) -> Option<SegId> {
        SegId::new(cookie).filter(|_| cookie < self.slab.high_water())
    }

    /// A descriptor for `buf`; gives the buffer back when no descriptor is free.
    #[inline]
    pub(crate) fn alloc(&mut self, buf: PacketBuf, off: u16, len: u16) -> Result<SegId, PacketBuf> {
        self.fill(buf, off, len, 0)
    }

    /// A segment at the end of `list`; gives the buffer back when no descriptor is free.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        list: &mut SegList,
        buf: PacketBuf,
        (off, len): (u16, u16),
        flags: u8,
    ) -> Result<SegId, PacketBuf> {
        let id = self.fill(buf, off, len, flags)?;
        self.hang(list, Some(id));
        list.bytes += u32::from(len);
        Ok(id)
    }

    #[inline(always)]
    fn fill(&mut self, buf: PacketBuf, off: u16, len: u16, flags: u8) -> Result<SegId, PacketBuf> {
        let Some((id, seg)) = self.slab.alloc_slot() else {
            return Err(buf);
        };
        debug_assert!(seg.buf.is_none(), "a free descriptor has no buffer");
        // Nothing is dropped, so none of the code for it is here.
        core::mem::forget(seg.buf.replace(buf));
        (seg.off, seg.len, seg.flags) = (off, len, flags);
        (seg.seq, seg.sent_us) = (SeqNum(0), 0);
        (seg.next, seg.skip) = (None, None);
        Ok(id)
    }

    /// Lets a segment go. A buffer on the wire is waited for.
    #[inline]
    pub(crate) fn free(&mut self, id: impl Into<Option<SegId>>, pool: &mut Pool) {
        let id = id.into();
        if let_go(&mut self.slab[id], pool) {
            self.slab.free(id);
        }
    }

    /// Takes the buffer out of a received segment and frees the descriptor.
    #[inline]
    pub(crate) fn take(&mut self, id: impl Into<Option<SegId>>) -> Option<(PacketBuf, u16, u16)> {
        let id = id.into();
        let seg = &mut self.slab[id];
        let (buf, off, len) = (seg.buf.take(), seg.off, seg.len);
        self.slab.free(id);
        buf.map(|buf| (buf, off, len))
    }

    /// A buffer is home from the wire.
    #[inline]
    pub(crate) fn came_home(
        &mut self,
        id: impl Into<Option<SegId>>,
        buf: PacketBuf,
        pool: &mut Pool,
    ) {
        let Some(id) = id.into() else { return };
        let seg = &mut self.slab[id];
        seg.flags &= !seg_flag::AWAY;
        if seg.has(seg_flag::ORPHAN) {
            self.slab.free(id);
            self.orphan_came_home(id, buf, pool);
        } else {
            seg.buf = Some(buf);
        }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, list: &mut SegList, id: impl Into<Option<SegId>>) {
        let id = id.into();
        let seg = &mut self.slab[id];
        seg.next = None;
        list.bytes += u32::from(seg.len);
        self.hang(list, id);
    }

    /// Hangs `id` behind the last of `list`, whose bytes the caller counts.
    #[inline(always)]
    fn hang(&mut self, list: &mut SegList, id: Option<SegId>) {
        if list.tail.is_none() {
            list.head = id;
        } else {
            self.slab[list.tail].next = id;
        }
        list.tail = id;
        list.count += 1;
    }

    #[inline]
    pub(crate) fn pop_front(&mut self, list: &mut SegList) -> Option<SegId> {
        let id = list.head?;
        let seg = &self.slab[id];
        unlink_first(list, seg);
        Some(id)
    }

    /// Moves the first segment of `from` to the end of `to`, and shows it.
    #[inline(always)]
    pub(crate) fn move_front(
        &mut self,
        from: &mut SegList,
        to: &mut SegList,
    ) -> Option<(SegId, &mut Segment)> {
        let id = from.head?;
        self.hang(to, Some(id));
        let seg = &mut self.slab[id];
        unlink_first(from, seg);
        seg.next = None;
        to.bytes += u32::from(seg.len);
        Some((id, seg))
    }

    /// Takes the first segment out of `list` and lets it go, as [`Segments::free`] does.
    #[inline(always)]
    pub(crate) fn free_front(&mut self, list: &mut SegList, pool: &mut Pool) {
        let Some(id) = list.head else { return };
        let seg = &mut self.slab[id];
        unlink_first(list, seg);
        if let_go(seg, pool) {
            self.slab.free(id);
        }
    }

    /// Puts `id` behind `after`, or first when that is `None`.
    pub(crate) fn insert_after(&mut self, list: &mut SegList, after: Option<SegId>, id: SegId) {
        let next = if after.is_none() {
            list.head
        } else {
            self.slab[after].next
        };
        self.slab[id].next = next;
        if after.is_none() {
            list.head = Some(id);
        } else {
            self.slab[after].next = Some(id);
        }
        if next.is_none() {
            list.tail = Some(id);
        }
        list.bytes += u32::from(self.slab[id].len);
        list.count += 1;
    }

    /// Cuts a segment of `list` in two, the first part `len` long; gives the second. Copies that: this is rare. `None`
    /// when the buffer is on the wire, or none is free.
    pub(crate) fn split(
        &mut self,
        list: &mut SegList,
        id: Option<SegId>,
        len: u16,
        pool: &mut Pool,
    ) -> Option<SegId> {
        let first = &self.slab[id];
        let (seq, flags, sent_us) = (first.seq, first.flags, first.sent_us);
        let tail_len = first.len.checked_sub(len)?;
        first.buf.as_ref()?;
        let mut rest = pool.alloc()?;
        let to = usize::from(HEADROOM);
        rest.bytes_mut()[to..to + usize::from(tail_len)]
            .copy_from_slice(&first.payload()[usize::from(len)..]);
        let second = match self.alloc(rest, HEADROOM, tail_len) {
            Ok(second) => second,
            Err(buf) => {
                pool.free(buf);
                return None;
            }
        };
        let tail = &mut self.slab[second];
        (tail.seq, tail.flags, tail.sent_us) = (seq + u32::from(len), flags, sent_us);
        let first = &mut self.slab[id];
        first.len = len;
        // Flags that belong to the end stay there.
        first.flags &= !(seg_flag::PSH | seg_flag::FIN);
        list.bytes -= u32::from(tail_len);
        self.insert_after(list, id, second);
        Some(second)
    }

    /// The last of the SACKED segments that follow each other from `at`, itself one, and how many steps it took
    /// to find it. The steps are taken once: what was walked over points to the end afterwards.
    pub(crate) fn run_end(&mut self, at: Option<SegId>) -> (Option<SegId>, u32) {
        let (mut end, mut steps) = (at, 0);
        loop {
            let seg = &self.slab[end];
            let further = if seg.skip != end { seg.skip } else { seg.next };
            if further.is_none() || !self.slab[further].has(seg_flag::SACKED) {
                break;
            }
            end = further;
            steps += 1;
        }
        let mut walked = at;
        while walked != end {
            let seg = &mut self.slab[walked];
            let further = if seg.skip != walked {
                seg.skip
            } else {
                seg.next
            };
            seg.skip = end;
            walked = further;
        }
        (end, steps)
    }

    /// Frees a whole queue.
    #[inline(always)]
    pub(crate) fn clear(&mut self, list: &mut SegList, pool: &mut Pool) {
        if !list.is_empty() {
            self.free_all(list, pool);
        }
    }

    #[inline(never)]
    fn free_all(&mut self, list: &mut SegList, pool: &mut Pool) {
        while !list.is_empty() {
            self.free_front(list, pool);
        }
    }
}

impl core::ops::Index<SegId> for Segments {
    type Output = Segment;

    #[inline]
    fn index(&self, id: SegId) -> &Segment {
        &self.slab[id]
    }
}

impl core::ops::IndexMut<SegId> for Segments {
    #[inline]
    fn index_mut(&mut self, id: SegId) -> &mut Segment {
        &mut self.slab[id]
    }
}

/// A link that leads somewhere.
impl core::ops::Index<Option<SegId>> for Segments {
    type Output = Segment;

    #[inline]
    fn index(&self, id: Option<SegId>) -> &Segment {
        &self.slab[id]
    }
}

impl core::ops::IndexMut<Option<SegId>> for Segments {
    #[inline]
    fn index_mut(&mut self, id: Option<SegId>) -> &mut Segment {
        &mut self.slab[id]
    }
}

/// Payload a packet buffer holds behind its room for headers.
pub(crate) const PAYLOAD_MAX: u16 = SLOT_SIZE as u16 - HEADROOM;
