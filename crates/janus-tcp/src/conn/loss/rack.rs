//! RFC 8985, the RACK half: a segment is lost when one sent a reordering window after it was delivered. Window
//! arithmetic is in `prr`, the probes that bring forth a last acknowledgement are in `tlp`, the marks in `sack`.
//!
//! No list by time of transmission is kept, as segments stand in it in two known stretches: what was sent once is in
//! order of its numbers, behind [`Recovery::decided`]; what was sent again stands before, in order too as long as
//! each repair goes forward. When it does not, the walk is bounded by [`RESENT_WALK_MAX`].

use core::time::Duration;

use crate::congestion::reno::DUP_THRESHOLD;
use crate::conn::Conn;
use crate::conn::loss::AckSummary;
use crate::store::cold::flag;
use crate::store::hot::{Hot, hot_flag};
use crate::store::keys::SegId;
use crate::store::recovery::{Recovery, Sent, rec_flag};
use crate::store::segment::{Segment, seg_flag};
use crate::time::Instant;
use crate::wire::parse::Parsed;

/// Segments looked at for one acknowledgement among those that were sent again. Those beyond it wait for a later
/// one, or for the timeout.
const RESENT_WALK_MAX: u32 = 256;
/// Recoveries for which a reordering window widened by D-SACK stays so (RACK.reo_wnd_persist, section 6.2 step 4).
const REO_PERSIST: u8 = 16;

/// Age from which on nothing is told by a delivery: half the round of a clock of 32 bits, as timeouts come every two minutes.
const STALE_US: u32 = 1 << 31;

/// Result of a look at the segments in flight.
#[derive(Clone, Copy, Default)]
pub(crate) struct Losses {
    /// Payload newly believed lost.
    pub(super) bytes: u32,
    /// When to look again: some may be lost, and are not old enough yet.
    pub(super) wait: Option<Duration>,
}

/// A segment in flight is delivered (section 6.2 steps 2 and 3). `echo_age_ms` is how long ago the timestamp was
/// sent that the peer echoes.
pub(crate) fn deliver(
    rec: &mut Recovery,
    hot: &mut Hot,
    seg: &Segment,
    echo_age_ms: Option<u32>,
    now: Instant,
    summary: &mut AckSummary,
) {
    let resent = seg.has(seg_flag::RESENT);
    let sent = Sent::of(seg);
    // Compared with what was delivered before this acknowledgement: what it tells at once is in no order.
    if !resent && sent.end.lt(rec.delivered_to) {
        hot.reordering_seen = true;
    }
    summary.end = Some(summary.end.map_or(sent.end, |end| end.later(sent.end)));
    if resent && is_ambiguous(sent, hot.loss.min_rtt_us, echo_age_ms, now) {
        return;
    }
    let now_us = now.as_micros() as u32;
    if summary
        .newest
        .is_none_or(|newest| sent.is_after(newest, now_us))
    {
        summary.newest = Some(sent);
    }
    summary.last_sent_us = sent.at_us;
}

/// Whether the acknowledgement may be for an earlier transmission (step 2): the peer echoes a timestamp from before
/// the last one, or answers sooner than was ever possible.
fn is_ambiguous(sent: Sent, min_rtt_us: u32, echo_age_ms: Option<u32>, now: Instant) -> bool {
    let rtt_us = (now.as_micros() as u32).wrapping_sub(sent.at_us);
    let sent_ms = (now.as_micros() - u64::from(rtt_us).min(now.as_micros())) / 1_000;
    let age_ms = now.as_millis() - sent_ms;
    echo_age_ms.is_some_and(|echo| u64::from(echo) > age_ms) || rtt_us < min_rtt_us
}

impl Recovery {
    /// All of an acknowledgement has been read: RACK.xmit_ts, RACK.end_seq, RACK.rtt and RACK.fack move on.
    pub(crate) fn advance(&mut self, summary: &AckSummary, now_us: u32) {
        if let Some(newest) = summary.newest {
            // Where one acknowledgement is for a repair and for what stands behind it, the round trip is that of the
            // latter, as Linux has it: the longer one, so that less is taken for lost.
            self.rtt_us = now_us.wrapping_sub(summary.last_sent_us).max(1);
            if !self.has(rec_flag::TIMED) || newest.is_after(self.newest, now_us) {
                self.newest = newest;
                self.set(rec_flag::TIMED);
            }
        }
        if let Some(end) = summary.end {
            self.delivered_to = self.delivered_to.later(end);
        }
    }

    /// Forgets a delivery from so long ago that the clock comes round before the next timeout: it would look like one of
    /// just now.
    pub(crate) fn forget_stale(&mut self, now_us: u32) {
        if self.newest.age_us(now_us) >= STALE_US {
            self.clear(rec_flag::TIMED);
        }
    }

    /// A recovery is over (step 4): in time a widened window is given up.
    pub(crate) fn recovered(&mut self) {
        self.reo_persist = self.reo_persist.saturating_sub(1);
        if self.reo_persist == 0 {
            self.reo_mult = 1;
        }
    }

