//! Sender state that is kept only while a segment may be missing, and the order in which an acknowledgement is
//! worked off then: probe (`tlp`), losses (`rack`), window (`prr`). The scoreboard itself is in `sack`. RFC 6675's
//! rules for which segment is lost, its NextSeg() and its rescue retransmission are superseded by RACK-TLP (RFC 8985
//! section 1 and 9.3), its definition of the pipe is kept: neither what was SACKed nor what is lost counts, what was
//! sent again does.
//!
//! The block is attached to a hot block by the first SACK, probe or timeout, and goes with it. So a connection
//! without losses pays nothing, and an idle one keeps nothing but the bit that says that its network reorders (in the
//! cold TCB): with nothing in flight there is no segment whose loss RACK's times could tell; the smallest round trip
//! starts from the smoothed one, which is too large at worst, so that more is waited; and a reordering window that
//! D-SACK had widened is widened again by the next.

use janus_wire::SeqNum;

use crate::conn::Conn;
use crate::conn::loss::rttm::Acked;
use crate::conn::loss::{AckSummary, rack, window};
use crate::store::hot::hot_flag;
use crate::store::keys::{RecoveryId, SegId};
use crate::store::recovery::{Recovery, Undo, rec_flag};
use crate::store::segment::seg_flag;

impl Conn<'_> {
    /// The recovery block of a hot block, attached if it has none; `None` when there is no memory for one.
    pub(crate) fn attach_recovery(&mut self) -> Option<RecoveryId> {
        if self.hot.loss.recovery.is_none() {
            let block = self.blocks.recovery.alloc()?;
            self.blocks.recovery[block] = Recovery {
                delivered_to: self.hot.sender.snd_una,
                ..Recovery::default()
            };
            self.hot.loss.recovery = Some(block);
        }
        self.hot.loss.recovery
    }

    /// Gives the recovery block back, when there is one.
    #[inline(always)]
    pub(crate) fn detach_recovery(&mut self) {
        let hot = &*self.hot;
        if hot.loss.recovery.is_some() || hot.doubted {
            self.forget_losses();
        }
    }

    #[inline(never)]
    fn forget_losses(&mut self) {
        if let Some(block) = self.hot.loss.recovery.take() {
            self.blocks.recovery.free(block);
        }
        if self.hot.doubted {
            self.doubt_is_over();
        }
    }

    /// An acknowledgement was read, for a connection that uses SACK and where something is or was missing: what is
    /// lost now, and how much may be sent.
    /// Keeps 5681-13, 6675-12, 6675-14, 6675-20, 8985-11, 8985-2.
    pub(crate) fn repair(&mut self, summary: &AckSummary) {
        let block = self.hot.loss.recovery;
        self.blocks.recovery[block].advance(summary, self.env.now_us);
        self.undo_if_spurious(summary);
        self.judge_timeout(block, summary);
        let ended = self.end_recovery();
        self.widen_reordering(summary);
        let lost = self.detect_losses();
        let (hot, rec) = (&mut *self.hot, &self.blocks.recovery[block]);
        // A loss for another reason, as a path that has shrunk, is no sign of congestion.
        let found = lost.bytes > 0 || (ended && rec.lost > 0);
        if found && !hot.has(hot_flag::RECOVERY) && !rec.has(rec_flag::TIMED_OUT) {
            self.enter_recovery(summary.delivered);
        }
        let cold = &*self.tcb;
        let (hot, rec) = (&mut *self.hot, &mut self.blocks.recovery[block]);
        if hot.has(hot_flag::RECOVERY) {
            let safe = summary.advanced && lost.bytes == 0;
            rec.prr_on_ack(
                &mut hot.congestion,
                hot.sender.pipe,
                u32::from(cold.payload_mss()),
                summary.delivered,
                safe,
            );
        } else if summary.advanced {
            window::on_ack(hot, cold, summary.delivered, self.env.now_ms);
        }
        if summary.advanced || summary.sacked || lost.bytes > 0 {
            self.arm_retransmission(summary.advanced);
        }
        if let Some(wait) = lost.wait {
            self.arm_reordering(wait);
        }
        if summary.advanced && self.has_reneged() {
            self.hasten_timeout();
        }
    }

    /// Losses were found: recovery begins (RFC 6675 section 5, RFC 9293 3.8.2 by RFC 5681). `delivered` is what the
    /// acknowledgement that showed them has delivered.
    /// Keeps 2018-5, 5681-22, 5681-25.
    pub(crate) fn enter_recovery(&mut self, delivered: u32) {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        rec.undo = Undo::begin(hot, rec.resent);
        hot.loss.recover = cold.snd_nxt;
        window::on_loss(hot, cold);
        hot.set(hot_flag::RECOVERY);
        rec.clear(rec_flag::PROBED | rec_flag::PROBE_DUE);
        rec.prr_begin(hot.sender.flight.bytes, delivered);
        self.env.counters.fast_retransmits += 1;
    }

    /// Once all that was sent before the loss was found is acknowledged, recovery, or what a timeout began, is over.
    /// True when a recovery was.
    /// Keeps 6675-13.
    fn end_recovery(&mut self) -> bool {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        if hot.sender.snd_una.lt(hot.loss.recover) {
            return false;
        }
        let ended = hot.has(hot_flag::RECOVERY);
        if ended {
            window::leave_recovery(hot, cold);
            // RFC 9937 section 6.3: what PRR has let out is ssthresh by now; a window below it would stall.
            hot.congestion.fall_to_threshold();
            rec.recovered();
        }
        rec.clear(rec_flag::TIMED_OUT | rec_flag::DOUBTED | rec_flag::NEW_FIRST);
        ended
    }

    /// A segment of `flight` is acknowledged, which may be SACKed, lost or sent again.
    pub(crate) fn acknowledge_marked(
        &mut self,
        at: Option<SegId>,
        summary: &mut AckSummary,
        acked: &mut Acked,
    ) {
        let (hot, seg) = (&mut *self.hot, &self.blocks.segments[at]);
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        let len = u32::from(seg.len);
        if seg.has(seg_flag::SACKED) {
            // It was delivered before, and its round trip measured then.
            rec.sacked -= 1;
            rec.sacked_bytes -= len;
            return;
        }
        let resent = seg.has(seg_flag::RESENT);
        summary.original |= !resent && seg.end().le(hot.loss.recover);
        if seg.has(seg_flag::LOST) {
            rec.lost = rec.lost.saturating_sub(1);
        } else {
            rec.resent = rec.resent.saturating_sub(u32::from(resent));
            hot.sender.pipe = hot.sender.pipe.saturating_sub(len);
        }
        summary.delivered += len;
        let age_us = self.env.now_us.wrapping_sub(seg.sent_us);
        acked.add(age_us, resent);
        rack::deliver(rec, hot, seg, summary.echo_age_ms, self.env.now, summary);
    }

    /// Forgets places in the flight list that `ack` is about to free.
    pub(crate) fn forget_places(&mut self, ack: SeqNum) {
        let rec = &mut self.blocks.recovery[self.hot.loss.recovery];
        for place in [&mut rec.sack_hint, &mut rec.lost_from, &mut rec.decided] {
            if place.is_some() && self.blocks.segments[*place].end().le(ack) {
                *place = None;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
