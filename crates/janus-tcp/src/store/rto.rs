//! RFC 6298: the retransmission timeout from smoothed round trips.

use core::time::Duration;

use janus_wire::SeqNum;

use crate::rules::waits::Waits;
use crate::store::cold::Tcb;
use crate::store::hot::Hot;

/// Clock granularity G: a millisecond is finer than any timeout here.
const GRANULARITY_US: u32 = 1_000;
/// RTO for the first data after a handshake whose own timer expired (section 5.7).
const AFTER_LOST_SYN_NS: u64 = 3_000_000_000;
/// No round trip counts as longer.
const LONGEST_US: u32 = 120_000_000;
/// RTTVAR takes the low bits of its field, which hold [`LONGEST_US`]; the backoff that an idle connection keeps, the
/// next three; the last are [`Tcb::reorders`]' and [`Tcb::keeps_cwr`]'s.
const VARIATION_BITS: u32 = 27;
const VARIATION: u32 = (1 << VARIATION_BITS) - 1;
/// A timeout doubled seven times is long enough for one that nothing is in flight for.
const BACKOFF_MAX: u8 = 7;
const REORDERS: u32 = 1 << 30;
const CWR_DUE: u32 = 1 << 31;

impl Tcb {
    /// Whether the next new data is to carry CWR (RFC 3168), while there is no hot block to say so.
    #[inline]
    pub(crate) fn keeps_cwr(&self) -> bool {
        self.rttvar_us & CWR_DUE != 0
    }

    /// Whether the network was seen to reorder (RFC 8985), while there is no hot block to say so.
    #[inline]
    pub(crate) fn reorders(&self) -> bool {
        self.rttvar_us & REORDERS != 0
    }

    #[inline]
    pub(crate) fn set_reorders(&mut self, seen: bool) {
        self.rttvar_us = self.rttvar_us & !REORDERS | if seen { REORDERS } else { 0 };
    }

    #[inline]
    pub(crate) fn keep_cwr(&mut self, due: bool) {
        self.rttvar_us = self.rttvar_us & !CWR_DUE | if due { CWR_DUE } else { 0 };
    }
}

/// RTTVAR in microseconds; 0 when nothing was measured.
pub(crate) fn variation(cold: &Tcb) -> u32 {
    if cold.srtt_us() == 0 {
        return 0;
    }
    cold.rttvar_us & VARIATION
}

/// How far the timeout was backed off when the hot block was let go.
#[inline]
pub(crate) fn kept_backoff(cold: &Tcb) -> u8 {
    (cold.rttvar_us >> VARIATION_BITS) as u8 & BACKOFF_MAX
}

/// Keeps the backoff while there is no hot block: only a measurement may end it (Karn's algorithm).
#[inline]
pub(crate) fn keep_backoff(cold: &mut Tcb, backoff: u8) {
    let others = cold.rttvar_us & (VARIATION | REORDERS | CWR_DUE);
    cold.rttvar_us = others | u32::from(backoff.min(BACKOFF_MAX)) << VARIATION_BITS;
}

/// The handshake's timer expired, and no round trip was measured (section 5.7).
/// Keeps 6298-12.
pub(crate) fn handshake_lost(cold: &mut Tcb) {
    debug_assert_eq!(cold.srtt_us(), 0);
    cold.rttvar_us = 1;
}

/// A connection that is just open goes on from what another one knew of its path (RFC 9040): the round trip of its own
/// handshake, if there is one, is one more sample. Where the handshake's timer expired, nothing is taken for granted.
pub(crate) fn resume(cold: &mut Tcb, srtt_us: u32, variation_us: u32) {
    let own = cold.srtt_us();
    if own == 0 && cold.rttvar_us & VARIATION != 0 {
        return;
    }
    cold.set_srtt_us(srtt_us.max(1));
    cold.rttvar_us = variation_us.min(VARIATION);
    if own != 0 {
        sample(cold, own);
    }
}

/// Takes a measured round trip (section 2.2 and 2.3).
/// Keeps 6298-2, 6298-3, 6298-4, MUST-18.
#[inline(always)]
pub(crate) fn sample(cold: &mut Tcb, rtt_us: u32) {
    let rtt = rtt_us.clamp(1, LONGEST_US);
    let srtt = cold.srtt_us();
    if srtt == 0 {
        cold.set_srtt_us(rtt);
        cold.rttvar_us = rtt / 2;
        return;
    }
    let off = srtt.abs_diff(rtt);
    let variation = variation(cold);
    cold.rttvar_us = variation - variation / 4 + off / 4;
    smooth(cold, srtt, rtt);
}

#[inline(always)]
fn smooth(cold: &mut Tcb, srtt: u32, rtt: u32) {
    cold.set_srtt_us((srtt - srtt / 8 + rtt / 8).max(1));
}

