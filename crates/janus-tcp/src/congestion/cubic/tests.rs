//! The curve against its definition in floating point, and the rules around it.

use proptest::prelude::*;

use super::*;
use crate::congestion::CongestionControl;
use crate::conn::loss::window;
use crate::store::cold::Tcb;
use crate::store::hot::Hot;

const MSS: u32 = 1_000;
const RTT_US: u32 = 100_000;

fn window(cwnd: u32) -> Congestion {
    Congestion {
        cwnd,
        ssthresh: cwnd,
        cwnd_limited: true,
        algorithm: CongestionControl::Cubic,
        ..Congestion::default()
    }
}

/// A round trip in which all of the window is acknowledged, a segment at a time.
fn round(window: &mut Congestion) {
    let segments = window.cwnd / MSS;
    for i in 0..segments {
        let since = RTT_US / 1_000 * (i + 1) / segments - RTT_US / 1_000 * i / segments;
        on_ack(window, MSS, MSS, RTT_US, since);
    }
}

fn lose(window: &mut Congestion) {
    window.ssthresh = threshold(window, MSS, window.cwnd);
    window.cwnd = window.ssthresh;
}

fn t_ms(window: &mut Congestion) -> u32 {
    window.growth.cubic().t_ms_and_one.get() - 1
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
        let mut window = window(cwnd);
        *window.growth.cubic() = Cubic { w_max, cwnd_prior: prior, ..Cubic::default() };
        for (acked, since_ms, srtt_us) in acks {
            let before = window.cwnd;
            on_ack(&mut window, mss, acked, srtt_us, since_ms);
            prop_assert!(window.cwnd >= before);
        }
        let after = threshold(&mut window, mss, cwnd);
        prop_assert!(after <= cwnd.max(2 * mss));
    }
}

/// Section 4.2: K is when the window is back where the loss came, and around it growth is slow; before, concave,
/// after, convex.
#[test]
fn the_window_is_back_after_k_seconds_concave_then_convex() {
    // A long path, so that Reno's estimate stays below the curve.
    let mut window = window(1_000_000);
    lose(&mut window);
    assert_eq!(window.cwnd, 700_000);
    // K = cbrt(300 / 0.4) = 9.086 s.
    let mut windows = vec![window.cwnd];
    for _ in 0..180 {
        round(&mut window);
        windows.push(window.cwnd);
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
    let mut window = window(100_000);
    on_ack(&mut window, MSS, MSS, RTT_US, 0);
    window.growth.cubic().t_ms_and_one = NonZeroU32::new(400_001).expect("not zero");
    let before = window.cwnd;
    for _ in 0..before / MSS {
        on_ack(&mut window, MSS, MSS, RTT_US, 0);
    }
    assert_eq!(window.cwnd, 150_000);
}

/// Section 4.3: where the curve is below Reno, Reno's window counts: 9/17 of a segment for each round trip up to the
/// window that was lost, then a whole one.
#[test]
fn a_small_window_is_renos() {
    let mut window = window(20_000);
    lose(&mut window);
    assert_eq!(window.cwnd, 14_000);
    let mut rounds = 0;
    while window.cwnd < 20_000 {
        round(&mut window);
        rounds += 1;
        assert!(rounds < 100);
    }
    // Six segments at 9/17 each take 11.3 round trips, 1.2 s; the curve would have been there after K = 2.5 s.
    assert!((11..=13).contains(&rounds), "{rounds} round trips");
    let before = window.cwnd;
    for _ in 0..4 {
        round(&mut window);
    }
    assert!(
        (3_000..=5_000).contains(&(window.cwnd - before)),
        "{}",
        window.cwnd - before
    );
}

/// Section 4.6: beta is 0.7, of what was in flight, and two segments at least.
#[test]
fn a_loss_leaves_seven_tenths() {
    let mut lost = window(100_000);
    assert_eq!(threshold(&mut lost, MSS, 100_000), 70_000);
    assert_eq!(
        {
            let c = lost.growth.cubic();
            (c.w_max, c.cwnd_prior)
        },
        (100_000, 100_000)
    );
    assert_eq!(threshold(&mut window(100_000), MSS, 50_000), 35_000);
    assert_eq!(threshold(&mut window(1_000), MSS, 1_000), 2_000);
}

/// Section 4.7.
#[test]
fn a_loss_below_the_last_one_makes_room() {
    let mut window = window(100_000);
    lose(&mut window);
    window.cwnd = 80_000;
    lose(&mut window);
    assert_eq!(window.growth.cubic().w_max, 68_000, "80,000 (1 + 0.7) / 2");
    window.cwnd = 90_000;
    lose(&mut window);
    assert_eq!(window.growth.cubic().w_max, 90_000);
}

/// Section 4.8: after a timeout the curve's middle is where slow start ended.
#[test]
fn after_a_timeout_the_curve_begins_at_its_middle() {
    let cold = Tcb {
        mss: MSS as u16,
        ..Tcb::default()
    };
    let mut window = window(1_000_000);
    let mut hot = Hot {
        congestion: window,
        ..Hot::default()
    };
    hot.sender.flight.bytes = 1_000_000;
    window::on_timeout(&mut hot, &cold, true);
    window = hot.congestion;
    assert_eq!((window.cwnd, window.ssthresh), (MSS, 700_000));
    window.cwnd = window.ssthresh;
    round(&mut window);
    assert_eq!(
        {
            let c = window.growth.cubic();
            (c.k_ms, c.w_max)
        },
        (0, 700_000)
    );
    for _ in 0..50 {
        round(&mut window);
    }
    // Five seconds: 0.4 * 125 = 50 segments, and Reno's estimate 9/17 of 50.
    assert!(window.cwnd.abs_diff(752_000) < 4_000, "{}", window.cwnd);
}

/// Section 4.10, last paragraph: slow start left without a loss.
#[test]
fn without_a_loss_the_curve_begins_at_its_middle() {
    let mut window = window(50_000);
    round(&mut window);
    assert_eq!(
        {
            let c = window.growth.cubic();
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
    let mut hot = Hot {
        congestion: window(1_000_000),
        ..Hot::default()
    };
    lose(&mut hot.congestion);
    let ack = |hot: &mut Hot, at_ms| {
        hot.sender.snd_una += MSS;
        window::on_ack(hot, &cold, MSS, at_ms);
    };
    ack(&mut hot, 10_000);
    ack(&mut hot, 10_050);
    assert_eq!(t_ms(&mut hot.congestion), 50);
    // The application had little to say for nine seconds.
    hot.congestion.cwnd_limited = false;
    ack(&mut hot, 15_000);
    ack(&mut hot, 19_000);
    hot.congestion.cwnd_limited = true;
    ack(&mut hot, 19_010);
    assert_eq!(t_ms(&mut hot.congestion), 60);
    // Nothing at all, for less than the timeout, then a burst.
    let config = crate::Config::default();
    window::on_start(&mut hot, &cold, &config, 19_110);
    ack(&mut hot, 19_210);
    assert_eq!(t_ms(&mut hot.congestion), 160);
}
