//! The protocol as it stands: no violation anywhere in what is searched. Each subject has worlds for every run, and
//! larger ones for `JANUS_MODEL=full`.

use std::time::Instant;

use crate::rules::Weak;
use crate::search::search;
use crate::world::{Action, Budget, Config, World};

/// More states than any of these worlds has: a search that stops here proves nothing, and fails.
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
/// A SYN and data.
const SHORT: Budget = Budget {
    syn: 1,
    data: 1,
    ..NONE
};
const CLOSING: Budget = Budget { fin: 1, ..SHORT };
/// Two SYNs (a duplicate, a second connection, or a reuse of the tuple), data, FIN.
const REUSE: Budget = Budget { syn: 2, ..CLOSING };
const LONG: Budget = Budget { syn: 3, ..CLOSING };
/// Two ACKs of one cookie, data.
const COOKIE: Budget = Budget {
    cookie: 2,
    data: 1,
    ..NONE
};
const COOKIE_CLOSING: Budget = Budget { fin: 1, ..COOKIE };
const SYN_AND_COOKIE: Budget = Budget {
    cookie: 1,
    ..CLOSING
};
const OPEN: Budget = Budget { opens: 1, ..SHORT };
const OPEN_TWICE: Budget = Budget {
    opens: 2,
    ..CLOSING
};

fn world(owners: &'static [u8], flows: &'static [Budget]) -> Config {
    Config::new(owners, flows)
}

/// The same where the filter may send a packet of any of these flows to `shards`.
fn wrong(shards: &'static [u8], config: Config) -> Config {
    Config {
        wrong_hints: shards,
        ..config
    }
}

/// Pending rings may be given up: each is a ring more that a packet may have to be walked over.
fn superseding(supersedes: u8, config: Config) -> Config {
    Config {
        supersedes,
        hops: 2 + supersedes,
        ..config
    }
}

fn leaving(config: Config) -> Config {
    Config {
        leaves: Some(0),
        ..config
    }
}

fn learning(config: Config) -> Config {
    Config {
        fly: true,
        ..config
    }
}

fn losing(config: Config) -> Config {
    Config {
        losses: 1,
        ..config
    }
}

/// Searches every world to its end. In each the action that it is about must happen.
fn nothing_is_lost(
    subject: &str,
    must_happen: fn(&Action) -> bool,
    always: &[Config],
    full: &[Config],
) {
    let all = std::env::var("JANUS_MODEL").is_ok_and(|wanted| wanted == "full");
    let mut states = 0;
    for config in always.iter().chain(full.iter().filter(|_| all)) {
        assert_eq!(config.weak, Weak::Nothing);
        let start = Instant::now();
        let world = World::new(config.clone());
        let found = search(&world, STATES_MAX);
        states += found.states;
        println!(
            "{subject}: owners {:?}, wrong hints {:?}: {} states, {} actions deep, {:.1?}",
            config.owners,
            config.wrong_hints,
            found.states,
            found.depth,
            start.elapsed()
        );
        if let Some((violation, trace)) = found.violation {
            panic!("{}", world.print(violation, &trace));
        }
        assert!(found.complete, "more than {STATES_MAX} states");
        assert!(found.happened.iter().any(must_happen), "it was never tried");
    }
    println!("{subject}: {states} states in all");
}

#[test]
fn one_update() {
    nothing_is_lost(
        "one update",
        |action| matches!(action, Action::Publish),
        &[
            world(&[0, 1], &[REUSE]),
            wrong(&[1], world(&[0, 0], &[SHORT])),
            wrong(&[1], world(&[0, 1], &[COOKIE])),
        ],
        &[
            wrong(&[1, 2], world(&[0, 0], &[REUSE])),
            wrong(&[1, 2], world(&[0, 1], &[REUSE])),
            wrong(&[1, 2], world(&[0, 1], &[SYN_AND_COOKIE])),
            wrong(&[1, 2], world(&[0, 1], &[COOKIE_CLOSING])),
            world(&[0, 1], &[LONG]),
        ],
    );
}

#[test]
fn two_updates_back_to_back() {
    nothing_is_lost(
        "two updates",
        |action| matches!(action, Action::Publish),
        &[
            wrong(&[1], world(&[0, 1, 2], &[SHORT])),
            wrong(&[2], world(&[0, 1, 0], &[SHORT])),
            world(&[0, 1, 2], &[CLOSING]),
        ],
        &[
            wrong(&[1], world(&[0, 0, 1], &[REUSE])),
            wrong(&[1], world(&[0, 1, 0], &[REUSE])),
            wrong(&[2], world(&[0, 1, 0], &[REUSE])),
            wrong(&[1], world(&[0, 1, 1], &[REUSE])),
            wrong(&[1], world(&[0, 1, 2], &[REUSE])),
            wrong(&[2], world(&[0, 1, 2], &[REUSE])),
            wrong(&[1], world(&[0, 1, 2], &[COOKIE_CLOSING])),
            wrong(&[1], world(&[0, 1, 2], &[SYN_AND_COOKIE])),
        ],
    );
}

