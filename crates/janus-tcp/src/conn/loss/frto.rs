//! F-RTO: whether a retransmission timeout was for nothing (RFC 5682). After a timeout the first segment goes out again; what
//! the next acknowledgements speak of tells whether the rest was lost too. When they are for something that was sent once,
//! before the timeout, it was only late. Where timestamps tell the same sooner, `undo` does.
//!
//! With SACK (section 3) the marks are in the recovery block; without it (section 2) a block of the same kind holds what the
//! window was, for as long as the timeout's flight lasts.

use crate::conn::Conn;
use crate::conn::loss::AckSummary;
use crate::store::hot::hot_flag;
use crate::store::keys::RecoveryId;
use crate::store::recovery::{Recovery, Undo, rec_flag};
use crate::store::segment::seg_flag;

/// Connections without SACK whose timeouts are doubted at a time; those of others are believed.
const MAX_DOUBTS: usize = 1 << 14;

impl Conn<'_> {
    /// Step 1: a timeout. It is doubted when no loss was being repaired, or when it is the same segment's again (section
    /// 3.2), and when no probe of the path may have been too large. `repairing`: a loss was, before it.
    pub(crate) fn doubt_timeout(&mut self, block: Option<RecoveryId>, repairing: bool) {
        let hot = &*self.hot;
        let doubted = self.rules.config().frto
            && (!repairing || hot.timers.retries > 0)
            && !hot.path.probe_out;
        let rec = &mut self.blocks.recovery[block];
        rec.clear(rec_flag::DOUBTED | rec_flag::NEW_FIRST);
        if doubted {
            rec.set(rec_flag::DOUBTED);
        }
    }

    /// Like [`Conn::doubt_timeout`], but without SACK.
    pub(crate) fn doubt_plain_timeout(&mut self) {
        if !self.rules.config().frto {
            return;
        }
        let repairing = self.hot.has(hot_flag::RECOVERY) || self.hot.doubted;
        let block = self.attach_doubt();
        if block.is_none() {
            return;
        }
        if !repairing {
            self.blocks.recovery[block].undo = Undo::begin(self.hot, 0);
        }
        // Data that duplicates took from the pipe is lost with the rest.
        self.blocks.recovery[block].sacked_bytes = 0;
        self.doubt_timeout(block, repairing);
    }

    fn attach_doubt(&mut self) -> Option<RecoveryId> {
        if !self.hot.doubted {
            let room = self.blocks.doubts.len() < MAX_DOUBTS;
            let block = room.then(|| self.blocks.recovery.alloc()).flatten()?;
            self.blocks.recovery[block] = Recovery::default();
            self.blocks.doubts.insert(self.id, block);
            self.hot.doubted = true;
        }
        self.doubt_of()
    }

    /// The block of a hot block that is marked `doubted`.
    fn doubt_of(&self) -> Option<RecoveryId> {
        self.blocks.doubts.get(&self.id).copied()
    }

    /// Step 3.b: whether the acknowledgement shows that the timeout was for nothing.
    pub(crate) fn timeout_was_spurious(
        &self,
        block: Option<RecoveryId>,
        summary: &AckSummary,
    ) -> bool {
        summary.original && self.blocks.recovery[block].has(rec_flag::DOUBTED)
    }

    /// Steps 2 and 3.a: an acknowledgement that shows no such thing. The first that goes on lets out new data before the rest
    /// is sent again, so that the next one tells more; one that does not go on after that means that the loss was real.
    pub(crate) fn judge_timeout(&mut self, block: Option<RecoveryId>, summary: &AckSummary) {
        let (cold, hot) = (&*self.tcb, &*self.hot);
        let rec = &mut self.blocks.recovery[block];
        if !rec.has(rec_flag::DOUBTED) {
            return;
        }
        rec.clear(rec_flag::NEW_FIRST);
        if cold.snd_nxt.gt(hot.loss.recover) {
            if summary.sacked || !summary.advanced {
                rec.clear(rec_flag::DOUBTED);
            }
        } else if summary.advanced && hot.sender.snd_una.lt(hot.loss.recover) {
            if hot.sender.unsent.is_empty() || hot.usable_window(cold) == 0 {
                rec.clear(rec_flag::DOUBTED);
            } else {
                rec.set(rec_flag::NEW_FIRST);
            }
        }
    }

    /// An acknowledgement that goes on, on a connection without SACK and after a timeout.
    pub(crate) fn judge_plain_timeout(&mut self, summary: &AckSummary) {
        let block = self.doubt_of();
        let hot = &*self.hot;
        if hot.sender.snd_una.ge(hot.loss.recover) {
            if self.timeout_was_spurious(block, summary) {
                self.give_window_back(block);
            }
            self.doubt_is_over();
        } else if self.timeout_was_spurious(block, summary) && self.give_window_back(block) {
            self.doubt_is_over();
            self.nothing_is_lost();
        } else {
            self.judge_timeout(block, summary);
        }
    }

    /// One that does not. After new data it says that some of that has left the network (RFC 6582 section 3.2, in a timeout's
    /// recovery: Linux counts it as if it were SACKed).
    pub(crate) fn duplicate_after_timeout(&mut self) {
        let block = self.doubt_of();
        self.judge_timeout(block, &AckSummary::default());
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        if cold.snd_nxt.gt(hot.loss.recover) {
            let left = hot.sender.pipe.min(u32::from(cold.payload_mss()));
            hot.sender.pipe -= left;
            self.blocks.recovery[block].sacked_bytes += left;
        }
        self.queue();
    }

    /// Something is acknowledged: what duplicates took from the pipe counts again, before that leaves it.
    pub(crate) fn forget_duplicates(&mut self) {
        let block = self.doubt_of();
        self.hot.sender.pipe += core::mem::take(&mut self.blocks.recovery[block].sacked_bytes);
    }

    fn nothing_is_lost(&mut self) {
        let hot = &mut *self.hot;
        let mut at = hot.sender.flight.head;
        while at.is_some() {
            let seg = &mut self.blocks.segments[at];
            if seg.has(seg_flag::LOST) {
                seg.flags &= !seg_flag::LOST;
                hot.sender.pipe += u32::from(seg.len);
            }
            at = seg.next;
        }
        hot.clear(hot_flag::LOSSES);
    }

    /// Gives the block back that a timeout without SACK was doubted with.
    pub(crate) fn doubt_is_over(&mut self) {
        self.hot.doubted = false;
        if let Some(block) = self.blocks.doubts.remove(&self.id) {
            self.blocks.recovery.free(block);
        }
    }

    /// The block that says whether a timeout is doubted.
    fn block_of_doubt(&self) -> Option<RecoveryId> {
        match self.hot.loss.recovery {
            None if self.hot.doubted => self.doubt_of(),
            block => block,
        }
    }

    /// Whether what was lost waits for new data to go first.
    pub(crate) fn new_goes_first(&self) -> bool {
        let block = self.block_of_doubt();
        block.is_some() && self.blocks.recovery[block].has(rec_flag::NEW_FIRST)
    }

    /// New data had its turn. When none could go, what was lost does not wait any longer: true.
    pub(crate) fn new_stayed(&mut self) -> bool {
        let (cold, hot) = (&*self.tcb, &*self.hot);
        if cold.snd_nxt.gt(hot.loss.recover) {
            return false;
        }
        let block = self.block_of_doubt();
        self.blocks.recovery[block].clear(rec_flag::DOUBTED | rec_flag::NEW_FIRST);
        true
    }
}
