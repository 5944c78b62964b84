//! Congestion control: the algorithms and their state, which know a window and a clock and nothing else of the connection. What
//! they share is here too, and how a window is kept in seven bits while a connection is idle. Which hook is called when is
//! in `conn/loss/window.rs`; which segments are lost, and which go out, is in `loss` and `output`.

pub(crate) mod cubic;
pub(crate) mod hystart;
pub(crate) mod reno;

use janus_wire::SeqNum;

use self::cubic::Cubic;
use self::hystart::HyStart;
use crate::coded::{Coded, Garbled, Source, coded};

/// Initial window in segments (RFC 6928).
pub(crate) const INITIAL_SEGMENTS: u32 = 10;

/// The first window, in segments: one when SYN or SYN-ACK had to be sent again more than once. A single repeat may have
/// been the timer's fault (RFC 6928 section 2, as in Linux; RFC 5681 section 3.1 would have one for any).
/// Keeps 5681-5, 5681-6.
pub(crate) fn first_window(repeats: u8) -> u32 {
    if repeats > 1 { 1 } else { INITIAL_SEGMENTS }
}

/// Congestion control algorithm: decides how much a connection may have in flight.
/// Exhaustive: each has its name in Linux, which a match gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CongestionControl {
    /// RFC 9438: grows by the time since the last loss, so that long fast paths are filled too.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582: grows by a segment in each round trip.
    NewReno,
}

/// By name, as both ends of a move need not number them alike.
impl Coded for CongestionControl {
    fn put(&self, to: &mut Vec<u8>) {
        let name = self.name();
        to.push(name.len() as u8);
        to.extend_from_slice(name.as_bytes());
    }

    fn take(from: &mut Source<'_>) -> Result<CongestionControl, Garbled> {
        let len = u8::take(from)?.into();
        let name = from.bytes(len)?;
        let all = [CongestionControl::Cubic, CongestionControl::NewReno];
        let named = all.into_iter().find(|it| it.name().as_bytes() == name);
        named.ok_or(Garbled)
    }
}

impl CongestionControl {
    fn name(self) -> &'static str {
        match self {
            CongestionControl::Cubic => "cubic",
            CongestionControl::NewReno => "reno",
        }
    }
}

/// Windows are kept for idle connections in seven bits: 8 steps to an octave, so within an eighth; 61,440
/// segments at most.
pub(crate) fn encode_window(segments: u32) -> u8 {
    let n = segments.max(1);
    let octave = 31 - n.leading_zeros();
    let step = if octave >= 3 {
        (n >> (octave - 3)) & 7
    } else {
        (n << (3 - octave)) & 7
    };
    ((octave << 3) | step).min(127) as u8
}

/// The inverse of [`encode_window`], rounded down.
pub(crate) fn decode_window(code: u8) -> u32 {
    let (octave, step) = (u32::from(code >> 3), u32::from(code & 7));
    let eighths = 8 + step;
    if octave >= 3 {
        eighths << (octave - 3)
    } else {
        (eighths >> (3 - octave)).max(1)
    }
}

/// State that the window's growth depends on; the two are never needed at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Growth {
    /// The first slow start, whose threshold is not known.
    First(HyStart),
    /// Whatever comes after a loss, or after the first slow start.
    Later(Cubic),
}

impl Coded for Growth {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Growth::First(hystart) => (true, *hystart).put(to),
            Growth::Later(cubic) => (false, *cubic).put(to),
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Growth, Garbled> {
        Ok(match bool::take(from)? {
            true => Growth::First(HyStart::take(from)?),
            false => Growth::Later(Cubic::take(from)?),
        })
    }
}

const _: () = assert!(size_of::<Growth>() <= 24);

impl Default for Growth {
    fn default() -> Growth {
        Growth::Later(Cubic::default())
    }
}

impl Growth {
    /// CUBIC's state; slow start is over.
    #[inline]
    pub(crate) fn cubic(&mut self) -> &mut Cubic {
        if let Growth::First(_) = self {
            *self = Growth::default();
        }
        match self {
            Growth::Later(cubic) => cubic,
            Growth::First(_) => unreachable!("it has just been replaced"),
        }
    }
}

/// State of congestion control: a group of the hot block.
#[derive(Default)]
pub(crate) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged towards the next growth of `cwnd` in congestion avoidance.
    cwnd_credit: u32,
    /// Milliseconds, wrapping, of the last acknowledgement of new data, or of the end of idleness.
    acked_ms: u32,
    /// Largest amount in flight among what was sent until `used_until`.
    used_peak: u32,
    used_until: SeqNum,
    growth: Growth,
    /// End of what was sent when the window was last lowered for a congestion mark; later, of what was acknowledged.
    cwr_end: SeqNum,
    /// The next new data is to say that the window was lowered (RFC 3168 section 6.1.2).
    cwr_due: bool,
    /// The window was what held the sender back, for what was sent until `used_until`.
    cwnd_limited: bool,
    /// Segments that one acknowledgement may add to `cwnd` in slow start; 0 = no limit.
    slow_start_limit: u8,
    /// Algorithm that sets `cwnd`.
    algorithm: CongestionControl,
}

