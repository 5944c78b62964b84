//! Out-of-order data waits here until the gap before it is filled. A connection has a block only while something waits; it
//! names the tree of ranges, and which of them changed last, for the SACK option. Buffers are counted, not bytes
//! alone: a byte can hold a packet buffer, so small texts are copied together where they touch, and both a connection
//! and all together may hold so many buffers and no more. Where texts overlap and differ, what came first is kept.
//! When to take what arrives is decided in `arrives/gaps`.

mod pack;
mod ranges;
#[cfg(test)]
mod tests;

use janus_mem::{Frame, Growth, MemError, Pool, Slab};
use janus_wire::SeqNum;
use ranges::Ranges;

use crate::store::cold::NONE;
use crate::store::fifo::{Fifo, Linked, Links};
use crate::store::keys::{HotId, SegId};
use crate::store::segment::{SegList, Segments};

pub(crate) use pack::Beyond;
pub(crate) use ranges::Range;

/// Ranges that are remembered as lately reported: as many as an option can name.
const RECENT: usize = 4;
/// A text up to this size is copied to its neighbour's buffer where it fits: so a buffer is at least about half full
/// unless it stands between two gaps.
pub(crate) const COPY_BELOW: usize = 1_024;

/// Out-of-order data of one connection.
pub(crate) struct Reorder {
    root: u32,
    /// The range that grew last: the next segment most often continues it.
    last: u32,
    /// The hot block it belongs to.
    pub(crate) hot: Option<HotId>,
    /// Buffers it holds.
    slots: u32,
    /// Place in the queue of those that wait, longest first.
    links: Links,
    /// A number inside each of the ranges that changed last, latest first.
    recent: [SeqNum; RECENT],
    recents: u8,
    /// How many ranges changed since an acknowledgement last reported them, the first of `recent` among them.
    fresh: u8,
    /// Texts that came since then.
    arrivals: u8,
    has_fin: bool,
    /// Where the peer's stream ends, if `has_fin`.
    fin: SeqNum,
    /// The end of the last range.
    high: SeqNum,
}

const _: () = assert!(size_of::<Reorder>() <= 64);

impl Default for Reorder {
    fn default() -> Reorder {
        Reorder {
            root: NONE,
            last: NONE,
            hot: None,
            slots: 0,
            links: Links::default(),
            recent: [SeqNum(0); RECENT],
            recents: 0,
            fresh: 0,
            arrivals: 0,
            has_fin: false,
            fin: SeqNum(0),
            high: SeqNum(0),
        }
    }
}

impl Linked for Reorder {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// Where texts lie: the descriptors and the buffers.
pub(crate) struct Memory<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) pool: &'a mut Pool,
}

/// Bytes of the stream, and where they are in a frame's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pub(crate) seq: SeqNum,
    pub(crate) off: u16,
    pub(crate) len: u16,
}

impl Text {
    pub(crate) fn end(&self) -> SeqNum {
        self.seq + u32::from(self.len)
    }

    fn bytes<'a>(&self, frame: &'a Frame) -> &'a [u8] {
        let from = usize::from(self.off);
        &frame.buf.bytes()[from..from + usize::from(self.len)]
    }

    fn cut_front(&mut self, to: SeqNum) {
        let cut = (to - self.seq) as u16;
        self.seq = to;
        self.off += cut;
        self.len -= cut;
    }
}

/// All that waits, of all connections.
pub(crate) struct Reorders {
    blocks: Slab<Reorder>,
    ranges: Ranges,
    queue: Fifo,
    slots: u32,
    max_slots: u32,
    /// Hot blocks whose connections have lost their blocks here to others.
    pruned: Vec<HotId>,
}

impl Reorders {
    /// At most `max_slots` buffers may wait at a time.
    pub(crate) fn new(max_slots: u32, seed: u64, growth: &Growth) -> Result<Reorders, MemError> {
        Ok(Reorders {
            blocks: Slab::new(max_slots, growth)?,
            ranges: Ranges::new(max_slots, seed, growth)?,
            queue: Fifo::EMPTY,
            slots: 0,
            max_slots,
            pruned: Vec::new(),
        })
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.blocks.committed_bytes() + self.ranges.committed_bytes()
    }

