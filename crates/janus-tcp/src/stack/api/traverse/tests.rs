//! Two hosts open, use and close connections, and reopen old ones, while the flows of both are visited in slices.

use core::time::Duration;
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use janus_wire::FlowKey;

use crate::stack::Stack;
use crate::store::records::Record;
use crate::testing::{A, A_V6, B, B_V6, Pair};
use crate::{Config, ConnId};

const SERVER: u16 = 80;
/// Few, so that old tuples are used again.
const PORTS: core::ops::Range<u16> = 40_000..40_012;

/// No second has more steps that look is taken after.
const STEPS_MAX: usize = 100;

/// A flow's way through the stores, as the order of the visit has it.
fn stage_of(stack: &Stack, key: &FlowKey) -> Option<u8> {
    stack
        .find(key, stack.index.hash.flow(key))
        .map(|record| match record {
            Record::HalfOpen(_) => 0,
            Record::Connection(_) => 1,
            Record::TimeWait(_) => 2,
            Record::Stub(_) => unreachable!("nobody made one"),
        })
}

/// What happened to a flow that was there at the first slice.
#[derive(Clone, Copy)]
struct Watched {
    stage: u8,
    went_back: bool,
}

/// One host's flows being visited.
struct Visit {
    is_a: bool,
    cursor: Option<u64>,
    watched: BTreeMap<u64, (FlowKey, Watched)>,
    visited: HashSet<FlowKey>,
    told: HashSet<FlowKey>,
}

#[derive(Default, Debug)]
struct Seen {
    flows: usize,
    gone_back: usize,
    told: usize,
    at_stage: [usize; 3],
}

fn keys(is_a: bool) -> Vec<FlowKey> {
    let mut keys = Vec::new();
    for port in PORTS {
        for server in [SERVER, port] {
            for (a, b) in [
                (IpAddr::V4(A), IpAddr::V4(B)),
                (IpAddr::V6(A_V6), IpAddr::V6(B_V6)),
            ] {
                let (a, b) = (SocketAddr::new(a, port), SocketAddr::new(b, server));
                let (peer, local) = if is_a { (b, a) } else { (a, b) };
                keys.push(FlowKey::new(peer, local).expect("one family"));
            }
        }
    }
    keys
}

impl Visit {
    fn begin(is_a: bool, stack: &mut Stack) -> Visit {
        stack.track_moves(true);
        let watched = keys(is_a).into_iter().enumerate().filter_map(|(at, key)| {
            let stage = stage_of(stack, &key)?;
            let went_back = false;
            Some((at as u64, (key, Watched { stage, went_back })))
        });
        Visit {
            is_a,
            cursor: Some(0),
            watched: watched.collect(),
            visited: HashSet::new(),
            told: HashSet::new(),
        }
    }

    /// Looks which of the flows are still there, without the visit's help.
    fn look(&mut self, stack: &Stack) {
        self.watched.retain(|_, (key, watched)| {
            let Some(stage) = stage_of(stack, key) else {
                return false;
            };
            if (watched.stage, stage) == (1, 0) {
                // No record goes that way: a RST ended one flow, and a SYN right behind it began another.
                return false;
            }
            watched.went_back |= stage < watched.stage;
            watched.stage = stage;
            true
        });
    }

    fn slice(&mut self, stack: &mut Stack, budget: usize) {
        stack.take_moved(|key| {
            self.told.insert(*key);
        });
        let Some(cursor) = self.cursor else { return };
        self.cursor = stack.visit_flows(cursor, budget, |key| {
            assert!(stage_of(stack, key).is_some(), "no flow: {key:?}");
            self.visited.insert(*key);
        });
    }

    fn end(mut self, stack: &mut Stack, seen: &mut Seen) {
        assert_eq!(self.cursor, None);
        self.slice(stack, 1);
        stack.track_moves(false);
        for (key, watched) in self.watched.values() {
            let visited = self.visited.contains(key);
            let told = self.told.contains(key);
            assert!(visited || told, "missed: {key:?}");
            // One that only went on needs no telling.
            assert!(visited || watched.went_back, "not met: {key:?}");
            seen.flows += 1;
            seen.gone_back += usize::from(watched.went_back);
            seen.at_stage[usize::from(watched.stage)] += 1;
        }
        seen.told += self.told.len();
    }
}

