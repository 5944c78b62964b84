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

use crate::cold::NONE;
use crate::congestion;
use crate::conn::Conn;
use crate::hot::hot_flag;
use crate::rack::{self, Sent};
use crate::rttm::Acked;
use crate::segment::seg_flag;
use crate::undo::Undo;

/// Bits of [`Recovery::flags`].
pub(crate) mod rec_flag {
    /// [`super::Recovery::newest`] holds something (RACK.xmit_ts is known).
    pub(crate) const TIMED: u16 = 1 << 0;
    /// It is not clear whether the timeout was for nothing ([`crate::frto`]).
    pub(crate) const DOUBTED: u16 = 1 << 1;
    /// Retransmissions in flight are not in the order of their sequence numbers.
    pub(crate) const UNSORTED: u16 = 1 << 2;
    /// The retransmission timer has expired, and what was sent before is not all acknowledged.
    pub(crate) const TIMED_OUT: u16 = 1 << 3;
    /// A tail loss probe is to go out.
    pub(crate) const PROBE_DUE: u16 = 1 << 4;
    /// A tail loss probe is out (TLP.end_seq is known).
    pub(crate) const PROBED: u16 = 1 << 5;
    /// It repeated something (TLP.is_retrans).
    pub(crate) const PROBE_REPEATS: u16 = 1 << 6;
    /// A D-SACK has widened the reordering window, until `dsack_round` is acknowledged.
    pub(crate) const DSACK_ROUND: u16 = 1 << 7;
    /// Lost segments wait for new data to go first ([`crate::frto`]).
    pub(crate) const NEW_FIRST: u16 = 1 << 8;
}

/// The block.
pub(crate) struct Recovery {
    // The scoreboard: marks are on the segments in flight, here is what finds and counts them.
    /// Segments in flight that the peer has SACKed, and their payload.
    pub(crate) sacked: u32,
    pub(crate) sacked_bytes: u32,
    /// Segments believed lost and not yet sent again.
    pub(crate) lost: u32,
    /// Segments sent again that are neither acknowledged nor lost again.
    pub(crate) resent: u32,
    /// End of the furthest sequence number delivered (RACK.fack).
    pub(crate) delivered_to: SeqNum,
    /// A segment in flight at or before the first of the last block, or `NONE` for the head.
    pub(crate) sack_hint: u32,
    /// A segment in flight before which none is lost, or `NONE` for the head.
    pub(crate) lost_from: u32,
    /// The last segment in flight of which RACK has decided, or `NONE`: behind it stand, in the order they were
    /// sent in, those that are neither lost nor sent again.
    pub(crate) decided: u32,
    /// The sequence number last sent again.
    pub(crate) last_resent: SeqNum,

    // RACK (RFC 8985 section 5.3).
    /// Of the delivered, the segment sent last (RACK.xmit_ts, RACK.end_seq).
    pub(crate) newest: Sent,
    /// Its round trip in microseconds, once it is known (RACK.rtt).
    pub(crate) rtt_us: u32,
    /// SND.NXT when a D-SACK last widened the reordering window (RACK.dsack_round).
    pub(crate) dsack_round: SeqNum,

    // TLP: SND.NXT when the probe went out (TLP.end_seq).
    pub(crate) probe_end: SeqNum,

    // PRR (RFC 6937): prr_delivered, prr_out, RecoverFS.
    pub(crate) prr_delivered: u32,
    pub(crate) prr_out: u32,
    pub(crate) prr_flight: u32,

    /// Window to restore when the recovery was spurious.
    pub(crate) undo: Undo,

    /// Quarters of the smallest round trip that the reordering window is wide (RACK.reo_wnd_mult), and for how many
    /// recoveries yet (RACK.reo_wnd_persist).
    pub(crate) reo_mult: u8,
    pub(crate) reo_persist: u8,
    pub(crate) flags: u16,
}

const _: () = assert!(size_of::<Recovery>() <= 128);

impl Default for Recovery {
    fn default() -> Recovery {
        Recovery {
            sacked: 0,
            sacked_bytes: 0,
            lost: 0,
            resent: 0,
            delivered_to: SeqNum(0),
            sack_hint: NONE,
            lost_from: NONE,
            decided: NONE,
            last_resent: SeqNum(0),
            newest: Sent::default(),
            rtt_us: 0,
            dsack_round: SeqNum(0),
            probe_end: SeqNum(0),
            prr_delivered: 0,
            prr_out: 0,
            prr_flight: 0,
            undo: Undo::default(),
            reo_mult: 1,
            reo_persist: 0,
            flags: 0,
        }
    }
}

impl Recovery {
    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    #[inline]
    pub(crate) fn clear(&mut self, flag: u16) {
        self.flags &= !flag;
    }
}

/// Facts of one acknowledgement, gathered while it is read.
#[derive(Clone, Copy, Default)]
pub(crate) struct News {
    /// Payload known to be delivered that was not before, acknowledged or SACKed.
    pub(crate) delivered: u32,
    /// SND.UNA has moved.
    pub(crate) advanced: bool,
    /// Milliseconds since the timestamp was sent that it echoes.
    pub(crate) echo_age_ms: Option<u32>,
    /// Something was SACKed anew.
    pub(crate) sacked: bool,
    /// Something was delivered that was sent once, before the last timeout.
    pub(crate) original: bool,
    /// Range that the peer received twice, as it says (RFC 2883).
    pub(crate) duplicate: Option<(SeqNum, SeqNum)>,
    /// Of what is delivered now, that which was sent last.
    pub(crate) newest: Option<Sent>,
    /// When that was sent which was delivered last, in the order of reading (µs); with `newest` only.
    pub(crate) last_sent_us: u32,
    /// Of what is SACKed now and was sent once, when the first was sent (µs).
    pub(crate) sacked_sent_us: Option<u32>,
    /// End of the furthest sequence number delivered now.
    pub(crate) end: Option<SeqNum>,
}