coded!(Congestion {
    cwnd,
    ssthresh,
    cwnd_credit,
    used_peak,
    used_until,
    growth,
    cwr_end,
    cwr_due,
    cwnd_limited,
    slow_start_limit,
    algorithm;
    ms acked_ms
});

impl Congestion {
    /// Bytes that may be in flight.
    #[inline(always)]
    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Slow-start threshold in bytes; `u32::MAX` = not known.
    #[inline(always)]
    pub(crate) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Milliseconds, wrapping, of the last acknowledgement of new data, or of the end of idleness.
    #[inline(always)]
    pub(crate) fn acked_ms(&self) -> u32 {
        self.acked_ms
    }

    #[inline(always)]
    pub(crate) fn growth(&self) -> Growth {
        self.growth
    }

    /// The next new data is to say that the window was lowered (RFC 3168 section 6.1.2).
    #[inline(always)]
    pub(crate) fn owes_cwr(&self) -> bool {
        self.cwr_due
    }

    /// New data says that the window was lowered, if it was; the peer is told once.
    #[inline(always)]
    pub(crate) fn take_cwr(&mut self) -> bool {
        core::mem::take(&mut self.cwr_due)
    }

    /// A connection that was idle is busy from `now_ms` on, with the window and threshold, in bytes, that were kept. `at` is what it
    /// sends next.
    #[inline(always)]
    pub(crate) fn wake(
        &mut self,
        (cwnd, threshold): (u32, Option<u32>),
        (algorithm, slow_start_limit): (CongestionControl, u8),
        cwr_due: bool,
        at: SeqNum,
        now_ms: u32,
    ) {
        self.cwnd = cwnd;
        self.ssthresh = threshold.unwrap_or(u32::MAX);
        self.cwnd_credit = 0;
        self.algorithm = algorithm;
        self.slow_start_limit = slow_start_limit;
        self.growth = match threshold {
            None => Growth::First(HyStart::default()),
            Some(_) => Growth::Later(Cubic::default()),
        };
        self.cwr_end = at;
        self.cwr_due = cwr_due;
        self.acked_ms = now_ms;
        self.used_until = at;
        self.used_peak = 0;
        self.cwnd_limited = false;
    }

    /// The window is `cwnd` after an idle time. Up to what the path has carried (RFC 2861 section 3.1: three quarters of the window it
    /// had) it is found again by slow start.
    #[inline(always)]
    pub(crate) fn begin_again(&mut self, cwnd: u32) {
        if self.ssthresh != u32::MAX {
            self.ssthresh = self.ssthresh.max(self.cwnd - self.cwnd / 4);
        }
        self.cwnd = cwnd;
        self.cwnd_credit = 0;
        cubic::end_epoch(self);
    }

    /// New data was acknowledged, or an idle time has ended. Returns the milliseconds since that happened last.
    #[inline(always)]
    pub(crate) fn note_time(&mut self, now_ms: u32) -> u32 {
        now_ms.wrapping_sub(core::mem::replace(&mut self.acked_ms, now_ms))
    }

    /// Enough of the window is used to find out whether there is room for more (RFC 7661; Linux asks for half of it too).
    #[inline(always)]
    fn is_used(&self) -> bool {
        self.cwnd_limited || self.cwnd < self.used_peak.saturating_mul(2)
    }

