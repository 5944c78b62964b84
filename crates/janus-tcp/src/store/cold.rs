//! The cold TCB: all that an idle connection is. Beside its flow key it fills one cache line for IPv4
//! ([`crate::store::flows`]).
//!
//! What is only needed while something is in flight, queued or timed lives in the hot block ([`crate::store::hot`]);
//! `hot` names it, or nothing. While a hot block is attached it is the authority on congestion state, and
//! what outlives it is written back here when it is released.

use janus_wire::{SeqNum, StampBase};

use crate::coded::{coded, coded_as};
use crate::congestion;
use crate::rules::interface::LEAST_SEGMENT;
use crate::store::keys::HotId;

pub(crate) const NONE: u32 = u32::MAX;

const INTERACTIVE: u8 = 1 << 7;
const OWES_ECE: u8 = 1 << 7;
const WAS_WIDE: u32 = 1 << 31;
/// Of what the timestamps of a connection without a hot block are counted from, the top bit: [`Tcb::block`] has no room for it.
const STAMPS_HIGH: u32 = 1 << 30;
/// Bytes that the timestamps option takes of each segment.
const TIMESTAMPS_LEN: u16 = 12;
const _: () = assert!(TIMESTAMPS_LEN < LEAST_SEGMENT && flag::TIMESTAMPS == 1);
const NO_THRESHOLD: u8 = OWES_ECE - 1;

/// The states of RFC 9293 section 3.3.2 that a TCB can be in. LISTEN is a listener, SYN-RECEIVED of a
/// passive open a half-open record, and TIME-WAIT a record of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// No connection.
    #[default]
    Closed,
    /// Our SYN is out.
    SynSent,
    /// SYNs crossed: simultaneous open.
    SynReceived,
    /// Open.
    Established,
    /// Our FIN is out.
    FinWait1,
    /// Our FIN is acknowledged, the peer's has not come.
    FinWait2,
    /// The peer's FIN came, ours has not been sent.
    CloseWait,
    /// FINs crossed.
    Closing,
    /// Both FINs are out, ours is not acknowledged.
    LastAck,
    /// Over; waiting for stray segments to die. Held in a compact record.
    TimeWait,
}

coded_as!(State {
    Closed = 0,
    SynSent = 1,
    SynReceived = 2,
    Established = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    CloseWait = 6,
    Closing = 7,
    LastAck = 8,
    TimeWait = 9,
});

impl State {
    /// The handshake is done: sequence numbers of both sides are known.
    #[inline]
    pub(crate) fn is_synchronized(self) -> bool {
        !matches!(self, State::Closed | State::SynSent)
    }

    /// The handshake is under way.
    #[inline]
    pub(crate) fn is_opening(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived)
    }

    /// The peer may still send data.
    #[inline]
    pub(crate) fn can_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }
}

/// Bits of [`Tcb::flags`].
pub(crate) mod flag {
    /// Both sides sent the timestamps option.
    pub(crate) const TIMESTAMPS: u8 = 1 << 0;
    /// Nagle's algorithm is off.
    pub(crate) const NODELAY: u8 = 1 << 1;
    /// The application has let go of the connection; the stack finishes it alone.
    pub(crate) const ORPHAN: u8 = 1 << 2;
    /// The peer's FIN has come in order.
    pub(crate) const PEER_FIN: u8 = 1 << 3;
    /// Both sides sent SACK-permitted (RFC 2018). In a closed connection this bit is one of [`FAILURE`].
    pub(crate) const SACK: u8 = 1 << 4;
    /// Both sides speak ECN (RFC 3168). In a closed connection this bit is one of [`FAILURE`].
    pub(crate) const ECN: u8 = 1 << 5;
    /// Why a closed connection ended badly: three bits, up to seven reasons, one of which is [`RARE`]. While it is open they
    /// are [`SACK`], [`ECN`] and [`UNANSWERED`].
    pub(crate) const FAILURE: u8 = SACK | ECN | UNANSWERED;
    /// Ended for a reason that is rarer: which one, an ended connection has in its `ts_recent`.
    pub(crate) const RARE: u8 = 7 << 4;
    /// Data has come in and nothing has been sent since. In a closed connection this bit is one of [`FAILURE`].
    pub(crate) const UNANSWERED: u8 = 1 << 6;
    /// A FIN is to follow the data that is queued.
    pub(crate) const FIN_QUEUED: u8 = 1 << 7;
}

