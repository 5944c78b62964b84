//! RFC 2018 and 2883, the sender's side: which of the segments in flight the peer says it has. Marks are on the
//! segments; a run of marked segments is stepped over at once, and a block that grows is found again where it
//! began. What a peer says here is advice: it frees nothing, and is believed within bounds only.

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::SackBlocks;

use crate::conn::Conn;
use crate::conn::loss::AckSummary;
use crate::conn::loss::rack;
use crate::store::cold::flag;
use crate::store::keys::SegId;
use crate::store::segment::seg_flag;
use crate::time::Instant;
use crate::wire::parse::Parsed;

/// Unmarked segments stepped over in one acknowledgement in search of where blocks begin. Beyond it the rest of its
/// blocks is ignored; the peer repeats them, and the search for the first goes on where it ended. Marking is not
/// counted: each segment is marked once.
const SEARCH_MAX: u32 = 256;

impl Conn<'_> {
    /// Reads the blocks of an acknowledgement, if it has any.
    /// Keeps 6675-9, 8985-3.
    #[inline]
    pub(crate) fn take_sack(
        &mut self,
        p: &Parsed,
        frame: Option<&Frame>,
        summary: &mut AckSummary,
    ) {
        if !p.has_more_options() || !self.tcb.has(flag::SACK) {
            return;
        }
        if let Some(frame) = frame {
            let blocks = p.sack_blocks(frame);
            if !blocks.is_empty() {
                self.take_blocks(p, &blocks, summary);
            }
        }
    }

    fn take_blocks(&mut self, p: &Parsed, blocks: &SackBlocks, summary: &mut AckSummary) {
        let (una, nxt) = (self.hot.sender.snd_una.later(p.ack()), self.tcb.snd_nxt);
        let mut rest = blocks.as_slice();
        if let Some(twice) = duplicate(rest, p.ack()) {
            rest = &rest[1..];
            // Older than a window it says nothing of what is in flight.
            if twice.1.le(nxt) && (nxt - twice.0).unsigned_abs() <= self.oldest_duplicate() {
                summary.duplicate = Some(twice);
                self.env.counters.dsacks_in += 1;
            } else {
                self.env.counters.sack_invalid += 1;
            }
        }
        if !rest.is_empty() || summary.duplicate.is_some() {
            let Some(_) = self.attach_recovery() else {
                return;
            };
        }
        summary.echo_age_ms = self.echo_age(p);
        let mut budget = SEARCH_MAX;
        for (i, &(left, right)) in rest.iter().enumerate() {
            // One that begins where everything is acknowledged up to would have been acknowledged too.
            if !left.lt(right) || left.le(una) || right.gt(nxt) {
                self.env.counters.sack_invalid += 1;
                continue;
            }
            let mark = Mark {
                left,
                right,
                keeps_hint: i > 0,
                now: self.env.now,
            };
            if !self.mark_sacked(&mark, &mut budget, summary) {
                self.env.counters.sack_searches_cut += 1;
                return;
            }
        }
    }

    /// How far back from SND.NXT a D-SACK may lie: twice the largest window there was, what was in flight and what
    /// was before it.
    fn oldest_duplicate(&self) -> u32 {
        self.hot.sender.max_snd_wnd.saturating_mul(2).max(1 << 16)
    }

    /// Marks the segments that lie wholly in a block. False when the search for them took too long.
    fn mark_sacked(&mut self, mark: &Mark, budget: &mut u32, summary: &mut AckSummary) -> bool {
        let hint = self.blocks.recovery[self.hot.loss.recovery].sack_hint;
        let mut at = match hint {
            None => self.hot.sender.flight.head,
            hint if self.blocks.segments[hint].seq.le(mark.left) => hint,
            _ => self.hot.sender.flight.head,
        };
        let mut steps = 0;
        let mut found = true;
        while at.is_some() && self.blocks.segments[at].seq.lt(mark.left) {
            if *budget == 0 {
                found = false;
                break;
            }
            *budget -= 1;
            steps += 1;
            at = self.step_over(at, &mut steps);
        }
        if at.is_some() && !mark.keeps_hint {
            let block = self.hot.loss.recovery;
            self.blocks.recovery[block].sack_hint = at;
        }
        let first = at;
        let mut last = None;
        while found && at.is_some() && self.blocks.segments[at].end().le(mark.right) {
            steps += 1;
            if self.blocks.segments[at].has(seg_flag::SACKED) {
                at = self.step_over(at, &mut steps);
                continue;
            }
            self.mark_one(at, mark, summary);
            last = at;
            at = self.blocks.segments[at].next;
        }
        if last.is_some() {
            // All from the first to the last are marked now.
            self.blocks.segments[first].skip = last;
        }
        self.env.counters.recovery_steps += u64::from(steps);
        found
    }

    /// The segment behind `at`, or behind the run of SACKED ones that `at` is in.
    fn step_over(&mut self, at: Option<SegId>, steps: &mut u32) -> Option<SegId> {
        if !self.blocks.segments[at].has(seg_flag::SACKED) {
            return self.blocks.segments[at].next;
        }
        let (end, walked) = self.blocks.segments.run_end(at);
        *steps += walked;
        self.blocks.segments[end].next
    }

    /// Keeps 6675-2.
    fn mark_one(&mut self, at: Option<SegId>, mark: &Mark, summary: &mut AckSummary) {
        let hot = &mut *self.hot;
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        let seg = &mut self.blocks.segments[at];
        let len = u32::from(seg.len);
        let resent = seg.has(seg_flag::RESENT);
        summary.original |= !resent && seg.end().le(hot.loss.recover);
        rack::deliver(rec, hot, seg, summary.echo_age_ms, mark.now, summary);
        if seg.has(seg_flag::LOST) {
            seg.flags &= !seg_flag::LOST;
            rec.lost = rec.lost.saturating_sub(1);
        } else {
            hot.sender.pipe = hot.sender.pipe.saturating_sub(len);
            rec.resent = rec.resent.saturating_sub(u32::from(resent));
        }
        seg.flags |= seg_flag::SACKED;
        seg.skip = at;
        rec.sacked += 1;
        rec.sacked_bytes += len;
        summary.sacked = true;
        summary.delivered += len;
        if !resent
            && summary
                .sacked_sent_us
                .is_none_or(|first| (seg.sent_us.wrapping_sub(first) as i32) < 0)
        {
            summary.sacked_sent_us = Some(seg.sent_us);
        }
    }

    /// The peer acknowledges up to what it said it had, and not that: it has thrown it away (RFC 2018 section 8).
    pub(crate) fn has_reneged(&self) -> bool {
        let head = self.hot.sender.flight.head;
        head.is_some() && self.blocks.segments[head].has(seg_flag::SACKED)
    }

    /// Forgets all that the peer said it had.
    pub(crate) fn forget_sacked(&mut self) {
        let hot = &mut *self.hot;
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        let mut at = hot.sender.flight.head;
        while at.is_some() {
            let seg = &mut self.blocks.segments[at];
            if seg.has(seg_flag::SACKED) {
                seg.flags &= !seg_flag::SACKED;
                hot.sender.pipe += u32::from(seg.len);
                rec.resent += u32::from(seg.has(seg_flag::RESENT));
            }
            at = seg.next;
        }
        (rec.sacked, rec.sacked_bytes) = (0, 0);
        self.env.counters.sack_reneged += 1;
    }
}

/// A block that is to be marked.
struct Mark {
    left: SeqNum,
    right: SeqNum,
    /// It is not the acknowledgement's first: the next search begins elsewhere.
    keeps_hint: bool,
    now: Instant,
}

/// The first block when it reports what came twice (RFC 2883 section 4): it lies below the acknowledgement, or inside
/// the second.
/// Keeps 2883-1.
fn duplicate(blocks: &[(SeqNum, SeqNum)], ack: SeqNum) -> Option<(SeqNum, SeqNum)> {
    let &(left, right) = blocks.first()?;
    if !left.lt(right) {
        return None;
    }
    let below = right.le(ack);
    let inside = blocks
        .get(1)
        .is_some_and(|&(from, to)| left.ge(from) && right.le(to) && from.lt(to));
    (below || inside).then_some((left, right))
}