    /// How old a segment must be at a timeout to count as lost: RACK.rtt + RACK.reo_wnd (section 6.3).
    pub(crate) fn patience_at_timeout(&self, hot: &Hot, srtt_us: u32) -> u32 {
        let rtt_us = if self.has(rec_flag::TIMED) {
            self.rtt_us
        } else {
            srtt_us
        };
        rtt_us.saturating_add(self.reordering_window(hot, srtt_us))
    }

    /// RACK_update_reo_wnd() of section 6.2 step 4. Without reordering seen, three segments SACKed mean a loss as
    /// they ever did (DupThresh), and in recovery nothing is waited for.
    /// Keeps 8985-1.
    fn reordering_window(&self, hot: &Hot, srtt_us: u32) -> u32 {
        let hasty = hot.has(hot_flag::RECOVERY)
            || self.has(rec_flag::TIMED_OUT)
            || self.sacked >= u32::from(DUP_THRESHOLD);
        if hasty && !hot.reordering_seen {
            return 0;
        }
        let min_rtt_us = match hot.loss.min_rtt_us {
            0 => srtt_us,
            us => us,
        };
        (min_rtt_us / 4)
            .saturating_mul(u32::from(self.reo_mult))
            .min(srtt_us)
    }
}

impl Conn<'_> {
    /// Milliseconds since the timestamp was sent that the segment echoes, at least: it may be older by less than a tick, so
    /// that of two transmissions in one tick the later is believed to have arrived.
    pub(crate) fn echo_age(&self, p: &Parsed) -> Option<u32> {
        let cold = &*self.tcb;
        let (_, echo) = p.timestamps().filter(|_| cold.has(flag::TIMESTAMPS))?;
        let age = self
            .rules
            .age_ms(self.hot.timers.stamps, self.env.now_ms, echo);
        // One from the future is no echo of ours.
        (age as i32 >= 0).then(|| age.saturating_sub(self.rules.secrets().stamps().slack_ms()))
    }

    /// A D-SACK says that something was sent again in vain: the window widens, once in a round trip.
    pub(crate) fn widen_reordering(&mut self, summary: &AckSummary) {
        let hot = &*self.hot;
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        if rec.has(rec_flag::DSACK_ROUND) && hot.sender.snd_una.ge(rec.dsack_round) {
            rec.clear(rec_flag::DSACK_ROUND);
        }
        if summary.duplicate.is_some() && !rec.has(rec_flag::DSACK_ROUND) {
            rec.set(rec_flag::DSACK_ROUND);
            rec.dsack_round = self.tcb.snd_nxt;
            rec.reo_mult = rec.reo_mult.saturating_add(1);
            rec.reo_persist = REO_PERSIST;
        }
    }

    /// RACK_detect_loss() of section 6.2 step 5: marks what is lost, and says when to look again.
    /// Keeps 6675-4.
    pub(crate) fn detect_losses(&mut self) -> Losses {
        let hot = &*self.hot;
        let rec = &self.blocks.recovery[hot.loss.recovery];
        if !rec.has(rec_flag::TIMED) || hot.sender.flight.is_empty() {
            return Losses::default();
        }
        if !self.rules.config().rack {
            return self.losses_by_count();
        }
        let window_us = rec.reordering_window(hot, self.tcb.srtt_us());
        let patience_us = rec.rtt_us.saturating_add(window_us);
        let mut look = Look {
            newest: rec.newest,
            now_us: self.env.now_us,
            patience_us,
            found: Losses::default(),
        };
        if rec.resent > 0 {
            self.look_at_resent(&mut look);
        }
        self.look_at_sent_once(&mut look);
        look.found
    }

    /// Without RACK: what three segments beyond it were SACKed is lost, once (RFC 6675 section 4, IsLost).
    fn losses_by_count(&mut self) -> Losses {
        let hot = &*self.hot;
        let mut beyond = self.blocks.recovery[hot.loss.recovery].sacked;
        let (mut at, mut found) = (hot.sender.flight.head, Losses::default());
        while at.is_some() && beyond >= u32::from(DUP_THRESHOLD) {
            let seg = &self.blocks.segments[at];
            if seg.has(seg_flag::SACKED) {
                beyond -= 1;
            } else if !seg.has(seg_flag::LOST | seg_flag::RESENT) {
                found.bytes += u32::from(seg.len);
                self.mark_lost(at);
            }
            at = self.blocks.segments[at].next;
        }
        found
    }

    /// Those that were sent again, all at or before `decided`.
    fn look_at_resent(&mut self, look: &mut Look) {
        let block = self.hot.loss.recovery;
        let (last, mut left) = (
            self.blocks.recovery[block].decided,
            self.blocks.recovery[block].resent,
        );
        let sorted = !self.blocks.recovery[block].has(rec_flag::UNSORTED);
        let (mut at, mut steps) = (self.hot.sender.flight.head, 0);
        while at.is_some() && left > 0 && last.is_some() {
            if steps >= RESENT_WALK_MAX {
                self.env.counters.rack_walks_cut += 1;
                break;
            }
            steps += 1;
            let seg = &self.blocks.segments[at];
            if seg.has(seg_flag::SACKED) {
                let (end, walked) = self.blocks.segments.run_end(at);
                steps += walked;
                at = end;
            } else if seg.has(seg_flag::RESENT) && !seg.has(seg_flag::LOST) {
                left -= 1;
                if look.says_lost(seg) {
                    look.found.bytes += u32::from(seg.len);
                    self.mark_lost(at);
                } else if sorted {
                    break;
                }
            }
            if at == last {
                break;
            }
            at = self.blocks.segments[at].next;
        }
        self.env.counters.recovery_steps += u64::from(steps);
    }

    /// Those that were sent once, in the order they were sent in.
    fn look_at_sent_once(&mut self, look: &mut Look) {
        let block = self.hot.loss.recovery;
        let mut steps = 0;
        loop {
            let decided = self.blocks.recovery[block].decided;
            let mut at = match decided {
                None => self.hot.sender.flight.head,
                last => self.blocks.segments[last].next,
            };
            if at.is_none() {
                break;
            }
            steps += 1;
            let seg = &self.blocks.segments[at];
            if seg.has(seg_flag::SACKED) {
                let (end, walked) = self.blocks.segments.run_end(at);
                steps += walked;
                at = end;
            } else if !seg.has(seg_flag::LOST) {
                if !look.says_lost(seg) {
                    break;
                }
                look.found.bytes += u32::from(seg.len);
                self.mark_lost(at);
            }
            self.blocks.recovery[block].decided = at;
        }
        self.env.counters.recovery_steps += u64::from(steps);
    }

    /// A segment in flight is believed lost: it leaves the pipe and is to be sent again.
    /// Keeps 6675-2.
    pub(crate) fn mark_lost(&mut self, at: Option<SegId>) {
        let hot = &mut *self.hot;
        let seg = &mut self.blocks.segments[at];
        debug_assert!(!seg.has(seg_flag::LOST | seg_flag::SACKED));
        seg.flags |= seg_flag::LOST;
        let (seq, resent) = (seg.seq, seg.has(seg_flag::RESENT));
        hot.sender.pipe = hot.sender.pipe.saturating_sub(u32::from(seg.len));
        hot.set(hot_flag::LOSSES);
        if hot.loss.recovery.is_none() {
            return;
        }
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        if resent {
            rec.resent = rec.resent.saturating_sub(1);
        }
        let from = rec.lost_from;
        if rec.lost == 0 || (from.is_some() && seq.lt(self.blocks.segments[from].seq)) {
            rec.lost_from = at;
        }
        rec.lost += 1;
    }

    /// A segment in flight was cut: the rest, behind it, is what it was.
    pub(crate) fn note_cut(&mut self, rest: SegId) {
        let hot = &*self.hot;
        if hot.loss.recovery.is_some() && self.blocks.segments[rest].has(seg_flag::LOST) {
            self.blocks.recovery[hot.loss.recovery].lost += 1;
        }
    }

    /// The reordering timer (section 6.2 step 5): what was waited for has not come.
    pub(crate) fn on_reordering_timeout(&mut self) {
        let lost = self.detect_losses();
        let block = self.hot.loss.recovery;
        let calm = !self.hot.has(hot_flag::RECOVERY);
        if lost.bytes > 0 && calm && !self.blocks.recovery[block].has(rec_flag::TIMED_OUT) {
            self.enter_recovery(0);
            // Nothing was delivered just now, but the first repair must not wait for something that is.
            let mss = u32::from(self.tcb.payload_mss());
            let (hot, rec) = (&mut *self.hot, &mut self.blocks.recovery[block]);
            rec.prr_on_ack(&mut hot.congestion, hot.sender.pipe, mss, mss, false);
        }
        self.arm_retransmission(false);
        if let Some(wait) = lost.wait {
            self.arm_reordering(wait);
        }
        self.queue();
    }
}

/// One look at the segments in flight.
struct Look {
    newest: Sent,
    now_us: u32,
    /// RACK.rtt + RACK.reo_wnd.
    patience_us: u32,
    found: Losses,
}

impl Look {
    /// Whether a segment in flight is lost. One that was sent before the newest that was delivered, and is not old
    /// enough, may be later; the newest's own age bounds how much later, which saves looking at each.
    fn says_lost(&mut self, seg: &Segment) -> bool {
        // A segment that has not left the host cannot be lost.
        if !self.newest.is_after(Sent::of(seg), self.now_us) || seg.has(seg_flag::AWAY) {
            return false;
        }
        let age_us = self.now_us.wrapping_sub(seg.sent_us);
        if age_us >= self.patience_us {
            return true;
        }
        let wait_us = self
            .patience_us
            .saturating_sub(self.newest.age_us(self.now_us));
        self.found.wait = Some(Duration::from_micros(u64::from(wait_us)));
        false
    }
}

#[cfg(test)]
mod tests;