impl Conn<'_> {
    /// The recovery block of a hot block, attached if it has none; `None` when there is no memory for one.
    pub(crate) fn attach_recovery(&mut self) -> Option<u32> {
        if self.hot.loss.recovery == NONE {
            let block = self.blocks.recovery.alloc()?;
            self.blocks.recovery[block] = Recovery {
                delivered_to: self.hot.sender.snd_una,
                ..Recovery::default()
            };
            self.hot.loss.recovery = block;
        }
        Some(self.hot.loss.recovery)
    }

    /// Gives the recovery block back, when there is one.
    #[inline(always)]
    pub(crate) fn detach_recovery(&mut self) {
        let hot = &*self.hot;
        if hot.loss.recovery != NONE || hot.doubted {
            self.forget_losses();
        }
    }

    #[inline(never)]
    fn forget_losses(&mut self) {
        let block = core::mem::replace(&mut self.hot.loss.recovery, NONE);
        if block != NONE {
            self.blocks.recovery.free(block);
        }
        if self.hot.doubted {
            self.doubt_is_over();
        }
    }

    /// An acknowledgement was read, for a connection that uses SACK and where something is or was missing: what is
    /// lost now, and how much may be sent.
    pub(crate) fn repair(&mut self, news: &News) {
        let block = self.hot.loss.recovery;
        self.blocks.recovery[block].advance(news, self.now);
        self.undo_if_spurious(news);
        self.judge_timeout(block, news);
        let ended = self.end_recovery();
        self.widen_reordering(news);
        let lost = self.detect_losses();
        let (hot, rec) = (&mut *self.hot, &self.blocks.recovery[block]);
        // A loss for another reason, as a path that has shrunk, is no sign of congestion.
        let found = lost.bytes > 0 || (ended && rec.lost > 0);
        if found && !hot.has(hot_flag::RECOVERY) && !rec.has(rec_flag::TIMED_OUT) {
            self.enter_recovery(news.delivered);
        }
        let cold = &*self.tcb;
        let (hot, rec) = (&mut *self.hot, &mut self.blocks.recovery[block]);
        if hot.has(hot_flag::RECOVERY) {
            let safe = news.advanced && lost.bytes == 0;
            rec.prr_on_ack(
                &mut hot.congestion,
                hot.sender.pipe,
                u32::from(cold.payload_mss()),
                news.delivered,
                safe,
            );
        } else if news.advanced {
            congestion::on_ack(hot, cold, news.delivered, self.now);
        }
        if news.advanced || news.sacked || lost.bytes > 0 {
            self.arm_retransmission(news.advanced);
        }
        if let Some(wait) = lost.wait {
            self.arm_reordering(wait);
        }
        if news.advanced && self.has_reneged() {
            self.hasten_timeout();
        }
    }

    /// Losses were found: recovery begins (RFC 6675 section 5, RFC 9293 3.8.2 by RFC 5681). `delivered` is what the
    /// acknowledgement that showed them has delivered.
    pub(crate) fn enter_recovery(&mut self, delivered: u32) {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        rec.undo = Undo::begin(hot, rec.resent);
        hot.loss.recover = cold.snd_nxt;
        hot.congestion.ssthresh = congestion::ssthresh_on_loss(hot, cold);
        hot.set(hot_flag::RECOVERY);
        rec.clear(rec_flag::PROBED | rec_flag::PROBE_DUE);
        rec.prr_begin(hot.sender.flight.bytes, delivered);
        self.counters.fast_retransmits += 1;
    }

    /// Once all that was sent before the loss was found is acknowledged, recovery, or what a timeout began, is over.
    /// True when a recovery was.
    fn end_recovery(&mut self) -> bool {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let rec = &mut self.blocks.recovery[hot.loss.recovery];
        if hot.sender.snd_una.lt(hot.loss.recover) {
            return false;
        }
        let ended = hot.has(hot_flag::RECOVERY);
        if ended {
            congestion::leave_recovery(hot, cold);
            // RFC 9937 section 6.3: what PRR has let out is ssthresh by now; a window below it would stall.
            hot.congestion.cwnd = hot.congestion.ssthresh;
            rec.recovered();
        }
        rec.clear(rec_flag::TIMED_OUT | rec_flag::DOUBTED | rec_flag::NEW_FIRST);
        ended
    }

    /// A segment of `flight` is acknowledged, which may be SACKed, lost or sent again.
    pub(crate) fn acknowledge_marked(&mut self, at: u32, news: &mut News, acked: &mut Acked) {
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
        news.original |= !resent && seg.end().le(hot.loss.recover);
        if seg.has(seg_flag::LOST) {
            rec.lost = rec.lost.saturating_sub(1);
        } else {
            rec.resent = rec.resent.saturating_sub(u32::from(resent));
            hot.sender.pipe = hot.sender.pipe.saturating_sub(len);
        }
        news.delivered += len;
        let age_us = (self.now.as_micros() as u32).wrapping_sub(seg.sent_us);
        acked.add(age_us, resent);
        rack::deliver(rec, hot, seg, news.echo_age_ms, self.now, news);
    }

    /// Forgets places in the flight list that `ack` is about to free.
    pub(crate) fn forget_places(&mut self, ack: SeqNum) {
        let rec = &mut self.blocks.recovery[self.hot.loss.recovery];
        for place in [&mut rec.sack_hint, &mut rec.lost_from, &mut rec.decided] {
            if *place != NONE && self.blocks.segments[*place].end().le(ack) {
                *place = NONE;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
