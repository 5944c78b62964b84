//! Congestion control: the algorithms and their state, which know a window and a clock and nothing else of the connection. What
//! they share is here too, and how a window is kept in seven bits while a connection is idle. Which hook is called when is
//! in `conn/loss/window.rs`; which segments are lost, and which go out, is in `loss` and `output`.

pub(crate) mod cubic;
pub(crate) mod hystart;
pub(crate) mod reno;

use janus_wire::SeqNum;

use self::cubic::Cubic;
use self::hystart::HyStart;

/// Initial window in segments (RFC 6928).
pub(crate) const INITIAL_SEGMENTS: u32 = 10;

/// The first window, in segments: one when SYN or SYN-ACK had to be sent again more than once. A single repeat may have
/// been the timer's fault (RFC 6928 section 2, as in Linux; RFC 5681 section 3.1 would have one for any).
/// Keeps 5681-5, 5681-6.
pub(crate) fn first_window(repeats: u8) -> u32 {
    if repeats > 1 { 1 } else { INITIAL_SEGMENTS }
}

/// Congestion control algorithm: decides how much a connection may have in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CongestionControl {
    /// RFC 9438: grows by the time since the last loss, so that long fast paths are filled too.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582: grows by a segment in each round trip.
    NewReno,
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
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    /// Bytes acknowledged towards the next growth of `cwnd` in congestion avoidance.
    pub(crate) cwnd_credit: u32,
    /// Milliseconds, wrapping, of the last acknowledgement of new data, or of the end of idleness.
    pub(crate) acked_ms: u32,
    /// Largest amount in flight among what was sent until `used_until`.
    pub(crate) used_peak: u32,
    pub(crate) used_until: SeqNum,
    pub(crate) growth: Growth,
    /// End of what was sent when the window was last lowered for a congestion mark; later, of what was acknowledged.
    pub(crate) cwr_end: SeqNum,
    /// The next new data is to say that the window was lowered (RFC 3168 section 6.1.2).
    pub(crate) cwr_due: bool,
    /// The window was what held the sender back, for what was sent until `used_until`.
    pub(crate) cwnd_limited: bool,
    /// Segments that one acknowledgement may add to `cwnd` in slow start; 0 = no limit.
    pub(crate) slow_start_limit: u8,
    /// Algorithm that sets `cwnd`.
    pub(crate) algorithm: CongestionControl,
}

/// RFC 5681 section 3.1, counting bytes (RFC 3465). How much of one acknowledgement counts is the configuration's
/// to say (RFC 9406 section 4.3 recommends no limit or 8 segments, in place of RFC 3465's two), but while what was
/// in flight at a timeout is being acknowledged, it is one segment: then much may be acknowledged at once that left
/// the network long ago (RFC 3465 section 2.3).
/// Keeps 9438-9.
#[inline]
pub(crate) fn slow_start(window: &mut Congestion, mss: u32, acked: u32, after_timeout: bool) {
    // A window half used has still to be found out (RFC 7661; Linux does the same).
    if !window.cwnd_limited && window.cwnd >= window.used_peak.saturating_mul(2) {
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
#[inline]
pub(crate) fn on_rtt(window: &mut Congestion, rtt_us: u32, round_is_over: bool) {
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
