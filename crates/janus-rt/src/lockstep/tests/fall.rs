//! A core's loop panics under traffic: its connections are lost and said to be, the others' go on, and new ones go to
//! the others.

use std::collections::BTreeSet;

use janus_wire::FlowKey;

use super::{COMBINED, SPLIT, run_with, world};
use crate::lockstep::World;

const FALLEN: usize = 1;
/// Connections before and after.
const BEFORE: u64 = 300;
const AFTER: u64 = 700;

fn flows(world: &World, shard: usize) -> usize {
    world.shards[shard].ctx.stack.borrow().flows_held()
}

/// The peer's ends of what the shard holds, as the peer writes them.
fn held(world: &World, shard: usize) -> BTreeSet<String> {
    let mut ends = BTreeSet::new();
    let stack = world.shards[shard].ctx.stack.borrow();
    stack.visit_flows(0, usize::MAX, |flow| {
        if let FlowKey::V4(flow) = flow {
            let end = std::net::SocketAddr::from((flow.peer, flow.peer_port));
            ends.insert(format!(" of {end} at "));
        }
    });
    ends
}

fn fall(world: &mut World, shard: usize) -> crate::Result {
    let shard = &mut world.shards[shard];
    let _entered = shard.enter();
    shard.fall()
}

#[test]
fn a_core_that_falls_takes_its_own_connections_only() {
    for (seed, layout) in [(21, SPLIT), (22, COMBINED), (23, SPLIT), (24, COMBINED)] {
        let (mut world, ledger) = world(seed, layout);
        let mut had: Option<BTreeSet<String>> = None;
        let mut seen = 0;
        run_with(&mut world, BEFORE + AFTER, |world| {
            let Some(had) = &had else {
                if world.peer.tally.completed >= BEFORE {
                    had = Some(held(world, FALLEN));
                    fall(world, FALLEN).expect("for the first time");
                }
                return world.peer.tally.broken.is_empty();
            };
            let broken = &world.peer.tally.broken;
            let news = &broken[seen.min(broken.len())..];
            // Until the port has moved, no listener answers newcomers on the fallen core.
            let moved = world.conductor.mailbox.done().updates > 0;
            let own = |text: &String| had.iter().any(|end| text.contains(end));
            let others: Vec<_> = news.iter().filter(|text| moved && !own(text)).collect();
            assert!(others.is_empty(), "seed {seed}: {others:?}");
            seen = broken.len();
            true
        });
        let had = had.expect("it fell").len();
        println!("seed {seed}: {had} flows lost, {seen} told at the peer");
        assert!(had > 0 && seen > 0, "seed {seed}");
        assert!(world.peer.tally.completed >= BEFORE + AFTER, "seed {seed}");
        assert_eq!(flows(&world, FALLEN), 0, "seed {seed}");
        assert!(world.shards[FALLEN].ctx.executor.borrow().is_none());
        assert_eq!(ledger.errors(), Vec::<String>::new(), "seed {seed}");
        let done = world.conductor.mailbox.done();
        assert_eq!(done.updates, 1, "seed {seed}: the others have its share");
        assert!(!world.shards[0].ctx.shared.ending.stopping(), "seed {seed}");
        let again = fall(&mut world, FALLEN).expect_err("the second time");
        assert!(again.to_string().contains("again"), "{again}");
    }
}
