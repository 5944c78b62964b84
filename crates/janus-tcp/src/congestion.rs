//! The one place that knows which congestion control a connection has: every hook is a small match on
//! [`Algorithm`], and the arithmetic is in the algorithm's own file (`cubic`, `reno`). What they share is here too: what an
//! idle connection keeps of its windows, and when a window was really used. What never lives here: which
//! segments are lost, and which go out.
//!
//! Whoever repairs losses calls [`ssthresh_on_loss`] once for each window in which something was lost, sets
//! `ssthresh` to it and decides about `cwnd` until [`leave_recovery`]; [`on_ack`] is not called
//! meanwhile.

use crate::cold::{Tcb, flag};
use crate::config::Config;
use janus_wire::SeqNum;

use crate::cubic::{self, Cubic};
use crate::hot::{Hot, hot_flag};
use crate::hystart::{self, HyStart};
use crate::reno;
use crate::rto;
use crate::time::Instant;

/// Initial window in segments (RFC 6928).
pub(crate) const INITIAL_SEGMENTS: u32 = 10;

/// The first window, in segments: one when SYN or SYN-ACK had to be sent again more than once. A single repeat may have
/// been the timer's fault (RFC 6928 section 2, as in Linux; RFC 5681 section 3.1 would have one for any).
pub(crate) fn first_window(repeats: u8) -> u32 {
    if repeats > 1 { 1 } else { INITIAL_SEGMENTS }
}

/// Congestion control algorithm: decides how much a connection may have in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
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
    pub(crate) algorithm: Algorithm,
}

/// Loads the hot block with what the cold TCB remembers.
#[inline]
pub(crate) fn wake(hot: &mut Hot, cold: &Tcb, config: &Config, algorithm: Algorithm, now: Instant) {
    let mss = u32::from(cold.payload_mss());
    hot.congestion.cwnd = cold.idle_window().saturating_mul(mss);
    let threshold = cold.idle_threshold();
    hot.congestion.ssthresh = threshold.map_or(u32::MAX, |segments| segments.saturating_mul(mss));
    hot.congestion.cwnd_credit = 0;
    hot.congestion.algorithm = algorithm;
    hot.congestion.slow_start_limit = config.slow_start_limit.unwrap_or(0);
    hot.congestion.growth = match threshold {
        None => Growth::First(HyStart::default()),
        Some(_) => Growth::Later(Cubic::default()),
    };
    hot.congestion.cwr_end = cold.snd_nxt;
    hot.congestion.cwr_due = cold.keeps_cwr();
    hot.congestion.acked_ms = now.as_millis() as u32;
    hot.congestion.used_until = cold.snd_nxt;
    hot.congestion.used_peak = 0;
    hot.congestion.cwnd_limited = false;
    restart(
        hot,
        cold,
        config,
        hot.congestion.acked_ms.wrapping_sub(cold.last_heard_ms),
    );
}

/// RFC 5681 section 4.1: after an idle RTO the old window says nothing about the path; a new one is found by slow
/// start, up to what the path has carried (RFC 2861 section 3.1: three quarters of the window it had).
#[inline]
fn restart(hot: &mut Hot, cold: &Tcb, config: &Config, idle_ms: u32) {
    let window = INITIAL_SEGMENTS * u32::from(cold.payload_mss());
    // Most windows are no larger, and need not be compared with a timeout.
    if hot.congestion.cwnd <= window
        || !config.slow_start_after_idle
        || u64::from(idle_ms) <= rto::timeout_ns(cold, config, 0) / 1_000_000
    {
        return;
    }
    if hot.congestion.ssthresh != u32::MAX {
        hot.congestion.ssthresh = hot
            .congestion
            .ssthresh
            .max(hot.congestion.cwnd - hot.congestion.cwnd / 4);
    }
    hot.congestion.cwnd = window;
    hot.congestion.cwnd_credit = 0;
    cubic::end_epoch(&mut hot.congestion);
}

/// Data is about to go out while nothing is in flight: the time since the last acknowledgement was idle.
#[inline]
pub(crate) fn on_start(hot: &mut Hot, cold: &Tcb, config: &Config, now: Instant) {
    let now_ms = now.as_millis() as u32;
    // Not a part of CUBIC's epoch (RFC 9438 section 5.8).
    let idle_ms = now_ms.wrapping_sub(core::mem::replace(&mut hot.congestion.acked_ms, now_ms));
    restart(hot, cold, config, idle_ms);
}

/// Stores in the cold TCB what outlives the hot block.
#[inline]
pub(crate) fn sleep(hot: &Hot, cold: &mut Tcb) {
    let mss = u32::from(cold.payload_mss());
    cold.set_idle_window(hot.congestion.cwnd / mss);
    cold.set_idle_threshold(
        (hot.congestion.ssthresh != u32::MAX).then(|| hot.congestion.ssthresh / mss),
    );
    cold.keep_cwr(hot.congestion.cwr_due);
}

/// A segment with data has been sent. Notes whether the window holds the sender back, that is, whether less than a
/// segment of it is left; if it does not, how much of it was used at most. Both hold for the data sent meanwhile.
#[inline]
pub(crate) fn on_sent(hot: &mut Hot, cold: &Tcb) {
    let limited = hot.sender.pipe + u32::from(cold.payload_mss()) > hot.congestion.cwnd;
    let is_news = hot.sender.snd_una.ge(hot.congestion.used_until)
        || limited
        || (!hot.congestion.cwnd_limited && hot.sender.pipe > hot.congestion.used_peak);
    if is_news {
        hot.congestion.cwnd_limited = limited;
        hot.congestion.used_peak = hot.sender.pipe;
        hot.congestion.used_until = cold.snd_nxt;
    }
}