/// Why a connection is over. The numbers are those that a closed TCB keeps: the bits of [`flag::FAILURE`], and below them
/// which of the rarer reasons it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EndReason {
    /// Both sides were done, or the owner wanted it so: no error.
    #[default]
    Orderly = 0,
    /// Ended by RST.
    Reset = 1 << 4,
    /// The peer stopped answering.
    TimedOut = 2 << 4,
    /// RST to our SYN, or an ICMP message (of a router or the peer) that there is no listener.
    Refused = 3 << 4,
    /// As a router said, the peer cannot be reached.
    NoHost = 4 << 4,
    /// As a router said, its network cannot be reached.
    NoNetwork = 5 << 4,
    /// The peer's host does not speak TCP.
    NoProtocol = 6 << 4,
    /// As a router said, there is no such host.
    HostUnknown = flag::RARE | 1,
    /// As a router said, the host is cut off.
    HostIsolated = flag::RARE | 2,
    /// A source route could not be followed.
    RouteFailed = flag::RARE | 3,
    /// As a router said, this is not allowed.
    Prohibited = flag::RARE | 4,
    /// A header of ours was not understood.
    BadHeader = flag::RARE | 5,
}

coded_as!(EndReason {
    Orderly = 0,
    Reset = 1,
    TimedOut = 2,
    Refused = 3,
    NoHost = 4,
    NoNetwork = 5,
    NoProtocol = 6,
    HostUnknown = 7,
    HostIsolated = 8,
    RouteFailed = 9,
    Prohibited = 10,
    BadHeader = 11,
});

