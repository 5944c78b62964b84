//! RACK's rules one by one.

use janus_wire::SeqNum;

use super::*;
use crate::store::hot::Loss;

fn sent(at_us: u32, end: u32) -> Sent {
    Sent {
        at_us,
        end: SeqNum(end),
    }
}

fn segment(at_us: u32, seq: u32, flags: u8) -> Segment {
    Segment {
        seq: SeqNum(seq),
        len: 1_000,
        sent_us: at_us,
        flags,
        ..Segment::default()
    }
}

#[test]
fn of_two_sent_at_one_moment_the_further_one_is_later() {
    assert!(sent(5, 100).is_after(sent(5, 50), 7));
    assert!(!sent(5, 50).is_after(sent(5, 50), 7));
    assert!(sent(6, 50).is_after(sent(5, 100), 7));
    // Across both wraps.
    assert!(sent(2, 100).is_after(sent(u32::MAX - 2, 100), 7));
    assert!(sent(5, 3).is_after(sent(5, u32::MAX), 7));
    // Longer ago than half the clock's round.
    let (now, lately) = (3_000_000_000, 2_999_999_000);
    assert!(sent(lately, 1).is_after(sent(0, 100), now));
    assert!(!sent(0, 100).is_after(sent(lately, 1), now));
}

/// A connection whose peer was silent for an hour: a timer that is set anew at once, again and again, was the price.
#[test]
fn an_old_delivery_makes_no_segment_late() {
    let mut look = Look {
        newest: sent(0, 9_000),
        now_us: 3_600_000_000,
        patience_us: 100_000,
        found: Losses::default(),
    };
    assert!(!look.says_lost(&segment(3_599_999_000, 9_000, 0)));
    assert_eq!(look.found.wait, None);
    let mut rec = Recovery {
        newest: sent(0, 9_000),
        ..Recovery::default()
    };
    for (age, known) in [(STALE_US - 1, true), (STALE_US, false)] {
        rec.set(rec_flag::TIMED);
        rec.forget_stale(age);
        assert_eq!(rec.has(rec_flag::TIMED), known);
    }
}

/// Section 6.2 step 2.
#[test]
fn an_answer_that_may_be_for_an_earlier_transmission_tells_no_time() {
    let now = Instant::from_micros(10_000_000);
    let hot = Hot {
        loss: Loss {
            min_rtt_us: 20_000,
            ..Loss::default()
        },
        ..Hot::default()
    };
    let told = |resent: bool, age_us: u32, echo_age_ms: Option<u32>| {
        let (mut rec, mut hot) = (Recovery::default(), Hot { ..hot_like(&hot) });
        let flags = if resent { seg_flag::RESENT } else { 0 };
        let seg = segment(10_000_000 - age_us, 1_000, flags);
        let mut summary = AckSummary::default();
        deliver(&mut rec, &mut hot, &seg, echo_age_ms, now, &mut summary);
        rec.advance(&summary, now.as_micros() as u32);
        rec.has(rec_flag::TIMED)
    };
    assert!(told(false, 5_000, None), "sent once: never ambiguous");
    assert!(!told(true, 5_000, None), "sooner than any round trip");
    assert!(told(true, 25_000, None));
    assert!(
        !told(true, 25_000, Some(30)),
        "echoes the first transmission"
    );
    assert!(told(true, 25_000, Some(25)));
}

fn hot_like(hot: &Hot) -> Hot {
    Hot {
        loss: Loss {
            min_rtt_us: hot.loss.min_rtt_us,
            ..Loss::default()
        },
        ..Hot::default()
    }
}

/// Step 3: only what was sent once shows reordering, and only against what was delivered before.
#[test]
fn reordering_is_seen_by_what_was_sent_once_and_comes_late() {
    let now = Instant::from_micros(1_000_000);
    let sees = |flags: u8, ends: &[u32]| {
        let (mut rec, mut hot) = (Recovery::default(), Hot::default());
        for acks in ends.chunks(1) {
            let mut summary = AckSummary::default();
            for end in acks {
                let seg = segment(900_000, end - 1_000, flags);
                deliver(&mut rec, &mut hot, &seg, None, now, &mut summary);
            }
            rec.advance(&summary, now.as_micros() as u32);
        }
        hot.reordering_seen
    };
    assert!(!sees(0, &[1_000, 2_000, 3_000]));
    assert!(sees(0, &[1_000, 3_000, 2_000]));
    assert!(!sees(seg_flag::RESENT, &[1_000, 3_000, 2_000]));
}

/// Step 4.
#[test]
fn the_reordering_window() {
    let hot = |flags: u8, seen: bool| Hot {
        flags,
        reordering_seen: seen,
        loss: Loss {
            min_rtt_us: 40_000,
            ..Loss::default()
        },
        ..Hot::default()
    };
    let mut rec = Recovery::default();
    let srtt = 100_000;
    assert_eq!(rec.reordering_window(&hot(0, false), srtt), 10_000);
    rec.sacked = 3;
    assert_eq!(rec.reordering_window(&hot(0, false), srtt), 0, "DupThresh");
    assert_eq!(rec.reordering_window(&hot(0, true), srtt), 10_000);
    rec.sacked = 1;
    let recovery = hot_flag::RECOVERY;
    assert_eq!(rec.reordering_window(&hot(recovery, false), srtt), 0);
    assert_eq!(rec.reordering_window(&hot(recovery, true), srtt), 10_000);
    rec.reo_mult = 3;
    assert_eq!(rec.reordering_window(&hot(0, false), srtt), 30_000);
    rec.reo_mult = 255;
    assert_eq!(
        rec.reordering_window(&hot(0, false), srtt),
        srtt,
        "SRTT at most"
    );
}

/// Step 4: sixteen recoveries without a D-SACK, and the window is what it was.
#[test]
fn a_widened_window_is_given_up_after_sixteen_recoveries() {
    let mut rec = Recovery {
        reo_mult: 4,
        reo_persist: REO_PERSIST,
        ..Recovery::default()
    };
    for _ in 0..15 {
        rec.recovered();
        assert_eq!(rec.reo_mult, 4);
    }
    rec.recovered();
    assert_eq!(rec.reo_mult, 1);
}

#[test]
fn what_is_at_the_device_still_is_never_lost() {
    let mut look = Look {
        newest: sent(900_000, 9_000),
        now_us: 1_000_000,
        patience_us: 100_000,
        found: Losses::default(),
    };
    assert!(look.says_lost(&segment(800_000, 1_000, 0)));
    assert!(!look.says_lost(&segment(800_000, 1_000, seg_flag::AWAY)));
    // Sent later than what was delivered: nothing can be said, and there is nothing to wait for.
    assert!(!look.says_lost(&segment(900_001, 1_000, 0)));
    assert_eq!(look.found.wait, None);
}

/// Step 5: what is not old enough is waited for, until the newest that was delivered is.
#[test]
fn what_may_only_be_late_is_waited_for() {
    let mut look = Look {
        newest: sent(950_000, 9_000),
        now_us: 1_000_000,
        patience_us: 75_000,
        found: Losses::default(),
    };
    assert!(!look.says_lost(&segment(940_000, 1_000, 0)));
    assert_eq!(look.found.wait, Some(Duration::from_micros(25_000)));
}
