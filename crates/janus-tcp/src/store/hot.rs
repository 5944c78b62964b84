//! The hot block: what a connection needs only while something is in flight, queued, out of order or timed.
//!
//! Blocks come from a last-in-first-out pool, so a server with a million idle connections and a thousand busy
//! ones touches a thousand blocks, the same ones again and again. A block goes back the moment nothing is
//! outstanding (`stack.rs`). Its timer entry belongs to the block, not to the connection: it is
//! moved only to an earlier time, and re-armed when it fires early, so that a request costs no timer work.

use janus_wire::{SeqNum, StampBase};

use crate::coded::{coded, coded_as};
use crate::congestion::Congestion;
use crate::store::arrivals::Arrivals;
use crate::store::cold::{EndReason, NONE, State, Tcb, flag};
use crate::store::keys::{ConnSlot, RecoveryId, SegId, TuningId};
use crate::store::segment::SegList;
use crate::store::wheel::TimerPlace;
use crate::time::Instant;

pub(crate) mod hot_flag {
    /// Is in the output queue.
    pub(crate) const QUEUED: u8 = 1 << 0;
    /// An acknowledgement is owed now.
    pub(crate) const ACK_NOW: u8 = 1 << 1;
    /// In fast recovery (RFC 6582; with SACK, RFC 8985 and 6937).
    pub(crate) const RECOVERY: u8 = 1 << 2;
    /// A zero-window or window probe is to go out.
    pub(crate) const PROBE: u8 = 1 << 3;
    /// The SYN (or SYN-ACK of a simultaneous open) is to go out.
    pub(crate) const SYN: u8 = 1 << 4;
    /// Some segment in flight is marked lost.
    pub(crate) const LOSSES: u8 = 1 << 5;
    /// Is in the queue of those that found no packet buffer.
    pub(crate) const STARVED: u8 = 1 << 6;
    /// Something is urgent ([`crate::conn::receive::urgent`]). Does not keep the block.
    pub(crate) const URGENT: u8 = 1 << 7;
}

/// Action due when [`Timers::due_at`] comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// Retransmission timeout (RFC 6298), of the SYN too.
    #[default]
    Rto,
    /// Tail loss probe (RFC 8985 section 7).
    Tlp,
    /// The reordering window has passed (RFC 8985 section 6.2).
    Reorder,
    /// A window probe (RFC 9293 section 3.8.6.1).
    Persist,
}

coded_as!(TimerKind {
    Rto = 0,
    Tlp = 1,
    Reorder = 2,
    Persist = 3,
});

/// The send queue: segments in flight, segments unsent, and the writer that waits.
pub(crate) struct Sender {
    /// SND.UNA: the oldest number that is not acknowledged.
    pub(crate) snd_una: SeqNum,
    /// End of the last segment sent that was not full (Minshall's variant of Nagle's algorithm).
    pub(crate) small_end: SeqNum,
    /// Bytes believed to be in the network.
    pub(crate) pipe: u32,
    /// The largest window the peer ever offered: for the sender's silly-window rule.
    pub(crate) max_snd_wnd: u32,
    /// Sent and not acknowledged, in order.
    pub(crate) flight: SegList,
    /// Written and not sent.
    pub(crate) unsent: SegList,
    /// Token of the task that waits for room to write.
    pub(crate) writer: u32,
    /// How the end of what is unsent leaves, and that nothing may join it.
    pub(crate) ending: Ending,
    pub(crate) record_ended: bool,
    /// The largest payload that was agreed on, options not counted; `Tcb::mss` is what the path lets through of it.
    pub(crate) mss_full: u16,
}

coded!(Sender {
    snd_una, small_end, pipe, max_snd_wnd, ending, record_ended, mss_full;
    not flight = SegList::default(), unsent = SegList::default(), writer = NONE
});

/// Segments that may be missing, and round trips by which that is judged.
pub(crate) struct Loss {
    /// End of what was sent when loss recovery last began; before any, of what was acknowledged (RFC 6582).
    pub(crate) recover: SeqNum,
    /// The smallest round trip of late in microseconds, and the millisecond (wrapping) of its measurement; 0 = none.
    pub(crate) min_rtt_us: u32,
    pub(crate) min_rtt_ms: u32,
    /// Recovery state while something may be missing ([`crate::conn::loss::recovery`]), or `NONE`.
    pub(crate) recovery: Option<RecoveryId>,
}

coded!(Loss { recover, min_rtt_us; ms min_rtt_ms; not recovery = None });

