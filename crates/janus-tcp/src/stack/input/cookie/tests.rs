//! The arithmetic of cookies, and two engines that open connections by nothing else.

use std::net::Ipv4Addr;

use janus_wire::FlowKeyV4;

use super::*;
use crate::rules::config::PERIOD;
use crate::testing::Pair;
use crate::{Config, SynCookies};

fn key(port: u16) -> FlowKey {
    FlowKey::V4(FlowKeyV4 {
        peer: Ipv4Addr::new(192, 0, 2, 1),
        local: Ipv4Addr::new(192, 0, 2, 2),
        peer_port: port,
        local_port: 80,
    })
}

fn offer(mss: u16, peer_scale: u8, flags: u8) -> Offer {
    Offer {
        mss,
        peer_scale,
        flags,
    }
}

const NOW: Instant = Instant::from_millis(1_000_000);

/// A cookie made for `offer` at `made`, and what it says at `NOW`, when the peer echoes the timestamp.
fn there_and_back(offer: Offer, made: Instant) -> Option<Offer> {
    let secrets = Secrets::from_seed(1);
    let kept = offer.as_kept(&key(1));
    let cookie = make(&secrets, &key(1), SeqNum(77), kept, made);
    let echo = (kept.flags & flag::TIMESTAMPS != 0).then(|| kept.timestamp(123_456, 0));
    judge(&secrets, &key(1), SeqNum(77), cookie, echo, NOW)
}

#[test]
fn with_timestamps_everything_comes_back() {
    for scale in (0..=14).chain([NO_SCALE]) {
        for more in [0, flag::SACK, flag::ECN, flag::SACK | flag::ECN] {
            for mss in SIZES_V4 {
                let whole = offer(mss, scale, flag::TIMESTAMPS | more);
                assert_eq!(there_and_back(whole, NOW), Some(whole));
            }
        }
    }
}

#[test]
fn without_timestamps_only_the_segment_size_does() {
    for (mss, kept) in [
        (48, 48),
        (535, 48),
        (536, 536),
        (1_399, 1_300),
        (1_460, 1_460),
        (9_000, 8_960),
    ] {
        let bare = offer(kept, NO_SCALE, 0);
        assert_eq!(there_and_back(offer(mss, 7, flag::SACK), NOW), Some(bare));
    }
}

#[test]
fn a_cookie_is_good_for_its_period_and_the_next() {
    let whole = offer(1_460, 7, flag::TIMESTAMPS | flag::SACK);
    let period_start = NOW.as_millis() / 64_000 * 64_000;
    let made = |ms: u64| there_and_back(whole, Instant::from_millis(ms));
    assert!(made(period_start).is_some());
    assert!(made(period_start - 64_000).is_some());
    for periods in 1..6 {
        assert_eq!(made(period_start - 64_000 * periods - 1), None);
        assert_eq!(made(period_start + 64_000 * periods), None);
    }
}

#[test]
fn a_cookie_is_for_one_connection_and_one_offer() {
    let secrets = Secrets::from_seed(1);
    let kept = offer(1_460, 7, flag::TIMESTAMPS | flag::SACK);
    let cookie = make(&secrets, &key(1), SeqNum(77), kept, NOW);
    let echo = Some(kept.timestamp(640, 0));
    let judged = |secrets: &Secrets, port, irs, cookie: SeqNum, echo| {
        judge(secrets, &key(port), SeqNum(irs), cookie, echo, NOW)
    };
    assert_eq!(judged(&secrets, 1, 77, cookie, echo), Some(kept));
    assert_eq!(judged(&secrets, 2, 77, cookie, echo), None);
    assert_eq!(judged(&secrets, 1, 78, cookie, echo), None);
    assert_eq!(judged(&secrets, 1, 77, cookie, None), None);
    assert_eq!(judged(&secrets, 1, 77, cookie, Some(640 + 6)), None);
    assert_eq!(judged(&Secrets::from_seed(2), 1, 77, cookie, echo), None);
    for bit in 0..32 {
        let damaged = SeqNum(cookie.0 ^ 1 << bit);
        assert_eq!(judged(&secrets, 1, 77, damaged, echo), None);
    }
}

