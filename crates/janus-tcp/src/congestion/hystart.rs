//! HyStart++, RFC 9406: the first slow start ends when the round trip begins to grow, before the queue that makes it grow
//! overflows. A rise may be chance, so at first growth is only slowed (conservative slow start, CSS); it goes on as
//! before if the round trip falls again, and slow start is over if it does not for five rounds.
//! What never lives here: how far the window grows otherwise.

use crate::coded::coded;

/// Least rise of the round trip that counts: an eighth of the one before, between 4 and 16 ms (section 4.3).
const RISE_DIVISOR: u32 = 8;
const RISE_US: (u32, u32) = (4_000, 16_000);
/// Samples that a round must have before its smallest says something.
const SAMPLES: u8 = 8;
/// In CSS the window grows by so small a part of what it would.
pub(crate) const CSS_DIVISOR: u32 = 4;
/// Rounds of CSS after which slow start is over.
const CSS_ROUNDS: u8 = 5;

/// Round trips measured in the first slow start. Times in microseconds, 0 = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HyStart {
    /// The smallest of the round before, and of this one.
    last_us: u32,
    current_us: u32,
    /// Round trip that CSS began with; none = not in CSS.
    baseline_us: u32,
    samples: u8,
    css_rounds: u8,
}

coded!(HyStart {
    last_us,
    current_us,
    baseline_us,
    samples,
    css_rounds
});

impl HyStart {
    /// In CSS.
    #[inline]
    pub(crate) fn is_careful(&self) -> bool {
        self.baseline_us != 0
    }

    /// A round trip was measured. `round_is_over`: all that was sent when the round began is acknowledged. True when slow
    /// start is over (section 4.2).
    #[inline(always)]
    pub(crate) fn on_rtt(&mut self, rtt_us: u32, round_is_over: bool) -> bool {
        let rtt_us = rtt_us.max(1);
        self.current_us = match self.current_us {
            0 => rtt_us,
            current => current.min(rtt_us),
        };
        self.samples = self.samples.saturating_add(1);
        if self.samples >= SAMPLES {
            self.judge();
        }
        if !round_is_over {
            return false;
        }
        self.last_us = self.current_us;
        (self.current_us, self.samples) = (0, 0);
        if self.is_careful() {
            self.css_rounds += 1;
        }
        self.css_rounds >= CSS_ROUNDS
    }

    #[inline(never)]
    fn judge(&mut self) {
        if self.is_careful() {
            if self.current_us < self.baseline_us {
                // It was chance.
                (self.baseline_us, self.css_rounds) = (0, 0);
            }
            return;
        }
        let rise = (self.last_us / RISE_DIVISOR).clamp(RISE_US.0, RISE_US.1);
        if self.last_us != 0 && self.current_us >= self.last_us.saturating_add(rise) {
            self.baseline_us = self.current_us;
            self.css_rounds = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round in which each of ten acknowledgements measures `rtt_us`.
    fn round(hystart: &mut HyStart, rtt_us: u32) -> bool {
        (1..=10).fold(false, |_, n| hystart.on_rtt(rtt_us, n == 10))
    }

    #[test]
    fn a_steady_round_trip_never_ends_slow_start() {
        let mut hystart = HyStart::default();
        for _ in 0..100 {
            assert!(!round(&mut hystart, 50_000));
            assert!(!hystart.is_careful());
        }
    }

    /// Section 4.2: a rise by an eighth, then five rounds.
    #[test]
    fn a_lasting_rise_ends_slow_start_after_five_rounds() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 80_000);
        round(&mut hystart, 89_999);
        assert!(!hystart.is_careful(), "less than an eighth");
        round(&mut hystart, 101_300);
        assert!(hystart.is_careful());
        // The round in which it was seen is the first.
        for n in 2..=5 {
            assert_eq!(round(&mut hystart, 110_000), n == 5, "round {n}");
        }
    }

    #[test]
    fn a_rise_that_passes_is_forgotten() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 80_000);
        round(&mut hystart, 100_000);
        assert!(hystart.is_careful());
        round(&mut hystart, 85_000);
        assert!(!hystart.is_careful());
        assert_eq!(hystart.css_rounds, 0);
    }

    /// Section 4.3: not less than 4 ms, not more than 16.
    #[test]
    fn what_counts_as_a_rise_is_bounded() {
        for (before, after, careful) in [
            (1_000, 4_999, false),
            (1_000, 5_000, true),
            (400_000, 415_999, false),
            (400_000, 416_000, true),
        ] {
            let mut hystart = HyStart::default();
            round(&mut hystart, before);
            round(&mut hystart, after);
            assert_eq!(hystart.is_careful(), careful, "{before} to {after}");
        }
    }

    #[test]
    fn few_samples_say_nothing() {
        let mut hystart = HyStart::default();
        for rtt_us in [10_000, 20_000, 40_000, 80_000] {
            for n in 1..SAMPLES {
                assert!(!hystart.on_rtt(rtt_us, n + 1 == SAMPLES));
            }
            assert!(!hystart.is_careful());
        }
    }
}
