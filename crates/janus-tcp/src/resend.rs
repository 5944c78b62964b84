//! Sending again: what a retransmission timeout makes of the segments in flight (RFC 6298 section 5.4, RFC 8985
//! section 6.3), the one deadline that timeout, probe and reordering window share, and the lost segments' way out.
//! Which segments are lost otherwise is said by `rack` and, without SACK, by `arrives/ack`.

use core::time::Duration;

use janus_mem::Frame;

use crate::cold::{NONE, flag};
use crate::congestion;
use crate::hot::{TimerKind, hot_flag};
use crate::output::Said;
use crate::recovery::rec_flag;
use crate::rto;
use crate::segment::seg_flag;
use crate::stack::Stack;
use crate::time::Instant;
use crate::undo::Undo;

/// Segments that are not lost stepped over in one turn in search of lost ones. The search goes on with the next
/// acknowledgement, and there will be one: so many are in flight.
const WALK_MAX: u32 = 1_024;
/// The least wait before a peer that seems to have thrown away what it SACKed is believed to have (as Linux).
const RENEGED_WAIT: Duration = Duration::from_millis(10);

impl Stack {
    /// Sets the deadline for what is in flight: the retransmission timeout, counted from now if `restart`
    /// (RFC 6298 sections 5.1 to 5.3), or a tail loss probe before it, never after it (RFC 8985 section 7.2).
    #[inline(always)]
    pub(crate) fn arm_retransmission(&mut self, conn: u32, id: u32, restart: bool, now: Instant) {
        let hot = &mut self.store.hot[id];
        hot.timer_kind = TimerKind::Rto;
        if hot.flight.is_empty() {
            (hot.rto_at, hot.rtx_at) = (Instant::ZERO, Instant::ZERO);
            if hot.has(hot_flag::STARVED) {
                self.persist(id);
            }
        } else {
            self.arm_for_flight(conn, id, restart, now);
        }
    }

    #[inline(never)]
    fn arm_for_flight(&mut self, conn: u32, id: u32, restart: bool, now: Instant) {
        let (cold, hot) = (&self.store.tcbs[conn], &mut self.store.hot[id]);
        if restart || hot.rtx_at == Instant::ZERO {
            hot.rtx_at = now.after_nanos(rto::timeout_ns(cold, &self.rules.config, hot.backoff));
        }
        hot.rto_at = hot.rtx_at;
        if let Some(at) = self.probe_at(conn, id, now) {
            let hot = &mut self.store.hot[id];
            hot.rto_at = at.min(hot.rtx_at);
            hot.timer_kind = TimerKind::Tlp;
        }
    }

    /// Some segments may only be late: they are looked at again after `wait`, unless the timeout comes first.
    pub(crate) fn arm_reordering(&mut self, id: u32, wait: Duration, now: Instant) {
        let hot = &mut self.store.hot[id];
        let at = now + wait;
        if at < hot.rtx_at {
            hot.rto_at = at;
            hot.timer_kind = TimerKind::Reorder;
        }
    }

    /// The peer seems to have reneged. It may be the acknowledgement that is odd, so a little is waited, but not the
    /// whole timeout.
    pub(crate) fn hasten_timeout(&mut self, conn: u32, id: u32, now: Instant) {
        let half = Duration::from_micros(u64::from(self.store.tcbs[conn].srtt_us() / 2));
        let hot = &mut self.store.hot[id];
        hot.rtx_at = hot.rtx_at.min(now + half.max(RENEGED_WAIT));
        hot.rto_at = hot.rtx_at;
        hot.timer_kind = TimerKind::Rto;
    }

    /// The timeout for data in flight: what is to be sent again, and the window for it. `first`: not again for the
    /// same segment.
    pub(crate) fn on_data_timeout(&mut self, conn: u32, id: u32, first: bool, now: Instant) {
        let repairs = self.store.tcbs[conn].has(flag::SACK) && self.attach_recovery(id).is_some();
        if repairs {
            let hot = &self.store.hot[id];
            let block = hot.recovery;
            let rec = &mut self.store.blocks.recovery[block];
            let repairing = hot.has(hot_flag::RECOVERY) || rec.has(rec_flag::TIMED_OUT);
            if !repairing {
                rec.undo = Undo::begin(hot, rec.resent);
            }
            self.doubt_timeout(id, block, repairing);
        } else {
            self.doubt_plain_timeout(id);
        }
        let (cold, hot) = (&self.store.tcbs[conn], &mut self.store.hot[id]);
        congestion::on_timeout(hot, cold, first);
        hot.recover = cold.snd_nxt;
        hot.dup_acks = 0;
        if repairs {
            self.mark_timed_out(conn, id, now);
            return;
        }
        let mut at = self.store.hot[id].flight.head;
        while at != NONE {
            if !self.store.blocks.segments[at].has(seg_flag::LOST) {
                self.mark_lost(id, at);
            }
            at = self.store.blocks.segments[at].next;
        }
        self.store.hot[id].pipe = 0;
    }

