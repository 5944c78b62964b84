//! Repairs of the paper's protocol that look right and are not: each trace is played with the shortcut, which must
//! fail, and with the rule. (The jumps over rings are in `traces.rs`, with the walk alone.)

use janus_csb::{ShardId, Step, walk};

use crate::stage::Kind::{Data, Syn};
use crate::stage::{KEY, Lost, Ours, PORT, Stage, ring};

const A: u32 = 1;

fn stage() -> Stage<Ours> {
    Stage::new(Ours::new(ring(0, 0), None))
}

/// A flow at s0 whose key another ring, now published, gives to s1.
fn diverged() -> Stage<Ours> {
    let mut world = stage();
    world.send(0, Syn, A);
    world.drain().unwrap();
    world.begin(ring(1, 1));
    world.both_passes_and_swap();
    world.protocol.shards[1].refresh();
    assert_eq!(world.holder(A), Some(0));
    world
}

/// An active open that asks the rings, old and new, but not what differs from them.
#[test]
fn an_active_open_that_asks_the_rings_only() {
    let mut world = diverged();
    let steering = world.protocol.shards[1].steering();
    let rings = [steering.published(), steering.newest()];
    let all_name_it = rings
        .iter()
        .all(|layout| layout.owner(KEY, PORT) == ShardId(1));
    assert!(all_name_it, "the shortcut would open what lives at s0");
    assert_eq!(world.open(1, A), Ok(false), "the rule refuses");
    assert_eq!(
        world.open(1, A + 1),
        Ok(false),
        "the key differs, whatever the tuple"
    );
}

/// A shard that no ring names leaves with its last flow, while I/O cores are still led to it.
#[test]
fn a_shard_that_leaves_with_its_last_flow() {
    let mut world = diverged();
    world.protocol.settle();
    world.stores[0].end(A);
    let named = world
        .protocol
        .balancer
        .current()
        .newest()
        .ring()
        .members()
        .contains(ShardId(0));
    assert!(
        !named && !world.stores[0].holds(A),
        "the shortcut would let it go"
    );
    world.send(0, Syn, A);
    assert_eq!(world.queued(0), 1, "and nobody would take this");
    assert!(
        !world.protocol.balancer.may_go(ShardId(0)),
        "the rule keeps it"
    );
    world.drain().unwrap();
    assert_eq!(world.holder(A), Some(1), "it forwards to the end");

    // One more update that finds nothing there.
    world.begin(ring(1, 1));
    assert!(!world.protocol.balancer.may_go(ShardId(0)));
    world.both_passes_and_swap();
    assert!(
        !world.protocol.balancer.may_go(ShardId(0)),
        "its rings may hold packets yet"
    );
    world.protocol.settle();
    assert!(world.protocol.balancer.may_go(ShardId(0)));
    world.send(0, Data, A);
    assert_eq!(world.queued(0), 0);
    assert_eq!(world.drain(), Ok(()));
}

/// A pending ring is taken back after a shard has acted by it.
#[test]
fn a_pending_ring_that_is_withdrawn() {
    let begun = || {
        let mut world = stage();
        let before = world.protocol.shards[0].steering().clone();
        world.send(0, Syn, A);
        world.send(0, Syn, A);
        world.begin(ring(1, 1));
        world.protocol.shards[0].refresh();
        world.take(0).unwrap();
        world.take(1).unwrap();
        assert_eq!(world.holder(A), Some(1));
        (world, before)
    };
    // With the steering from before the update s0 ends the second SYN's walk itself.
    let (mut world, before) = begun();
    let (_, tag) = before.look_up(KEY, PORT);
    assert_eq!(
        walk(&before, ShardId(0), KEY, PORT, tag),
        Step::Stay,
        "a second flow"
    );
    // Superseded by a ring that equals the old one, the walk still goes over the one that was given up.
    let back = ring(0, 0);
    let balancer = &mut world.protocol.balancer;
    balancer.supersede(|draft| draft.set_ring(back)).unwrap();
    world.protocol.shards[0].refresh();
    assert_eq!(world.drain(), Ok(()));
    assert_eq!(world.holder(A), Some(1));
}

/// A record moves behind the cursor: the handshake ends when the connections have been visited and the half-open
/// records have not.
fn moves_behind_the_cursor(silent: bool) -> Result<(), Lost> {
    let mut world = stage();
    world.stores[0].silent = silent;
    world.send(0, Syn, A);
    world.drain()?;
    world.send(0, Data, A);
    world.begin(ring(1, 1));
    world.protocol.slice(0, &mut world.stores[0]);
    world.take(0)?;
    world.swap();
    world.send(0, Data, A);
    world.drain()?;
    // A SYN would open a second flow instead.
    world.send(0, Syn, A);
    world.drain()
}

#[test]
fn a_record_that_moves_behind_the_cursor() {
    assert_eq!(
        moves_behind_the_cursor(true),
        Err(Lost::Reset),
        "nobody reported it"
    );
    assert_eq!(moves_behind_the_cursor(false), Ok(()), "the mover does");
}

/// One tuple at two shards in turn while both are looked through, and both report it: the later report is of the one
/// that lives, if a move is not told after the flow has ended.
fn one_tuple_at_two_shards(tells_the_dead: bool) -> Result<(), Lost> {
    let mut world = diverged();
    world.protocol.settle();
    world.stores[0].tells_the_dead = tells_the_dead;
    world.send(0, Data, A);
    world.send(0, Syn, A);
    world.begin(ring(2, 2));
    world.protocol.slice(0, &mut world.stores[0]);
    world.take(0)?;
    world.stores[0].end(A);
    world.take(0)?;
    world.take(1)?;
    assert_eq!(
        world.holder(A),
        Some(1),
        "s1 still walks by the ring before"
    );
    world.pass_one(1);
    world.swap();
    world.send(0, Data, A);
    world.drain()
}

#[test]
fn a_move_that_is_told_after_the_flow_has_ended() {
    assert_eq!(one_tuple_at_two_shards(true), Err(Lost::Reset));
    assert_eq!(one_tuple_at_two_shards(false), Ok(()));
}

/// The same where the first shard has told of the flow while it was there.
#[test]
fn one_tuple_reported_by_two_shards() {
    for io in [0, 1] {
        let mut world = diverged();
        world.protocol.settle();
        world.send(0, Syn, A);
        world.begin(ring(2, 2));
        world.pass_one(0);
        world.stores[0].end(A);
        world.take(0).unwrap();
        world.take(1).unwrap();
        assert_eq!(
            world.holder(A),
            Some(1),
            "s1 still walks by the ring before"
        );
        world.pass_one(1);
        world.swap();
        world.send(io, Data, A);
        assert_eq!(world.drain(), Ok(()));
    }
}
