//! Rings and listeners change while connections live: the claims of the balancer's protocol, on real shards. Traffic,
//! updates and the order of everything come from a seed; `JANUS_LOCKSTEP_SEED` runs one again,
//! `JANUS_LOCKSTEP_RUNS` says how many are run.

use std::collections::HashMap;
use std::time::Duration;

use janus_csb::{FlowId, Ring, ShardId, Step, Tag, walk};
use janus_tcp::{Config, SynCookies};
use janus_wire::FlowKey;

use super::{COMBINED, SPLIT, run_with, world_with};
use crate::lockstep::rng::Rng;
use crate::lockstep::{Layout, Outside, World};
use crate::shard::hops;

/// Connections in one run.
const CONNECTIONS: u64 = 700;
/// Steps between two looks at who holds what.
const LOOK: u64 = 997;
/// Shards that a packet may come to before its flow.
const WAY_MAX: usize = 6;
/// Updates begin this far apart at most.
const PAUSE_NS: u64 = 4_000_000;

/// Outcome of a run.
#[derive(Debug, Default)]
struct Seen {
    updates: u64,
    diverged: u64,
    held: u64,
    exact: u64,
    forwards: u64,
    hops: u32,
    cookies: u64,
    reused: u64,
    duplicate_syns: u64,
    lies: u64,
    stripped: u64,
    dropped: u64,
    problems: Vec<String>,
}

/// Wants another ring or other listeners from time to time.
pub(super) struct Changes {
    rng: Rng,
    next_ns: u64,
    /// Only rings change, this far apart. `None`: listeners too, up to [`PAUSE_NS`] apart.
    rings_ns: Option<u64>,
}

impl Changes {
    pub(super) fn new(seed: u64) -> Changes {
        Changes {
            rng: Rng::new(seed),
            next_ns: 0,
            rings_ns: None,
        }
    }

    /// Wants other weights at regular times.
    pub(super) fn of_rings(seed: u64, apart: Duration) -> Changes {
        Changes {
            rings_ns: Some(apart.as_nanos() as u64),
            ..Changes::new(seed)
        }
    }

    /// Wants one if it is time for it; returns whether it did.
    pub(super) fn go_on<P: Outside>(&mut self, world: &World<P>) -> bool {
        let now_ns = world.now().as_nanos();
        if now_ns < self.next_ns || world.conductor.is_busy() {
            return false;
        }
        let pause_ns = self.rings_ns.unwrap_or_else(|| self.rng.below(PAUSE_NS));
        self.next_ns = now_ns + pause_ns;
        let shards = world.shards.len() as u64;
        let mailbox = &world.conductor.mailbox;
        if self.rings_ns.is_none() && self.rng.one_in(4) {
            let left_out = self.rng.below(shards + 2) as u8;
            let cores = (0..shards as u8).filter(|core| *core != left_out);
            mailbox.want_port(80, &cores.collect::<Vec<_>>());
        } else {
            let points: Vec<u16> = (0..shards)
                .map(|_| 16 + self.rng.below(64) as u16)
                .collect();
            // Sometimes the points of all shards move, at most times their number changes.
            let seed = u32::from(self.rng.one_in(8));
            mailbox.want_ring(Ring::weighted(&points, seed).expect("a ring"));
        }
        true
    }
}

/// The tuples that more than one shard holds.
pub(super) fn held_twice<P>(world: &World<P>) -> Vec<String> {
    let mut holders: HashMap<FlowKey, usize> = HashMap::new();
    let mut twice = Vec::new();
    for (at, shard) in world.shards.iter().enumerate() {
        let stack = shard.ctx.stack.borrow();
        stack.visit_flows(0, usize::MAX, |flow| {
            if !stack.holds(flow) {
                return; // A stub of what lives elsewhere.
            }
            if let Some(other) = holders.insert(*flow, at)
                && other != at
            {
                twice.push(format!("{flow:?} at shards {other} and {at}"));
            }
        });
    }
    twice
}

/// Flows that a packet would not find which comes in now: by what I/O cores look up, the walk and stubs.
pub(super) fn not_found<P>(world: &World<P>) -> Vec<String> {
    let balancer = world.conductor.balancer.lock();
    let steering = balancer.current();
    let shared = &world.shards[0].ctx.shared;
    let mut lost = Vec::new();
    for (at, shard) in world.shards.iter().enumerate() {
        let mut held: Vec<FlowKey> = Vec::new();
        let stack = shard.ctx.stack.borrow();
        stack.visit_flows(0, usize::MAX, |flow| held.push(*flow));
        held.retain(|flow| stack.holds(flow));
        for flow in held {
            let (key, port) = (shared.toeplitz.key_of(&flow), flow.local_port());
            let name = || FlowId(shared.flow_names.of(&flow));
            let (mut to, mut tag) = steering.look_up_flow(key, port, name);
            let mut way = vec![to];
            let found = loop {
                let there = world.shards[to.index()].ctx.stack.borrow();
                if there.holds(&flow) {
                    break true;
                }
                let next = match there.stub_of(&flow) {
                    Some(shard) => (ShardId(shard as u8), Tag::redirected(tag.epoch())),
                    // The flow's life before this one ended there. It goes back, and the stub with it.
                    None if tag.is_redirected() => break true,
                    None => match walk(steering, to, key, port, tag) {
                        Step::Forward { to, tag } => (to, tag),
                        Step::Stay | Step::Expired => break false,
                    },
                };
                (to, tag) = next;
                way.push(to);
                if way.len() > WAY_MAX {
                    break false;
                }
            };
            if !found {
                lost.push(format!("{flow:?} at shard {at} is looked for at {way:?}"));
            }
        }
    }
    lost
}