    /// A segment with data has been sent; `pipe` bytes are in flight now, from `una` up to `nxt`. Notes whether the window holds the
    /// sender back, that is, whether less than a segment of it is left; if it does not, how much of it was used at most. Both hold for
    /// the data sent meanwhile.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, pipe: u32, mss: u32, una: SeqNum, nxt: SeqNum) {
        let limited = pipe + mss > self.cwnd;
        let is_news =
            una.ge(self.used_until) || limited || (!self.cwnd_limited && pipe > self.used_peak);
        if is_news {
            self.cwnd_limited = limited;
            self.used_peak = pipe;
            self.used_until = nxt;
        }
    }

    /// `acked` bytes, up to `una`, were acknowledged outside recovery, `since_ms` after what was acknowledged before.
    #[inline(always)]
    pub(crate) fn on_ack(
        &mut self,
        (mss, acked): (u32, u32),
        una: SeqNum,
        after_timeout: bool,
        srtt_us: impl FnOnce() -> u32,
        since_ms: u32,
    ) {
        if self.cwr_end.ge(una) {
            // This flight was sent before the window was lowered.
            return;
        }
        self.cwr_end = una;
        if self.cwnd < self.ssthresh {
            slow_start(self, mss, acked, after_timeout);
            return;
        }
        // RFC 7661: a window that is not used is not tested either, and must not grow.
        if !self.cwnd_limited {
            return;
        }
        match self.algorithm {
            CongestionControl::Cubic => cubic::on_ack(self, mss, acked, srtt_us(), since_ms),
            CongestionControl::NewReno => reno::on_ack(self, mss, acked),
        }
    }

    /// Something sent was lost for the first time in this window, with `flight` bytes in flight from `una` on: the threshold falls.
    /// `ecn`: the peer is told.
    pub(crate) fn on_loss(&mut self, flight: u32, una: SeqNum, mss: u32, ecn: bool) {
        // Lowered for a mark in this window already: RFC 3168 section 6.1.2.
        if self.cwr_end.le(una) {
            self.lower_threshold(flight, mss, ecn);
        }
    }

    /// The peer says that a packet of ours was marked: the window falls as for a loss, once for each window of data. `una` to `nxt` is
    /// in flight, `flight` bytes were before the acknowledgement that says so. True when it fell.
    pub(crate) fn on_mark(
        &mut self,
        flight: u32,
        (una, nxt): (SeqNum, SeqNum),
        mss: u32,
        ecn: bool,
    ) -> bool {
        if self.cwr_end.ge(una) {
            return false;
        }
        self.lower_threshold(flight.min(self.cwnd), mss, ecn);
        self.cwnd = self.cwnd.min(self.ssthresh);
        self.cwr_end = nxt;
        true
    }

    /// The retransmission timer went off with `flight` bytes in flight; `None`: again for the same segment.
    pub(crate) fn on_timeout(&mut self, flight: Option<u32>, mss: u32, ecn: bool) {
        if let Some(flight) = flight {
            self.lower_threshold(flight, mss, ecn);
        }
        cubic::on_timeout(self);
        self.cwnd = mss;
        self.cwnd_credit = 0;
    }

    /// The threshold after a sign of congestion, of which the peer is told when it speaks ECN.
    fn lower_threshold(&mut self, flight: u32, mss: u32, ecn: bool) {
        self.cwr_due = ecn;
        if let Growth::First(_) = self.growth {
            self.growth = Growth::default();
        }
        self.cwnd_credit = 0;
        self.ssthresh = match self.algorithm {
            CongestionControl::Cubic => cubic::threshold(self, mss, flight),
            CongestionControl::NewReno => reno::threshold(mss, flight),
        };
    }

    /// Sets the window to what the repair of losses lets out.
    #[inline(always)]
    pub(crate) fn allow(&mut self, bytes: u32) {
        self.cwnd = bytes;
    }

    /// The window falls to the threshold.
    pub(crate) fn fall_to_threshold(&mut self) {
        self.cwnd = self.ssthresh;
    }

    /// Everything sent before the loss is acknowledged; `flight` bytes are in flight.
    pub(crate) fn leave_recovery(&mut self, flight: u32, mss: u32) {
        self.cwnd = self.ssthresh.min(flight.max(mss) + mss);
    }

    /// The window was lowered for nothing: it is what it was, or more.
    pub(crate) fn give_back(&mut self, cwnd: u32, ssthresh: u32, growth: Growth) {
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = ssthresh.max(self.ssthresh);
        self.growth = growth;
    }
}

/// RFC 5681 section 3.1, counting bytes (RFC 3465). How much of one acknowledgement counts is the configuration's
/// to say (RFC 9406 section 4.3 recommends no limit or 8 segments, in place of RFC 3465's two), but while what was
/// in flight at a timeout is being acknowledged, it is one segment: then much may be acknowledged at once that left
/// the network long ago (RFC 3465 section 2.3).
/// Keeps 9438-9.
#[inline]
fn slow_start(window: &mut Congestion, mss: u32, acked: u32, after_timeout: bool) {
    if !window.is_used() {
        return;
    }
    let limit = match window.slow_start_limit {
        _ if after_timeout => mss,
        0 => u32::MAX,
        segments => u32::from(segments) * mss,
    };
    let mut growth = acked.min(limit);
    if matches!(&window.growth, Growth::First(hystart) if hystart.is_careful()) {
        growth /= hystart::CSS_DIVISOR;
    }
    window.cwnd = window.cwnd.saturating_add(growth);
}

/// A round trip was measured; `round_is_over`: since the one that ended the round before, all that was then in flight has
/// been acknowledged.
#[inline(always)]
pub(crate) fn on_rtt(window: &mut Congestion, rtt_us: u32, round_is_over: bool) {
    // A window that is not used does not grow, and round trips say nothing of it.
    if !window.is_used() {
        return;
    }
    if let Growth::First(hystart) = &mut window.growth
        && window.ssthresh == u32::MAX
        && hystart.on_rtt(rtt_us, round_is_over)
    {
        // RFC 9438 section 4.10: slow start is over without a loss, and CUBIC's curve begins at its middle.
        window.ssthresh = window.cwnd;
        window.growth = Growth::default();
    }
}

#[cfg(test)]
mod tests;