/// `acked` bytes were newly acknowledged, outside recovery.
#[inline(always)]
pub(crate) fn on_ack(hot: &mut Hot, cold: &Tcb, acked: u32, now: Instant) {
    let now_ms = now.as_millis() as u32;
    let since_ms = now_ms.wrapping_sub(core::mem::replace(&mut hot.congestion.acked_ms, now_ms));
    let mss = u32::from(cold.payload_mss());
    // With SACK, what left the network long ago is not counted twice.
    let after_timeout = !cold.has(flag::SACK) && hot.loss.recover.ge(hot.sender.snd_una);
    if (hot.sender.snd_una - hot.loss.recover) > 0 {
        // Left behind, it would one day seem to lie ahead.
        hot.loss.recover = hot.sender.snd_una;
    }
    if hot.congestion.cwr_end.ge(hot.sender.snd_una) {
        // This flight was sent before the window was lowered.
        return;
    }
    hot.congestion.cwr_end = hot.sender.snd_una;
    if hot.congestion.cwnd < hot.congestion.ssthresh {
        slow_start(&mut hot.congestion, mss, acked, after_timeout);
        return;
    }
    // RFC 7661: a window that is not used is not tested either, and must not grow.
    if !hot.congestion.cwnd_limited {
        return;
    }
    match hot.congestion.algorithm {
        Algorithm::Cubic => {
            cubic::on_ack(&mut hot.congestion, mss, acked, cold.srtt_us(), since_ms)
        }
        Algorithm::NewReno => reno::on_ack(&mut hot.congestion, mss, acked),
    }
}

/// RFC 5681 section 3.1, counting bytes (RFC 3465). How much of one acknowledgement counts is the configuration's
/// to say (RFC 9406 section 4.3 recommends no limit or 8 segments, in place of RFC 3465's two), but while what was
/// in flight at a timeout is being acknowledged, it is one segment: then much may be acknowledged at once that left
/// the network long ago (RFC 3465 section 2.3).
#[inline]
fn slow_start(window: &mut Congestion, mss: u32, acked: u32, after_timeout: bool) {
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

/// Something sent was lost for the first time in this window: the slow-start threshold from now on. The algorithm
/// learns of the loss by this call, so it is made once for each window.
pub(crate) fn ssthresh_on_loss(hot: &mut Hot, cold: &Tcb) -> u32 {
    if hot.congestion.cwr_end.gt(hot.sender.snd_una) {
        // Lowered for a mark in this window already: RFC 3168 section 6.1.2.
        return hot.congestion.ssthresh;
    }
    let flight = flight_at_loss(hot);
    reduced(hot, cold, flight)
}

/// FlightSize for RFC 5681 equation 4. What limited transmit sent on duplicate acknowledgements does not count (section
/// 3.2 step 2). In recovery, though, the window may be anything.
fn flight_at_loss(hot: &Hot) -> u32 {
    if hot.has(hot_flag::RECOVERY) {
        hot.sender.flight.bytes
    } else {
        hot.sender.flight.bytes.min(hot.congestion.cwnd)
    }
}

/// The peer acknowledged `acked` bytes and says that a packet of ours was marked: the window falls as for a loss, once
/// for each window of data, and not in one that a loss has lowered already (RFC 3168 section 6.1.2). True when it did.
pub(crate) fn on_ecn(hot: &mut Hot, cold: &Tcb, acked: u32) -> bool {
    let again = hot.has(hot_flag::RECOVERY)
        || hot.congestion.cwr_end.ge(hot.sender.snd_una)
        || hot.loss.recover.ge(hot.sender.snd_una);
    if again {
        return false;
    }
    let flight = hot
        .sender
        .flight
        .bytes
        .saturating_add(acked)
        .min(hot.congestion.cwnd);
    hot.congestion.ssthresh = reduced(hot, cold, flight);
    hot.congestion.cwnd = hot.congestion.cwnd.min(hot.congestion.ssthresh);
    hot.congestion.cwr_end = cold.snd_nxt;
    true
}

/// The threshold after a sign of congestion, of which the peer is told when it speaks ECN.
fn reduced(hot: &mut Hot, cold: &Tcb, flight: u32) -> u32 {
    hot.congestion.cwr_due = cold.has(flag::ECN);
    if let Growth::First(_) = hot.congestion.growth {
        hot.congestion.growth = Growth::default();
    }
    let mss = u32::from(cold.payload_mss());
    hot.congestion.cwnd_credit = 0;
    match hot.congestion.algorithm {
        Algorithm::Cubic => cubic::threshold(&mut hot.congestion, mss, flight),
        Algorithm::NewReno => reno::threshold(mss, flight),
    }
}

/// Everything sent before the loss is acknowledged (RFC 6582 section 3.2 step 3, first option).
pub(crate) fn leave_recovery(hot: &mut Hot, cold: &Tcb) {
    let mss = u32::from(cold.payload_mss());
    hot.congestion.cwnd = hot
        .congestion
        .ssthresh
        .min(hot.sender.flight.bytes.max(mss) + mss);
    hot.clear(hot_flag::RECOVERY);
}

/// The retransmission timer went off (RFC 5681 section 3.1, last rules). `first`: not again for the same segment.
pub(crate) fn on_timeout(hot: &mut Hot, cold: &Tcb, first: bool) {
    if first {
        let flight = flight_at_loss(hot);
        hot.congestion.ssthresh = reduced(hot, cold, flight);
    }
    cubic::on_timeout(&mut hot.congestion);
    hot.congestion.cwnd = u32::from(cold.payload_mss());
    hot.congestion.cwnd_credit = 0;
    hot.clear(hot_flag::RECOVERY);
}

#[cfg(test)]
mod tests;