/// The receive queue, and the acknowledgement owed for it.
pub(crate) struct Receiver {
    /// Received in order, not read.
    pub(crate) inbox: SegList,
    /// Out-of-order data, a block of `reorder`, or `NONE`.
    pub(crate) reorder: u32,
    /// Measurements while the connection receives in bulk, a record of `tuning`, or `NONE`.
    pub(crate) tuning: Option<TuningId>,
    /// Bytes received since the last acknowledgement we sent.
    pub(crate) unacked_bytes: u32,
    pub(crate) arrivals: Arrivals,
}

coded!(Receiver {
    unacked_bytes, arrivals;
    not inbox = SegList::default(), reorder = NONE, tuning = None
});

/// Deadlines, of which each can be [`Instant::NEVER`], and how often they have passed in vain.
pub(crate) struct Timers {
    /// When what `timer_kind` says is due.
    pub(crate) due_at: Instant,
    /// When the retransmission timeout is due, whatever comes before; never, when nothing is in flight.
    pub(crate) rto_at: Instant,
    /// Delayed-acknowledgement deadline.
    pub(crate) ack_at: Instant,
    /// The block is kept until then for measurements of what is received.
    pub(crate) keep_until: Instant,
    /// The block's entry in the wheel and when that fires.
    pub(crate) timer: Option<TimerPlace>,
    pub(crate) timer_at: Instant,
    /// Round trips measured: the end of the flight in which RTTVAR may fall once ([`crate::store::rto`]), and the largest
    /// deviation seen in it; before, microseconds, wrapping, of the SYN's last transmission.
    pub(crate) rtt_round: SeqNum,
    pub(crate) rtt_off_max: u32,
    /// Patience ([`crate::conn::timer::patience`]).
    pub(crate) stalled: Stalled,
    /// Milliseconds, wrapping and odd, of an orphan's first timer; 0 = none yet.
    pub(crate) orphaned_ms: u32,
    /// Base of the timestamps that are sent.
    pub(crate) stamps: StampBase,
    pub(crate) timer_kind: TimerKind,
    /// How often the timeout stands doubled; only a measured round trip ends it (Karn).
    pub(crate) backoff: u8,
    /// Timeouts in a row without progress.
    pub(crate) retries: u8,
    /// Window probes since the peer last answered anything.
    pub(crate) probes: u8,
}

coded!(Timers {
    due_at, rto_at, ack_at, keep_until, rtt_round, rtt_off_max, stalled, orphaned_ms, timer_kind, backoff, retries, probes;
    not stamps = StampBase::default(), timer = None, timer_at = Instant::NEVER
});

/// The path ([`crate::conn::output::resize`], [`crate::conn::arrives::icmp_errors`]).
pub(crate) struct PathState {
    /// The segment that probes the path, or `NONE`, and its end once it was sent.
    pub(crate) probe: Option<SegId>,
    pub(crate) probe_end: SeqNum,
    /// The IP packet that the probe is.
    pub(crate) probe_size: u16,
    /// A segment larger than the path is known to carry has been sent.
    pub(crate) probe_out: bool,
    /// The last complaint of a router, told if the peer never answers again; [`EndReason::Orderly`]: none.
    pub(crate) soft_error: EndReason,
}

coded!(PathState { probe_end, probe_size, probe_out, soft_error; not probe = None });

/// The block. Each group belongs to one subject, and rules change the group of theirs.
#[derive(Default)]
pub(crate) struct Hot {
    /// The connection it serves, or `NONE`.
    pub(crate) conn: Option<ConnSlot>,
    /// Bits of [`hot_flag`].
    pub(crate) flags: u8,
    // Of loss recovery; here because four bytes are filled so, and the block is no larger than its fields.
    pub(crate) dup_acks: u8,
    /// The network was seen to reorder (RACK.reordering_seen of RFC 8985).
    pub(crate) reordering_seen: bool,
    /// A timeout is doubted, or was, on a connection without SACK ([`crate::conn::loss::frto`]).
    pub(crate) doubted: bool,
    pub(crate) sender: Sender,
    pub(crate) congestion: Congestion,
    pub(crate) loss: Loss,
    pub(crate) receiver: Receiver,
    pub(crate) timers: Timers,
    pub(crate) path: PathState,
}

coded!(Hot {
    flags, dup_acks, reordering_seen, doubted, sender, congestion, loss, receiver, timers, path;
    not conn = None
});

const _: () = assert!(size_of::<Hot>() <= 256);

