//! State of a sender while a segment may be missing: a block that the first SACK, probe or timeout attaches to a hot block. The
//! rules that change it are in `loss`.

use std::collections::BTreeMap;

use janus_wire::SeqNum;

use crate::coded::coded;
use crate::congestion::Growth;
use crate::store::keys::{HotId, RecoveryId, SegId};
use crate::store::segment::Segment;

/// When a segment was last sent (µs, wrapping) and where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at_us: u32,
    pub(crate) end: SeqNum,
}

coded!(Sent { end; us at_us });

impl Sent {
    /// Keeps 8985-4.
    pub(crate) fn of(seg: &Segment) -> Sent {
        Sent {
            at_us: seg.sent_us,
            end: seg.end(),
        }
    }

    /// RACK_sent_after() of section 5.2: of two sent at one moment the one further on was sent later. Ages are compared, as
    /// the distance of two times means nothing from half the clock's round on (36 minutes).
    #[inline]
    pub(crate) fn is_after(self, other: Sent, now_us: u32) -> bool {
        let (age, other_age) = (self.age_us(now_us), other.age_us(now_us));
        age < other_age || age == other_age && self.end.gt(other.end)
    }

    #[inline]
    pub(crate) fn age_us(self, now_us: u32) -> u32 {
        now_us.wrapping_sub(self.at_us)
    }
}

/// The window before it was lowered, and the repairs since.
#[derive(Clone, Copy)]
pub(crate) struct Undo {
    /// 0 = there is nothing to undo.
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    pub(crate) growth: Growth,
    /// SND.UNA then: a D-SACK below it is about something earlier.
    pub(crate) from: SeqNum,
    /// Millisecond (wrapping) of the first repair.
    pub(crate) repaired_ms: u32,
    /// Repairs that the peer has not reported as received twice.
    pub(crate) unreported: u32,
    /// Something was sent again since.
    pub(crate) repaired: bool,
    /// No acknowledgement has gone on since the first repair.
    pub(crate) first: bool,
}

coded!(Undo { cwnd, ssthresh, growth, from, unreported, repaired, first; ms repaired_ms });

impl Default for Undo {
    fn default() -> Undo {
        Undo {
            cwnd: 0,
            ssthresh: 0,
            growth: Growth::default(),
            from: SeqNum(0),
            repaired_ms: 0,
            unreported: 0,
            repaired: false,
            first: true,
        }
    }
}

/// Bits of [`Recovery::flags`].
pub(crate) mod rec_flag {
    /// [`super::Recovery::newest`] holds something (RACK.xmit_ts is known).
    pub(crate) const TIMED: u16 = 1 << 0;
    /// It is not clear whether the timeout was for nothing ([`crate::conn::loss::frto`]).
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
    /// Lost segments wait for new data to go first ([`crate::conn::loss::frto`]).
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
    /// A segment in flight at or before the first of the last block, or `None` for the head.
    pub(crate) sack_hint: Option<SegId>,
    /// A segment in flight before which none is lost, or `None` for the head.
    pub(crate) lost_from: Option<SegId>,
    /// The last segment in flight of which RACK has decided, or `None`: behind it stand, in the order they were
    /// sent in, those that are neither lost nor sent again.
    pub(crate) decided: Option<SegId>,
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

coded!(Recovery {
    sacked, sacked_bytes, lost, resent, delivered_to, last_resent, newest, rtt_us, dsack_round, probe_end,
    prr_delivered, prr_out, prr_flight, undo, reo_mult, reo_persist, flags;
    not sack_hint = None, lost_from = None, decided = None
});

const _: () = assert!(size_of::<Recovery>() <= 128);

impl Default for Recovery {
    fn default() -> Recovery {
        Recovery {
            sacked: 0,
            sacked_bytes: 0,
            lost: 0,
            resent: 0,
            delivered_to: SeqNum(0),
            sack_hint: None,
            lost_from: None,
            decided: None,
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

/// The blocks of these, by hot block. Beside them, because hardly anyone has no SACK, and few have timeouts.
pub(crate) type Doubts = BTreeMap<HotId, RecoveryId>;
