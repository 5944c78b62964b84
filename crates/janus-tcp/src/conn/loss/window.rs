//! The congestion window of a connection: what sending, acknowledgements, losses and marks do to it. The one place that knows
//! which algorithm a connection has: every hook is a small match, the arithmetic is in the algorithm's own file.
//!
//! Whoever repairs losses calls [`ssthresh_on_loss`] once for each window in which something was lost, sets
//! `ssthresh` to it and decides about `cwnd` until [`leave_recovery`]; [`on_ack`] is not called
//! meanwhile.

use crate::congestion::{CongestionControl, Growth, cubic, reno, slow_start};
use crate::rules::config::Config;
use crate::store::cold::{Tcb, flag};
use crate::store::hot::{Hot, hot_flag};
use crate::store::window::restart;
use crate::time::Instant;

/// Data is about to go out while nothing is in flight: the time since the last acknowledgement was idle.
#[inline]
pub(crate) fn on_start(hot: &mut Hot, cold: &Tcb, config: &Config, now: Instant) {
    let now_ms = now.as_millis() as u32;
    // Not a part of CUBIC's epoch (RFC 9438 section 5.8).
    let idle_ms = now_ms.wrapping_sub(core::mem::replace(&mut hot.congestion.acked_ms, now_ms));
    restart(hot, cold, config, idle_ms);
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
/// Keeps 5681-2, 5681-3, MUST-19.
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
        CongestionControl::Cubic => {
            cubic::on_ack(&mut hot.congestion, mss, acked, cold.srtt_us(), since_ms)
        }
        CongestionControl::NewReno => reno::on_ack(&mut hot.congestion, mss, acked),
    }
}

/// Something sent was lost for the first time in this window: the slow-start threshold from now on. The algorithm
/// learns of the loss by this call, so it is made once for each window.
/// Keeps 5681-14, 5681-7.
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
/// Keeps 3168-1.
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
        CongestionControl::Cubic => cubic::threshold(&mut hot.congestion, mss, flight),
        CongestionControl::NewReno => reno::threshold(mss, flight),
    }
}

/// Everything sent before the loss is acknowledged (RFC 6582 section 3.2 step 3, first option).
/// Keeps 5681-18, 5681-24.
pub(crate) fn leave_recovery(hot: &mut Hot, cold: &Tcb) {
    let mss = u32::from(cold.payload_mss());
    hot.congestion.cwnd = hot
        .congestion
        .ssthresh
        .min(hot.sender.flight.bytes.max(mss) + mss);
    hot.clear(hot_flag::RECOVERY);
}

/// The retransmission timer went off (RFC 5681 section 3.1, last rules). `first`: not again for the same segment.
/// Keeps 5681-10, 5681-11.
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
