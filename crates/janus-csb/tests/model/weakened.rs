//! Each rule weakened, by one switch: the search finds how a connection is lost, and prints the shortest way. The same
//! world with the rule kept has no violation.

use crate::rules::{Violation, Weak};
use crate::search::search;
use crate::world::{Budget, Config, World};

const STATES_MAX: usize = 60_000_000;

const NONE: Budget = Budget {
    syn: 0,
    data: 0,
    cookie: 0,
    fin: 0,
    opens: 0,
    moves: 0,
    refusals: 0,
};
const SHORT: Budget = Budget {
    syn: 1,
    data: 1,
    ..NONE
};
const TWO_SYNS: Budget = Budget { syn: 2, ..NONE };

/// With the rule kept the search must end with no violation, with the rule weakened with this one.
#[track_caller]
fn breaks(weak: Weak, expected: Violation, config: Config) {
    let kept = World::new(config.clone());
    let found = search(&kept, STATES_MAX);
    if let Some((violation, trace)) = found.violation {
        let text = kept.print(violation, &trace);
        panic!("the rule is kept, and still\n{text}");
    }
    assert!(found.complete, "more than {STATES_MAX} states");
    println!("{} states with the rule kept", found.states);
    only_breaks(weak, expected, config);
}

/// [`breaks`] where the world with the rule kept is large: it is one of those in `complete.rs`.
#[track_caller]
fn only_breaks(weak: Weak, expected: Violation, config: Config) {
    let world = World::new(Config { weak, ..config });
    let found = search(&world, STATES_MAX);
    let Some((violation, trace)) = found.violation else {
        panic!("{weak:?} breaks nothing in {} states", found.states);
    };
    let text = world.print(violation, &trace);
    println!("after {} states:\n{text}", found.states);
    assert_eq!(violation, expected, "{text}");
}

#[test]
fn rule_4_jump_to_the_newest_ring() {
    let config = Config {
        wrong_hints: &[1],
        ..Config::new(&[0, 1], &[SHORT])
    };
    breaks(Weak::Jump, Violation::Reset, config);
}

#[test]
fn rule_4_a_hint_is_not_the_rings_choice() {
    let config = Config::new(&[0, 0], &[SHORT]);
    breaks(
        Weak::TrustHints,
        Violation::Reset,
        Config {
            wrong_hints: &[1],
            ..config
        },
    );
}

#[test]
fn rule_6_whoever_moves_a_record_reports_it() {
    let config = Config::new(&[0, 1], &[Budget { data: 2, ..SHORT }]);
    breaks(Weak::SilentMover, Violation::Reset, config);
}

#[test]
#[ignore = "millions of states; part of JANUS_MODEL=full"]
fn rule_6_of_flows_that_moved_the_living_are_told() {
    const REUSE: &[Budget] = &[Budget {
        syn: 2,
        fin: 1,
        ..SHORT
    }];
    only_breaks(
        Weak::TellTheDead,
        Violation::Reset,
        Config::new(&[0, 1, 2], REUSE),
    );
}

#[test]
fn rule_7_publish_when_every_shard_has_finished() {
    breaks(
        Weak::PublishEarly,
        Violation::Reset,
        Config::new(&[0, 1], &[SHORT]),
    );
}

#[test]
fn rule_7_keys_that_differ_twice_go_by_tuple() {
    // The first flow stays at s0, the second at s1, and the last ring names s2: only the tuple tells them apart.
    only_breaks(
        Weak::NoExactMap,
        Violation::Reset,
        Config::new(&[0, 1, 2], &[SHORT, SHORT]),
    );
}

#[test]
fn rule_7_one_tuple_reported_by_two_shards() {
    let config = Config::new(
        &[0, 1, 2],
        &[Budget {
            syn: 2,
            fin: 1,
            ..SHORT
        }],
    );
    only_breaks(Weak::AnyReport, Violation::Reset, config);
}

#[test]
fn rule_8_a_pending_ring_is_not_withdrawn() {
    breaks(
        Weak::RollBack,
        Violation::Twice,
        Config::new(&[0, 1], &[TWO_SYNS]),
    );
}

#[test]
fn rule_9_the_next_update_waits_for_the_last() {
    let config = Config::new(&[0, 1, 2, 0], &[Budget { syn: 1, ..NONE }]);
    breaks(Weak::BeginEarly, Violation::Freed, config);
}

