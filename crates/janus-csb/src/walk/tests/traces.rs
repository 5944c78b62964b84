//! The known ways to lose a connection while the steering changes, each as a trace. The walk passes every one; where
//! a trace belongs to a tempting shortcut, the shortcut is run too and must fail, so that the trace is known to bite.

use super::world::Kind::{Data, Syn};
use super::world::{Broken, Strategy, World};

type Trace = fn(&mut World) -> Result<(), Broken>;

fn passes(trace: Trace, owner: u8) {
    let mut world = World::new(Strategy::Walk, 2, 3, owner);
    trace(&mut world).and_then(|()| world.drain()).unwrap();
    assert!(world.hops_max <= 2, "two hops are enough");
}

fn fails(strategy: Strategy, trace: Trace, owner: u8) {
    let mut world = World::new(strategy, 2, 3, owner);
    let end = trace(&mut world).and_then(|()| world.drain());
    assert!(end.is_err(), "{strategy:?} should break a flow here");
}

/// The owner is 0, then 1, then 2. The SYN waits at s0 over the first update and data over the second.
fn two_updates_overtake_queued_packets(world: &mut World) -> Result<(), Broken> {
    world.send(0, Syn, 1, None);
    world.propose(1);
    world.refresh_shard(0);
    world.take(0)?;
    world.take(1)?;
    world.expect(1, 1)?;
    world.send(0, Data, 1, None);
    world.propose(2);
    world.refresh_shard(0);
    world.take(0)
}

#[test]
fn jump_to_the_newest_ring() {
    passes(two_updates_overtake_queued_packets, 0);
    fails(
        Strategy::JumpToNewest,
        two_updates_overtake_queued_packets,
        0,
    );
    fails(
        Strategy::NeverForward,
        two_updates_overtake_queued_packets,
        0,
    );
}

/// A filter's false positive sends the flow to s1, which becomes the owner while a packet waits there.
fn a_false_positive_and_an_update(world: &mut World) -> Result<(), Broken> {
    world.send(0, Syn, 1, Some(1));
    world.drain()?;
    world.expect(1, 0)?;
    world.send(0, Data, 1, Some(1));
    world.propose(1);
    world.refresh_shard(1);
    world.take(1)
}

#[test]
fn jump_with_a_false_positive() {
    passes(a_false_positive_and_an_update, 0);
    fails(Strategy::JumpToNewest, a_false_positive_and_an_update, 0);
    fails(Strategy::TrustHints, a_false_positive_and_an_update, 0);
}

/// The same with a second SYN in place of data: the danger is a second flow.
fn a_false_positive_and_a_duplicate_syn(world: &mut World) -> Result<(), Broken> {
    world.send(0, Syn, 1, Some(1));
    world.drain()?;
    world.send(0, Syn, 1, Some(1));
    world.propose(1);
    world.refresh_shard(1);
    world.take(1)
}

#[test]
fn jump_with_a_false_positive_and_a_duplicate_syn() {
    passes(a_false_positive_and_a_duplicate_syn, 0);
    fails(
        Strategy::JumpToNewest,
        a_false_positive_and_a_duplicate_syn,
        0,
    );
}

/// A duplicate SYN during an update (A2): the flow stays where it is.
fn a_duplicate_syn(world: &mut World) -> Result<(), Broken> {
    world.send(0, Syn, 1, None);
    world.drain()?;
    world.propose(1);
    (0..3).for_each(|s| world.refresh_shard(s));
    world.send(0, Syn, 1, None);
    world.drain()?;
    world.expect(1, 0)?;
    Ok(())
}

#[test]
fn duplicate_syn_during_an_update() {
    passes(a_duplicate_syn, 0);
}

/// A SYN in a ring while shards adopt the new one (A3, and A4 with a cookie's ACK, which creates in the same way).
fn a_syn_in_a_ring(world: &mut World) -> Result<(), Broken> {
    world.send(0, Syn, 1, None);
    world.propose(1);
    (0..3).for_each(|s| world.refresh_shard(s));
    world.drain()?;
    world.expect(1, 1)?;
    world.send(1, Data, 1, None);
    world.drain()?;
    assert!(
        world.may_publish(),
        "the flow was created by the newest ring"
    );
    world.publish();
    world.refresh_io(0);
    world.send(0, Data, 1, None);
    world.send(1, Data, 1, None);
    Ok(())
}

#[test]
fn syn_in_a_ring() {
    passes(a_syn_in_a_ring, 0);
    fails(Strategy::NeverForward, a_syn_in_a_ring, 0);
}

/// Two I/O cores see the swap at different times (A6).
fn two_io_cores(world: &mut World) -> Result<(), Broken> {
    world.propose(1);
    (0..3).for_each(|s| world.refresh_shard(s));
    world.publish();
    world.refresh_io(0);
    world.send(0, Syn, 1, None);
    world.drain()?;
    world.send(1, Data, 1, None);
    Ok(())
}

#[test]
fn io_cores_swap_at_different_times() {
    passes(two_io_cores, 0);
    fails(Strategy::NeverForward, two_io_cores, 0);
}

/// A pending ring is given up by a newer one that equals the old; the walk still includes it.
fn superseded(world: &mut World) -> Result<(), Broken> {
    world.send(0, Syn, 1, None);
    world.send(0, Syn, 1, None);
    world.propose(1);
    world.refresh_shard(0);
    world.take(0)?;
    world.take(1)?;
    world.expect(1, 1)?;
    world.propose(0);
    world.refresh_shard(0);
    world.take(0)
}

#[test]
fn a_pending_ring_is_superseded() {
    passes(superseded, 0);
    fails(Strategy::JumpToNewest, superseded, 0);
}