/// Takes one of many round trips measured in a flight. At full weight each, they would make RTTVAR forget within
/// a round trip what it has to remember for several (RFC 7323 section 4.2). Appendix G divides the weights by the
/// expected number of samples; in whole microseconds, that would round them away. So, as Linux does it: SRTT follows every
/// sample; RTTVAR rises with any, and falls once in a round trip, by the largest deviation there was in it. With one
/// sample in a round trip this is section 2.3 to the letter. True when this was the last of its round trip.
#[inline(always)]
pub(crate) fn sample_of_many(cold: &mut Tcb, hot: &mut Hot, ack: SeqNum, rtt_us: u32) -> bool {
    let round_is_over = ack.ge(hot.timers.rtt_round);
    let srtt = cold.srtt_us();
    if srtt == 0 {
        sample(cold, rtt_us);
    } else {
        let rtt = rtt_us.clamp(1, LONGEST_US);
        let (before, off) = (variation(cold), srtt.abs_diff(rtt));
        hot.timers.rtt_off_max = hot.timers.rtt_off_max.max(off);
        cold.rttvar_us = if round_is_over {
            before - before / 4 + hot.timers.rtt_off_max / 4
        } else {
            before.max(before - before / 4 + off / 4)
        };
        smooth(cold, srtt, rtt);
    }
    if round_is_over {
        hot.timers.rtt_off_max = 0;
        hot.timers.rtt_round = cold.snd_nxt;
    }
    round_is_over
}

/// RTO = SRTT + max(G, 4 RTTVAR), doubled `backoff` times (2.3, 5.5), and no more than the configured bound (2.5). The
/// configured least is added to SRTT, as in Linux, where section 2.4 would have the sum be no less than it: the path
/// that never varies still has a peer at its end that may put acknowledgements off.
/// Keeps 6298-1, 6298-5, 6298-9, MUST-18.
pub(crate) fn timeout(cold: &Tcb, waits: &Waits, backoff: u8) -> Duration {
    Duration::from_nanos(timeout_ns(cold, waits, backoff))
}

/// Like [`timeout`], in nanoseconds, for callers that ask with every segment.
#[inline]
pub(crate) fn timeout_ns(cold: &Tcb, waits: &Waits, backoff: u8) -> u64 {
    let srtt_us = u64::from(cold.srtt_us());
    let base = if srtt_us == 0 {
        match cold.rttvar_us & VARIATION {
            0 => waits.rto_initial_ns(),
            _ => waits.rto_initial_ns().max(AFTER_LOST_SYN_NS),
        }
    } else {
        let variation = u64::from(cold.rttvar_us & VARIATION);
        let spread = (4 * variation).max(GRANULARITY_US.into()) * 1_000;
        srtt_us * 1_000 + spread.max(waits.rto_min_ns())
    };
    let factor = 1u64 << backoff.min(16);
    base.saturating_mul(factor).min(waits.rto_max_ns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::config::Config;

    #[test]
    fn follows_the_formulas() {
        let config = Config {
            rto_min: Duration::from_millis(1),
            ..Config::default()
        };
        let mut cold = Tcb::default();
        assert_eq!(
            timeout(&cold, &Waits::of(&config), 0),
            Duration::from_secs(1)
        );
        sample(&mut cold, 100_000);
        assert_eq!(
            timeout(&cold, &Waits::of(&config), 0),
            Duration::from_micros(100_000 + 4 * 50_000)
        );
        sample(&mut cold, 140_000);
        assert_eq!((cold.srtt_us(), cold.rttvar_us), (105_000, 47_500));
        assert_eq!(
            timeout(&cold, &Waits::of(&config), 1),
            Duration::from_micros(2 * (105_000 + 190_000))
        );
    }

    #[test]
    fn the_backoff_is_kept_beside_the_variation_until_a_measurement() {
        let mut cold = Tcb::default();
        sample(&mut cold, 100_000);
        cold.set_reorders(true);
        keep_backoff(&mut cold, 5);
        assert_eq!((variation(&cold), kept_backoff(&cold)), (50_000, 5));
        assert!(cold.reorders() && !cold.keeps_cwr());
        keep_backoff(&mut cold, 200);
        assert_eq!((variation(&cold), kept_backoff(&cold)), (50_000, 7));
        sample(&mut cold, 100_000);
        assert_eq!((variation(&cold), kept_backoff(&cold)), (37_500, 0));
        // The largest variation there can be still fits its bits.
        for rtt in [120_000_000, 1, 120_000_000, 1, 120_000_000] {
            sample(&mut cold, rtt);
            assert_eq!(kept_backoff(&cold), 0);
        }
    }

    #[test]
    fn data_after_a_lost_handshake_waits_three_seconds() {
        let config = Config::default();
        let mut cold = Tcb::default();
        handshake_lost(&mut cold);
        assert_eq!(
            timeout(&cold, &Waits::of(&config), 0),
            Duration::from_secs(3)
        );
        assert_eq!(variation(&cold), 0);
        sample(&mut cold, 100_000);
        assert_eq!(
            timeout(&cold, &Waits::of(&config), 0),
            Duration::from_millis(300)
        );
    }

    #[test]
    fn keeps_its_bounds() {
        let config = Config::default();
        let mut cold = Tcb::default();
        sample(&mut cold, 10);
        let srtt = Duration::from_micros(10);
        assert_eq!(
            timeout(&cold, &Waits::of(&config), 0),
            srtt + config.rto_min
        );
        assert_eq!(timeout(&cold, &Waits::of(&config), 255), config.rto_max);
    }
}
