//! The fifth check of section 3.10.7.4: what an acknowledgement frees, measures and lets out.

use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

use crate::cold::{NONE, State, flag};
use crate::congestion;
use crate::hot::hot_flag;
use crate::parse::Parsed;
use crate::reno::{self, DUP_THRESHOLD};
use crate::rto;
use crate::rttm::Acked;
use crate::segment::seg_flag;
use crate::stack::Stack;
use crate::time::Instant;

impl Stack {
    /// Whether the acknowledgement lies where one can lie (RFC 5961 section 5). If not, the peer is told where we
    /// are and the segment is to be dropped.
    pub(super) fn ack_is_plausible(&mut self, conn: u32, p: &Parsed, now: Instant) -> bool {
        let cold = &self.cold[conn];
        let id = cold.hot;
        if cold.state == State::SynReceived {
            // Its acknowledgement is judged, and answered with a reset, when it is taken.
            return true;
        }
        let acked = p.ack - self.first_unacknowledged(conn);
        // Something not yet sent is acknowledged: say where we are, drop (RFC 9293, RFC 5961 section 5).
        let too_new = (p.ack - cold.snd_nxt) > 0;
        let oldest = if id == NONE {
            cold.snd_wnd
        } else {
            self.hot[id].max_snd_wnd
        };
        let too_old = acked < 0 && acked.unsigned_abs() > oldest;
        if too_new || too_old {
            self.challenge(conn, now);
        }
        !(too_new || too_old)
    }

    /// Takes an acknowledgement that is plausible. False when the segment is to be dropped.
    pub(super) fn ack_arrives(&mut self, conn: u32, p: &Parsed, now: Instant) -> bool {
        let cold = &self.cold[conn];
        let id = cold.hot;
        if cold.state == State::SynReceived {
            return id != NONE && self.syn_received_acked(conn, id, p, now);
        }
        let acked = p.ack - self.first_unacknowledged(conn);
        if acked < 0 {
            return true;
        }
        if id == NONE {
            self.take_window(conn, p, 0);
            return true;
        }
        self.hot[id].probes = 0;
        if acked > 0 {
            self.new_ack(conn, id, p, acked as u32, now);
        } else {
            self.same_ack(conn, id, p, now);
        }
        self.take_window(conn, p, acked);
        let hot = &self.hot[id];
        let sendable = !hot.unsent.is_empty() || hot.has(hot_flag::LOSSES);
        if self.cold[conn].hot == id && sendable {
            self.queue_output(id);
        }
        self.cold[conn].state != State::Closed
    }

    /// SND.UNA; without a hot block everything sent is acknowledged.
    fn first_unacknowledged(&self, conn: u32) -> SeqNum {
        let cold = &self.cold[conn];
        match cold.hot {
            NONE => cold.snd_nxt,
            id => self.hot[id].snd_una,
        }
    }

    /// SND.WND, from a segment that is not older than the last that set it.
    fn take_window(&mut self, conn: u32, p: &Parsed, acked: i32) {
        let cold = &mut self.cold[conn];
        if acked == 0 && !p.seq.ge(cold.rcv_nxt) {
            return;
        }
        let window = u32::from(p.window) << cold.send_scale();
        let reopened = cold.snd_wnd == 0 && window > 0;
        cold.snd_wnd = window;
        let id = cold.hot;
        if id == NONE {
            return;
        }
        let hot = &mut self.hot[id];
        hot.max_snd_wnd = hot.max_snd_wnd.max(window);
        // An orphan's goes on until something is acknowledged: opening and shutting must not keep it alive.
        if reopened && hot.flight.is_empty() && !self.cold[conn].has(flag::ORPHAN) {
            // The persist timer has done its work.
            hot.rto_at = Instant::ZERO;
            hot.backoff = 0;
            hot.retries = 0;
        }
    }

    fn new_ack(&mut self, conn: u32, id: u32, p: &Parsed, acked: u32, now: Instant) {
        let hot = &mut self.hot[id];
        hot.snd_una = p.ack;
        hot.retries = 0;
        hot.dup_acks = 0;
        hot.soft_error = 0;
        if hot.probe_out {
            self.probe_acknowledged(conn, id, now);
        }
        let fin_acked = self.drop_acked(conn, id, p, now);
        self.grow_or_recover(conn, id, p, acked, now);
        let (cold, hot) = (&self.cold[conn], &mut self.hot[id]);
        hot.rto_at = if hot.flight.is_empty() {
            Instant::ZERO
        } else {
            now + rto::timeout(cold, &self.config, hot.backoff)
        };
        if hot.writer != NONE
            && self.send_room(id)
                >= self
                    .profiles
                    .send_buffer(self.cold[conn].profile, &self.config) as usize
                    / 3
        {
            self.wake_writer(conn);
        }
        if fin_acked {
            self.fin_acknowledged(conn);
        }
    }

