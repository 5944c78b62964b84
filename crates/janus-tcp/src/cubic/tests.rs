//! The curve against its definition in floating point, and the rules around it.

use super::*;
use crate::cold::Tcb;
use crate::congestion::{self, Algorithm};
use crate::hot::Congestion;
use crate::time::Instant;
use proptest::prelude::*;

const MSS: u32 = 1_000;
const RTT_US: u32 = 100_000;

fn hot(cwnd: u32) -> Hot {
    Hot {
        congestion: Congestion {
            cwnd,
            ssthresh: cwnd,
            cwnd_limited: true,
            algorithm: Algorithm::Cubic,
            ..Congestion::default()
        },
        ..Hot::default()
    }
}

/// A round trip in which all of the window is acknowledged, a segment at a time.
fn round(hot: &mut Hot) {
    let segments = hot.congestion.cwnd / MSS;
    for i in 0..segments {
        let since = RTT_US / 1_000 * (i + 1) / segments - RTT_US / 1_000 * i / segments;
        on_ack(hot, MSS, MSS, RTT_US, since);
    }
}

fn lose(hot: &mut Hot) {
    hot.congestion.ssthresh = threshold(hot, MSS, hot.congestion.cwnd);
    hot.congestion.cwnd = hot.congestion.ssthresh;
}

fn t_ms(hot: &mut Hot) -> u32 {
    hot.congestion.growth.cubic().t_ms_and_one.get() - 1
}

proptest! {
    /// Over the whole range, perfect cubes and their neighbours included.
    #[test]
    fn cube_root_is_that_of_floating_point(n in any::<u64>(), shift in 0u32..64, near in 0u64..2_642_245, off in 0u64..3) {
        for n in [n >> shift, (near.pow(3) + off).saturating_sub(1)] {
            let root = cube_root(n);
            prop_assert!(u128::from(root).pow(3) <= u128::from(n));
            prop_assert!(u128::from(root + 1).pow(3) > u128::from(n));
            let float = (n as f64).cbrt();
            prop_assert!((root as f64 - float).abs() <= 1.0 + float * 1e-12);
        }
    }

    /// Equation 1 and 2 within a segment's thousandth and the milliseconds that K is rounded to.
    #[test]
    fn the_curve_is_the_definition(
        w_max in 2u32..400_000, part in 10u32..100, mss in 500u32..9_000, at_ms in 0u64..400_000,
    ) {
        let w_max = w_max.saturating_mul(mss).min(1 << 30);
        let cwnd = w_max / 100 * part;
        let mut cubic = Cubic { w_max, ..Cubic::default() };
        cubic.begin(cwnd, mss);
        let k = ((f64::from(w_max - cwnd) / f64::from(mss)) / 0.4).cbrt();
        prop_assert!((f64::from(cubic.k_ms) / 1_000.0 - k).abs() <= 0.001, "{} is not {k}", cubic.k_ms);
        let k = f64::from(cubic.k_ms) / 1_000.0;
        let exact = 0.4 * (at_ms as f64 / 1_000.0 - k).powi(3) * f64::from(mss) + f64::from(w_max);
        let exact = exact.clamp(0.0, f64::from(u32::MAX));
        let got = f64::from(cubic.window(mss, at_ms));
        prop_assert!((got - exact).abs() <= 1.0 + exact * 1e-5, "{got} is not {exact}");
    }

    /// No window, time or segment size overflows, and no acknowledgement makes the window smaller or widens it by
    /// more than half of what it acknowledges (target at most 1.5 cwnd), unless that is what Reno would do.
    #[test]
    fn nothing_overflows(
        cwnd in 1u32.., w_max in any::<u32>(), prior in any::<u32>(), mss in 1u32..=0xffff,
        acks in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 1..20),
    ) {
        let mut hot = hot(cwnd);
        *hot.congestion.growth.cubic() = Cubic { w_max, cwnd_prior: prior, ..Cubic::default() };
        for (acked, since_ms, srtt_us) in acks {
            let before = hot.congestion.cwnd;
            on_ack(&mut hot, mss, acked, srtt_us, since_ms);
            prop_assert!(hot.congestion.cwnd >= before);
        }
        let after = threshold(&mut hot, mss, cwnd);
        prop_assert!(after <= cwnd.max(2 * mss));
    }
}

/// Section 4.2: K is when the window is back where the loss came, and around it growth is slow; before, concave,
/// after, convex.
#[test]
fn the_window_is_back_after_k_seconds_concave_then_convex() {
    // A long path, so that Reno's estimate stays below the curve.
    let mut hot = hot(1_000_000);
    lose(&mut hot);
    assert_eq!(hot.congestion.cwnd, 700_000);
    // K = cbrt(300 / 0.4) = 9.086 s.
    let mut windows = vec![hot.congestion.cwnd];
    for _ in 0..180 {
        round(&mut hot);
        windows.push(hot.congestion.cwnd);
    }
    let grown = |from: usize, to: usize| windows[to] - windows[from];
    assert!(grown(0, 30) > grown(30, 60) && grown(30, 60) > grown(60, 90));
    assert!(grown(90, 120) < grown(120, 150) && grown(120, 150) < grown(150, 180));
    assert!(grown(80, 100) <= 3_000, "the plateau: {}", grown(80, 100));
    assert!(windows[91].abs_diff(1_000_000) < 15_000, "{}", windows[91]);
    // Twice K: the mirror image.
    assert!(
        windows[180].abs_diff(1_290_000) < 25_000,
        "{}",
        windows[180]
    );
}

