//! Flows move from shard to shard while rings change, cores are drained and come back, and packets are late, lost and doubled: rule 14 on
//! real shards. `JANUS_LOCKSTEP_SEED` runs one again, `JANUS_LOCKSTEP_RUNS` says how many are run.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use janus_csb::ShardId;
use janus_tcp::Config;
use janus_wire::FlowKey;

use super::server::{Ledger, serve, serve_in_turns, serve_unlike};
use super::updates::{Changes, held_twice, not_found, seeds};
use super::{COMBINED, SPLIT, run_with, world_of};
use crate::lockstep::rng::Rng;
use crate::lockstep::{Layout, World};
use crate::shard::hops;
use crate::shard::moves::trips;

/// Connections in one run.
const CONNECTIONS: u64 = 700;
/// Steps between two looks at who holds what.
const LOOK: u64 = 997;
/// Steps between two moves, about.
const MOVE: u64 = 40;
/// Steps between two words to the balancer, about.
const CAST: u64 = 30_000;
/// Steps between two updates that only tell of moves, about, where rings stand.
const TIDY: u64 = 1_000;
/// Steps between two new rings there, about.
const RING: u64 = 20_000;

/// Outcome of a run.
#[derive(Debug, Default)]
struct Seen {
    updates: u64,
    of_news: u64,
    left: u64,
    came: u64,
    refused: u64,
    lost: u64,
    over: u64,
    /// Times that a task of another core asked for a connection and got it, and did not.
    adopted: (u64, u64),
    hops: u32,
    problems: Vec<String>,
}

/// Has some flow of some shard move to another, if it may.
fn move_one(world: &mut World, rng: &mut Rng) {
    let shards = world.shards.len() as u64;
    let from = rng.below(shards) as usize;
    let ctx = world.shards[from].ctx.clone();
    let mut flows: Vec<FlowKey> = Vec::new();
    ctx.on_stack(|stack, _| stack.visit_flows(0, usize::MAX, |flow| flows.push(*flow)));
    if flows.is_empty() {
        return;
    }
    let flow = flows[rng.below(flows.len() as u64) as usize];
    let to = ShardId(rng.below(shards) as u8);
    if to == ShardId(ctx.core) {
        return;
    }
    let moved = catch_unwind(AssertUnwindSafe(|| ctx.move_flow(&flow, to)));
    match moved {
        Err(_) if world.fell_with.is_some() => _ = world.fall(from),
        Err(payload) => resume_unwind(payload),
        Ok(_) => {}
    }
}

/// Reasons for the balancer to make updates.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rings {
    /// Rings and listeners change all the time.
    Change,
    /// Rings seldom do, and updates tell of moves.
    Stand,
}

fn one_run(seed: u64, layout: Layout, rings: Rings) -> Seen {
    let tcp = Config {
        time_wait: Duration::from_millis(30),
        ..Config::default()
    };
    hops::take();
    let serve = |ledger| serve_in_turns(ledger, layout.shards);
    let (mut world, ledger) = world_of(seed, layout, |builder| builder.tcp(tcp), serve);
    for shard in &mut world.shards {
        (shard.work.update.places, shard.work.update.places_max) = (16, 16);
    }
    let mut rng = Rng::new(seed ^ 0x40be);
    let mut changes = Changes::new(seed ^ 0x5eed);
    let mut seen = Seen::default();
    run_with(&mut world, CONNECTIONS, |world| {
        if rings == Rings::Change || rng.one_in(RING) {
            changes.go_on(world);
        } else if rings == Rings::Stand && rng.one_in(TIDY) {
            world.conductor.mailbox.want_tidy();
        }
        if rng.one_in(MOVE) {
            move_one(world, &mut rng);
        }
        if rng.one_in(CAST) {
            let core = rng.below(world.shards.len() as u64) as usize;
            let drained = rng.one_in(2);
            world.conductor.mailbox.want_drained(core, drained);
        }
        if world.steps % LOOK == 0 {
            seen.problems.extend(held_twice(world));
            seen.problems.extend(not_found(world));
        }
        seen.problems.is_empty() && world.peer.tally.broken.is_empty()
    });
    let done = world.conductor.mailbox.done();
    (seen.updates, seen.of_news) = (done.updates, done.last.of_news);
    for shard in &world.shards {
        let counters = *shard.ctx.stack.borrow().counters();
        (seen.left, seen.came) = (seen.left + counters.detached, seen.came + counters.adopted);
        let forwards = shard.ctx.forwarder.borrow().counters;
        seen.refused += forwards.moves_refused;
        (seen.lost, seen.over) = (
            seen.lost + forwards.moves_lost,
            seen.over + forwards.dropped_over,
        );
    }
    seen.adopted = Ledger::adoptions();
    seen.hops = hops::take().0;
    seen.problems.extend(world.peer.tally.broken.clone());
    seen.problems.extend(ledger.errors());
    seen
}

fn hold(layout: Layout, rings: Rings, first: u64, count: u64) {
    for seed in seeds(first, count) {
        let seen = one_run(seed, layout, rings);
        println!("JANUS_LOCKSTEP_SEED={seed} {layout:?} {rings:?}: {seen:?}");
        assert_eq!(seen.problems, Vec::<String>::new(), "seed {seed}");
        // Two of the walk, one by a stub to where the flow has ended, one back, and as many again without that.
        assert!(seen.hops <= 7, "seed {seed}: {} hops", seen.hops);
        assert!(seen.updates > 10 && seen.left > 300, "{seen:?}");
        assert!(rings == Rings::Change || seen.of_news > 10, "{seen:?}");
        // Handshakes that are on their way when the program ends find no listener any more.
        assert!(seen.left - seen.came <= 3 && seen.lost == 0, "{seen:?}");
        assert!(seen.refused > 5 && seen.adopted.0 > 100, "{seen:?}");
    }
}