    /// Takes what is acknowledged out of flight and measures the round trip. True when our FIN was in it.
    fn drop_acked(&mut self, conn: u32, id: u32, p: &Parsed, now: Instant) -> bool {
        let hot = &mut self.hot[id];
        let (mut fin, mut acked) = (false, Acked::default());
        let now_us = now.as_micros() as u32;
        while hot.flight.head != NONE {
            let at = hot.flight.head;
            let seg = &mut self.segments[at];
            if (p.ack - seg.end()) < 0 {
                let part = (p.ack - seg.seq).max(0) as u32;
                if part > 0 {
                    seg.seq += part;
                    seg.off += part as u16;
                    seg.len -= part as u16;
                    hot.flight.bytes -= part;
                    hot.pipe = hot.pipe.saturating_sub(part);
                }
                break;
            }
            if !seg.has(seg_flag::LOST) {
                hot.pipe = hot.pipe.saturating_sub(u32::from(seg.len));
            }
            acked.add(now_us.wrapping_sub(seg.sent_us), seg.has(seg_flag::RESENT));
            fin |= seg.has(seg_flag::FIN);
            self.segments.pop_front(&mut hot.flight);
            self.segments.free(at, &mut self.pool);
        }
        self.measure(conn, id, p, &acked, now);
        fin
    }

    fn grow_or_recover(&mut self, conn: u32, id: u32, p: &Parsed, acked: u32, now: Instant) {
        let (cold, hot) = (&self.cold[conn], &mut self.hot[id]);
        if hot.flight.is_empty() {
            hot.clear(hot_flag::LOSSES);
        }
        if p.flags.contains(Flags::ECE)
            && cold.has(flag::ECN)
            && congestion::on_ecn(hot, cold, acked, now)
        {
            self.counters.mark_reductions += 1;
        }
        if !hot.has(hot_flag::RECOVERY) {
            congestion::on_ack(hot, cold, acked, now);
        } else if p.ack.ge(hot.recover) {
            congestion::leave_recovery(hot, cold);
        } else {
            reno::on_partial_ack(hot, u32::from(cold.payload_mss()), acked);
            self.mark_first_lost(conn, id);
        }
    }

    /// An acknowledgement of nothing new: perhaps a duplicate (RFC 5681 section 2).
    fn same_ack(&mut self, conn: u32, id: u32, p: &Parsed, now: Instant) {
        let cold = &self.cold[conn];
        let mss = u32::from(cold.payload_mss());
        let same_window = u32::from(p.window) << cold.send_scale() == cold.snd_wnd;
        let hot = &mut self.hot[id];
        if hot.flight.is_empty() || p.space() > 0 || !same_window {
            return;
        }
        hot.dup_acks = hot.dup_acks.saturating_add(1);
        if hot.has(hot_flag::RECOVERY) {
            // Another segment has left the network (RFC 6582 section 3.2 step 3).
            hot.cwnd = hot.cwnd.saturating_add(mss);
        } else if hot.dup_acks == DUP_THRESHOLD && (p.ack - hot.recover) >= 0 {
            hot.recover = cold.snd_nxt;
            hot.ssthresh = congestion::ssthresh_on_loss(hot, cold, now);
            reno::enter_recovery(hot, mss);
            self.counters.fast_retransmits += 1;
            self.mark_first_lost(conn, id);
        }
        self.queue_output(id);
    }

    /// The first segment in flight is to be sent again.
    fn mark_first_lost(&mut self, conn: u32, id: u32) {
        let hot = &mut self.hot[id];
        let head = hot.flight.head;
        if head == NONE {
            return;
        }
        let seg = &mut self.segments[head];
        if !seg.has(seg_flag::LOST) {
            seg.flags |= seg_flag::LOST;
            hot.pipe = hot.pipe.saturating_sub(u32::from(seg.len));
        }
        hot.set(hot_flag::LOSSES);
        debug_assert_eq!(self.cold[conn].hot, id);
    }

    /// Our FIN is acknowledged: the state moves on.
    fn fin_acknowledged(&mut self, conn: u32) {
        match self.cold[conn].state {
            State::FinWait1 => self.cold[conn].state = State::FinWait2,
            State::Closing => self.enter_time_wait(conn, false),
            State::LastAck => self.end(conn, 0),
            _ => {}
        }
    }
}
