//! What is kept at hand of the table says nothing that the table does not say.

use janus_wire::Link;
use proptest::prelude::*;

use super::*;

/// Something that happens to one of a few neighbours, some milliseconds later.
#[derive(Clone, Debug)]
enum Step {
    Learn {
        mac: u8,
        solicited: bool,
    },
    Ask,
    Probe,
    Doubt,
    /// A frame goes there, as `Stack` sends one.
    Send,
}

fn any_step() -> impl Strategy<Value = (u8, u64, Step)> {
    let step = prop_oneof![
        3 => (0u8..4, any::<bool>()).prop_map(|(mac, solicited)| Step::Learn { mac, solicited }),
        1 => Just(Step::Ask),
        1 => Just(Step::Probe),
        1 => Just(Step::Doubt),
        6 => Just(Step::Send),
    ];
    (
        0u8..3,
        prop_oneof![0u64..500, Just(2_000), Just(61_000)],
        step,
    )
}

proptest! {
    #[test]
    fn the_latest_neighbour_is_what_the_table_says_of_it(
        steps in proptest::collection::vec(any_step(), 1..80),
    ) {
        let mut neighbors = Neighbors::new(7);
        let interface = Interface {
            link: Link::Ethernet,
            ..Interface::ip(1_500)
        };
        let mut now = Instant::from_millis(1_000);
        for (which, later, step) in steps {
            now = now + Duration::from_millis(later);
            let ip = Ipv4Addr::new(192, 0, 2, which);
            match step {
                Step::Learn { mac, solicited } => {
                    let mac = MacAddr([2, 0, 0, 0, 0, mac]);
                    neighbors.learn(ip.into(), mac, solicited, now, &interface);
                }
                Step::Ask => _ = neighbors.should_ask(ip.into(), now, &interface),
                Step::Probe => _ = neighbors.should_probe(ip.into(), now),
                Step::Doubt => neighbors.doubt(ip.into(), now),
                Step::Send => {
                    let known = neighbors.lookup_to_send(ip.into(), now);
                    if let Some(known) = known.filter(|n| !n.is_stale(now)) {
                        neighbors.remember(ip.into(), known, &interface);
                        let written = Envelope::new(&interface, false, known.mac);
                        prop_assert_eq!(neighbors.latest_v4(ip, now), Some(&written));
                    }
                }
            }
            for ip in (0..3).map(|which| Ipv4Addr::new(192, 0, 2, which)) {
                if let Some(written) = neighbors.latest_v4(ip, now) {
                    let known = neighbors.lookup(ip.into()).expect("what is at hand is known");
                    prop_assert_eq!(*written, Envelope::new(&interface, false, known.mac));
                    prop_assert!(!known.is_stale(now));
                }
            }
        }
    }
}

const SECRET: u64 = 0x9e37_79b9_7f4a_7c15;

fn host(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xc612_0000 + number).into()
}

fn mac_of(number: u32) -> MacAddr {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddr([2, 0, a, b, c, d])
}

/// As many as there are places are in use; a gateway is one, though nothing was sent to it for long.
#[test]
fn who_is_in_use_stays_whoever_speaks_and_for_as_long_as_it_is() {
    const GATEWAY: u32 = 70_000;
    let start = Instant::from_millis(1_000_000);
    let IpAddr::V4(gateway) = host(GATEWAY) else {
        unreachable!()
    };
    let interface = Interface {
        gateway: Some(gateway),
        ..Interface::ip(1_500)
    };
    let mut neighbors = Neighbors::new(SECRET);
    let speaks = |neighbors: &mut Neighbors, number, now| {
        neighbors.learn(host(number), mac_of(number), true, now, &interface)
    };
    assert!(speaks(&mut neighbors, GATEWAY, Instant::from_millis(5)));
    let uses = |neighbors: &mut Neighbors, number, now| {
        speaks(neighbors, number, now) && neighbors.lookup_to_send(host(number), now).is_some()
    };
    let used = (0..8_000).filter(|&number| uses(&mut neighbors, number, start));
    let used: Vec<u32> = used.collect();
    assert!(used.len() > SETS * (WAYS - 1), "{}", used.len());
    let flood = |neighbors: &mut Neighbors, now| {
        let strangers = 10_000..40_000;
        strangers
            .filter(|&number| speaks(neighbors, number, now))
            .count()
    };
    let know = |neighbors: &Neighbors| {
        let is_known = |&&number: &&u32| {
            let known = neighbors.lookup(host(number));
            known.is_some_and(|known| known.mac == mac_of(number))
        };
        (used.iter().filter(is_known).count(), is_known(&&GATEWAY))
    };
    let later = start + Duration::from_secs(59);
    let filed = flood(&mut neighbors, later);
    assert!(filed < 8_000, "{filed} of 30,000 found a place");
    assert_eq!(know(&neighbors), (used.len(), true));
    // Whom a packet waits for is filed all the same, once in each set, and pushes out no gateway.
    let asked = (50_000..70_000).filter(|&to| neighbors.should_ask(host(to), later, &interface));
    assert_eq!(asked.count(), 20_000);
    let (still, gateway) = know(&neighbors);
    assert!(
        still >= used.len() - SETS && gateway,
        "{still} of {}",
        used.len()
    );
    // Nothing is sent to any of them for a minute.
    let filed = flood(&mut neighbors, start + Duration::from_secs(61));
    assert!(filed == 30_000, "{filed} of 30,000 found a place");
    assert!(know(&neighbors).1);
}

/// The neighbour at hand is looked up once for many packets.
#[test]
fn who_is_at_hand_is_in_use() {
    let (interface, start) = (Interface::ip(1_500), Instant::from_millis(1_000));
    let mut neighbors = Neighbors::new(SECRET);
    let at_hand = Ipv4Addr::new(192, 0, 2, 9);
    neighbors.learn(at_hand.into(), mac_of(9), true, start, &interface);
    let known = neighbors.lookup_to_send(at_hand.into(), start);
    neighbors.remember(at_hand.into(), known.expect("it is known"), &interface);
    // The first strangers end its being at hand; from then on it has a minute.
    for seconds in [50, 80, 105] {
        let now = start + Duration::from_secs(seconds);
        for number in 0..30_000 {
            neighbors.learn(host(number), mac_of(number), true, now, &interface);
        }
        assert!(
            neighbors.lookup(at_hand.into()).is_some(),
            "after {seconds} s"
        );
    }
}