/// Section 4.2: the target is at most half as much again.
#[test]
fn a_round_trip_adds_half_at_most() {
    let mut hot = hot(100_000);
    on_ack(&mut hot, MSS, MSS, RTT_US, 0);
    hot.congestion.growth.cubic().t_ms_and_one = NonZeroU32::new(400_001).expect("not zero");
    let before = hot.congestion.cwnd;
    for _ in 0..before / MSS {
        on_ack(&mut hot, MSS, MSS, RTT_US, 0);
    }
    assert_eq!(hot.congestion.cwnd, 150_000);
}

/// Section 4.3: where the curve is below Reno, Reno's window counts: 9/17 of a segment for each round trip up to the
/// window that was lost, then a whole one.
#[test]
fn a_small_window_is_renos() {
    let mut hot = hot(20_000);
    lose(&mut hot);
    assert_eq!(hot.congestion.cwnd, 14_000);
    let mut rounds = 0;
    while hot.congestion.cwnd < 20_000 {
        round(&mut hot);
        rounds += 1;
        assert!(rounds < 100);
    }
    // Six segments at 9/17 each take 11.3 round trips, 1.2 s; the curve would have been there after K = 2.5 s.
    assert!((11..=13).contains(&rounds), "{rounds} round trips");
    let before = hot.congestion.cwnd;
    for _ in 0..4 {
        round(&mut hot);
    }
    assert!(
        (3_000..=5_000).contains(&(hot.congestion.cwnd - before)),
        "{}",
        hot.congestion.cwnd - before
    );
}

/// Section 4.6: beta is 0.7, of what was in flight, and two segments at least.
#[test]
fn a_loss_leaves_seven_tenths() {
    let mut lost = hot(100_000);
    assert_eq!(threshold(&mut lost, MSS, 100_000), 70_000);
    assert_eq!(
        {
            let c = lost.congestion.growth.cubic();
            (c.w_max, c.cwnd_prior)
        },
        (100_000, 100_000)
    );
    assert_eq!(threshold(&mut hot(100_000), MSS, 50_000), 35_000);
    assert_eq!(threshold(&mut hot(1_000), MSS, 1_000), 2_000);
}

/// Section 4.7.
#[test]
fn a_loss_below_the_last_one_makes_room() {
    let mut hot = hot(100_000);
    lose(&mut hot);
    hot.congestion.cwnd = 80_000;
    lose(&mut hot);
    assert_eq!(
        hot.congestion.growth.cubic().w_max,
        68_000,
        "80,000 (1 + 0.7) / 2"
    );
    hot.congestion.cwnd = 90_000;
    lose(&mut hot);
    assert_eq!(hot.congestion.growth.cubic().w_max, 90_000);
}

/// Section 4.8: after a timeout the curve's middle is where slow start ended.
#[test]
fn after_a_timeout_the_curve_begins_at_its_middle() {
    let cold = Tcb {
        mss: MSS as u16,
        ..Tcb::default()
    };
    let mut hot = hot(1_000_000);
    hot.sender.flight.bytes = 1_000_000;
    congestion::on_timeout(&mut hot, &cold, true);
    assert_eq!(
        (hot.congestion.cwnd, hot.congestion.ssthresh),
        (MSS, 700_000)
    );
    hot.congestion.cwnd = hot.congestion.ssthresh;
    round(&mut hot);
    assert_eq!(
        {
            let c = hot.congestion.growth.cubic();
            (c.k_ms, c.w_max)
        },
        (0, 700_000)
    );
    for _ in 0..50 {
        round(&mut hot);
    }
    // Five seconds: 0.4 * 125 = 50 segments, and Reno's estimate 9/17 of 50.
    assert!(
        hot.congestion.cwnd.abs_diff(752_000) < 4_000,
        "{}",
        hot.congestion.cwnd
    );
}

/// Section 4.10, last paragraph: slow start left without a loss.
#[test]
fn without_a_loss_the_curve_begins_at_its_middle() {
    let mut hot = hot(50_000);
    round(&mut hot);
    assert_eq!(
        {
            let c = hot.congestion.growth.cubic();
            (c.k_ms, c.w_max, c.cwnd_prior)
        },
        (0, 50_000, 50_000)
    );
}

/// Section 5.8: the time in which the window is not used does not count.
#[test]
fn the_epochs_clock_stands_while_the_window_is_not_used() {
    let cold = Tcb {
        mss: MSS as u16,
        srtt: RTT_US,
        ..Tcb::default()
    };
    let mut hot = hot(1_000_000);
    lose(&mut hot);
    let ack = |hot: &mut Hot, at_ms| {
        hot.sender.snd_una += MSS;
        congestion::on_ack(hot, &cold, MSS, Instant::from_millis(at_ms));
    };
    ack(&mut hot, 10_000);
    ack(&mut hot, 10_050);
    assert_eq!(t_ms(&mut hot), 50);
    // The application had little to say for nine seconds.
    hot.congestion.cwnd_limited = false;
    ack(&mut hot, 15_000);
    ack(&mut hot, 19_000);
    hot.congestion.cwnd_limited = true;
    ack(&mut hot, 19_010);
    assert_eq!(t_ms(&mut hot), 60);
    // Nothing at all, for less than the timeout, then a burst.
    let config = crate::Config::default();
    congestion::on_start(&mut hot, &cold, &config, Instant::from_millis(19_110));
    ack(&mut hot, 19_210);
    assert_eq!(t_ms(&mut hot), 160);
}
