//! The fifth check of section 3.10.7.4: what an acknowledgement frees, measures and lets out.

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

use crate::cold::{NONE, State, Tcb, flag};
use crate::congestion;
use crate::hot::hot_flag;
use crate::parse::Parsed;
use crate::recovery::News;
use crate::reno::{self, DUP_THRESHOLD};
use crate::rttm::Acked;
use crate::segment::seg_flag;
use crate::stack::Stack;
use crate::time::Instant;
use crate::write::Ending;

impl Stack {
    /// Whether the acknowledgement lies where one can lie (RFC 5961 section 5). If not, the peer is to be told where we
    /// are, and the segment to be dropped.
    #[inline(always)]
    pub(super) fn ack_is_plausible(&self, cold: &Tcb, p: &Parsed) -> bool {
        if cold.state == State::SynReceived {
            // Its acknowledgement is judged, and answered with a reset, when it is taken.
            return true;
        }
        let (first, oldest) = match cold.hot {
            NONE => (cold.snd_nxt, cold.snd_wnd()),
            id => (self.store.hot[id].snd_una, self.store.hot[id].max_snd_wnd),
        };
        let acked = p.ack - first;
        // Something not yet sent is acknowledged: say where we are, drop (RFC 9293, RFC 5961 section 5).
        let too_new = (p.ack - cold.snd_nxt) > 0;
        let too_old = acked < 0 && acked.unsigned_abs() > oldest;
        !(too_new || too_old)
    }

    /// Takes an acknowledgement that is plausible. False when the segment is to be dropped.
    pub(super) fn ack_arrives(
        &mut self,
        conn: u32,
        p: &Parsed,
        frame: Option<&Frame>,
        now: Instant,
    ) -> bool {
        let cold = &self.store.tcbs[conn];
        let id = cold.hot;
        if cold.state == State::SynReceived {
            return id != NONE && self.syn_received_acked(conn, id, p, now);
        }
        if id == NONE {
            // Everything that was sent is acknowledged.
            if (p.ack - cold.snd_nxt) >= 0 {
                self.take_window(conn, p, 0);
            }
            return true;
        }
        let acked = p.ack - self.store.hot[id].snd_una;
        // Even an old acknowledgement may tell of what has come since (RFC 2018 section 5).
        if acked < 0 && !p.has_more_options() {
            return true;
        }
        let mut news = News {
            advanced: acked > 0,
            ..News::default()
        };
        self.take_sack(conn, id, p, frame, &mut news, now);
        if acked >= 0 {
            self.store.hot[id].probes = 0;
        }
        if acked > 0 {
            self.new_ack(conn, id, p, acked as u32, &mut news, now);
        } else {
            self.same_ack(conn, id, p, acked, &news, now);
        }
        if acked >= 0 {
            self.take_window(conn, p, acked);
        }
        let hot = &mut self.store.hot[id];
        if hot.ending == Ending::More {
            // The peer was heard first (Linux: tcp_data_snd_check goes by the socket's rules, not the call's).
            hot.ending = Ending::Usual;
        }
        let sendable = !hot.unsent.is_empty() || hot.has(hot_flag::LOSSES);
        if self.store.tcbs[conn].hot == id && sendable {
            self.queue_output(id);
        }
        self.store.tcbs[conn].state != State::Closed
    }

    /// SND.WND, from a segment that is not older than the last that set it.
    #[inline(always)]
    fn take_window(&mut self, conn: u32, p: &Parsed, acked: i32) {
        let cold = &mut self.store.tcbs[conn];
        if acked == 0 && !p.seq.ge(cold.rcv_nxt) {
            return;
        }
        let window = u32::from(p.window) << cold.send_scale();
        let reopened = cold.snd_wnd() == 0 && window > 0;
        cold.set_snd_wnd(window);
        let id = cold.hot;
        if id == NONE {
            return;
        }
        let hot = &mut self.store.hot[id];
        hot.max_snd_wnd = hot.max_snd_wnd.max(window);
        // An orphan's goes on until something is acknowledged: opening and shutting must not keep it alive.
        if reopened && hot.flight.is_empty() && !self.store.tcbs[conn].has(flag::ORPHAN) {
            // The persist timer has done its work.
            hot.rto_at = Instant::ZERO;
            hot.backoff = 0;
            hot.retries = 0;
            if hot.has(hot_flag::STARVED) {
                self.persist(id);
            }
        }
        if self.store.hot[id].writer != NONE {
            self.heard_with_writer(conn, id);
        }
    }

