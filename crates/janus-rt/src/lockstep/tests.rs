//! Tests of the shards in the lockstep world.

mod attacks;
mod budget;
mod collisions;
mod fall;
mod leaving;
mod moves;
mod offers;
mod own_loop;
mod rounds;
mod server;
mod timing;
mod tuple_claims;
mod updates;
mod wakes;

use super::rng::Rng;
use super::{Layout, World};
use crate::balance::Policy;
use crate::control::mailbox::Board;
use crate::runtime::Builder;
use collisions::colliding;
use server::{Ledger, serve};

const SPLIT: Layout = Layout {
    shards: 3,
    io_cores: 2,
};
const COMBINED: Layout = Layout {
    shards: 3,
    io_cores: 0,
};

/// Tuples of the peer, in groups of equal keys.
const GROUPS: usize = 60;
const GROUP: usize = 4;

/// A world with a server on every shard and a peer whose tuples collide in groups.
fn world(seed: u64, layout: Layout) -> (World, Ledger) {
    world_with(seed, layout, |builder| builder)
}

fn world_with(
    seed: u64,
    layout: Layout,
    configure: impl FnOnce(Builder) -> Builder,
) -> (World, Ledger) {
    world_of(seed, layout, configure, serve)
}

fn world_of<F>(
    seed: u64,
    layout: Layout,
    configure: impl FnOnce(Builder) -> Builder,
    main: impl Fn(Ledger) -> F,
) -> (World, Ledger)
where
    F: Future<Output = crate::Result> + 'static,
{
    let ledger = Ledger::default();
    let mut world = World::new(seed, layout, configure, || main(ledger.clone()));
    let toeplitz = world.shards[0].ctx.shared.toeplitz.clone();
    let mut rng = Rng::new(!seed);
    for _ in 0..GROUPS {
        for (address, port) in colliding(&toeplitz, &mut rng, GROUP) {
            world.peer.add(address, port);
        }
    }
    (world, ledger)
}

/// Runs to so many connections, and until all that were begun have ended.
fn run(world: &mut World, connections: u64) {
    run_with(world, connections, |_| true);
}

/// Like [`run`], but with a closure called between two steps; when that returns false, the run ends.
fn run_with(world: &mut World, connections: u64, mut between: impl FnMut(&mut World) -> bool) {
    let mut good = true;
    world.run_until(|world| {
        good = good && between(world);
        !good || world.peer.tally.completed >= connections
    });
    world.peer.closing = true;
    world.run_until(|world| {
        good = good && between(world);
        !good || world.peer.live() == 0
    });
    if good && world.peer.tally.broken.is_empty() {
        world.end();
    }
}

#[test]
fn without_updates_every_connection_is_served_in_both_layouts() {
    for layout in [SPLIT, COMBINED] {
        let (mut world, ledger) = world(1, layout);
        run(&mut world, 1_000);
        let tally = &world.peer.tally;
        assert_eq!(tally.broken, Vec::<String>::new());
        assert_eq!(ledger.errors(), Vec::<String>::new());
        assert!(tally.reused > 0 && tally.bytes > 1_000_000, "{tally:?}");
        assert!(world.peer.out.duplicate_syns > 0);
    }
}

/// Two runs from one seed are equal, to the last packet's time.
#[test]
fn a_run_is_a_function_of_its_seed() {
    let trace = |seed| {
        let (mut world, ledger) = world(seed, SPLIT);
        run(&mut world, 200);
        (
            world.steps,
            world.now(),
            world.peer.tally.bytes,
            ledger.accepted(),
        )
    };
    let first = trace(7);
    assert_eq!(first, trace(7));
    assert_ne!(first, trace(8));
}

/// Where a policy watches, shards report their load; where none does, nothing.
#[test]
fn what_shards_say_of_themselves_is_what_happened() {
    for policy in [Policy::Fixed, Policy::Service] {
        let (mut world, ledger) = world_with(3, SPLIT, |builder| builder.balance(policy));
        run(&mut world, 300);
        for shard in &mut world.shards {
            shard.sample_before_sleep();
        }
        let boards = world.conductor.mailbox.boards();
        let sum = |of: fn(&Board) -> u64| boards.iter().map(of).sum::<u64>();
        let opened = sum(|board| board.opened.get());
        if policy == Policy::Fixed {
            assert_eq!((opened, sum(|board| board.packets.get())), (0, 0));
            continue;
        }
        assert_eq!(opened, ledger.accepted());
        assert!(sum(|board| board.packets.get()) > 5 * opened);
        assert!(sum(|board| board.busy_ns.get()) > 0);
        assert!(boards.iter().all(|board| board.service_ns.get() > 0));
    }
}