/// The hosts, what is open, and a seeded die.
struct World {
    pair: Pair,
    on_a: Vec<ConnId>,
    on_b: Vec<ConnId>,
    die: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let config = Config {
            time_wait: Duration::from_secs(2),
            max_time_wait: 16,
            ..Config::default()
        };
        let mut pair = Pair::new(&config, seed);
        pair.loss = 100;
        World {
            pair,
            on_a: Vec::new(),
            on_b: Vec::new(),
            die: seed,
        }
    }

    fn roll(&mut self, of: usize) -> usize {
        self.die = self
            .die
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.die >> 33) as usize % of
    }

    fn connect(&mut self) {
        let port = PORTS.start + self.roll(PORTS.len()) as u16;
        let v6 = self.roll(2) == 0;
        let both = self.roll(4) == 0;
        let ends = match v6 {
            false => (IpAddr::V4(A), IpAddr::V4(B)),
            true => (IpAddr::V6(A_V6), IpAddr::V6(B_V6)),
        };
        let server = if both { port } else { SERVER };
        let (a, b) = (
            SocketAddr::new(ends.0, port),
            SocketAddr::new(ends.1, server),
        );
        let now = self.pair.now;
        self.on_a.extend(self.pair.a.stack.connect(now, a, b));
        if both {
            // SYNs that cross.
            self.on_b.extend(self.pair.b.stack.connect(now, b, a));
        }
    }

    fn let_go(&mut self) {
        let now = self.pair.now;
        let (abort, on_a) = (self.roll(8) == 0, self.roll(2) == 0);
        let count = if on_a {
            self.on_a.len()
        } else {
            self.on_b.len()
        };
        if count == 0 {
            return;
        }
        let at = self.roll(count);
        let (conns, stack) = match on_a {
            true => (&mut self.on_a, &mut self.pair.a.stack),
            false => (&mut self.on_b, &mut self.pair.b.stack),
        };
        let conn = conns.swap_remove(at);
        if abort {
            stack.abort(now, conn);
        } else {
            stack.close(now, conn);
        }
    }

    /// One thing happens, or, one after the other, all that happens within a second; `look` follows each.
    fn act(&mut self, mut look: impl FnMut(&Pair)) {
        while let Ok((conn, _)) = self.pair.b.stack.accept(self.pair.listener) {
            self.on_b.push(conn);
        }
        match self.roll(9) {
            0 | 1 => self.connect(),
            2 | 3 => self.let_go(),
            4 => {
                let until = self.pair.now + Duration::from_millis(self.roll(1_000) as u64);
                for _ in 0..STEPS_MAX {
                    self.pair.step();
                    look(&self.pair);
                    if self.pair.now >= until {
                        break;
                    }
                }
            }
            _ => self.pair.step(),
        }
        look(&self.pair);
    }
}

fn run(seed: u64, seen: &mut Seen) {
    let mut world = World::new(seed);
    for _ in 0..6 {
        for _ in 0..80 {
            world.act(|_| {});
        }
        let mut visits = [true, false].map(|is_a| {
            let pair = &mut world.pair;
            let host = if is_a { &mut pair.a } else { &mut pair.b };
            Visit::begin(is_a, &mut host.stack)
        });
        while visits.iter().any(|visit| visit.cursor.is_some()) {
            let budget = 1 + world.roll(4);
            for visit in &mut visits {
                let pair = &mut world.pair;
                let host = if visit.is_a { &mut pair.a } else { &mut pair.b };
                visit.slice(&mut host.stack, budget);
            }
            for _ in 0..world.roll(4) {
                world.act(|pair| {
                    visits[0].look(&pair.a.stack);
                    visits[1].look(&pair.b.stack);
                });
            }
        }
        for visit in visits {
            let pair = &mut world.pair;
            let host = if visit.is_a { &mut pair.a } else { &mut pair.b };
            visit.end(&mut host.stack, seen);
        }
    }
}

#[test]
fn every_flow_that_stays_is_seen_whatever_happens_between_the_slices() {
    let mut seen = Seen::default();
    for seed in 0..60 {
        println!("seed {seed}");
        run(seed, &mut seen);
    }
    println!("{seen:?}");
    // The test has looked at what it is about.
    assert!(seen.flows > 2_000 && seen.told > 200, "{seen:?}");
    assert!(seen.gone_back > 10, "{seen:?}");
    assert!(seen.at_stage.iter().all(|&flows| flows > 10), "{seen:?}");
}
