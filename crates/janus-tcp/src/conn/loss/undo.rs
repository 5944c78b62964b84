//! A recovery that was for nothing: the network only delayed what was taken for lost, and the window is given back.
//! Two signs are heeded here, as in Linux. With timestamps the first acknowledgement that goes on after a repair tells by
//! its echo which transmission it is for (Eifel, RFC 3522 section 3.2, response by RFC 4015). And when the peer has
//! reported each repair as received twice (D-SACK, RFC 2883 section 5; RFC 3708), all of them were for nothing.
//! A third one, of timeouts, is F-RTO's (`frto`).

use janus_wire::SeqNum;

use crate::conn::Conn;
use crate::conn::loss::AckSummary;
use crate::store::hot::{Hot, hot_flag};
use crate::store::keys::RecoveryId;
use crate::store::recovery::{Undo, rec_flag};
use crate::store::segment::seg_flag;

impl Undo {
    /// The window is about to be lowered, for the first time in this recovery.
    pub(crate) fn begin(hot: &Hot, resent: u32) -> Undo {
        Undo {
            cwnd: hot.congestion.cwnd(),
            ssthresh: hot.congestion.ssthresh(),
            growth: hot.congestion.growth(),
            from: hot.sender.snd_una,
            // A probe that repeated something is a repair, too.
            unreported: resent,
            ..Undo::default()
        }
    }

    /// A segment is sent again.
    pub(crate) fn note_repair(&mut self, now_ms: u32) {
        if !self.repaired {
            self.repaired = true;
            self.repaired_ms = now_ms;
        }
        self.unreported = self.unreported.saturating_add(1);
    }

    /// Whether the acknowledgement shows that nothing was lost of what was sent before `recover`.
    fn is_due(&mut self, summary: &AckSummary, recover: SeqNum, now_ms: u32) -> bool {
        if self.cwnd == 0 || !self.repaired {
            return false;
        }
        let reported = summary
            .duplicate
            .is_some_and(|(left, right)| left.ge(self.from) && right.le(recover));
        if reported {
            self.unreported = self.unreported.saturating_sub(1);
            if self.unreported == 0 {
                return true;
            }
        }
        if !summary.advanced || !core::mem::replace(&mut self.first, false) {
            return false;
        }
        // An acknowledgement that advances SND.UNA is for the transmission whose timestamp it echoes: one before the first repair.
        let since_repair_ms = now_ms.wrapping_sub(self.repaired_ms);
        summary.echo_age_ms.is_some_and(|age| age > since_repair_ms)
    }
}

impl Conn<'_> {
    /// Gives the window back when an acknowledgement shows that nothing was lost.
    pub(crate) fn undo_if_spurious(&mut self, summary: &AckSummary) {
        let block = self.hot.loss.recovery;
        let recover = self.hot.loss.recover;
        let spurious = self.timeout_was_spurious(block, summary);
        let undo = &mut self.blocks.recovery[block].undo;
        let due = undo.is_due(summary, recover, self.env.now_ms) || spurious && undo.cwnd > 0;
        if !due {
            return;
        }
        self.give_window_back(block);
        let after_timeout = rec_flag::TIMED_OUT | rec_flag::DOUBTED | rec_flag::NEW_FIRST;
        self.blocks.recovery[block].clear(after_timeout);
        self.unmark_lost();
    }

    /// The window is what it was when `block` noted it, or more. False when it noted nothing.
    pub(crate) fn give_window_back(&mut self, block: Option<RecoveryId>) -> bool {
        let undo = core::mem::take(&mut self.blocks.recovery[block].undo);
        if undo.cwnd == 0 {
            return false;
        }
        self.env.counters.recoveries_undone += 1;
        let mss = u32::from(self.tcb.payload_mss());
        let hot = &mut *self.hot;
        hot.congestion
            .give_back(undo.cwnd.max(mss), undo.ssthresh, undo.growth);
        hot.loss.recover = hot.sender.snd_una;
        hot.clear(hot_flag::RECOVERY);
        true
    }

    /// Segments believed lost are believed to be in flight again. They count among what was sent again from now on, as
    /// that is where RACK looks for what stands in no order of time.
    fn unmark_lost(&mut self) {
        let hot = &mut *self.hot;
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        let mut at = hot.sender.flight.head;
        while rec.lost > 0 && at.is_some() {
            let seg = &mut self.blocks.segments[at];
            if seg.has(seg_flag::LOST) {
                seg.flags = seg.flags & !seg_flag::LOST | seg_flag::RESENT;
                hot.sender.pipe += u32::from(seg.len);
                rec.lost -= 1;
                rec.resent += 1;
            }
            at = seg.next;
        }
        rec.lost = 0;
        rec.lost_from = None;
        rec.set(rec_flag::UNSORTED);
        hot.clear(hot_flag::LOSSES);
    }
}