/// A random number is a cookie once in 2²⁸; that one of these is would happen once in 2,700 seeds, and this is not one.
#[test]
fn guessing_does_not_pay() {
    let secrets = Secrets::from_seed(3);
    let mut state = 0x1234_5678_9abc_def1u64;
    for _ in 0..100_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let guess = SeqNum((state >> 32) as u32);
        assert_eq!(judge(&secrets, &key(1), SeqNum(1), guess, None, NOW), None);
    }
}

#[test]
fn a_timestamp_with_options_is_never_newer_than_the_clock() {
    for clock in [0, 1, 62, 63, 64, 1_000_000, u32::MAX] {
        for scale in (0..=14).chain([NO_SCALE]) {
            let kept = offer(1_460, scale, flag::TIMESTAMPS | flag::SACK | flag::ECN);
            for owner_bits in 0..=8 {
                let stamp = kept.timestamp(clock, owner_bits);
                let behind = clock.wrapping_sub(stamp);
                let most = TICKS_KEPT_BACK << owner_bits;
                assert!(behind <= most, "{behind} behind");
                // The owner's bits are not touched.
                assert_eq!((stamp ^ clock) & ((1 << owner_bits) - 1), 0);
            }
        }
    }
}

/// Whoever owns the connection then, and whatever number it has: what the SYN said comes back.
#[test]
fn a_cookie_goes_beside_the_owners_bits() {
    let kept = offer(1_460, 7, flag::TIMESTAMPS | flag::SACK);
    for shards in [2, 3, 16, 256] {
        let of = |shard| Secrets::from_seed(1).naming(shard, shards);
        let sent = make(&of(1), &key(1), SeqNum(77), kept, NOW);
        let stamps = *of(1).stamps();
        let base = stamps.base(stamps.hash(&key(1)));
        let clock = stamps.stamp(base, NOW.as_millis() as u32);
        let echo = kept.timestamp(clock, of(1).stamps().bits());
        assert_eq!(of(1).stamps().owner(&key(1), echo), Some(1));
        let judged = judge(&of(0), &key(1), SeqNum(77), sent, Some(echo), NOW);
        assert_eq!(judged, Some(kept));
    }
}

#[test]
fn what_one_shard_sent_another_expects_for_two_periods() {
    let one = Secrets::from_seed(1);
    let other = one.clone();
    assert!(!other.cookie_may_be_good(NOW));
    one.note_cookie(NOW);
    assert!(other.cookie_may_be_good(NOW));
    assert!(other.cookie_may_be_good(NOW + PERIOD));
    assert!(!other.cookie_may_be_good(NOW + PERIOD * 2));
}

/// Opens, and sends both ways; the client's first data travels on the segment that brings the cookie back, when the
/// bare acknowledgement before it is lost.
#[test]
fn engines_open_by_cookies_alone() {
    for (timestamps, v6) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut pair = Pair::new(
            &Config {
                syn_cookies: SynCookies::Always,
                timestamps,
                ..Config::default()
            },
            1,
        );
        pair.v6 = v6;
        let (a, b) = pair.open(40_000);
        // Ethernet's segment is in the table of each family; without timestamps it is all that is kept.
        let info = pair.b.stack.info(b).expect("a connection");
        let whole = if v6 { 1_440 } else { 1_460 };
        let options = if timestamps { 12 } else { 0 };
        assert_eq!(info.mss, whole - options);
        assert_eq!((info.sack, info.window_scaling), (timestamps, timestamps));
        assert_eq!(pair.b.stack.half_open(), 0);
        assert_eq!(pair.b.stack.counters().cookies_accepted, 1);
        for round in 0..3u8 {
            let mut got = [0; 16];
            pair.a.stack.write(pair.now, a, &[round; 5]).expect("room");
            while pair.b.stack.read(pair.now, b, &mut got).is_err() {
                pair.step();
            }
            assert_eq!(got[..5], [round; 5]);
            pair.b.stack.write(pair.now, b, &[round; 7]).expect("room");
            while pair.a.stack.read(pair.now, a, &mut got).is_err() {
                pair.step();
            }
            assert_eq!(got[..7], [round; 7]);
        }
        pair.a.stack.close(pair.now, a);
        pair.b.stack.close(pair.now, b);
        pair.assert_clean();
    }
}