fn one_run(seed: u64, layout: Layout, cookies: SynCookies, owner_bits: bool) -> Seen {
    let tcp = Config {
        syn_cookies: cookies,
        time_wait: Duration::from_millis(30),
        ..Config::default()
    };
    hops::take();
    let (mut world, ledger) = world_with(seed, layout, |builder| {
        builder.tcp(tcp).owner_bits(owner_bits)
    });
    world.peer.out.odd_stamps = owner_bits && cookies != SynCookies::Always;
    if cookies == SynCookies::Always {
        // A cookie is as good the second time: an acknowledgement that comes after the end of its connection opens it
        // anew, update or not. So none does.
        world.peer.calm();
    }
    for shard in &mut world.shards {
        // Short slices, so that much happens between two of them.
        (shard.work.update.places, shard.work.update.places_max) = (16, 16);
    }
    let mut changes = Changes::new(seed ^ 0x5eed);
    let mut seen = Seen::default();
    run_with(&mut world, CONNECTIONS, |world| {
        changes.go_on(world);
        if world.steps % LOOK == 0 {
            seen.problems.extend(held_twice(world));
            seen.problems.extend(not_found(world));
        }
        seen.problems.is_empty() && world.peer.tally.broken.is_empty()
    });
    (seen.lies, seen.stripped) = (world.peer.out.lies, world.peer.out.stripped);
    let done = world.conductor.mailbox.done();
    seen.updates = done.updates;
    seen.diverged = done.diverged;
    seen.held = done.held;
    seen.exact = done.exact;
    (seen.hops, seen.forwards) = hops::take();
    for shard in &world.shards {
        seen.cookies += shard.ctx.stack.borrow().counters().cookies_sent;
        let forwards = shard.ctx.forwarder.borrow().counters;
        seen.dropped +=
            forwards.dropped_full + forwards.dropped_syn_room + forwards.dropped_expired;
    }
    seen.reused = world.peer.tally.reused;
    seen.duplicate_syns = world.peer.out.duplicate_syns;
    seen.problems.extend(world.peer.tally.broken.clone());
    seen.problems.extend(ledger.errors());
    seen
}

pub(super) fn seeds(first: u64, count: u64) -> Vec<u64> {
    let given = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    match given("JANUS_LOCKSTEP_SEED") {
        Some(seed) => vec![seed],
        None => (first..first + given("JANUS_LOCKSTEP_RUNS").unwrap_or(count)).collect(),
    }
}

fn hold(layout: Layout, cookies: SynCookies, first: u64, count: u64) {
    for seed in seeds(first, count) {
        let seen = one_run(seed, layout, cookies, false);
        println!("JANUS_LOCKSTEP_SEED={seed} {layout:?} {cookies:?}: {seen:?}");
        assert_eq!(seen.problems, Vec::<String>::new(), "seed {seed}");
        assert!(seen.hops <= 2, "seed {seed}: {} hops", seen.hops);
        assert!(seen.updates > 10 && seen.forwards > 0, "{seen:?}");
        assert!(seen.exact > 0, "flows of one key on two shards: {seen:?}");
        assert!(
            seen.diverged * 100 > seen.held,
            "1 % of the flows: {seen:?}"
        );
        assert!(seen.reused > 100 && seen.duplicate_syns > 100, "{seen:?}");
        assert_eq!(seen.dropped, 0, "{seen:?}");
        let always = cookies == SynCookies::Always;
        assert_eq!(always, seen.cookies > 100, "{seen:?}");
    }
}

/// Peers with timestamps, peers without, and lies among the echoes. A claim that is wrong costs a hop before the two that the
/// walk may take.
#[test]
fn owner_bits_lose_no_connection_whatever_peers_echo() {
    let runs = [
        (SPLIT, SynCookies::Pressure),
        (COMBINED, SynCookies::Pressure),
        (SPLIT, SynCookies::Always),
    ];
    for (at, (layout, cookies)) in runs.into_iter().enumerate() {
        for seed in seeds(800 + 10 * at as u64, 2) {
            let seen = one_run(seed, layout, cookies, true);
            println!("JANUS_LOCKSTEP_SEED={seed} {layout:?} {cookies:?}, owner bits: {seen:?}");
            assert_eq!(seen.problems, Vec::<String>::new(), "seed {seed}");
            assert!(seen.hops <= 3, "seed {seed}: {} hops", seen.hops);
            assert!(seen.updates > 10 && seen.forwards > 0, "{seen:?}");
            let odd = cookies != SynCookies::Always;
            assert!(!odd || seen.lies > 500 && seen.stripped > 100, "{seen:?}");
            assert_eq!(seen.dropped, 0, "{seen:?}");
        }
    }
}

#[test]
fn no_connection_that_a_cookie_opens_is_lost_by_updates() {
    hold(SPLIT, SynCookies::Always, 300, 2);
    hold(COMBINED, SynCookies::Always, 400, 2);
}

#[test]
fn no_connection_is_lost_by_updates_with_io_cores() {
    hold(SPLIT, SynCookies::Pressure, 100, 3);
}

#[test]
fn no_connection_is_lost_by_updates_where_every_shard_polls() {
    hold(COMBINED, SynCookies::Pressure, 200, 3);
}
