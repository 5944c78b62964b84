//! The seventh and eighth check of section 3.10.7.4: text and FIN, in order or kept until they are.

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

use crate::cold::{NONE, State, flag};
use crate::hot::hot_flag;
use crate::parse::Parsed;
use crate::segment::seg_flag;
use crate::stack::Stack;
use crate::time::Instant;

/// Received payloads up to this size are copied behind the last one when they fit: a peer that sends single
/// bytes must not pin a packet buffer for each.
const COPY_BELOW: usize = 512;
/// Segments kept out of order for one connection.
const MAX_REORDERED: u32 = 256;

/// What is left of a segment's text once what is not wanted is cut off.
struct Text {
    seq: SeqNum,
    off: u16,
    len: u16,
    fin: bool,
}

impl Stack {
    pub(super) fn text_arrives(
        &mut self,
        conn: u32,
        p: &Parsed,
        frame: &mut Option<Frame>,
        now: Instant,
    ) {
        let cold = &self.cold[conn];
        if !cold.state.can_receive() {
            // The peer's FIN has been: only repeats can come, and they want the ACK again.
            if (p.seq - cold.rcv_nxt) < 0 {
                self.acknowledge_at_once(conn, now);
            }
            return;
        }
        if cold.has(flag::ORPHAN) && p.payload_len > 0 {
            // Nobody is left to read it (RFC 1122 section 4.2.2.13).
            self.reset_reply(p);
            self.end(conn, flag::RESET);
            return;
        }
        let Some(id) = self.heat(conn, now) else {
            self.counters.dropped_table_full += 1;
            return;
        };
        let text = self.cut(conn, p);
        if text.len == 0 && !text.fin {
            self.hot[id].set(hot_flag::ACK_NOW);
            self.queue_output(id);
            return;
        }
        if text.seq != self.cold[conn].rcv_nxt {
            self.keep_for_later(conn, id, &text, frame);
            return;
        }
        if !self.append(id, &text, frame) {
            return;
        }
        let filled_a_gap = !self.hot[id].reordered.is_empty();
        self.cold[conn].rcv_nxt = text.seq + u32::from(text.len);
        // Nothing counts that claims to lie beyond the end of the stream.
        if text.fin || self.append_reordered(conn, id) {
            self.segments
                .clear(&mut self.hot[id].reordered, &mut self.pool);
            self.fin_arrives(conn, now);
        } else {
            let at_once = filled_a_gap || self.answer_unlikely(conn, p);
            self.owe_ack(conn, id, u32::from(text.len), at_once, now);
        }
        self.wake_reader(conn);
    }

    /// Cuts off what was received before and what lies beyond the window.
    fn cut(&self, conn: u32, p: &Parsed) -> Text {
        let cold = &self.cold[conn];
        let mut text = Text {
            seq: p.seq,
            off: p.payload_off,
            len: p.payload_len,
            fin: p.flags.contains(Flags::FIN),
        };
        let old = (cold.rcv_nxt - text.seq).max(0) as u32;
        if old > 0 {
            if old > u32::from(text.len) {
                text.fin = false;
            }
            let cut = old.min(u32::from(text.len)) as u16;
            text.off += cut;
            text.len -= cut;
            text.seq = cold.rcv_nxt;
        }
        let room = (cold.rcv_adv - text.seq).max(0) as u32;
        if u32::from(text.len) > room {
            text.len = room as u16;
            text.fin = false;
        }
        text
    }

    /// In-order text joins what the application has not read. False when there is no place for it.
    fn append(&mut self, id: u32, text: &Text, frame: &mut Option<Frame>) -> bool {
        if text.len == 0 {
            return true;
        }
        let Some(arrived) = frame.take() else {
            return false;
        };
        let from = usize::from(text.off);
        if self.join_last(id, &arrived.buf.bytes()[from..from + usize::from(text.len)]) {
            self.pool.free(arrived.buf);
            return true;
        }
        let hot = &mut self.hot[id];
        match self.segments.alloc(arrived.buf, text.off, text.len) {
            Ok(seg) => {
                self.segments.push_back(&mut hot.inbox, seg);
                true
            }
            Err(buf) => {
                self.counters.dropped_receive_full += 1;
                self.pool.free(buf);
                false
            }
        }
    }

    /// Copies a small payload behind the last unread one, when it fits there.
    fn join_last(&mut self, id: u32, bytes: &[u8]) -> bool {
        let inbox = &mut self.hot[id].inbox;
        if inbox.tail == NONE || bytes.len() > COPY_BELOW {
            return false;
        }
        let last = &mut self.segments[inbox.tail];
        let end = usize::from(last.off) + usize::from(last.len);
        let Some(place) = last
            .buf
            .as_mut()
            .and_then(|buf| buf.bytes_mut().get_mut(end..end + bytes.len()))
        else {
            return false;
        };
        place.copy_from_slice(bytes);
        last.len += bytes.len() as u16;
        inbox.bytes += bytes.len() as u32;
        true
    }

