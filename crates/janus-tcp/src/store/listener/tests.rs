//! Which listener a SYN is for, and which can stand beside which.

use super::*;

const V4: &str = "192.0.2.1:80";
const V6: &str = "[2001:db8::1]:80";
const OTHER_V6: &str = "[2001:db8::2]:80";
const ANY_V4: &str = "0.0.0.0:80";
const ANY: &str = "[::]:80";

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn listeners(on: &[(&str, bool)]) -> Listeners {
    let mut listeners = Listeners::new();
    for &(local, v6_only) in on {
        listeners.add(at(local), v6_only, false, 1).expect("free");
    }
    listeners
}

/// A flow to this address; where it comes from does not count.
fn to(local: &str) -> FlowKey {
    FlowKey::new(at(local), at(local)).expect("one family")
}

/// The place in the list of the one that is found.
fn found(listeners: &Listeners, local: &str) -> Option<u32> {
    listeners.find(&to(local), 0).map(|id| id.0)
}

#[test]
fn a_listener_on_all_addresses_takes_both_families() {
    let both = listeners(&[(ANY, false)]);
    assert_eq!((found(&both, V4), found(&both, V6)), (Some(0), Some(0)));
    let one = listeners(&[(ANY, true)]);
    assert_eq!((found(&one, V4), found(&one, V6)), (None, Some(0)));
    let other = listeners(&[(ANY_V4, false)]);
    assert_eq!((found(&other, V4), found(&other, V6)), (Some(0), None));
    let each = listeners(&[(ANY, true), (ANY_V4, false)]);
    assert_eq!((found(&each, V4), found(&each, V6)), (Some(1), Some(0)));
}

#[test]
fn the_port_and_the_address_count() {
    let one = listeners(&[(V6, false), (V4, false)]);
    assert_eq!(found(&one, V6), Some(0));
    assert_eq!(found(&one, V4), Some(1));
    assert_eq!(found(&one, OTHER_V6), None);
    assert_eq!(found(&one, "[2001:db8::1]:81"), None);
    assert_eq!(
        found(&one, "[2001:db8::1]:144"),
        None,
        "same bit, other word"
    );
}

#[test]
fn what_one_takes_no_other_can() {
    for (first, second, clash) in [
        ((ANY, false), (ANY_V4, false), true),
        ((ANY, true), (ANY_V4, false), false),
        ((ANY, false), (V4, false), true),
        ((ANY, true), (V4, false), false),
        ((ANY, true), (ANY, false), true),
        ((ANY, true), (V6, false), true),
        ((V6, false), (OTHER_V6, false), false),
        ((V6, false), (ANY_V4, false), false),
        ((V6, false), (V6, false), true),
        ((ANY_V4, false), (V4, false), true),
    ] {
        for (a, b) in [(first, second), (second, first)] {
            let mut one = listeners(&[a]);
            let added = one.add(at(b.0), b.1, false, 1);
            assert_eq!(added.is_err(), clash, "{a:?} and {b:?}");
        }
    }
}

#[test]
fn one_that_is_gone_leaves_nothing() {
    let mut one = listeners(&[(ANY, false)]);
    assert!(one.remove(ListenerId(0), Instant::ZERO).is_some());
    assert_eq!((found(&one, V4), found(&one, V6)), (None, None));
    assert!(one.add(at(ANY_V4), false, false, 1).is_ok());
    assert_eq!((found(&one, V4), found(&one, V6)), (Some(0), None));
}

#[test]
fn of_three_on_a_port_any_can_go_and_the_others_stay() {
    let addresses = ["192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"];
    for gone in 0..3u32 {
        let mut three = listeners(&addresses.map(|address| (address, false)));
        assert!(three.remove(ListenerId(gone), Instant::ZERO).is_some());
        for (id, address) in (0..).zip(addresses) {
            assert_eq!(found(&three, address), (id != gone).then_some(id));
        }
        assert_eq!(
            three.add(at(addresses[gone as usize]), false, false, 1),
            Ok(ListenerId(gone))
        );
        for (id, address) in (0..).zip(addresses) {
            assert_eq!(found(&three, address), Some(id));
        }
    }
}

#[test]
fn those_that_share_a_place_share_the_flows() {
    let mut listeners = Listeners::new();
    let ids: Vec<u32> = (0..3)
        .map(|_| listeners.add(at(V4), false, true, 1).expect("shared").0)
        .collect();
    assert!(listeners.add(at(V4), false, false, 1).is_err());
    assert!(listeners.add(at(ANY_V4), false, true, 1).is_ok());
    let mut counts = [0; 4];
    for hash in 0..300u64 {
        let found = listeners.find(&to(V4), hash).expect("one");
        counts[found.0 as usize] += 1;
    }
    assert!(
        ids.iter().all(|id| counts[*id as usize] == 100),
        "{counts:?}"
    );
    // What one had goes to the others.
    assert!(
        listeners
            .remove(ListenerId(ids[1]), Instant::ZERO)
            .is_some()
    );
    for hash in 0..300u64 {
        let found = listeners.find(&to(V4), hash).expect("one");
        assert!(found.0 != ids[1]);
    }
}