    /// RACK_mark_losses_on_RTO() of RFC 8985 section 6.3: the first segment is lost, and all that are older than a
    /// round trip and the reordering window; what was sent a moment ago is not. What was SACKed stays so (RFC 6675
    /// section 5.1 keeps it in use after a timeout) unless the first segment is: then the peer has reneged, and
    /// nothing it said counts (RFC 2018 section 8). If it has reneged on another, that one will be first in time.
    fn mark_timed_out(&mut self, conn: u32, id: u32, now: Instant) {
        let block = self.store.hot[id].recovery;
        if self.has_reneged(id) {
            self.forget_sacked(id);
        }
        let srtt_us = self.store.tcbs[conn].srtt_us();
        let rec = &mut self.store.blocks.recovery[block];
        rec.clear(rec_flag::PROBED | rec_flag::PROBE_REPEATS | rec_flag::PROBE_DUE);
        rec.set(rec_flag::TIMED_OUT);
        let now_us = now.as_micros() as u32;
        rec.forget_stale(now_us);
        // Without RACK a timeout means that all of the flight is lost.
        let patience_us = match self.rules.config.rack {
            true => rec.patience_at_timeout(&self.store.hot[id], srtt_us),
            false => 0,
        };
        let head = self.store.hot[id].flight.head;
        let (mut at, mut decided) = (head, NONE);
        while at != NONE {
            let seg = &self.store.blocks.segments[at];
            if seg.has(seg_flag::SACKED) {
                at = self.store.blocks.segments.run_end(at).0;
            } else if !seg.has(seg_flag::LOST) {
                if at != head && now_us.wrapping_sub(seg.sent_us) < patience_us {
                    at = self.store.blocks.segments[at].next;
                    continue;
                }
                self.mark_lost(id, at);
                decided = at;
            } else {
                decided = at;
            }
            at = self.store.blocks.segments[at].next;
        }
        let rec = &mut self.store.blocks.recovery[block];
        rec.decided = decided;
        rec.lost_from = NONE;
        // One segment may go out beside those that are believed to be on their way still.
        let mss = u32::from(self.store.tcbs[conn].payload_mss());
        let hot = &mut self.store.hot[id];
        hot.cwnd = hot.pipe + mss;
    }

    /// Segments marked lost go out again, oldest first, as the congestion window lets them.
    pub(crate) fn resend_lost(
        &mut self,
        conn: u32,
        id: u32,
        now: Instant,
        out: &mut Vec<Frame>,
        end: usize,
    ) -> Said {
        let most = self.store.tcbs[conn].payload_mss();
        let block = self.store.hot[id].recovery;
        let from = match block {
            NONE => NONE,
            block => self.store.blocks.recovery[block].lost_from,
        };
        let mut at = match from {
            NONE => self.store.hot[id].flight.head,
            from => from,
        };
        let (mut steps, mut waits) = (0, false);
        while at != NONE {
            let seg = &self.store.blocks.segments[at];
            if seg.has(seg_flag::LOST) && seg.has(seg_flag::AWAY) {
                // Still on its way to the device: it is not sent twice at once. Its turn comes when it is home.
                waits = true;
            } else if seg.has(seg_flag::LOST) {
                if seg.len > most && !self.cut_before_resend(conn, id, at, now) {
                    return Said::All;
                }
                let len = u32::from(self.store.blocks.segments[at].len);
                let hot = &self.store.hot[id];
                // NewReno's repair goes out whatever limited transmit has sent (RFC 6582 section 3.2 steps 2 and 3).
                let exempt = block == NONE && hot.has(hot_flag::RECOVERY);
                // A bare FIN has no bytes, and is a packet all the same.
                let room = if len == 0 { most.into() } else { len };
                let held_back = !exempt && hot.pipe > 0 && hot.pipe + room > hot.cwnd;
                if held_back || out.len() >= end {
                    return if held_back { Said::All } else { Said::Part };
                }
                self.note_resent(conn, id, at, now);
                self.send_segment(conn, id, at, now, out);
            } else if block != NONE {
                steps += 1;
                self.counters.recovery_steps += 1;
                if steps > WALK_MAX {
                    return Said::All;
                }
                if seg.has(seg_flag::SACKED) {
                    at = self.store.blocks.segments.run_end(at).0;
                }
            }
            if block != NONE {
                let rec = &mut self.store.blocks.recovery[block];
                if !waits {
                    rec.lost_from = at;
                }
                if rec.lost == 0 {
                    break;
                }
            }
            at = self.store.blocks.segments[at].next;
        }
        if !waits {
            self.store.hot[id].clear(hot_flag::LOSSES);
        }
        Said::All
    }

    /// A lost segment is about to go out again.
    fn note_resent(&mut self, conn: u32, id: u32, at: u32, now: Instant) {
        self.counters.retransmissions += 1;
        let (cold, hot) = (&self.store.tcbs[conn], &mut self.store.hot[id]);
        let seg = &mut self.store.blocks.segments[at];
        seg.flags |= seg_flag::RESENT;
        hot.pipe += u32::from(seg.len);
        if at == hot.flight.head {
            // What the acknowledgement waits for has a whole timeout again.
            hot.rtx_at = now.after_nanos(rto::timeout_ns(cold, &self.rules.config, hot.backoff));
            if hot.timer_kind == TimerKind::Rto {
                hot.rto_at = hot.rtx_at;
            }
            self.hurry(conn, id, now);
        }
        let (hot, seg) = (&self.store.hot[id], &mut self.store.blocks.segments[at]);
        if hot.recovery == NONE {
            return;
        }
        let rec = &mut self.store.blocks.recovery[hot.recovery];
        rec.lost = rec.lost.saturating_sub(1);
        if rec.resent == 0 {
            rec.clear(rec_flag::UNSORTED);
        } else if seg.seq.lt(rec.last_resent) {
            rec.set(rec_flag::UNSORTED);
        }
        rec.resent += 1;
        rec.last_resent = seg.seq;
        rec.undo.note_repair(now);
        if hot.has(hot_flag::RECOVERY) {
            rec.prr_out = rec.prr_out.saturating_add(u32::from(seg.len));
        }
    }
}
