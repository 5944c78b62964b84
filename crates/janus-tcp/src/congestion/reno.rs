//! RFC 5681 and 6582: congestion avoidance, fast retransmit and NewReno recovery. Window arithmetic only; which
//! segments go out is decided in `output`, what all algorithms share in `congestion`.

use crate::congestion::Congestion;

/// Duplicate acknowledgements that mean a loss (RFC 5681 section 3.2).
pub(crate) const DUP_THRESHOLD: u8 = 3;

/// Congestion avoidance (RFC 5681 section 3.1): a segment more for each window's worth of acknowledged bytes.
/// Keeps 5681-8, 5681-9.
#[inline]
pub(crate) fn on_ack(window: &mut Congestion, mss: u32, acked: u32) {
    window.cwnd_credit += acked;
    if window.cwnd_credit >= window.cwnd {
        window.cwnd_credit -= window.cwnd;
        window.cwnd = window.cwnd.saturating_add(mss);
    }
}

/// Half of what is in flight, two segments at least (RFC 5681 equation 4).
pub(crate) fn threshold(mss: u32, flight: u32) -> u32 {
    (flight / 2).max(2 * mss)
}

/// The third duplicate acknowledgement (RFC 6582 section 3.2 step 2).
/// Keeps 5681-16.
pub(crate) fn enter_recovery(window: &mut Congestion, mss: u32) {
    window.cwnd = window.ssthresh + u32::from(DUP_THRESHOLD) * mss;
}

/// A further duplicate acknowledgement (step 3): another segment has left the network. No more can than were there when recovery
/// began, `flight` bytes: a peer that repeats itself beyond that lies.
pub(crate) fn on_duplicate(window: &mut Congestion, mss: u32, flight: u32) {
    let most = window.ssthresh + flight;
    window.cwnd = (window.cwnd.saturating_add(mss)).min(most.max(window.cwnd));
}

/// A partial acknowledgement in recovery (step 3): deflate by what left, add back one segment.
pub(crate) fn on_partial_ack(window: &mut Congestion, mss: u32, acked: u32) {
    window.cwnd = window.cwnd.saturating_sub(acked).max(mss);
    if acked >= mss {
        window.cwnd += mss;
    }
}