impl EndReason {
    const ALL: [EndReason; 12] = [
        EndReason::Orderly,
        EndReason::Reset,
        EndReason::TimedOut,
        EndReason::Refused,
        EndReason::NoHost,
        EndReason::NoNetwork,
        EndReason::NoProtocol,
        EndReason::HostUnknown,
        EndReason::HostIsolated,
        EndReason::RouteFailed,
        EndReason::Prohibited,
        EndReason::BadHeader,
    ];
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Tcb {
    pub(crate) snd_nxt: SeqNum,
    pub(crate) rcv_nxt: SeqNum,
    /// [`Tcb::snd_wnd`], and in the top bits, which no window reaches, [`Tcb::was_wide`] and one of [`Tcb::stamps`].
    pub(crate) send_window: u32,
    /// Right edge of the window we last offered: it is never taken back (RFC 9293 3.8.6).
    pub(crate) rcv_adv: SeqNum,
    /// TS.Recent of RFC 7323. In a closed connection it is which of the [`flag::RARE`] reasons it ended for.
    pub(crate) ts_recent: u32,
    /// [`Tcb::srtt_us`], and above it what [`crate::conn::timer::uto`] keeps.
    pub(crate) srtt: u32,
    /// The variation of the round trip in microseconds (RFC 6298). Its top bits are [`crate::store::rto::kept_backoff`].
    pub(crate) rttvar_us: u32,
    /// [`Tcb::hot`], or [`Tcb::stamps`] of a connection that has none.
    pub(crate) block: u32,
    /// Token of the task that waits to read (or to be connected).
    pub(crate) reader: u32,
    /// Changes when the slot is given to another connection, so that stale handles are recognised.
    pub(crate) generation: u32,
    /// Milliseconds, wrapping: when a segment last came in.
    pub(crate) last_heard_ms: u32,
    /// The most payload a segment to the peer may carry, options not counted.
    pub(crate) mss: u16,
    /// The slow-start threshold in segments, coded by [`crate::congestion::encode_window`] in seven bits;
    /// [`NO_THRESHOLD`] = not yet known, or beyond all that a code can say. The top bit is [`Tcb::owes_ece`].
    pub(crate) ssthresh_code: u8,
    /// Which of the interned option profiles the connection has; 0 = the stack's defaults.
    pub(crate) profile: u8,
    /// The congestion window, coded by [`crate::congestion::encode_window`] in seven bits; the top bit is
    /// [`Tcb::is_interactive`].
    pub(crate) cwnd_code: u8,
    pub(crate) state: State,
    pub(crate) flags: u8,
    /// Window scales: ours (receive) in the high half, the peer's (send) in the low.
    pub(crate) scales: u8,
}

coded!(Tcb {
    snd_nxt,
    rcv_nxt,
    send_window,
    rcv_adv,
    ts_recent,
    srtt,
    rttvar_us,
    block,
    mss,
    ssthresh_code,
    cwnd_code,
    state,
    flags,
    scales;
    ms last_heard_ms;
    not reader = NONE, generation = 0, profile = 0
});

// With the twelve bytes of an IPv4 key this is one cache line.
const _: () = assert!(size_of::<Tcb>() == 52);

impl Default for Tcb {
    fn default() -> Tcb {
        Tcb {
            snd_nxt: SeqNum(0),
            rcv_nxt: SeqNum(0),
            send_window: 0,
            rcv_adv: SeqNum(0),
            ts_recent: 0,
            srtt: 0,
            rttvar_us: 0,
            block: 0,
            reader: NONE,
            generation: 0,
            last_heard_ms: 0,
            mss: 0,
            ssthresh_code: NO_THRESHOLD,
            profile: 0,
            cwnd_code: 0,
            state: State::Closed,
            flags: 0,
            scales: 0,
        }
    }
}

impl Tcb {
    /// A connection without a hot block, whose timestamps are counted from `stamps`.
    #[inline(always)]
    pub(crate) fn at_rest(stamps: StampBase) -> Tcb {
        let mut tcb = Tcb::default();
        tcb.detach(stamps);
        tcb
    }

    /// The hot block of a busy connection.
    #[inline(always)]
    pub(crate) fn hot(&self) -> Option<HotId> {
        HotId::of_word(self.block)
    }

    /// The connection has this hot block. Returns what its timestamps are counted from, which the block has to keep.
    #[inline(always)]
    pub(crate) fn attach(&mut self, id: HotId) -> StampBase {
        debug_assert!(id.word() & HotId::MARK != 0);
        let stamps = self.stamps();
        self.block = id.word();
        stamps
    }

    /// Base of the timestamps of a connection that has no hot block.
    #[inline(always)]
    pub(crate) fn stamps(&self) -> StampBase {
        debug_assert!(self.hot().is_none());
        StampBase::from_bits(self.block | (self.send_window & STAMPS_HIGH) << 1)
    }

    /// The connection has no hot block any more.
    #[inline(always)]
    pub(crate) fn detach(&mut self, stamps: StampBase) {
        let bits = stamps.to_bits();
        self.block = bits & !HotId::MARK;
        self.send_window = self.send_window & !STAMPS_HIGH | (bits & HotId::MARK) >> 1;
    }

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

    /// Whether the application has the connection, under a name of this generation.
    #[inline(always)]
    pub(crate) fn is_owned(&self, generation: u32) -> bool {
        self.generation == generation && !self.has(flag::ORPHAN)
    }

    /// The peer's window, scaled, counted from the acknowledgement that carried it.
    #[inline]
    pub(crate) fn snd_wnd(&self) -> u32 {
        self.send_window & !(WAS_WIDE | STAMPS_HIGH)
    }

    #[inline]
    pub(crate) fn set_snd_wnd(&mut self, window: u32) {
        let wide = self.mss > 0 && window >= 2 * u32::from(self.mss);
        let others = self.send_window & (WAS_WIDE | STAMPS_HIGH);
        self.send_window = window | others | if wide { WAS_WIDE } else { 0 };
    }