impl Default for Sender {
    fn default() -> Sender {
        Sender {
            snd_una: SeqNum(0),
            small_end: SeqNum(0),
            pipe: 0,
            max_snd_wnd: 0,
            flight: SegList::default(),
            unsent: SegList::default(),
            writer: NONE,
            ending: Ending::Usual,
            record_ended: false,
            mss_full: 0,
        }
    }
}

impl Default for Loss {
    fn default() -> Loss {
        Loss {
            recover: SeqNum(0),
            min_rtt_us: 0,
            min_rtt_ms: 0,
            recovery: None,
        }
    }
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver {
            inbox: SegList::default(),
            reorder: NONE,
            tuning: None,
            unacked_bytes: 0,
            arrivals: Arrivals::default(),
        }
    }
}

impl Default for PathState {
    fn default() -> PathState {
        PathState {
            probe: None,
            probe_end: SeqNum(0),
            probe_size: 0,
            probe_out: false,
            soft_error: EndReason::Orderly,
        }
    }
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            due_at: Instant::NEVER,
            rto_at: Instant::NEVER,
            ack_at: Instant::NEVER,
            keep_until: Instant::NEVER,
            timer: None,
            timer_at: Instant::NEVER,
            rtt_round: SeqNum(0),
            rtt_off_max: 0,
            stalled: Stalled::default(),
            orphaned_ms: 0,
            stamps: StampBase::default(),
            timer_kind: TimerKind::default(),
            backoff: 0,
            retries: 0,
            probes: 0,
        }
    }
}

impl Timers {
    /// The earliest deadline.
    #[inline(always)]
    pub(crate) fn soonest(&self) -> Instant {
        self.due_at.min(self.ack_at).min(self.keep_until)
    }

    /// The earliest deadline comes before the timer, or there is none.
    #[inline(always)]
    pub(crate) fn come_before_timer(&self) -> bool {
        self.soonest() < self.timer_at
    }
}

impl Hot {
    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: u8) {
        self.flags |= flag;
    }

    #[inline]
    pub(crate) fn clear(&mut self, flag: u8) {
        self.flags &= !flag;
    }

    /// Returns the bytes that the peer's window has room for, beyond what is in flight.
    #[inline]
    pub(crate) fn usable_window(&self, cold: &Tcb) -> u32 {
        let in_flight = (cold.snd_nxt - self.sender.snd_una).max(0) as u32;
        cold.snd_wnd().saturating_sub(in_flight)
    }

    /// Nothing is in flight, queued, out of order, owed or waited for.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.timers.soonest() == Instant::NEVER
            && self.sender.flight.is_empty()
            && self.sender.unsent.is_empty()
            && self.receiver.inbox.is_empty()
            && self.receiver.reorder == NONE
            && self.flags & !hot_flag::URGENT == 0
            && self.sender.writer == NONE
    }

    /// Whether it has something to send, or a writer, that may wait for a packet buffer.
    pub(crate) fn wants_memory(&self, cold: &Tcb) -> bool {
        let sends = !self.sender.unsent.is_empty()
            || self.sender.writer != NONE
            || cold.has(flag::FIN_QUEUED);
        sends && cold.state != State::Closed
    }

    /// Whether the block is as the next connection assumes. All other fields are written when it gets the block.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.is_idle()
            && self.conn.is_none()
            && self.flags == 0
            && self.receiver.tuning.is_none()
            && self.loss.recovery.is_none()
    }

    /// A round trip was measured: the smallest is kept, for five minutes at most (RFC 8985 section 6.2 step 1; the
    /// length is Linux's).
    #[inline]
    pub(crate) fn note_rtt(&mut self, rtt_us: u32, now_ms: u32) {
        const WINDOW_MS: u32 = 300_000;
        let stale = now_ms.wrapping_sub(self.loss.min_rtt_ms) > WINDOW_MS;
        if rtt_us <= self.loss.min_rtt_us || self.loss.min_rtt_us == 0 || stale {
            (self.loss.min_rtt_us, self.loss.min_rtt_ms) = (rtt_us.max(1), now_ms);
        }
    }
}

/// How the end of what is queued is to leave, when it is no full segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As Nagle's algorithm and the cork say.
    #[default]
    Usual,
    /// More was promised.
    More,
    /// At once.
    Push,
}

coded_as!(Ending {
    Usual = 0,
    More = 1,
    Push = 2,
});

/// Since when a window is shut. Progress costs nothing to note: what was acknowledged and what was sent are compared
/// with what they were at the first probe.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalled {
    /// SND.UNA + SND.NXT, which only grow.
    pub(crate) mark: u32,
    /// Milliseconds, wrapping.
    pub(crate) since_ms: u32,
}

coded!(Stalled { mark; ms since_ms });