#[test]
fn three_updates_back_to_back() {
    nothing_is_lost(
        "three updates",
        |action| matches!(action, Action::Publish),
        &[wrong(&[1], world(&[0, 1, 2, 0], &[SHORT]))],
        &[
            world(&[0, 1, 2, 0], &[REUSE]),
            world(&[0, 1, 0, 1], &[REUSE]),
            wrong(&[2], world(&[0, 1, 0, 2], &[REUSE])),
        ],
    );
}

#[test]
fn flows_with_one_key() {
    nothing_is_lost(
        "equal keys",
        |action| matches!(action, Action::Publish),
        &[world(&[0, 1], &[SHORT, SHORT])],
        &[
            world(&[0, 1, 2], &[SHORT, SHORT]),
            wrong(&[1], world(&[0, 1, 0], &[SHORT, SHORT])),
            wrong(&[1], world(&[0, 1, 2], &[SHORT, SHORT])),
            world(&[0, 1], &[REUSE, SHORT]),
            world(&[0, 1], &[SHORT, SHORT, SHORT]),
            world(&[0, 1, 2], &[SHORT, SHORT, SHORT]),
        ],
    );
}

#[test]
fn active_opens() {
    nothing_is_lost(
        "active opens",
        |action| matches!(action, Action::Open { .. }),
        &[world(&[0, 1], &[OPEN]), world(&[0, 1, 0], &[OPEN])],
        &[
            wrong(&[1], world(&[0, 1], &[OPEN_TWICE])),
            wrong(&[1], world(&[0, 1, 0], &[OPEN_TWICE])),
            wrong(&[1], world(&[0, 1, 2], &[OPEN_TWICE])),
            superseding(1, world(&[0, 1, 0], &[OPEN_TWICE])),
        ],
    );
}

#[test]
fn rings_given_up() {
    nothing_is_lost(
        "superseded",
        |action| matches!(action, Action::Publish),
        &[superseding(1, world(&[0, 1, 0], &[SHORT]))],
        &[
            superseding(1, world(&[0, 1, 2], &[REUSE])),
            superseding(1, wrong(&[1], world(&[0, 1, 0], &[REUSE]))),
            superseding(1, world(&[0, 1, 0, 2], &[REUSE])),
            superseding(2, world(&[0, 1, 2, 0], &[REUSE])),
        ],
    );
}

#[test]
fn a_shard_leaves() {
    nothing_is_lost(
        "leaving",
        |action| matches!(action, Action::Leave(_)),
        &[
            leaving(world(&[0, 1], &[CLOSING])),
            leaving(world(&[0, 1, 1], &[CLOSING])),
        ],
        &[
            leaving(learning(world(&[0, 1, 1], &[REUSE]))),
            leaving(learning(world(&[0, 1, 2], &[REUSE]))),
            leaving(wrong(&[1], world(&[0, 1, 1, 1], &[REUSE]))),
        ],
    );
}

#[test]
fn syn_acks_teach() {
    nothing_is_lost(
        "learning",
        |action| matches!(action, Action::Learn { .. }),
        &[
            learning(world(&[0, 1], &[SHORT])),
            learning(world(&[0, 1, 2], &[SHORT])),
        ],
        &[
            learning(wrong(&[1], world(&[0, 1], &[REUSE]))),
            learning(world(&[0, 1, 2], &[REUSE])),
        ],
    );
}

#[test]
fn packets_are_lost() {
    nothing_is_lost(
        "loss",
        |action| matches!(action, Action::Lose(_)),
        &[losing(wrong(&[1], world(&[0, 1], &[SHORT])))],
        &[
            losing(wrong(&[1], world(&[0, 1], &[REUSE]))),
            losing(world(&[0, 1, 2], &[REUSE])),
            losing(world(&[0, 1], &[SHORT, SHORT])),
        ],
    );
}

const MOVING: Budget = Budget { moves: 1, ..SHORT };
const MOVING_CLOSING: Budget = Budget {
    moves: 1,
    ..CLOSING
};
const MOVING_TWICE: Budget = Budget { moves: 2, ..SHORT };
const REFUSED: Budget = Budget {
    moves: 1,
    refusals: 1,
    ..SHORT
};
const REFUSED_CLOSING: Budget = Budget { fin: 1, ..REFUSED };
const REFUSED_TWICE: Budget = Budget {
    moves: 2,
    refusals: 2,
    ..SHORT
};
const MOVING_REUSE: Budget = Budget { moves: 1, ..REUSE };
/// A second SYN, which begins anew where the first flow was lost.
const MOVING_AGAIN: Budget = Budget { syn: 2, ..MOVING };
const MOVING_COOKIE: Budget = Budget { moves: 1, ..COOKIE };
const MOVING_OPEN: Budget = Budget { moves: 1, ..OPEN };

/// Stubs are so many hops more: one for each move, and another for a parcel that comes back.
fn moving(stubs: u8, config: Config) -> Config {
    let lives = |flow: &Budget| flow.syn + flow.cookie + flow.opens;
    Config {
        hops: config.hops + stubs,
        all_arrive: config.flows.iter().all(|flow| lives(flow) == 1),
        ..config
    }
}

