//! The congestion window of a connection: what sending, acknowledgements, losses and marks do to it. The algorithms, and which of
//! them a connection has, are in `congestion`.
//!
//! Whoever repairs losses calls [`on_loss`] once for each window in which something was lost, and decides about the window until
//! [`leave_recovery`]; [`on_ack`] is not called meanwhile.

use crate::rules::config::Config;
use crate::store::cold::{Tcb, flag};
use crate::store::hot::{Hot, hot_flag};
use crate::store::window::restart;

/// Data is about to go out while nothing is in flight: the time since the last acknowledgement was idle.
#[inline]
pub(crate) fn on_start(hot: &mut Hot, cold: &Tcb, config: &Config, now_ms: u32) {
    // Not a part of CUBIC's epoch (RFC 9438 section 5.8).
    let idle_ms = hot.congestion.note_time(now_ms);
    restart(hot, cold, config, idle_ms);
}

/// A segment with data has been sent.
#[inline]
pub(crate) fn on_sent(hot: &mut Hot, cold: &Tcb) {
    let (pipe, mss) = (hot.sender.pipe, u32::from(cold.payload_mss()));
    hot.congestion
        .on_sent(pipe, mss, hot.sender.snd_una, cold.snd_nxt);
}

/// `acked` bytes were newly acknowledged, outside recovery.
/// Keeps 5681-2, 5681-3, MUST-19.
#[inline(always)]
pub(crate) fn on_ack(hot: &mut Hot, cold: &Tcb, acked: u32, now_ms: u32) {
    let since_ms = hot.congestion.note_time(now_ms);
    let mss = u32::from(cold.payload_mss());
    let una = hot.sender.snd_una;
    // With SACK, what left the network long ago is not counted twice.
    let after_timeout = !cold.has(flag::SACK) && hot.loss.recover.ge(una);
    if (una - hot.loss.recover) > 0 {
        // Left behind, it would one day seem to lie ahead.
        hot.loss.recover = una;
    }
    hot.congestion.on_ack(
        (mss, acked),
        una,
        after_timeout,
        || cold.srtt_us(),
        since_ms,
    );
}

/// Something sent was lost for the first time in this window: the slow-start threshold falls. Returns it. The algorithm
/// learns of the loss by this call, so it is made once for each window.
/// Keeps 5681-14, 5681-7.
pub(crate) fn on_loss(hot: &mut Hot, cold: &Tcb) -> u32 {
    let (flight, una) = (flight_at_loss(hot), hot.sender.snd_una);
    let mss = u32::from(cold.payload_mss());
    hot.congestion
        .on_loss(flight, una, mss, cold.has(flag::ECN));
    hot.congestion.ssthresh()
}

/// FlightSize for RFC 5681 equation 4. What limited transmit sent on duplicate acknowledgements does not count (section
/// 3.2 step 2). In recovery, though, the window may be anything.
fn flight_at_loss(hot: &Hot) -> u32 {
    if hot.has(hot_flag::RECOVERY) {
        hot.sender.flight.bytes
    } else {
        hot.sender.flight.bytes.min(hot.congestion.cwnd())
    }
}

/// The peer acknowledged `acked` bytes and says that a packet of ours was marked: the window falls as for a loss, once
/// for each window of data, and not in one that a loss has lowered already (RFC 3168 section 6.1.2). True when it did.
/// Keeps 3168-1.
pub(crate) fn on_ecn(hot: &mut Hot, cold: &Tcb, acked: u32) -> bool {
    let una = hot.sender.snd_una;
    if hot.has(hot_flag::RECOVERY) || hot.loss.recover.ge(una) {
        return false;
    }
    let flight = hot.sender.flight.bytes.saturating_add(acked);
    let mss = u32::from(cold.payload_mss());
    hot.congestion
        .on_mark(flight, (una, cold.snd_nxt), mss, cold.has(flag::ECN))
}

/// Everything sent before the loss is acknowledged (RFC 6582 section 3.2 step 3, first option).
/// Keeps 5681-18, 5681-24.
pub(crate) fn leave_recovery(hot: &mut Hot, cold: &Tcb) {
    let mss = u32::from(cold.payload_mss());
    hot.congestion.leave_recovery(hot.sender.flight.bytes, mss);
    hot.clear(hot_flag::RECOVERY);
}

/// The retransmission timer went off (RFC 5681 section 3.1, last rules). `first`: not again for the same segment.
/// Keeps 5681-10, 5681-11.
pub(crate) fn on_timeout(hot: &mut Hot, cold: &Tcb, first: bool) {
    let flight = first.then(|| flight_at_loss(hot));
    let mss = u32::from(cold.payload_mss());
    hot.congestion.on_timeout(flight, mss, cold.has(flag::ECN));
    hot.clear(hot_flag::RECOVERY);
}