    /// Buffers that wait.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Buffers that may wait.
    pub(crate) fn max_slots(&self) -> u32 {
        self.max_slots
    }

    /// The connection that has waited longest.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.queue.oldest()
    }

    /// The connection that has waited longest loses all that it holds. Returns how many buffers that
    /// were.
    pub(crate) fn prune_oldest(&mut self, memory: &mut Memory<'_>) -> u32 {
        let Some(oldest) = self.oldest() else {
            return 0;
        };
        let before = self.slots;
        self.pruned.extend(self.blocks[oldest].hot);
        self.detach(oldest, memory);
        before - self.slots
    }

    /// The next hot block that has to learn that it names no block here any more.
    pub(crate) fn pop_pruned(&mut self) -> Option<HotId> {
        self.pruned.pop()
    }

    /// A block for a connection's hot block; `None` when there is none.
    pub(crate) fn attach(&mut self, hot: HotId) -> Option<u32> {
        let id = self.blocks.alloc()?;
        self.blocks[id] = Reorder {
            hot: Some(hot),
            ..Reorder::default()
        };
        self.queue.push(&mut self.blocks, id);
        Some(id)
    }

    /// Gives up a block with all that waits in it.
    pub(crate) fn detach(&mut self, id: u32, memory: &mut Memory<'_>) {
        while self.blocks[id].root != NONE {
            self.drop_range(id, self.blocks[id].root, memory);
        }
        self.queue.unlink(&mut self.blocks, id);
        self.blocks.free(id);
    }

    /// Whether nothing waits, not even the end of the stream.
    #[inline]
    pub(crate) fn is_empty(&self, id: u32) -> bool {
        self.blocks[id].root == NONE && !self.blocks[id].has_fin
    }

    /// Where the stream ends, as far as is known.
    pub(crate) fn fin(&self, id: u32) -> Option<SeqNum> {
        let block = &self.blocks[id];
        block.has_fin.then_some(block.fin)
    }

    /// The peer says that its stream ends at `at`. The first word counts, and nothing that lies beyond.
    pub(crate) fn note_fin(&mut self, id: u32, at: SeqNum, memory: &mut Memory<'_>) {
        if !self.blocks[id].has_fin {
            self.blocks[id].has_fin = true;
            self.blocks[id].fin = at;
            self.truncate(id, at, memory);
        }
    }

    /// Of `text`, the part that lies in one gap: what is here already is cut off, and where a whole range lies inside,
    /// its bytes are copied over the text's, and the text takes its place. Gives the first stretch that was here already.
    /// Takes as many turns as ranges lie inside, each at least a byte.
    pub(crate) fn fit(
        &mut self,
        id: u32,
        text: &mut Text,
        frame: &mut Frame,
        memory: &mut Memory<'_>,
    ) -> Option<(SeqNum, SeqNum)> {
        let mut repeated = None;
        let before = self.ranges.floor(self.blocks[id].root, text.seq);
        if before != NONE && self.ranges[before].end.gt(text.seq) {
            let until = self.ranges[before].end.earlier(text.end());
            repeated = Some((text.seq, until));
            self.touch(id, before, text.seq);
            text.cut_front(until);
        }
        while text.len > 0 {
            let next = self.ranges.ceiling(self.blocks[id].root, text.seq);
            if next == NONE || self.ranges[next].start.ge(text.end()) {
                break;
            }
            let Range { start, end, .. } = self.ranges[next];
            repeated.get_or_insert((start, end.earlier(text.end())));
            if end.ge(text.end()) {
                text.len = (start - text.seq) as u16;
                break;
            }
            let at = usize::from(text.off) + (start - text.seq) as usize;
            self.copy_out(next, &mut frame.buf.bytes_mut()[at..], memory.segments);
            self.drop_range(id, next, memory);
        }
        repeated
    }

    fn copy_out(&self, range: u32, into: &mut [u8], segments: &Segments) {
        let (mut at, mut done) = (self.ranges[range].head, 0);
        while at.is_some() {
            let bytes = segments[at].payload();
            into[done..done + bytes.len()].copy_from_slice(bytes);
            done += bytes.len();
            at = segments[at].next;
        }
    }

    /// Copies a small text, which fits a gap, into the buffer of a range that it touches. False when it must have a buffer
    /// of its own.
    pub(crate) fn join(
        &mut self,
        id: u32,
        text: &Text,
        frame: &Frame,
        memory: &mut Memory<'_>,
    ) -> bool {
        if usize::from(text.len) > COPY_BELOW {
            return false;
        }
        let (before, after) = self.neighbours(id, text);
        let bytes = text.bytes(frame);
        if before != NONE && memory.segments.join_behind(self.ranges[before].tail, bytes) {
            self.ranges[before].end = text.end();
        } else if after != NONE
            && memory
                .segments
                .join_before(self.ranges[after].head, bytes, text.seq)
        {
            self.ranges[after].start = text.seq;
        } else {
            return false;
        }
        self.unite(id, before, after, text, memory);
        true
    }

    /// Keeps a text, which fits a gap, in the buffer it came in. False when there is no room for it.
    pub(crate) fn keep(
        &mut self,
        id: u32,
        text: &Text,
        frame: Frame,
        memory: &mut Memory<'_>,
    ) -> bool {
        let seg = match memory.segments.alloc(frame.buf, text.off, text.len) {
            Ok(seg) => seg,
            Err(buf) => {
                memory.pool.free(buf);
                return false;
            }
        };
        memory.segments[seg].seq = text.seq;
        let (before, after) = self.neighbours(id, text);
        if before != NONE {
            let range = &mut self.ranges[before];
            memory.segments[range.tail].next = Some(seg);
            range.tail = Some(seg);
            range.end = text.end();
            range.slots += 1;
        } else if after != NONE {
            let range = &mut self.ranges[after];
            memory.segments[seg].next = range.head;
            range.head = Some(seg);
            range.start = text.seq;
            range.slots += 1;
        } else if !self.begin(id, text, Some(seg)) {
            memory.segments.free(seg, memory.pool);
            return false;
        }
        self.slots += 1;
        self.blocks[id].slots += 1;
        self.unite(id, before, after, text, memory);
        true
    }

    /// A range of its own for a text that touches no other.
    fn begin(&mut self, id: u32, text: &Text, seg: Option<SegId>) -> bool {
        let range = Range::of_one(text.seq, text.end(), seg);
        let Some((root, new)) = self.ranges.add(self.blocks[id].root, range) else {
            return false;
        };
        self.blocks[id].root = root;
        self.blocks[id].last = new;
        true
    }

    /// The ranges that end where the text begins and begin where it ends.
    #[inline]
    fn neighbours(&self, id: u32, text: &Text) -> (u32, u32) {
        let block = &self.blocks[id];
        let hint = block.last;
        let before = if hint != NONE && self.ranges[hint].end == text.seq {
            hint
        } else {
            let floor = self.ranges.floor(block.root, text.seq);
            let touches = floor != NONE && self.ranges[floor].end == text.seq;
            if touches { floor } else { NONE }
        };
        if block.root == NONE || text.seq.ge(block.high) {
            return (before, NONE);
        }
        let after = self.ranges.floor(block.root, text.end());
        let touches = after != NONE && self.ranges[after].start == text.end();
        (before, if touches { after } else { NONE })
    }

    /// The text stands in one of its neighbours by now, or alone; if it fills the gap between two they become one.
    fn unite(&mut self, id: u32, before: u32, after: u32, text: &Text, memory: &mut Memory<'_>) {
        let mut grown = match (before, after) {
            (NONE, NONE) => self.blocks[id].last,
            (NONE, after) => after,
            (before, _) => before,
        };
        if before != NONE && after != NONE {
            let (root, mut rest) = self.ranges.remove(self.blocks[id].root, after);
            self.blocks[id].root = root;
            debug_assert!(self.ranges[before].end == rest.start);
            let second = memory.segments[rest.head].next;
            let tail = self.ranges[before].tail;
            if memory.segments.merge(tail, rest.head, memory.pool) {
                rest.head = second;
                rest.slots -= 1;
                self.blocks[id].slots -= 1;
                self.slots -= 1;
            }
            let range = &mut self.ranges[before];
            if rest.head.is_some() {
                memory.segments[range.tail].next = rest.head;
                range.tail = rest.tail;
                range.slots += rest.slots;
            }
            range.end = rest.end;
            grown = before;
        }
        self.blocks[id].last = grown;
        let end = self.ranges[grown].end;
        let block = &mut self.blocks[id];
        if block.slots <= 1 || end.gt(block.high) {
            block.high = end;
        }
        self.touch(id, grown, text.seq);
    }

    /// Takes the first range out if it begins at `next` and joins its chain to `inbox`. Gives its end.
    pub(crate) fn deliver(
        &mut self,
        id: u32,
        next: SeqNum,
        inbox: &mut SegList,
        memory: &mut Memory<'_>,
    ) -> Option<SeqNum> {
        let first = self.ranges.first(self.blocks[id].root);
        if first == NONE || self.ranges[first].start != next {
            return None;
        }
        let range = self.unlink(id, first);
        memory.segments.append_chain(inbox, range, memory.pool);
        Some(range.end)
    }

    fn unlink(&mut self, id: u32, range: u32) -> Range {
        let (root, gone) = self.ranges.remove(self.blocks[id].root, range);
        let block = &mut self.blocks[id];
        block.root = root;
        block.slots -= gone.slots;
        self.slots -= gone.slots;
        if block.last == range {
            block.last = NONE;
        }
        gone
    }

    fn drop_range(&mut self, id: u32, range: u32, memory: &mut Memory<'_>) {
        let gone = self.unlink(id, range);
        memory.segments.free_chain(gone.head, memory.pool);
    }

    /// Whether another buffer may wait for this connection, of which at most `limit` may.
    #[inline]
    pub(crate) fn has_room(&self, id: u32, limit: u32) -> bool {
        self.blocks[id].slots < limit && self.slots < self.max_slots
    }

    /// Makes room for a text at `seq` by giving up what lies highest of the same connection, but nothing below it.
    /// Gives how many buffers came free. A share at a time, so that the next texts need not do it again.
    pub(crate) fn prune(&mut self, id: u32, seq: SeqNum, memory: &mut Memory<'_>) -> u32 {
        let before = self.blocks[id].slots;
        let enough = before - (before / 8).max(1);
        while self.blocks[id].slots > enough {
            let last = self.ranges.last(self.blocks[id].root);
            if last == NONE || self.ranges[last].start.le(seq) {
                break;
            }
            let surplus = self.blocks[id].slots - enough;
            let slots = self.ranges[last].slots;
            if slots <= surplus {
                self.drop_range(id, last, memory);
            } else {
                self.cut_after(id, last, slots - surplus, memory);
            }
        }
        self.find_high(id);
        before - self.blocks[id].slots
    }

    /// Gives up what lies at `at` and beyond.
    fn truncate(&mut self, id: u32, at: SeqNum, memory: &mut Memory<'_>) {
        loop {
            let last = self.ranges.last(self.blocks[id].root);
            if last == NONE || self.ranges[last].end.le(at) {
                break;
            }
            if self.ranges[last].start.ge(at) {
                self.drop_range(id, last, memory);
                continue;
            }
            let (mut seg, mut count) = (self.ranges[last].head, 1);
            while memory.segments[seg].end().lt(at) {
                seg = memory.segments[seg].next;
                count += 1;
            }
            memory.segments[seg].len = (at - memory.segments[seg].seq) as u16;
            self.cut_after(id, last, count, memory);
        }
        self.find_high(id);
    }

    /// Keeps the first `count` buffers of a range.
    fn cut_after(&mut self, id: u32, range: u32, count: u32, memory: &mut Memory<'_>) {
        let mut seg = self.ranges[range].head;
        for _ in 1..count {
            seg = memory.segments[seg].next;
        }
        let rest = memory.segments[seg].next.take();
        let cut = self.ranges[range].slots - count;
        memory.segments.free_chain(rest, memory.pool);
        let kept = &mut self.ranges[range];
        kept.tail = seg;
        kept.end = memory.segments[seg].end();
        kept.slots = count;
        self.blocks[id].slots -= cut;
        self.slots -= cut;
    }

    fn find_high(&mut self, id: u32) {
        let last = self.ranges.last(self.blocks[id].root);
        if last != NONE {
            self.blocks[id].high = self.ranges[last].end;
        }
    }

    /// `range` has changed, or something of it has come again: it is reported first (RFC 2018 section 4).
    fn touch(&mut self, id: u32, range: u32, seq: SeqNum) {
        let Range { start, end, .. } = self.ranges[range];
        let block = &mut self.blocks[id];
        let (mut kept, mut count, mut counted) = ([SeqNum(0); RECENT], 1, 0);
        kept[0] = seq;
        let recent = &block.recent[..usize::from(block.recents)];
        for (i, &other) in recent.iter().enumerate() {
            let same = other.ge(start) && other.lt(end);
            if same {
                counted += u8::from(i < usize::from(block.fresh));
            } else if count < RECENT {
                kept[count] = other;
                count += 1;
            }
        }
        block.recent = kept;
        block.recents = count as u8;
        block.fresh = (block.fresh - counted).saturating_add(1);
    }

    /// Counts a segment that came beyond the gap.
    pub(crate) fn count(&mut self, id: u32) {
        let arrivals = &mut self.blocks[id].arrivals;
        *arrivals = arrivals.saturating_add(1);
    }

    /// How many ranges changed, and how many texts came, since an acknowledgement last reported them.
    pub(crate) fn untold(&self, id: u32) -> (u8, u8) {
        (self.blocks[id].fresh, self.blocks[id].arrivals)
    }

    /// The acknowledgement that is to be written tells of what came.
    pub(crate) fn told(&mut self, id: u32) {
        (self.blocks[id].fresh, self.blocks[id].arrivals) = (0, 0);
    }

    /// Calls `report` with what waits, from the highest range below `from` down, until it says that there is no more
    /// room. Gives where to go on.
    pub(crate) fn report_below(
        &self,
        id: u32,
        from: Option<SeqNum>,
        mut report: impl FnMut(SeqNum, SeqNum) -> bool,
    ) -> Option<SeqNum> {
        let root = self.blocks[id].root;
        let mut at = match from {
            Some(from) => self.ranges.floor(root, from - 1u32),
            None => self.ranges.last(root),
        };
        loop {
            if at == NONE {
                return None;
            }
            let Range { start, end, .. } = self.ranges[at];
            if !report(start, end) {
                return Some(start);
            }
            at = self.ranges.floor(root, start - 1u32);
        }
    }

    /// Calls `report` with what waits, in the order of RFC 2018 section 4: what changed last, then what changed before,
    /// then, as long as it says that there is room, the others from the front.
    /// Keeps 2018-3, 2018-8.
    pub(crate) fn report(&mut self, id: u32, mut report: impl FnMut(SeqNum, SeqNum) -> bool) {
        self.told(id);
        let block = &self.blocks[id];
        let end_of = |range: &Range| {
            // The FIN takes a number too, and waits with what is before it.
            let with_fin = block.has_fin && range.end == block.fin;
            range.end + u32::from(with_fin)
        };
        let mut named = [NONE; RECENT];
        for (place, &seq) in named
            .iter_mut()
            .zip(&block.recent[..usize::from(block.recents)])
        {
            let at = self.ranges.floor(block.root, seq);
            if at == NONE || self.ranges[at].end.le(seq) {
                continue;
            }
            *place = at;
            if !report(self.ranges[at].start, end_of(&self.ranges[at])) {
                return;
            }
        }
        let mut at = self.ranges.first(block.root);
        // A few more than can be named: those that were named already are passed over.
        for _ in 0..2 * RECENT {
            if at == NONE {
                return;
            }
            let range = &self.ranges[at];
            if !named.contains(&at) && !report(range.start, end_of(range)) {
                return;
            }
            at = self.ranges.ceiling(block.root, range.end);
        }
    }

    /// Bytes of a range that begins at `seq`: for tests and introspection.
    #[cfg(test)]
    pub(crate) fn all(&self, id: u32) -> Vec<(SeqNum, SeqNum)> {
        let (mut all, mut at) = (Vec::new(), self.ranges.first(self.blocks[id].root));
        while at != NONE {
            let range = &self.ranges[at];
            all.push((range.start, range.end));
            at = self.ranges.ceiling(self.blocks[id].root, range.end);
        }
        all
    }
}
