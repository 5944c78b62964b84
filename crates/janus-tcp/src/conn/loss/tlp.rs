//! RFC 8985, the TLP half: when the end of a flight stays unacknowledged for two round trips, one segment more brings
//! forth an acknowledgement from which RACK can tell what is lost, long before the retransmission timeout.

use core::time::Duration;

use crate::conn::loss::AckSummary;
use crate::conn::loss::window;
use crate::conn::{Conn, Flushed};
use crate::store::cold::{Tcb, flag};
use crate::store::hot::{Hot, TimerKind, hot_flag};
use crate::store::keys::SegId;
use crate::store::recovery::rec_flag;
use crate::store::rto;
use crate::store::segment::seg_flag;
use crate::time::{Instant, nanos};
use crate::wire::Wire;
use crate::wire::parse::Parsed;

/// The longest a peer may hold back the acknowledgement of a single segment (TLP.max_ack_delay, section 7.2; as Linux).
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// A peer's scheduling and ours: where the round trip is microseconds, so much later is still soon (as Linux).
const LEAST_SLACK: Duration = Duration::from_millis(2);
/// PTO before a round trip was measured.
const UNMEASURED: Duration = Duration::from_secs(1);

/// PTO of section 7.2, in nanoseconds.
#[inline]
fn probe_timeout_ns(cold: &Tcb, hot: &Hot) -> u64 {
    if cold.srtt_us() == 0 {
        return nanos(UNMEASURED);
    }
    let slack = if hot.sender.flight.count == 1 {
        MAX_ACK_DELAY
    } else {
        LEAST_SLACK
    };
    2_000 * u64::from(cold.srtt_us()) + nanos(slack)
}

impl Conn<'_> {
    /// A probe waits to be sent.
    #[inline]
    pub(crate) fn has_probe_due(&self) -> bool {
        let block = self.hot.loss.recovery;
        block.is_some() && self.blocks.recovery[block].has(rec_flag::PROBE_DUE)
    }

    /// When the probe is to go out, when one may (section 7.2): nothing is known to be missing, and none is out.
    /// Keeps 8985-5, 8985-6.
    #[inline(always)]
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        let (cold, hot) = (&*self.tcb, &*self.hot);
        if !self.rules.config().tail_loss_probe
            || !cold.has(flag::SACK)
            || hot.has(hot_flag::RECOVERY)
            || hot.has(hot_flag::LOSSES)
        {
            return None;
        }
        if hot.loss.recovery.is_some() {
            let rec = &self.blocks.recovery[hot.loss.recovery];
            if rec.sacked > 0 || rec.has(rec_flag::TIMED_OUT | rec_flag::PROBED) {
                return None;
            }
        }
        Some(self.env.now.after_nanos(probe_timeout_ns(cold, hot)))
    }

    /// PTO has expired.
    /// Keeps 8985-7, 8985-9.
    pub(crate) fn on_probe_timeout(&mut self) {
        let due = self.probe_at().is_some() && !self.hot.sender.flight.is_empty();
        let block = due.then(|| self.attach_recovery()).flatten();
        if let Some(block) = block {
            self.blocks.recovery[block].set(rec_flag::PROBE_DUE);
            self.queue();
        }
        // Whether or not the probe can go out, the timeout comes next (section 7.3).
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        hot.timers.rto_at = self.env.now.after_nanos(rto::timeout_ns(
            cold,
            self.rules.waits(),
            hot.timers.backoff,
        ));
        hot.timers.due_at = hot.timers.rto_at;
        hot.timers.timer_kind = TimerKind::Rto;
        self.hurry();
    }

    /// The probe (section 7.3): a new segment if there is one and the peer has room for it, whatever the congestion
    /// window and Nagle's algorithm say; else the last one again, unless it is still on its way out.
    /// Keeps 6675-6.
    pub(crate) fn send_probe(&mut self, wire: &mut Wire<'_>) -> Flushed {
        let block = self.hot.loss.recovery;
        if wire.is_full() {
            return Flushed::Part;
        }
        self.blocks.recovery[block].clear(rec_flag::PROBE_DUE);
        let (cold, hot) = (&*self.tcb, &*self.hot);
        let (new, tail) = (hot.sender.unsent.head, hot.sender.flight.tail);
        if new.is_some() && u32::from(self.blocks.segments[new].len) <= hot.usable_window(cold) {
            let mss = cold.payload_mss();
            self.send_first_unsent(mss, wire);
        } else if self.may_repeat(tail) {
            let seg = &mut self.blocks.segments[tail];
            let rec = &mut self.blocks.recovery[block];
            rec.resent += u32::from(!seg.has(seg_flag::RESENT));
            rec.last_resent = seg.seq;
            rec.set(rec_flag::PROBE_REPEATS);
            seg.flags |= seg_flag::RESENT;
            self.env.counters.retransmissions += 1;
            self.send_segment(tail, wire);
        } else {
            return Flushed::All;
        }
        let rec = &mut self.blocks.recovery[block];
        rec.set(rec_flag::PROBED);
        rec.probe_end = self.tcb.snd_nxt;
        self.env.counters.tail_probes += 1;
        Flushed::All
    }

    /// Whether a segment can go out as it is: it is at home, and fits the path.
    fn may_repeat(&self, at: Option<SegId>) -> bool {
        at.is_some()
            && !self.blocks.segments[at].has(seg_flag::AWAY)
            && self.blocks.segments[at].len <= self.tcb.payload_mss()
    }

    /// Reads from an acknowledgement the fate of the probe (section 7.4.2). Read before anything is taken out of flight.
    /// Keeps 8985-10.
    pub(crate) fn take_probe_ack(&mut self, p: &Parsed, summary: &AckSummary) {
        let block = self.hot.loss.recovery;
        let rec = &mut self.blocks.recovery[block];
        if !rec.has(rec_flag::PROBED) || p.ack().lt(rec.probe_end) {
            return;
        }
        let end = rec.probe_end;
        let repeats = rec.has(rec_flag::PROBE_REPEATS);
        let twice = summary.duplicate.is_some_and(|(_, right)| right == end);
        let cold = &*self.tcb;
        let same_window = u32::from(p.window()) << cold.send_scale() == cold.snd_wnd();
        let bare = p.space() == 0 && same_window && !summary.sacked && !summary.advanced;
        // Both copies came, or the probe was new data: nothing was lost.
        let harmless = !repeats || twice;
        let repaired = !harmless && p.ack().gt(end);
        if !(harmless || repaired || bare) {
            return;
        }
        rec.clear(rec_flag::PROBED | rec_flag::PROBE_REPEATS);
        if repaired {
            // The probe itself repaired a loss, which went unnoticed: the network was congested all the same.
            self.env.counters.tail_losses += 1;
            let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
            window::on_loss(hot, cold);
            hot.congestion.fall_to_threshold();
        }
    }
}
