use janus_seeds::Random;

use super::*;

const HASH: TableHash = TableHash::new(7, 8);
const MS: u64 = 1_000_000;

fn limit(per_second: u32, burst: u32) -> SynLimit {
    SynLimit {
        burst,
        ..SynLimit::new(per_second)
    }
}

fn v4(bits: u32) -> IpAddr {
    Ipv4Addr::from_bits(bits).into()
}

#[test]
fn a_burst_and_then_the_rate() {
    let mut rates = SynRates::new(limit(100, 5), 16, HASH);
    let now = 3_000 * MS;
    let admitted = (0..20).filter(|_| rates.admits(v4(1), now)).count();
    assert_eq!(admitted, 5);
    // One more every ten milliseconds.
    assert!(!rates.admits(v4(1), now + 9 * MS));
    assert!(rates.admits(v4(1), now + 10 * MS));
    assert!(!rates.admits(v4(1), now + 10 * MS));
    // And a whole burst after a silence, not more.
    let later = now + 3_600_000 * MS;
    let admitted = (0..20).filter(|_| rates.admits(v4(1), later)).count();
    assert_eq!(admitted, 5);
}

#[test]
fn networks_count_apart_and_their_hosts_together() {
    let mut rates = SynRates::new(limit(1, 1), SYN_SETS, HASH);
    let admits = |rates: &mut SynRates, text: &str| rates.admits(text.parse().unwrap(), 0);
    assert!(admits(&mut rates, "198.51.100.1"));
    assert!(!admits(&mut rates, "198.51.100.254"));
    assert!(admits(&mut rates, "198.51.101.1"));
    assert!(admits(&mut rates, "2001:db8:0:100::1"));
    assert!(!admits(&mut rates, "2001:db8:0:1ff:ffff::1"));
    assert!(admits(&mut rates, "2001:db8:0:200::1"));
    for (prefix_v4, prefix_v6) in [(0, 0), (32, 128), (255, 255)] {
        let wide = SynLimit {
            prefix_v4,
            prefix_v6,
            ..limit(1, 1)
        };
        let mut rates = SynRates::new(wide, 1, HASH);
        let apart = prefix_v4 != 0;
        assert!(admits(&mut rates, "192.0.2.1"));
        assert!(!admits(&mut rates, "192.0.2.1"));
        assert_eq!(admits(&mut rates, "198.51.100.1"), apart);
        assert!(admits(&mut rates, "2001:db8::1"));
        assert_eq!(admits(&mut rates, "2001:db8::2"), apart);
    }
}

/// Whatever the times and the company in the table: of one network no window sees more than the burst and what leaks in it.
#[test]
fn no_window_sees_more_than_the_limit() {
    for seed in 0..10_u64 {
        let mut random = Random::new(seed);
        let limit = limit(
            1 + random.bits() as u32 % 2_000,
            1 + random.bits() as u32 % 50,
        );
        // One set: everybody shares it.
        let mut rates = SynRates::new(limit, 1, HASH);
        let mut now = random.bits() % (1 << 40);
        let mut admitted: [Vec<u64>; 7] = Default::default();
        for _ in 0..3_000 {
            now += random.bits() % (4 * SECOND_NS / u64::from(limit.per_second));
            let who = random.bits() as usize % admitted.len();
            if rates.admits(v4((who as u32) << 8), now) {
                admitted[who].push(now);
            }
        }
        for times in &admitted {
            for (i, begin) in times.iter().enumerate() {
                for (j, end) in times.iter().enumerate().skip(i) {
                    let window = (end - begin) as f64 / SECOND_NS as f64;
                    let most = f64::from(limit.burst) + window * f64::from(limit.per_second);
                    let seen = (j - i + 1) as f64;
                    assert!(
                        seen <= most + 1e-6,
                        "seed {seed}: {seen} in {window} s, {limit:?}"
                    );
                }
            }
        }
    }
}

/// The limit is no obstacle to who stays below it, as long as the table has a place.
#[test]
fn who_keeps_to_the_limit_is_never_refused() {
    let mut rates = SynRates::new(limit(1_000, 10), SYN_SETS, HASH);
    let mut random = Random::new(3);
    let mut now = 0;
    for _ in 0..100_000 {
        now += MS;
        assert!(rates.admits(v4(0x0a00_0000), now));
        // Two hundred others who send ten times what they may.
        for _ in 0..10 {
            rates.admits(v4((random.bits() as u32 % 200 + 1) << 8), now);
        }
    }
}

/// A network that has used up its limit sends from as many others as it likes, and comes back: its debt is still there, or
/// whoever took its place has it. In all the table admits no more than its entries allow.
#[test]
fn a_flood_from_many_networks_pays_no_debt_off() {
    let mut rates = SynRates::new(limit(10, 10), 1, HASH);
    let now = 5 * SECOND_NS;
    let mut admitted = 0;
    for round in 0..1_000_u32 {
        for _ in 0..20 {
            admitted += u32::from(rates.admits(v4(round << 8), now));
        }
    }
    assert_eq!(admitted, 10 * WAYS as u32, "a burst for each entry");
    assert!(!rates.admits(v4(0), now));
    assert!(!rates.admits(v4(999 << 8), now));
}

#[test]
fn odd_limits_are_limits() {
    let mut never = SynRates::new(limit(0, 3), 1, HASH);
    let admitted = (0..10).filter(|_| never.admits(v4(1), 0)).count();
    assert_eq!(admitted, 3);
    assert!(!never.admits(v4(1), 365 * 24 * 3_600 * SECOND_NS));
    let mut much = SynRates::new(limit(u32::MAX, u32::MAX), 1, HASH);
    assert!((0..10_000).all(|_| much.admits(v4(1), u64::MAX - 1)));
    // No burst at all would be no SYN ever.
    assert!(SynRates::new(limit(10, 0), 1, HASH).admits(v4(1), 0));
    let share = limit(100, 7).share_of(3);
    assert_eq!((share.per_second, share.burst), (34, 3));
    assert_eq!(limit(1, 1).share_of(64), limit(1, 1));
}
