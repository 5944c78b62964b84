//! The congestion window between two busy times: what an idle connection keeps of it, and how it begins anew.

use self::cubic::Cubic;
use self::hystart::HyStart;
use crate::congestion::{CongestionControl, Growth, INITIAL_SEGMENTS, cubic, hystart};
use crate::rules::config::Config;
use crate::rules::waits::Waits;
use crate::store::cold::Tcb;
use crate::store::hot::Hot;
use crate::store::rto;
use crate::time::Instant;

/// Loads the hot block with what the cold TCB remembers.
#[inline]
pub(crate) fn wake(
    hot: &mut Hot,
    cold: &Tcb,
    config: &Config,
    algorithm: CongestionControl,
    now: Instant,
) {
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
pub(crate) fn restart(hot: &mut Hot, cold: &Tcb, config: &Config, idle_ms: u32) {
    let window = INITIAL_SEGMENTS * u32::from(cold.payload_mss());
    // Most windows are no larger, and need not be compared with a timeout.
    if hot.congestion.cwnd <= window
        || !config.slow_start_after_idle
        || u64::from(idle_ms) <= rto::timeout_ns(cold, &Waits::of(config), 0) / 1_000_000
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
