//! The one place that knows which congestion control a connection has: every hook is a small match on
//! [`Algorithm`], and the arithmetic is in the algorithm's own file (`reno`). What they share is here too: what an
//! idle connection keeps of its windows, and when a window was really used. What never lives here: which
//! segments are lost, and which go out.
//!
//! Whoever repairs losses calls [`ssthresh_on_loss`] once for each window in which something was lost, sets
//! [`Hot::ssthresh`] to it and decides about [`Hot::cwnd`] until [`leave_recovery`]; [`on_ack`] is not called
//! meanwhile.

use crate::cold::Cold;
use crate::config::Config;
use crate::hot::{Hot, hot_flag};
use crate::reno;
use crate::time::Instant;

/// Initial window in segments (RFC 6928).
pub(crate) const INITIAL_SEGMENTS: u32 = 10;

/// What decides how much a connection may have in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    #[default]
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

/// Loads the hot block with what the cold TCB remembers.
#[inline]
pub(crate) fn wake(hot: &mut Hot, cold: &Cold, config: &Config, restarted: bool) {
    let mss = u32::from(cold.payload_mss());
    let mut segments = cold.idle_window();
    if restarted {
        // RFC 5681 section 4.1: after an idle RTO the old window says nothing about the path.
        segments = segments.min(INITIAL_SEGMENTS);
    }
    hot.cwnd = segments * mss;
    let threshold = cold.idle_threshold();
    hot.ssthresh = threshold.map_or(u32::MAX, |segments| segments * mss);
    hot.cwnd_credit = 0;
    hot.algorithm = config.congestion;
}

/// Stores in the cold TCB what outlives the hot block.
#[inline]
pub(crate) fn sleep(hot: &Hot, cold: &mut Cold) {
    let mss = u32::from(cold.payload_mss());
    cold.set_idle_window(hot.cwnd / mss);
    cold.set_idle_threshold((hot.ssthresh != u32::MAX).then(|| hot.ssthresh / mss));
}

/// An acknowledgement of something new has come, and nothing was taken out of flight for it yet: notes whether the
/// window was what held the sender back, that is, less than a segment of it was left.
#[inline]
pub(crate) fn before_ack(hot: &mut Hot, cold: &Cold) {
    let mss = u32::from(cold.payload_mss());
    hot.cwnd_limited = hot.pipe + mss > hot.cwnd || hot.has(hot_flag::RECOVERY);
}

/// `acked` bytes were newly acknowledged, outside recovery.
#[inline]
pub(crate) fn on_ack(hot: &mut Hot, cold: &Cold, acked: u32, _now: Instant) {
    // RFC 7661: a window that is not used is not tested either, and must not grow.
    if !hot.cwnd_limited {
        return;
    }
    let mss = u32::from(cold.payload_mss());
    if hot.cwnd < hot.ssthresh {
        slow_start(hot, mss, acked);
        return;
    }
    match hot.algorithm {
        Algorithm::NewReno => reno::on_ack(hot, mss, acked),
    }
}

/// RFC 5681 section 3.1, counting bytes as RFC 3465 with L = 2.
#[inline]
fn slow_start(hot: &mut Hot, mss: u32, acked: u32) {
    hot.cwnd = hot.cwnd.saturating_add(acked.min(2 * mss));
}

/// Something sent was lost for the first time in this window: the slow-start threshold from now on. The algorithm
/// learns of the loss by this call, so it is made once for each window.
pub(crate) fn ssthresh_on_loss(hot: &mut Hot, cold: &Cold, _now: Instant) -> u32 {
    let mss = u32::from(cold.payload_mss());
    hot.cwnd_credit = 0;
    match hot.algorithm {
        Algorithm::NewReno => reno::threshold(hot, mss),
    }
}

/// Everything sent before the loss is acknowledged (RFC 6582 section 3.2 step 3, first option).
pub(crate) fn leave_recovery(hot: &mut Hot, cold: &Cold) {
    let mss = u32::from(cold.payload_mss());
    hot.cwnd = hot.ssthresh.min(hot.flight.bytes.max(mss) + mss);
    hot.clear(hot_flag::RECOVERY);
}

/// The retransmission timer went off (RFC 5681 section 3.1, last rules). `first`: not again for the same segment.
pub(crate) fn on_timeout(hot: &mut Hot, cold: &Cold, first: bool, now: Instant) {
    if first {
        hot.ssthresh = ssthresh_on_loss(hot, cold, now);
    }
    hot.cwnd = u32::from(cold.payload_mss());
    hot.cwnd_credit = 0;
    hot.clear(hot_flag::RECOVERY);
}

#[cfg(test)]
mod tests;