    /// Text ahead of a gap waits in order of its numbers; a peer that sees the ACK repeated sends the gap.
    /// Where texts that wait overlap and differ, the one that begins first counts; where one overlaps what fills
    /// the gap, that does. Every byte is delivered once in any case.
    fn keep_for_later(&mut self, conn: u32, id: u32, text: &Text, frame: &mut Option<Frame>) {
        debug_assert_eq!(self.cold[conn].hot, id);
        let hot = &mut self.hot[id];
        hot.set(hot_flag::ACK_NOW);
        let (mut after, mut at) = (NONE, hot.reordered.head);
        while at != NONE {
            let seg = &self.segments[at];
            let covered = (text.seq - seg.seq) >= 0
                && (seg.end() - (text.seq + u32::from(text.len))) >= i32::from(text.fin);
            if covered {
                self.queue_output(id);
                return;
            }
            if (seg.seq - text.seq) > 0 {
                break;
            }
            (after, at) = (at, seg.next);
        }
        // A hostile peer may send a byte here and a byte there: both count and bytes are bounded.
        let bytes = hot.reordered.bytes + u32::from(text.len);
        // A bare FIN is not worth a buffer: the peer repeats it.
        let kept = hot.reordered.count;
        if text.len > 0 && kept < MAX_REORDERED && bytes <= self.config.receive_buffer {
            if let Some(arrived) = frame.take() {
                match self.segments.alloc(arrived.buf, text.off, text.len) {
                    Ok(seg) => {
                        self.counters.reordered += 1;
                        let stored = &mut self.segments[seg];
                        stored.seq = text.seq;
                        stored.flags = if text.fin { seg_flag::FIN } else { 0 };
                        self.segments.insert_after(&mut hot.reordered, after, seg);
                    }
                    Err(buf) => self.pool.free(buf),
                }
            }
        } else if text.len > 0 {
            self.counters.dropped_receive_full += 1;
        }
        self.queue_output(id);
    }

    /// What waited for the gap that has just been filled. True when the peer's FIN is reached.
    fn append_reordered(&mut self, conn: u32, id: u32) -> bool {
        loop {
            let head = self.hot[id].reordered.head;
            let next = self.cold[conn].rcv_nxt;
            if head == NONE || (self.segments[head].seq - next) > 0 {
                return false;
            }
            self.segments.pop_front(&mut self.hot[id].reordered);
            let seg = &mut self.segments[head];
            let (old, has_fin) = ((next - seg.seq).max(0) as u32, seg.has(seg_flag::FIN));
            let reaches_end = old <= u32::from(seg.len);
            let cut = old.min(u32::from(seg.len)) as u16;
            seg.off += cut;
            seg.len -= cut;
            self.cold[conn].rcv_nxt = next + u32::from(seg.len);
            self.append_kept(id, head);
            if has_fin && reaches_end {
                return true;
            }
        }
    }

    /// A segment that waited joins what the application has not read: its bytes only, when they are few.
    fn append_kept(&mut self, id: u32, seg: u32) {
        let buf = self.segments[seg].buf.take();
        let (off, len) = (self.segments[seg].off, self.segments[seg].len);
        let joined = len == 0
            || buf.as_ref().is_some_and(|buf| {
                let from = usize::from(off);
                self.join_last(id, &buf.bytes()[from..from + usize::from(len)])
            });
        self.segments[seg].buf = buf;
        if joined {
            self.segments.free(seg, &mut self.pool);
        } else {
            self.segments.push_back(&mut self.hot[id].inbox, seg);
        }
    }

    /// The peer has pushed, so no second segment may follow, and this connection has not yet shown that an
    /// answer comes soon enough to carry the acknowledgement. An answer in this very turn still carries it.
    fn answer_unlikely(&self, conn: u32, p: &Parsed) -> bool {
        p.flags.contains(Flags::PSH) && !self.cold[conn].is_interactive()
    }

    /// Acknowledge now or a little later (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2).
    fn owe_ack(&mut self, conn: u32, id: u32, len: u32, at_once: bool, now: Instant) {
        let mss = u32::from(self.cold[conn].mss);
        self.cold[conn].set(flag::UNANSWERED);
        let hot = &mut self.hot[id];
        hot.unacked_bytes += len;
        if at_once || hot.unacked_bytes >= 2 * mss.saturating_sub(12) {
            hot.set(hot_flag::ACK_NOW);
            self.queue_output(id);
        } else if hot.ack_at == Instant::ZERO {
            hot.ack_at = now + self.config.delayed_ack;
        }
    }

    /// Eighth, FIN: the peer sends no more.
    fn fin_arrives(&mut self, conn: u32, now: Instant) {
        let cold = &mut self.cold[conn];
        cold.rcv_nxt += 1u32;
        if (cold.rcv_adv - cold.rcv_nxt) < 0 {
            cold.rcv_adv = cold.rcv_nxt;
        }
        cold.set(flag::PEER_FIN);
        let (state, id) = (cold.state, cold.hot);
        match state {
            State::Established => cold.state = State::CloseWait,
            State::FinWait1 => cold.state = State::Closing,
            _ => {}
        }
        if state == State::FinWait2 {
            self.send_ack(conn, now);
            self.enter_time_wait(conn, false);
        } else if id != NONE {
            self.hot[id].set(hot_flag::ACK_NOW);
            self.queue_output(id);
        }
    }
}
