//! The fifth check of section 3.10.7.4: what an acknowledgement frees, measures and lets out.

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

use crate::congestion::reno::{self, DUP_THRESHOLD};
use crate::conn::loss::AckSummary;
use crate::conn::loss::rttm::Acked;
use crate::conn::loss::window;
use crate::conn::{Conn, Linger};
use crate::store::cold::{EndReason, NONE, State, Tcb, flag};
use crate::store::hot::{Ending, hot_flag};
use crate::store::keys::SegId;
use crate::store::rto;
use crate::store::segment::seg_flag;
use crate::time::Instant;
use crate::wire::parse::Parsed;

impl Conn<'_> {
    /// Takes an acknowledgement that is plausible. False when the segment is to be dropped.
    #[inline(always)]
    pub(crate) fn ack_arrives(&mut self, p: &Parsed, frame: Option<&Frame>) -> bool {
        if self.tcb.state == State::SynReceived {
            return self.syn_received_acked(p);
        }
        let acked = p.ack() - self.hot.sender.snd_una;
        let may_miss = self.hot.loss.recovery.is_some() || self.hot.doubted;
        if may_miss || p.has_more_options() {
            return self.ack_of_losses(p, acked, frame);
        }
        if acked < 0 {
            return true;
        }
        self.hot.timers.probes = 0;
        if acked > 0 {
            self.new_ack(p, acked as u32, None);
        } else {
            self.same_ack(p, acked, None);
        }
        self.after_ack(p, acked)
    }

    /// Whether this acknowledges our FIN after the peer's: then nothing is left to be measured, repaired or sent.
    #[inline(always)]
    pub(crate) fn ends_all(&self, p: &Parsed) -> bool {
        let hot = &*self.hot;
        self.tcb.state == State::LastAck
            && p.ack() == self.tcb.snd_nxt
            && hot.sender.unsent.is_empty()
            && hot.loss.recovery.is_none()
            && !hot.path.probe_out
    }

    /// Both FINs are acknowledged: the connection is over. The next one to this peer begins with the round trip of ours.
    #[inline(always)]
    pub(crate) fn end_at_last(&mut self) {
        let flight = &mut self.hot.sender.flight;
        if flight.head.is_some() {
            let first = &self.blocks.segments[flight.head];
            if !first.has(seg_flag::RESENT) {
                let rtt_us = self.env.now_us.wrapping_sub(first.sent_us);
                rto::sample(self.tcb, rtt_us);
            }
            // Mostly the only one; what else is there goes with the block.
            self.blocks
                .segments
                .free_front(flight, &mut self.blocks.pool);
        }
        self.end(EndReason::Orderly);
    }

    /// Like [`Conn::ack_arrives`], of a segment of which nothing else is taken.
    #[inline(never)]
    pub(crate) fn lone_ack_arrives(&mut self, p: &Parsed, frame: Option<&Frame>) -> bool {
        self.ack_arrives(p, frame)
    }

    /// Like [`Conn::ack_arrives`], where something may be missing, or the peer may say so: facts are gathered.
    #[inline(never)]
    fn ack_of_losses(&mut self, p: &Parsed, acked: i32, frame: Option<&Frame>) -> bool {
        // Even an old acknowledgement may tell of what has come since (RFC 2018 section 5).
        if acked < 0 && !p.has_more_options() {
            return true;
        }
        let mut summary = AckSummary::begin(acked > 0);
        self.take_sack(p, frame, &mut summary);
        if acked >= 0 {
            self.hot.timers.probes = 0;
        }
        if acked > 0 {
            self.new_ack(p, acked as u32, Some(&mut summary));
        } else {
            self.same_ack(p, acked, Some(&summary));
        }
        self.after_ack(p, acked)
    }

    /// The acknowledgement's window counts, and what it lets out is to be sent. False when the connection is over.
    #[inline(always)]
    fn after_ack(&mut self, p: &Parsed, acked: i32) -> bool {
        if acked >= 0 {
            self.take_window(p, acked);
        }
        let hot = &mut *self.hot;
        if hot.sender.ending == Ending::More {
            // The peer was heard first (Linux: tcp_data_snd_check goes by the socket's rules, not the call's).
            hot.sender.ending = Ending::Usual;
        }
        let sendable = !hot.sender.unsent.is_empty() || hot.has(hot_flag::LOSSES);
        if sendable {
            self.queue();
        }
        !self.is_over()
    }

    /// SND.WND, from a segment that is not older than the last that set it.
    /// Keeps 7323-6, MUST-1, REC-1.
    #[inline(always)]
    fn take_window(&mut self, p: &Parsed, acked: i32) {
        let before = self.tcb.snd_wnd();
        if !self.tcb.take_window(p, acked) {
            return;
        }
        let (tcb, hot) = (&*self.tcb, &mut *self.hot);
        let window = tcb.snd_wnd();
        hot.sender.max_snd_wnd = hot.sender.max_snd_wnd.max(window);
        let reopened = before == 0 && window > 0;
        // An orphan's goes on until something is acknowledged: opening and shutting must not keep it alive.
        if reopened && hot.sender.flight.is_empty() && !tcb.has(flag::ORPHAN) {
            // The persist timer has done its work.
            hot.timers.due_at = Instant::NEVER;
            hot.timers.backoff = 0;
            hot.timers.retries = 0;
            if hot.has(hot_flag::STARVED) {
                self.persist();
            }
        }
        if self.hot.sender.writer != NONE {
            self.heard_with_writer();
        }
    }

    /// `summary`: where something may be missing.
    #[inline(always)]
    fn new_ack(&mut self, p: &Parsed, acked: u32, mut summary: Option<&mut AckSummary>) {
        let repairs = summary.is_some() && self.hot.loss.recovery.is_some();
        if let (true, Some(summary)) = (repairs, &mut summary) {
            summary.note_echo(self.echo_age(p));
            self.take_probe_ack(p, summary);
            self.forget_places(p.ack());
        }
        let hot = &mut *self.hot;
        hot.sender.snd_una = p.ack();
        hot.timers.retries = 0;
        hot.path.soft_error = EndReason::Orderly;
        let dup_acks = core::mem::take(&mut hot.dup_acks);
        let (probe_out, doubted) = (hot.path.probe_out, summary.is_some() && hot.doubted);
        if probe_out {
            self.probe_acknowledged();
        }
        if doubted {
            self.forget_duplicates();
        }
        let fin_acked = self.drop_acked(p, summary.as_deref_mut());
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        if hot.sender.flight.is_empty() {
            hot.clear(hot_flag::LOSSES);
        }
        if p.flags().contains(Flags::ECE) && cold.has(flag::ECN) && window::on_ecn(hot, cold, acked)
        {
            self.env.counters.mark_reductions += 1;
        }
        match summary {
            Some(summary) if repairs => self.repair(summary),
            summary => {
                if let Some(summary) = summary.filter(|_| self.hot.doubted) {
                    self.judge_plain_timeout(summary);
                }
                self.grow_or_recover(p, acked, dup_acks);
                self.arm_retransmission(true);
            }
        }
        let hot = &*self.hot;
        // Otherwise what is sent now counts too.
        if hot.sender.writer != NONE
            && (hot.sender.unsent.is_empty() || !self.rules.config().count_as_linux)
        {
            self.offer_room();
        }
        if fin_acked {
            self.fin_acknowledged(p);
        }
    }

    /// Takes what is acknowledged out of flight and measures the round trip. True when our FIN was in it.
    /// Keeps 2018-9, 6298-6, 6675-1.
    #[inline(always)]
    fn drop_acked(&mut self, p: &Parsed, mut summary: Option<&mut AckSummary>) -> bool {
        let mut acked = Acked::default();
        let whole = self.drop_first(p, summary.as_deref_mut(), &mut acked);
        if whole && !self.hot.sender.flight.is_empty() {
            acked = self.drop_others(p, summary.as_deref_mut(), acked);
        }
        self.measure(
            p,
            &acked,
            summary.and_then(|summary| summary.sacked_sent_us()),
        );
        acked.has_fin()
    }

    /// The rest of [`Conn::drop_acked`]. Apart, as most acknowledgements are of one segment.
    #[inline(never)]
    fn drop_others(
        &mut self,
        p: &Parsed,
        mut summary: Option<&mut AckSummary>,
        mut acked: Acked,
    ) -> Acked {
        while !self.hot.sender.flight.is_empty()
            && self.drop_first(p, summary.as_deref_mut(), &mut acked)
        {}
        acked
    }

    /// Takes the first segment out of flight, if there is one and all of it is acknowledged; else false.
    #[inline(always)]
    fn drop_first(
        &mut self,
        p: &Parsed,
        mut summary: Option<&mut AckSummary>,
        acked: &mut Acked,
    ) -> bool {
        let hot = &mut *self.hot;
        let at = hot.sender.flight.head;
        if at.is_none() {
            return false;
        }
        let seg = &self.blocks.segments[at];
        if (p.ack() - seg.end()) < 0 {
            self.trim_acked(at, p.ack(), summary);
            return false;
        }
        acked.add_fin(seg.has(seg_flag::FIN));
        match &mut summary {
            Some(summary) if hot.loss.recovery.is_some() => {
                self.acknowledge_marked(at, summary, acked);
            }
            summary => {
                if !seg.has(seg_flag::LOST) {
                    hot.sender.pipe = hot.sender.pipe.saturating_sub(u32::from(seg.len));
                }
                if let Some(summary) = summary.as_deref_mut().filter(|_| hot.doubted) {
                    summary.note_original(
                        !seg.has(seg_flag::RESENT) && seg.end().le(hot.loss.recover),
                    );
                }
                let age_us = self.env.now_us.wrapping_sub(seg.sent_us);
                acked.add(age_us, seg.has(seg_flag::RESENT));
            }
        }
        let flight = &mut self.hot.sender.flight;
        self.blocks
            .segments
            .free_front(flight, &mut self.blocks.pool);
        true
    }

    /// Part of the first segment in flight is acknowledged.
    #[inline(never)]
    fn trim_acked(&mut self, at: Option<SegId>, ack: SeqNum, summary: Option<&mut AckSummary>) {
        let (hot, seg) = (&mut *self.hot, &mut self.blocks.segments[at]);
        let part = (ack - seg.seq).max(0) as u32;
        if part == 0 {
            return;
        }
        seg.seq += part;
        seg.off += part as u16;
        seg.len -= part as u16;
        hot.sender.flight.bytes -= part;
        if seg.has(seg_flag::SACKED) {
            self.blocks.recovery[hot.loss.recovery].sacked_bytes -= part;
            return;
        }
        if let Some(summary) = summary {
            summary.note_delivered(part);
        }
        if !seg.has(seg_flag::LOST) {
            hot.sender.pipe = hot.sender.pipe.saturating_sub(part);
        }
    }

    /// Adjusts the window for an acknowledgement of new data, where nothing is missing or the peer does not SACK.
    #[inline(always)]
    fn grow_or_recover(&mut self, p: &Parsed, acked: u32, dup_acks: u8) {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let mss = u32::from(cold.payload_mss());
        if !hot.has(hot_flag::RECOVERY) {
            // Each duplicate has told of a segment before, and limited transmit has answered it.
            let told = (u32::from(dup_acks) * mss).min(acked - acked.min(mss));
            window::on_ack(hot, cold, acked - told, self.env.now_ms);
        } else if p.ack().ge(hot.loss.recover) {
            window::leave_recovery(hot, cold);
        } else {
            reno::on_partial_ack(&mut hot.congestion, mss, acked);
            self.mark_first_lost();
        }
    }

    /// An acknowledgement of nothing new: perhaps a duplicate (RFC 5681 section 2), perhaps one that brings SACKs.
    #[inline(never)]
    fn same_ack(&mut self, p: &Parsed, acked: i32, summary: Option<&AckSummary>) {
        if self.hot.sender.flight.is_empty() {
            return;
        }
        if self.tcb.has(flag::SACK) {
            // Duplicates are not counted, SACKs are (RFC 6675 section 5; RFC 8985 section 6).
            if let Some(summary) = summary.filter(|_| self.hot.loss.recovery.is_some()) {
                self.take_probe_ack(p, summary);
                self.measure(p, &Acked::default(), summary.sacked_sent_us());
                self.repair(summary);
            }
        } else if acked == 0 {
            self.duplicate_ack(p);
        }
    }

    /// NewReno (RFC 6582 section 3.2).
    /// Keeps 5681-15, 5681-17.
    fn duplicate_ack(&mut self, p: &Parsed) {
        let cold = &*self.tcb;
        let mss = u32::from(cold.payload_mss());
        let same_window = u32::from(p.window()) << cold.send_scale() == cold.snd_wnd();
        let hot = &mut *self.hot;
        if p.space() > 0 || !same_window {
            return;
        }
        if hot.doubted {
            self.duplicate_after_timeout();
            return;
        }
        hot.dup_acks = hot.dup_acks.saturating_add(1);
        if hot.has(hot_flag::RECOVERY) {
            let flight = (hot.loss.recover - hot.sender.snd_una).max(0) as u32;
            reno::on_duplicate(&mut hot.congestion, mss, flight);
        } else if hot.dup_acks == DUP_THRESHOLD && (p.ack() - hot.loss.recover) >= 0 {
            hot.loss.recover = cold.snd_nxt;
            window::on_loss(hot, cold);
            reno::enter_recovery(&mut hot.congestion, mss);
            hot.set(hot_flag::RECOVERY);
            self.env.counters.fast_retransmits += 1;
            self.mark_first_lost();
        }
        self.queue();
    }

    /// The first segment in flight is to be sent again.
    fn mark_first_lost(&mut self) {
        let head = self.hot.sender.flight.head;
        if head.is_some() && !self.blocks.segments[head].has(seg_flag::LOST) {
            self.mark_lost(head);
        }
    }

    /// Our FIN is acknowledged: the state moves on.
    fn fin_acknowledged(&mut self, p: &Parsed) {
        match self.tcb.state {
            State::FinWait1 if self.tcb.has(flag::ORPHAN) && self.waits_for_no_fin() => {
                self.reset_reply(p);
                self.end(EndReason::Orderly);
            }
            State::FinWait1 => self.tcb.state = State::FinWait2,
            State::Closing => self.linger(Linger::TimeWait),
            State::LastAck => self.end(EndReason::Orderly),
            _ => {}
        }
    }
}

impl Tcb {
    /// SND.WND, from a segment that is not older than the last that set it. False when it is older.
    #[inline(always)]
    pub(crate) fn take_window(&mut self, p: &Parsed, acked: i32) -> bool {
        let newer = acked != 0 || p.seq().ge(self.rcv_nxt);
        if newer {
            self.set_snd_wnd(u32::from(p.window()) << self.send_scale());
        }
        newer
    }
}