    fn new_ack(
        &mut self,
        conn: u32,
        id: u32,
        p: &Parsed,
        acked: u32,
        news: &mut News,
        now: Instant,
    ) {
        let repairs = self.store.hot[id].recovery != NONE;
        if repairs {
            news.echo_age_ms = self.echo_age(conn, p, now);
            self.take_probe_ack(conn, id, p, news);
            self.forget_places(id, p.ack);
        }
        let hot = &mut self.store.hot[id];
        hot.snd_una = p.ack;
        hot.retries = 0;
        hot.soft_error = 0;
        let dup_acks = core::mem::take(&mut hot.dup_acks);
        let (probe_out, doubted) = (hot.probe_out, hot.doubted);
        if probe_out {
            self.probe_acknowledged(conn, id, now);
        }
        if doubted {
            self.forget_duplicates(id);
        }
        let fin_acked = self.drop_acked(conn, id, p, news, now);
        let (cold, hot) = (&self.store.tcbs[conn], &mut self.store.hot[id]);
        if hot.flight.is_empty() {
            hot.clear(hot_flag::LOSSES);
        }
        if p.flags.contains(Flags::ECE)
            && cold.has(flag::ECN)
            && congestion::on_ecn(hot, cold, acked)
        {
            self.counters.mark_reductions += 1;
        }
        if repairs {
            self.repair(conn, id, news, now);
        } else {
            if self.store.hot[id].doubted {
                self.judge_plain_timeout(conn, id, news);
            }
            self.grow_or_recover(conn, id, p, acked, dup_acks, now);
            self.arm_retransmission(conn, id, true, now);
        }
        let hot = &self.store.hot[id];
        // Otherwise what is sent now counts too.
        if hot.writer != NONE && (hot.unsent.is_empty() || !self.rules.config.count_as_linux) {
            self.offer_room(conn, id);
        }
        if fin_acked {
            self.fin_acknowledged(conn, p);
        }
    }

    /// Takes what is acknowledged out of flight and measures the round trip. True when our FIN was in it.
    fn drop_acked(
        &mut self,
        conn: u32,
        id: u32,
        p: &Parsed,
        news: &mut News,
        now: Instant,
    ) -> bool {
        let (mut fin, mut acked) = (false, Acked::default());
        let now_us = now.as_micros() as u32;
        loop {
            let hot = &mut self.store.hot[id];
            let at = hot.flight.head;
            if at == NONE {
                break;
            }
            let seg = &self.store.blocks.segments[at];
            if (p.ack - seg.end()) < 0 {
                self.trim_acked(id, at, p.ack, news);
                break;
            }
            fin |= seg.has(seg_flag::FIN);
            if hot.recovery != NONE {
                self.acknowledge_marked(id, at, news, &mut acked, now);
                self.store
                    .blocks
                    .segments
                    .pop_front(&mut self.store.hot[id].flight);
            } else {
                if !seg.has(seg_flag::LOST) {
                    hot.pipe = hot.pipe.saturating_sub(u32::from(seg.len));
                }
                if hot.doubted {
                    news.original |= !seg.has(seg_flag::RESENT) && seg.end().le(hot.recover);
                }
                acked.add(now_us.wrapping_sub(seg.sent_us), seg.has(seg_flag::RESENT));
                self.store.blocks.segments.pop_front(&mut hot.flight);
            }
            self.store
                .blocks
                .segments
                .free(at, &mut self.store.blocks.pool);
        }
        self.measure(conn, id, p, &acked, news, now);
        fin
    }

    /// Part of the first segment in flight is acknowledged.
    fn trim_acked(&mut self, id: u32, at: u32, ack: SeqNum, news: &mut News) {
        let (hot, seg) = (&mut self.store.hot[id], &mut self.store.blocks.segments[at]);
        let part = (ack - seg.seq).max(0) as u32;
        if part == 0 {
            return;
        }
        seg.seq += part;
        seg.off += part as u16;
        seg.len -= part as u16;
        hot.flight.bytes -= part;
        if seg.has(seg_flag::SACKED) {
            self.store.blocks.recovery[hot.recovery].sacked_bytes -= part;
            return;
        }
        news.delivered += part;
        if !seg.has(seg_flag::LOST) {
            hot.pipe = hot.pipe.saturating_sub(part);
        }
    }

