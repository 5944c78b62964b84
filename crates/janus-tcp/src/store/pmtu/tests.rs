//! What is learned, forgotten and searched for.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const FULL: u16 = 1_500;

fn v4(last: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xc633_6400 + last).into()
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(1_000 * seconds)
}

#[test]
fn a_routers_word_lowers_never_raises_and_is_forgotten() {
    let mut paths = Paths::new((1, 2));
    assert!(paths.is_empty());
    assert!(paths.told(v4(1), 1_400, at(1)));
    assert!(!paths.told(v4(1), 1_450, at(2)));
    assert_eq!(paths.mtu(v4(1), at(2)), Some(1_400));
    assert_eq!(paths.mtu(v4(2), at(2)), None);
    assert!(paths.told(v4(1), 1_300, at(100)));
    assert_eq!(paths.mtu(v4(1), at(699)), Some(1_300));
    assert_eq!(paths.mtu(v4(1), at(700)), None);
}

#[test]
fn no_router_makes_packets_tiny() {
    let mut paths = Paths::new((1, 2));
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    assert!(paths.told(v4(1), 68, at(1)));
    assert!(paths.told(v6, 68, at(1)));
    assert_eq!(paths.mtu(v4(1), at(1)), Some(SMALLEST_V4));
    assert_eq!(paths.mtu(v6, at(1)), Some(SMALLEST_V6));
}

#[test]
fn a_router_that_names_no_size_means_the_next_plateau() {
    assert_eq!(plateau_below(1_500), 1_492);
    assert_eq!(plateau_below(1_492), 1_006);
    assert_eq!(plateau_below(300), SMALLEST_V4);
}

#[test]
fn the_table_is_bounded_and_forgets_the_oldest() {
    let mut paths = Paths::new((1, 2));
    for i in 0..100_000 {
        paths.told(v4(i), 1_400, at(u64::from(i / 1_000)));
    }
    assert_eq!(paths.sets.len() * WAYS, 1_024);
    assert_eq!(paths.mtu(v4(99_999), at(100)), Some(1_400));
    assert_eq!(paths.mtu(v4(0), at(100)), None);
}

#[test]
fn a_silent_path_is_stepped_down_and_probed_back_to_full_when_it_heals() {
    let mut paths = Paths::new((1, 2));
    assert_eq!(paths.silent(v4(1), 1_500, at(0)), Some(BASE_V4));
    assert_eq!(paths.silent(v4(1), BASE_V4, at(1)), Some(SMALLEST_V4));
    assert_eq!(paths.silent(v4(1), SMALLEST_V4, at(2)), None);
    assert_eq!(paths.probe_due(v4(1), FULL, at(30)), None);
    assert_eq!(paths.probe_due(v4(1), FULL, at(31)), Some(FULL));
    paths.probe_arrived(v4(1), FULL, FULL, at(32));
    assert_eq!(paths.mtu(v4(1), at(32)), None);
}

#[test]
fn the_search_finds_what_a_silent_path_carries() {
    for carries in [600u16, 1_200, 1_279, 1_400, 1_492] {
        let mut paths = Paths::new((1, 2));
        let mut now = at(0);
        let mut mtu = FULL;
        while mtu > carries {
            mtu = paths.silent(v4(1), mtu, now).expect("a smaller size");
        }
        let mut lost = 0;
        for _ in 0..20 {
            now = now + FORGOTTEN_AFTER / 2;
            let Some(size) = paths.probe_due(v4(1), FULL, now) else {
                continue;
            };
            if size > carries {
                lost += 1;
                paths.probe_lost(v4(1), size, now);
                assert_eq!(paths.probe_due(v4(1), FULL, now), None, "a pause");
            } else {
                paths.probe_arrived(v4(1), size, FULL, now);
            }
        }
        let found = paths.mtu(v4(1), now).expect("it is still too small");
        assert!(
            found <= carries && carries - found < 2 * CLOSE_ENOUGH,
            "{found} of {carries}"
        );
        assert!(lost < 14, "{lost} probes lost");
    }
}

/// Who has many addresses and lies about their paths cannot choose such as push out what is known of another's.
#[test]
fn no_choice_of_addresses_pushes_a_path_out() {
    let set_under = |key, to| Paths::new(key).set_of(to);
    let (victim, known) = (v4(1), (7, 8));
    let near: Vec<IpAddr> = (1_000..200_000)
        .map(v4)
        .filter(|&to| set_under(known, to) == set_under(known, victim))
        .take(64)
        .collect();
    let survives = |key| {
        let mut paths = Paths::new(key);
        paths.told(victim, 1_300, at(1));
        near.iter().for_each(|&to| _ = paths.told(to, 1_400, at(2)));
        paths.mtu(victim, at(3)) == Some(1_300)
    };
    assert_eq!((near.len(), survives(known)), (64, false));
    assert!((0..50).filter(|&key| survives((key, !key))).count() >= 48);
}
