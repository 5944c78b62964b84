//! RFC 6298: the retransmission timeout from smoothed round trips.

use core::time::Duration;

use crate::cold::Cold;
use crate::config::Config;

/// Clock granularity G: a millisecond is finer than any timeout here.
const GRANULARITY_US: u32 = 1_000;

/// Takes a measured round trip (section 2.2 and 2.3).
#[inline]
pub(crate) fn sample(cold: &mut Cold, rtt_us: u32) {
    let rtt = rtt_us.clamp(1, 120_000_000);
    if cold.srtt_us == 0 {
        cold.srtt_us = rtt;
        cold.rttvar_us = rtt / 2;
        return;
    }
    let off = cold.srtt_us.abs_diff(rtt);
    cold.rttvar_us = cold.rttvar_us - cold.rttvar_us / 4 + off / 4;
    cold.srtt_us = (cold.srtt_us - cold.srtt_us / 8 + rtt / 8).max(1);
}

/// RTO = SRTT + max(G, 4 RTTVAR), doubled `backoff` times, within the configured bounds (2.3, 2.4, 5.5).
#[inline]
pub(crate) fn timeout(cold: &Cold, config: &Config, backoff: u8) -> Duration {
    let base = if cold.srtt_us == 0 {
        config.rto_initial
    } else {
        let us = u64::from(cold.srtt_us) + u64::from((4 * cold.rttvar_us).max(GRANULARITY_US));
        Duration::from_micros(us).max(config.rto_min)
    };
    let factor = 1u32 << backoff.min(16);
    base.saturating_mul(factor).min(config.rto_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_formulas() {
        let config = Config {
            rto_min: Duration::from_millis(1),
            ..Config::default()
        };
        let mut cold = Cold::default();
        assert_eq!(timeout(&cold, &config, 0), Duration::from_secs(1));
        sample(&mut cold, 100_000);
        assert_eq!(
            timeout(&cold, &config, 0),
            Duration::from_micros(100_000 + 4 * 50_000)
        );
        sample(&mut cold, 140_000);
        assert_eq!((cold.srtt_us, cold.rttvar_us), (105_000, 47_500));
        assert_eq!(
            timeout(&cold, &config, 1),
            Duration::from_micros(2 * (105_000 + 190_000))
        );
    }

    #[test]
    fn keeps_its_bounds() {
        let config = Config::default();
        let mut cold = Cold::default();
        sample(&mut cold, 10);
        assert_eq!(timeout(&cold, &config, 0), config.rto_min);
        assert_eq!(timeout(&cold, &config, 255), config.rto_max);
    }
}
