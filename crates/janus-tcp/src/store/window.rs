//! The congestion window between two busy times: what an idle connection keeps of it, and how it begins anew.

use crate::congestion::{CongestionControl, INITIAL_SEGMENTS};
use crate::rules::config::Config;
use crate::rules::waits::Waits;
use crate::store::cold::Tcb;
use crate::store::hot::Hot;
use crate::store::rto;

/// Loads the hot block with what the cold TCB remembers.
#[inline]
pub(crate) fn wake(
    hot: &mut Hot,
    cold: &Tcb,
    config: &Config,
    algorithm: CongestionControl,
    now_ms: u32,
) {
    let mss = u32::from(cold.payload_mss());
    let window = cold.idle_window().saturating_mul(mss);
    let threshold = cold.idle_threshold();
    hot.congestion.wake(
        (
            window,
            threshold.map(|segments| segments.saturating_mul(mss)),
        ),
        (algorithm, config.slow_start_limit.unwrap_or(0)),
        cold.keeps_cwr(),
        cold.snd_nxt,
        now_ms,
    );
    restart(hot, cold, config, now_ms.wrapping_sub(cold.last_heard_ms));
}

/// RFC 5681 section 4.1: after an idle RTO the old window says nothing about the path; a new one is found by slow
/// start, up to what the path has carried.
#[inline]
pub(crate) fn restart(hot: &mut Hot, cold: &Tcb, config: &Config, idle_ms: u32) {
    let window = INITIAL_SEGMENTS * u32::from(cold.payload_mss());
    // Most windows are no larger, and need not be compared with a timeout.
    if hot.congestion.cwnd() <= window
        || !config.slow_start_after_idle
        || u64::from(idle_ms) <= rto::timeout_ns(cold, &Waits::of(config), 0) / 1_000_000
    {
        return;
    }
    hot.congestion.begin_again(window);
}

/// Stores in the cold TCB what outlives the hot block.
#[inline]
pub(crate) fn sleep(hot: &Hot, cold: &mut Tcb) {
    let mss = u32::from(cold.payload_mss());
    cold.set_idle_window(hot.congestion.cwnd() / mss);
    let ssthresh = hot.congestion.ssthresh();
    cold.set_idle_threshold((ssthresh != u32::MAX).then(|| ssthresh / mss));
    cold.keep_cwr(hot.congestion.owes_cwr());
}
