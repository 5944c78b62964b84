//! What is kept at hand of the table says nothing that the table does not say.

use super::*;
use proptest::prelude::*;

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
        let mut now = Instant::from_millis(1_000);
        for (which, later, step) in steps {
            now = now + Duration::from_millis(later);
            let ip = Ipv4Addr::new(192, 0, 2, which);
            match step {
                Step::Learn { mac, solicited } => {
                    neighbors.learn(ip.into(), MacAddr([2, 0, 0, 0, 0, mac]), solicited, now);
                }
                Step::Ask => _ = neighbors.should_ask(ip.into(), now),
                Step::Probe => _ = neighbors.should_probe(ip.into(), now),
                Step::Doubt => neighbors.doubt(ip.into(), now),
                Step::Send => {
                    if let Some(known) = neighbors.lookup(ip.into()).filter(|n| !n.is_stale(now)) {
                        neighbors.remember(ip.into(), known);
                        prop_assert_eq!(neighbors.latest_v4(ip, now), Some(known.mac));
                    }
                }
            }
            for ip in (0..3).map(|which| Ipv4Addr::new(192, 0, 2, which)) {
                if let Some(mac) = neighbors.latest_v4(ip, now) {
                    let known = neighbors.lookup(ip.into()).expect("what is at hand is known");
                    prop_assert!(known.mac == mac && !known.is_stale(now));
                }
            }
        }
    }
}