#[test]
fn no_connection_is_lost_by_moves_with_io_cores() {
    hold(SPLIT, Rings::Change, 2_100, 3);
}

#[test]
fn no_connection_is_lost_where_shards_tell_of_moves_only() {
    hold(SPLIT, Rings::Stand, 2_500, 2);
    hold(COMBINED, Rings::Stand, 2_600, 2);
}

#[test]
fn no_connection_is_lost_by_moves_where_every_shard_polls() {
    hold(COMBINED, Rings::Change, 2_200, 3);
}

/// The peer's end of a flow as the peer writes it.
fn end(flow: &FlowKey) -> String {
    format!(
        " of {} at ",
        SocketAddr::from((flow.peer(), flow.peer_port()))
    )
}

/// The address in what [`end`] gives.
fn address_of(end: &str) -> &str {
    end.split(' ').nth(2).unwrap_or(end)
}

/// A core falls in the middle of a move, with parcels that go and come and stubs: connections of others go on, by way of it too.
fn falls(seed: u64, layout: Layout) {
    let tcp = Config {
        time_wait: Duration::from_millis(30),
        ..Config::default()
    };
    let serve = |ledger| serve_unlike(ledger, layout.shards);
    let (mut world, ledger) = world_of(seed, layout, |builder| builder.tcp(tcp), serve);
    for shard in &mut world.shards {
        (shard.work.update.places, shard.work.update.places_max) = (16, 16);
    }
    let mut rng = Rng::new(seed ^ 0x40be);
    let mut changes = Changes::of_rings(seed ^ 0x5eed, Duration::from_millis(2));
    let (mut lost, mut seen, mut odd, mut after) = (Vec::new(), 0, Vec::new(), None);
    world.fell_with = Some(Vec::new());
    trips::take_lost();
    run_with(&mut world, CONNECTIONS, |world| {
        changes.go_on(world);
        if rng.one_in(MOVE) {
            move_one(world, &mut rng);
        }
        if after.is_none() && world.peer.tally.completed >= CONNECTIONS / 3 {
            trips::set(1 + rng.below(50) as u32);
            after = Some(u64::MAX);
        }
        let fell = world.fell_with.as_mut().expect("set above");
        lost.extend(fell.drain(..).map(|flow| end(&flow)));
        lost.extend(trips::take_lost().iter().map(end));
        let done = world.conductor.mailbox.done().updates;
        if after == Some(u64::MAX) && !lost.is_empty() {
            // The update under way, and the one that gives its port to the others.
            after = Some(done + 2);
        }
        let broken = &world.peer.tally.broken;
        for text in &broken[seen..] {
            let own = lost.iter().any(|end| text.contains(end));
            // Until its port has moved no listener answers newcomers there.
            let newcomer =
                text.ends_with("while it connected") && after.is_some_and(|at| done < at);
            if !own && !newcomer {
                odd.push(text.clone());
            }
        }
        seen = broken.len();
        if world.steps % LOOK == 0 {
            odd.extend(held_twice(world));
            odd.extend(not_found(world));
        }
        odd.is_empty()
    });
    let shards = || world.shards.iter().map(|shard| &shard.ctx);
    let fallen = shards().find(|ctx| ctx.fallen.get()).expect("one fell");
    let counters = fallen.forwarder.borrow().counters;
    let (forwards, refused) = (counters.forwarded, counters.moves_refused);
    println!(
        "JANUS_LOCKSTEP_SEED={seed} {layout:?}: {} lost, {seen} told, {refused} sent home, {forwards} passed on",
        lost.len()
    );
    assert_eq!(odd, Vec::<String>::new(), "seed {seed}");
    // The peer may reset what is left elsewhere of connections that fell.
    let fell = |text: &String| lost.iter().any(|it| text.contains(address_of(it)));
    let mut errors = ledger.errors();
    errors.retain(|text| !fell(text));
    assert_eq!(errors, Vec::<String>::new(), "seed {seed}");
    assert!(seen > 0 && forwards > 0, "seed {seed}");
}

#[test]
fn a_core_that_falls_in_a_move_takes_its_own_connections_only() {
    for (at, layout) in [SPLIT, COMBINED].into_iter().enumerate() {
        for seed in seeds(2_300 + 10 * at as u64, 4) {
            falls(seed, layout);
        }
    }
}

/// Their ring is published without a traversal, so no update has told of what has moved, and packets that were steered by it may wait.
#[test]
fn the_first_listeners_of_a_port_let_no_stub_go() {
    let (mut world, _ledger) = world_of(2_400, COMBINED, |builder| builder, serve);
    let mut rng = Rng::new(2_400);
    let stubs = |world: &World| -> usize {
        let shards = world.shards.iter();
        shards
            .map(|shard| shard.ctx.stack.borrow().stubs_of_moves())
            .sum()
    };
    world.run_until(|world| {
        move_one(world, &mut rng);
        stubs(world) > 3
    });
    world.settle();
    let before = stubs(&world);
    let mut balancer = world.conductor.balancer.lock();
    let epoch = balancer.current().newest().epoch();
    let listens = balancer.start(|draft| _ = draft.listen(81, ShardId(0)));
    listens.expect("nothing is pending");
    assert_eq!(balancer.current().published().epoch(), epoch.next());
    drop(balancer);
    world.settle();
    assert!(before > 0);
    assert_eq!(stubs(&world), before);
}