    /// The peer's window has been as large as two segments: one that is small now is its silly window, not its nature
    /// (RFC 9293 section 3.8.6.2.1).
    #[inline]
    pub(crate) fn was_wide(&self) -> bool {
        self.send_window & WAS_WIDE != 0
    }

    #[inline]
    pub(crate) fn send_scale(&self) -> u8 {
        self.scales & 0xf
    }

    #[inline]
    pub(crate) fn receive_scale(&self) -> u8 {
        self.scales >> 4
    }

    /// An answer of ours has followed data soon enough to carry its acknowledgement: the next may be waited for.
    #[inline]
    pub(crate) fn is_interactive(&self) -> bool {
        self.cwnd_code & INTERACTIVE != 0
    }

    #[inline]
    pub(crate) fn set_interactive(&mut self, is: bool) {
        self.cwnd_code = self.cwnd_code & !INTERACTIVE | if is { INTERACTIVE } else { 0 };
    }

    /// The congestion window while idle, in segments.
    #[inline]
    pub(crate) fn idle_window(&self) -> u32 {
        congestion::decode_window(self.cwnd_code & !INTERACTIVE)
    }

    #[inline]
    pub(crate) fn set_idle_window(&mut self, segments: u32) {
        self.cwnd_code = self.cwnd_code & INTERACTIVE | congestion::encode_window(segments);
    }

    /// The slow-start threshold while idle, in segments, if one is known.
    #[inline]
    pub(crate) fn idle_threshold(&self) -> Option<u32> {
        let code = self.ssthresh_code & NO_THRESHOLD;
        (code != NO_THRESHOLD).then(|| congestion::decode_window(code))
    }

    #[inline]
    pub(crate) fn set_idle_threshold(&mut self, segments: Option<u32>) {
        let code = segments.map_or(NO_THRESHOLD, congestion::encode_window);
        self.ssthresh_code = self.ssthresh_code & OWES_ECE | code;
    }

    /// A congestion mark was seen, and the peer has not said that it knows (RFC 3168 section 6.1.3).
    #[inline]
    pub(crate) fn owes_ece(&self) -> bool {
        self.ssthresh_code & OWES_ECE != 0
    }

    #[inline]
    pub(crate) fn set_owes_ece(&mut self, owes: bool) {
        self.ssthresh_code = self.ssthresh_code & NO_THRESHOLD | if owes { OWES_ECE } else { 0 };
    }

    /// Closes it.
    pub(crate) fn close(&mut self, why: EndReason) {
        self.state = State::Closed;
        self.clear(flag::FAILURE | flag::FIN_QUEUED);
        self.set(why as u8 & flag::FAILURE);
        self.ts_recent = u32::from(why as u8 & !flag::FAILURE);
    }

    /// Returns why it ended; [`EndReason::Orderly`] while it has not.
    pub(crate) fn ended_by(&self) -> EndReason {
        if self.state != State::Closed {
            return EndReason::Orderly;
        }
        let code = match self.flags & flag::FAILURE {
            flag::RARE => flag::RARE | self.ts_recent as u8,
            code => code,
        };
        let known = EndReason::ALL.into_iter().find(|&why| why as u8 == code);
        known.unwrap_or_default()
    }

    /// Bytes the peer may still send into the window we offered.
    #[inline]
    pub(crate) fn receive_window(&self) -> u32 {
        u32::try_from(self.rcv_adv - self.rcv_nxt).unwrap_or(0)
    }

    /// The window we offered, as a header spells it.
    #[inline]
    pub(crate) fn window_field(&self) -> u16 {
        (self.receive_window() >> self.receive_scale()).min(0xffff) as u16
    }

    /// Payload per segment once the timestamps option has taken its twelve bytes.
    /// Keeps MUST-16.
    #[inline]
    pub(crate) fn payload_mss(&self) -> u16 {
        self.mss - TIMESTAMPS_LEN * u16::from(self.flags & flag::TIMESTAMPS)
    }
}