    /// Adjusts the window for an acknowledgement of new data, where nothing is missing or the peer does not SACK.
    fn grow_or_recover(
        &mut self,
        conn: u32,
        id: u32,
        p: &Parsed,
        acked: u32,
        dup_acks: u8,
        now: Instant,
    ) {
        let (cold, hot) = (&self.store.tcbs[conn], &mut self.store.hot[id]);
        let mss = u32::from(cold.payload_mss());
        if !hot.has(hot_flag::RECOVERY) {
            // Each duplicate has told of a segment before, and limited transmit has answered it.
            let told = (u32::from(dup_acks) * mss).min(acked - acked.min(mss));
            congestion::on_ack(hot, cold, acked - told, now);
        } else if p.ack.ge(hot.recover) {
            congestion::leave_recovery(hot, cold);
        } else {
            reno::on_partial_ack(hot, mss, acked);
            self.mark_first_lost(id);
        }
    }

    /// An acknowledgement of nothing new: perhaps a duplicate (RFC 5681 section 2), perhaps one that brings SACKs.
    #[inline(never)]
    fn same_ack(&mut self, conn: u32, id: u32, p: &Parsed, acked: i32, news: &News, now: Instant) {
        if self.store.hot[id].flight.is_empty() {
            return;
        }
        if self.store.tcbs[conn].has(flag::SACK) {
            // Duplicates are not counted, SACKs are (RFC 6675 section 5; RFC 8985 section 6).
            if self.store.hot[id].recovery != NONE {
                self.take_probe_ack(conn, id, p, news);
                self.measure(conn, id, p, &Acked::default(), news, now);
                self.repair(conn, id, news, now);
            }
        } else if acked == 0 {
            self.duplicate_ack(conn, id, p);
        }
    }

    /// NewReno (RFC 6582 section 3.2).
    fn duplicate_ack(&mut self, conn: u32, id: u32, p: &Parsed) {
        let cold = &self.store.tcbs[conn];
        let mss = u32::from(cold.payload_mss());
        let same_window = u32::from(p.window) << cold.send_scale() == cold.snd_wnd();
        let hot = &mut self.store.hot[id];
        if p.space() > 0 || !same_window {
            return;
        }
        if hot.doubted {
            self.duplicate_after_timeout(conn, id);
            return;
        }
        hot.dup_acks = hot.dup_acks.saturating_add(1);
        if hot.has(hot_flag::RECOVERY) {
            // Another segment has left the network (step 3). No more can than were there when recovery began: a peer
            // that repeats itself beyond that lies.
            let most = hot.ssthresh + (hot.recover - hot.snd_una).max(0) as u32;
            hot.cwnd = hot.cwnd.saturating_add(mss).min(most.max(hot.cwnd));
        } else if hot.dup_acks == DUP_THRESHOLD && (p.ack - hot.recover) >= 0 {
            hot.recover = cold.snd_nxt;
            hot.ssthresh = congestion::ssthresh_on_loss(hot, cold);
            reno::enter_recovery(hot, mss);
            self.counters.fast_retransmits += 1;
            self.mark_first_lost(id);
        }
        self.queue_output(id);
    }

    /// The first segment in flight is to be sent again.
    fn mark_first_lost(&mut self, id: u32) {
        let head = self.store.hot[id].flight.head;
        if head != NONE && !self.store.blocks.segments[head].has(seg_flag::LOST) {
            self.mark_lost(id, head);
        }
    }

    /// Our FIN is acknowledged: the state moves on.
    fn fin_acknowledged(&mut self, conn: u32, p: &Parsed) {
        match self.store.tcbs[conn].state {
            State::FinWait1
                if self.store.tcbs[conn].has(flag::ORPHAN) && self.waits_for_no_fin(conn) =>
            {
                self.reset_reply(p);
                self.end(conn, 0);
            }
            State::FinWait1 => self.store.tcbs[conn].state = State::FinWait2,
            State::Closing => self.enter_time_wait(conn, false),
            State::LastAck => self.end(conn, 0),
            _ => {}
        }
    }
}
