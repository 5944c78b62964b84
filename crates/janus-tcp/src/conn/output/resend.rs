//! Sending again: what a retransmission timeout makes of the segments in flight (RFC 6298 section 5.4, RFC 8985
//! section 6.3), the one deadline that timeout, probe and reordering window share, and the lost segments' way out.
//! Which segments are lost otherwise is said by `rack` and, without SACK, by `arrives/ack`.

use core::time::Duration;

use crate::conn::loss::window;
use crate::conn::{Conn, Flushed};
use crate::store::cold::flag;
use crate::store::hot::{TimerKind, hot_flag};
use crate::store::keys::SegId;
use crate::store::recovery::{Undo, rec_flag};
use crate::store::rto;
use crate::store::segment::seg_flag;
use crate::time::Instant;
use crate::wire::Wire;

/// Segments that are not lost stepped over in one turn in search of lost ones. The search goes on with the next
/// acknowledgement, and there will be one: so many are in flight.
const WALK_MAX: u32 = 1_024;
/// The least wait before a peer that seems to have thrown away what it SACKed is believed to have (as Linux).
const RENEGED_WAIT: Duration = Duration::from_millis(10);

impl Conn<'_> {
    /// Sets the deadline for what is in flight: the retransmission timeout, counted from now if `restart`
    /// (RFC 6298 sections 5.1 to 5.3), or a tail loss probe before it, never after it (RFC 8985 section 7.2).
    /// Keeps 6298-10.
    #[inline(always)]
    pub(crate) fn arm_retransmission(&mut self, restart: bool) {
        let hot = &mut *self.hot;
        hot.timers.timer_kind = TimerKind::Rto;
        if hot.sender.flight.is_empty() {
            (hot.timers.due_at, hot.timers.rto_at) = (Instant::NEVER, Instant::NEVER);
            if hot.has(hot_flag::STARVED) {
                self.persist();
            }
        } else {
            self.arm_for_flight(restart);
        }
    }

    #[inline(always)]
    fn arm_for_flight(&mut self, restart: bool) {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        if restart || hot.timers.rto_at == Instant::NEVER {
            hot.timers.rto_at = self.env.now.after_nanos(rto::timeout_ns(
                cold,
                self.rules.waits(),
                hot.timers.backoff,
            ));
        }
        hot.timers.due_at = hot.timers.rto_at;
        if let Some(at) = self.probe_at() {
            let hot = &mut *self.hot;
            hot.timers.due_at = at.min(hot.timers.rto_at);
            hot.timers.timer_kind = TimerKind::Tlp;
        }
    }

    /// Some segments may only be late: they are looked at again after `wait`, unless the timeout comes first.
    pub(crate) fn arm_reordering(&mut self, wait: Duration) {
        let hot = &mut *self.hot;
        let at = self.env.now + wait;
        if at < hot.timers.rto_at {
            hot.timers.due_at = at;
            hot.timers.timer_kind = TimerKind::Reorder;
        }
    }

    /// The peer seems to have reneged. It may be the acknowledgement that is odd, so a little is waited, but not the
    /// whole timeout.
    pub(crate) fn hasten_timeout(&mut self) {
        let half = Duration::from_micros(u64::from(self.tcb.srtt_us() / 2));
        let hot = &mut *self.hot;
        hot.timers.rto_at = hot.timers.rto_at.min(self.env.now + half.max(RENEGED_WAIT));
        hot.timers.due_at = hot.timers.rto_at;
        hot.timers.timer_kind = TimerKind::Rto;
    }

    /// The timeout for data in flight: what is to be sent again, and the window for it. `first`: not again for the
    /// same segment.
    /// Keeps 6675-18, 6675-19.
    pub(crate) fn on_data_timeout(&mut self, first: bool) {
        let repairs = self.tcb.has(flag::SACK) && self.attach_recovery().is_some();
        if repairs {
            let hot = &*self.hot;
            let block = hot.loss.recovery;
            let rec = &mut self.blocks.recovery[block];
            let repairing = hot.has(hot_flag::RECOVERY) || rec.has(rec_flag::TIMED_OUT);
            if !repairing {
                rec.undo = Undo::begin(hot, rec.resent);
            }
            self.doubt_timeout(block, repairing);
        } else {
            self.doubt_plain_timeout();
        }
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        window::on_timeout(hot, cold, first);
        hot.loss.recover = cold.snd_nxt;
        hot.dup_acks = 0;
        if repairs {
            self.mark_timed_out();
            return;
        }
        let mut at = self.hot.sender.flight.head;
        while at.is_some() {
            if !self.blocks.segments[at].has(seg_flag::LOST) {
                self.mark_lost(at);
            }
            at = self.blocks.segments[at].next;
        }
        self.hot.sender.pipe = 0;
    }

    /// RACK_mark_losses_on_RTO() of RFC 8985 section 6.3: the first segment is lost, and all that are older than a
    /// round trip and the reordering window; what was sent a moment ago is not. What was SACKed stays so (RFC 6675
    /// section 5.1 keeps it in use after a timeout) unless the first segment is: then the peer has reneged, and
    /// nothing it said counts (RFC 2018 section 8). If it has reneged on another, that one will be first in time.
    /// Keeps 2018-4, 2018-6, 5681-11, 6675-17.
    fn mark_timed_out(&mut self) {
        let block = self.hot.loss.recovery;
        if self.has_reneged() {
            self.forget_sacked();
        }
        let srtt_us = self.tcb.srtt_us();
        let rec = &mut self.blocks.recovery[block];
        rec.clear(rec_flag::PROBED | rec_flag::PROBE_REPEATS | rec_flag::PROBE_DUE);
        rec.set(rec_flag::TIMED_OUT);
        let now_us = self.env.now_us;
        rec.forget_stale(now_us);
        // Without RACK a timeout means that all of the flight is lost.
        let patience_us = match self.rules.config().rack {
            true => rec.patience_at_timeout(self.hot, srtt_us),
            false => 0,
        };
        let head = self.hot.sender.flight.head;
        let (mut at, mut decided) = (head, None);
        while at.is_some() {
            let seg = &self.blocks.segments[at];
            if seg.has(seg_flag::SACKED) {
                at = self.blocks.segments.run_end(at).0;
            } else if !seg.has(seg_flag::LOST) {
                if at != head && now_us.wrapping_sub(seg.sent_us) < patience_us {
                    at = self.blocks.segments[at].next;
                    continue;
                }
                self.mark_lost(at);
                decided = at;
            } else {
                decided = at;
            }
            at = self.blocks.segments[at].next;
        }
        let rec = &mut self.blocks.recovery[block];
        rec.decided = decided;
        rec.lost_from = None;
        // One segment may go out beside those that are believed to be on their way still.
        let mss = u32::from(self.tcb.payload_mss());
        let hot = &mut *self.hot;
        hot.congestion.allow(hot.sender.pipe + mss);
    }

    /// Segments marked lost go out again, oldest first, as the congestion window lets them.
    /// Keeps 6675-15, 6675-3, 6675-8, 8985-12, MAY-7.
    pub(crate) fn resend_lost(&mut self, wire: &mut Wire<'_>) -> Flushed {
        let most = self.tcb.payload_mss();
        let block = self.hot.loss.recovery;
        let from = block.and_then(|block| self.blocks.recovery[block].lost_from);
        let mut at = from.or(self.hot.sender.flight.head);
        let (mut steps, mut waits) = (0, false);
        while at.is_some() {
            let seg = &self.blocks.segments[at];
            if seg.has(seg_flag::LOST) && seg.has(seg_flag::AWAY) {
                // Still on its way to the device: it is not sent twice at once. Its turn comes when it is home.
                waits = true;
            } else if seg.has(seg_flag::LOST) {
                if seg.len > most && !self.cut_before_resend(at) {
                    return Flushed::All;
                }
                let len = u32::from(self.blocks.segments[at].len);
                let hot = &*self.hot;
                // NewReno's repair goes out whatever limited transmit has sent (RFC 6582 section 3.2 steps 2 and 3).
                let exempt = block.is_none() && hot.has(hot_flag::RECOVERY);
                // A bare FIN has no bytes, and is a packet all the same.
                let room = if len == 0 { most.into() } else { len };
                let held_back = !exempt
                    && hot.sender.pipe > 0
                    && hot.sender.pipe + room > hot.congestion.cwnd();
                if held_back || wire.is_full() {
                    return if held_back {
                        Flushed::All
                    } else {
                        Flushed::Part
                    };
                }
                self.note_resent(at);
                self.send_segment(at, wire);
            } else if block.is_some() {
                steps += 1;
                self.env.counters.recovery_steps += 1;
                if steps > WALK_MAX {
                    return Flushed::All;
                }
                if seg.has(seg_flag::SACKED) {
                    at = self.blocks.segments.run_end(at).0;
                }
            }
            if block.is_some() {
                let rec = &mut self.blocks.recovery[block];
                if !waits {
                    rec.lost_from = at;
                }
                if rec.lost == 0 {
                    break;
                }
            }
            at = self.blocks.segments[at].next;
        }
        if !waits {
            self.hot.clear(hot_flag::LOSSES);
        }
        Flushed::All
    }

    /// A lost segment is about to go out again.
    fn note_resent(&mut self, at: Option<SegId>) {
        self.env.counters.retransmissions += 1;
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let seg = &mut self.blocks.segments[at];
        seg.flags |= seg_flag::RESENT;
        hot.sender.pipe += u32::from(seg.len);
        if at == hot.sender.flight.head {
            // The first segment in flight has a whole timeout again.
            hot.timers.rto_at = self.env.now.after_nanos(rto::timeout_ns(
                cold,
                self.rules.waits(),
                hot.timers.backoff,
            ));
            if hot.timers.timer_kind == TimerKind::Rto {
                hot.timers.due_at = hot.timers.rto_at;
            }
            self.hurry();
        }
        let (hot, seg) = (&mut *self.hot, &mut self.blocks.segments[at]);
        if hot.loss.recovery.is_none() {
            return;
        }
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        rec.lost = rec.lost.saturating_sub(1);
        if rec.resent == 0 {
            rec.clear(rec_flag::UNSORTED);
        } else if seg.seq.lt(rec.last_resent) {
            rec.set(rec_flag::UNSORTED);
        }
        rec.resent += 1;
        rec.last_resent = seg.seq;
        rec.undo.note_repair(self.env.now_ms);
        if hot.has(hot_flag::RECOVERY) {
            rec.prr_out = rec.prr_out.saturating_add(u32::from(seg.len));
        }
    }
}