#[test]
fn flows_move() {
    nothing_is_lost(
        "moves",
        |action| matches!(action, Action::Arrive(_)),
        &[
            moving(1, world(&[0, 1], &[MOVING])),
            moving(1, world(&[0, 1, 2], &[MOVING])),
            moving(1, world(&[0, 1], &[MOVING_CLOSING])),
            moving(1, wrong(&[1], world(&[0, 0], &[MOVING]))),
            moving(2, world(&[0, 0, 0, 0], &[MOVING_TWICE])),
            moving(1, losing(world(&[0, 1], &[MOVING]))),
        ],
        &[
            moving(2, world(&[0, 1, 2], &[MOVING_TWICE])),
            moving(2, world(&[0, 1, 0, 1], &[MOVING_TWICE])),
            moving(1, wrong(&[1], world(&[0, 1, 2], &[MOVING]))),
            moving(1, wrong(&[2], world(&[0, 1, 0], &[MOVING_CLOSING]))),
            moving(1, world(&[0, 1, 2], &[MOVING_REUSE])),
            moving(1, world(&[0, 1, 0], &[MOVING_REUSE])),
            moving(1, world(&[0, 1], &[MOVING_COOKIE])),
            moving(1, world(&[0, 1, 0], &[MOVING_OPEN])),
            moving(1, world(&[0, 1, 2], &[MOVING, SHORT])),
            moving(1, superseding(1, world(&[0, 1, 2], &[MOVING]))),
            moving(1, learning(world(&[0, 1, 2], &[MOVING]))),
        ],
    );
}

#[test]
fn parcels_come_back() {
    nothing_is_lost(
        "refusals",
        |action| matches!(action, Action::Refuse(_)),
        &[
            moving(2, world(&[0, 1], &[REFUSED])),
            moving(2, world(&[0, 1, 2], &[REFUSED])),
        ],
        &[
            moving(2, world(&[0, 1, 0], &[REFUSED_CLOSING])),
            moving(2, wrong(&[1], world(&[0, 1, 2], &[REFUSED]))),
            moving(4, world(&[0, 1, 2], &[REFUSED_TWICE])),
            moving(2, superseding(1, world(&[0, 1, 2], &[REFUSED]))),
        ],
    );
}

fn dying(config: Config) -> Config {
    Config {
        deaths: 1,
        ..config
    }
}

#[test]
fn a_shard_dies() {
    nothing_is_lost(
        "deaths",
        |action| matches!(action, Action::Die(_)),
        &[
            dying(world(&[0, 1], &[SHORT])),
            dying(moving(2, world(&[0, 1], &[MOVING]))),
        ],
        &[
            dying(moving(2, world(&[0, 1, 2], &[MOVING]))),
            dying(moving(2, world(&[0, 1, 0], &[MOVING_CLOSING]))),
            dying(moving(2, wrong(&[1], world(&[0, 1], &[MOVING])))),
            dying(moving(2, world(&[0, 1], &[REFUSED]))),
            dying(moving(2, world(&[0, 1], &[MOVING_AGAIN]))),
        ],
    );
}

fn telling_news(config: Config) -> Config {
    Config {
        news: true,
        ..config
    }
}

#[test]
fn shards_tell_of_moves_only() {
    let moving = |stubs, config| telling_news(moving(stubs, config));
    nothing_is_lost(
        "news",
        |action| matches!(action, Action::Arrive(_)),
        &[
            moving(1, world(&[0, 1, 1], &[MOVING])),
            moving(2, world(&[0, 0, 0, 0], &[MOVING_TWICE])),
        ],
        &[
            moving(1, world(&[0, 0, 0], &[MOVING_REUSE])),
            moving(1, wrong(&[1], world(&[0, 0, 0], &[MOVING]))),
            moving(1, world(&[0, 1, 1], &[MOVING_REUSE])),
            moving(1, world(&[0, 1, 1, 0], &[MOVING])),
            moving(2, world(&[0, 1, 1, 1], &[MOVING_TWICE])),
            moving(2, world(&[0, 1, 1], &[REFUSED_CLOSING])),
            moving(1, world(&[0, 0, 0], &[MOVING_COOKIE])),
            moving(1, world(&[0, 1, 1], &[MOVING_OPEN])),
            moving(1, world(&[0, 1, 1], &[MOVING, SHORT])),
            dying(moving(2, world(&[0, 1, 1], &[MOVING]))),
            dying(moving(2, world(&[0, 0, 0], &[MOVING_AGAIN]))),
        ],
    );
}

#[test]
fn a_shard_that_leaves_is_emptied() {
    nothing_is_lost(
        "emptied",
        |action| matches!(action, Action::Leave(_)),
        &[moving(1, leaving(world(&[0, 1, 1, 1], &[MOVING])))],
        &[
            moving(1, leaving(world(&[0, 1, 1, 1], &[MOVING_CLOSING]))),
            moving(1, leaving(wrong(&[1], world(&[0, 1, 1, 1], &[MOVING])))),
        ],
    );
}