#[test]
fn rule_9_two_rounds_of_draining_are_one_too_few() {
    let config = Config::new(&[0, 1, 2], &[Budget { syn: 1, ..NONE }]);
    breaks(
        Weak::FewerRounds,
        Violation::Hops,
        Config {
            wrong_hints: &[1],
            ..config
        },
    );
}

#[test]
fn rule_10_an_active_open_asks_what_differs_too() {
    let config = Config::new(
        &[0, 1],
        &[Budget {
            syn: 1,
            opens: 1,
            ..NONE
        }],
    );
    breaks(Weak::OpenByRings, Violation::Twice, config);
}

#[test]
fn rule_12_a_shard_does_not_leave_with_its_last_flow() {
    let config = Config::new(
        &[0, 1],
        &[Budget {
            syn: 1,
            fin: 1,
            ..SHORT
        }],
    );
    breaks(
        Weak::LeaveEmpty,
        Violation::Gone,
        Config {
            leaves: Some(0),
            ..config
        },
    );
}

#[test]
#[ignore = "millions of states; part of JANUS_MODEL=full"]
fn the_fly_set_never_goes_before_what_differs() {
    const REUSE: &[Budget] = &[Budget {
        syn: 2,
        fin: 1,
        ..SHORT
    }];
    let config = Config::new(&[0, 1, 2], REUSE);
    only_breaks(
        Weak::OldFlyFirst,
        Violation::Reset,
        Config {
            fly: true,
            ..config
        },
    );
}

const MOVING: Budget = Budget { moves: 1, ..SHORT };
fn moving(owners: &'static [u8], flows: &'static [Budget]) -> Config {
    let hops = 4;
    Config {
        hops,
        ..Config::new(owners, flows)
    }
}

#[test]
fn rule_14_parcels_go_before_packets() {
    let config = Config {
        all_arrive: true,
        ..moving(&[0, 0], &[MOVING])
    };
    breaks(Weak::PacketsBeforeParcels, Violation::Lost, config);
}

#[test]
fn rule_14_parcels_go_before_traversals() {
    let config = moving(&[0, 1, 2], &[MOVING]);
    breaks(Weak::LooksBeforeParcels, Violation::Reset, config);
}

#[test]
fn rule_14_stubs_are_told_of() {
    let config = moving(&[0, 1, 2], &[MOVING]);
    breaks(Weak::SilentStubs, Violation::Reset, config);
}

#[test]
fn rule_14_a_stub_outlives_an_update() {
    let config = moving(&[0, 1], &[MOVING]);
    breaks(Weak::StubsGoEarly, Violation::Reset, config);
}

#[test]
fn rule_14_of_another_ring_all_is_told() {
    let config = Config {
        news: true,
        ..moving(&[0, 1], &[MOVING])
    };
    breaks(Weak::NewsOfRings, Violation::Reset, config);
}

#[test]
fn rule_14_stubs_outlive_their_shards_flows() {
    let config = Config {
        deaths: 1,
        ..moving(&[0, 0], &[MOVING])
    };
    breaks(Weak::StubsDie, Violation::Astray, config);
}

#[test]
fn rule_14_nothing_comes_of_what_a_stub_led_astray() {
    const REUSE: &[Budget] = &[Budget {
        syn: 2,
        fin: 1,
        ..MOVING
    }];
    only_breaks(Weak::StubsCreate, Violation::Astray, moving(&[0, 1], REUSE));
}

#[test]
fn rule_14_a_flow_moves_once_between_updates() {
    const TWICE: &[Budget] = &[Budget { moves: 2, ..MOVING }];
    let config = Config {
        all_arrive: true,
        ..moving(&[0, 1, 2], TWICE)
    };
    only_breaks(Weak::MoveAgain, Violation::Lost, config);
}

#[test]
#[ignore = "millions of states; part of JANUS_MODEL=full"]
fn rule_14_a_stub_tells_of_when_it_was_made() {
    const REUSE: &[Budget] = &[Budget {
        syn: 2,
        fin: 1,
        ..MOVING
    }];
    let config = moving(&[0, 1, 0], REUSE);
    only_breaks(Weak::StubsTellOfNow, Violation::Reset, config);
}
