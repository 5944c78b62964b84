//! Which measurements count, and how much.

use core::time::Duration;

use janus_wire::SeqNum;

use crate::conn::loss::rttm::{Acked, OLDEST_ECHO_MS};
use crate::rules::config::Config;
use crate::store::cold::Tcb;
use crate::store::hot::Hot;
use crate::store::rto;
use crate::testing::{Pair, slot};

#[test]
fn an_echo_counts_from_the_newest_transmission_to_two_minutes_back() {
    let mut pair = Pair::new(&Config::default(), 1);
    let (conn, _) = pair.open(40_000);
    pair.run_for(Duration::from_secs(300));
    let (stack, now) = (&mut pair.a.stack, pair.now);
    stack.set_now(now);
    let key = stack.store().tcbs.key(slot(conn));
    let clock = stack
        .rules()
        .timestamp(stack.rules().stamp_base(&key), now.as_millis() as u32);
    assert!(stack.ensure_hot(slot(conn)));
    let lent = stack.lend(slot(conn)).expect("has a hot block");
    let echoed = |age_ms: u32, newest_us| lent.echoed(clock.wrapping_sub(age_ms), newest_us);
    assert_eq!(echoed(30, 30_000), Some(30_000));
    assert_eq!(echoed(30, 30_999), Some(30_000), "as coarse as the clock");
    assert_eq!(echoed(30, 31_000), None, "younger than what it echoes");
    assert_eq!(
        echoed(90, 30_000),
        Some(90_000),
        "of an earlier transmission"
    );
    assert_eq!(echoed(0, 400), Some(1_000), "less than a tick");
    assert_eq!(echoed(1u32.wrapping_neg(), 0), None, "the future");
    assert_eq!(echoed(OLDEST_ECHO_MS, 0), Some(OLDEST_ECHO_MS * 1_000));
    assert_eq!(echoed(OLDEST_ECHO_MS + 1, 0), None, "ancient");
    assert_eq!(echoed(clock, 0), None, "zero");
}

#[test]
fn the_oldest_of_what_is_acknowledged_is_measured() {
    let mut acked = Acked::default();
    assert!(acked.is_empty());
    for (age, resent) in [(300, false), (100, false), (200, true)] {
        acked.add(age, resent);
    }
    assert!(!acked.is_empty() && acked.resent);
    assert_eq!((acked.newest_us, acked.oldest_us), (100, 300));
}

fn measured() -> (Tcb, Hot) {
    let mut cold = Tcb::default();
    rto::sample(&mut cold, 100_000);
    assert_eq!((cold.srtt_us(), rto::variation(&cold)), (100_000, 50_000));
    (cold, Hot::default())
}

/// RFC 7323 section 4.2: a hundred equal samples in one round trip must not make RTTVAR forget at once.
#[test]
fn the_variation_falls_once_in_a_round_trip() {
    let (mut cold, mut hot) = measured();
    cold.snd_nxt = SeqNum(100);
    for ack in 0..100 {
        rto::sample_of_many(&mut cold, &mut hot, SeqNum(ack), 100_000);
    }
    assert_eq!(rto::variation(&cold), 37_500, "once, at the first");
    rto::sample_of_many(&mut cold, &mut hot, SeqNum(100), 100_000);
    assert_eq!(rto::variation(&cold), 28_125, "the next round trip");
}

/// And it rises at once, and for a round trip remembers the worst it saw.
#[test]
fn the_variation_rises_with_any_sample() {
    let (mut cold, mut hot) = measured();
    (hot.timers.rtt_round, cold.snd_nxt) = (SeqNum(50), SeqNum(100));
    rto::sample_of_many(&mut cold, &mut hot, SeqNum(1), 500_000);
    assert_eq!(rto::variation(&cold), 37_500 + 100_000);
    let risen = rto::variation(&cold);
    for ack in 2..50 {
        rto::sample_of_many(&mut cold, &mut hot, SeqNum(ack), 100_000);
    }
    assert_eq!(rto::variation(&cold), risen);
    rto::sample_of_many(&mut cold, &mut hot, SeqNum(50), 100_000);
    assert_eq!(rto::variation(&cold), risen - risen / 4 + 400_000 / 4);
}

/// One sample in each round trip: RFC 6298 section 2.3 to the letter.
#[test]
fn one_sample_a_round_trip_is_the_plain_formula() {
    let (mut many, mut hot) = measured();
    let (mut plain, _) = measured();
    for (n, rtt) in [120_000, 80_000, 300_000, 100_000, 100_000, 90_000]
        .into_iter()
        .enumerate()
    {
        many.snd_nxt = SeqNum(n as u32 * 10 + 10);
        rto::sample_of_many(&mut many, &mut hot, SeqNum(n as u32 * 10), rtt);
        rto::sample(&mut plain, rtt);
        assert_eq!(
            (many.srtt_us(), many.rttvar_us),
            (plain.srtt_us(), plain.rttvar_us)
        );
    }
}
