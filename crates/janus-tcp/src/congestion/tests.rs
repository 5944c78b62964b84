//! The windows' common rules.

use super::*;

fn cold() -> Cold {
    Cold {
        mss: 1_000,
        ..Cold::default()
    }
}

#[test]
fn a_window_survives_its_code_within_an_eighth() {
    for n in (1..61_440u32).step_by(7) {
        let back = decode_window(encode_window(n));
        assert!(back <= n && back * 9 >= n * 8, "{n} came back as {back}");
    }
    assert_eq!(decode_window(encode_window(10)), 10);
    assert_eq!(decode_window(encode_window(1)), 1);
    assert_eq!(decode_window(encode_window(3)), 3);
}

#[test]
fn slow_start_doubles_and_avoidance_adds_one_segment_per_window() {
    let mut hot = Hot {
        cwnd: 10_000,
        ssthresh: 20_000,
        cwnd_limited: true,
        ..Hot::default()
    };
    for _ in 0..10 {
        on_ack(&mut hot, &cold(), 1_000, Instant::ZERO);
    }
    assert_eq!(hot.cwnd, 20_000);
    for _ in 0..20 {
        on_ack(&mut hot, &cold(), 1_000, Instant::ZERO);
    }
    assert_eq!(hot.cwnd, 21_000);
}

#[test]
fn an_unused_window_does_not_grow() {
    let mut hot = Hot {
        cwnd: 10_000,
        ssthresh: u32::MAX,
        ..Hot::default()
    };
    before_ack(&mut hot, &cold());
    on_ack(&mut hot, &cold(), 1_000, Instant::ZERO);
    assert_eq!(hot.cwnd, 10_000);
}
