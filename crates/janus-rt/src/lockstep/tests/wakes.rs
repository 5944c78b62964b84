//! A shard that wakes while the control thread dozes: what woke it is served first, and no task runs before the ring.

use std::cell::Cell;
use std::rc::Rc;

use super::{SPLIT, world};
use crate::control::rests::Seen;
use crate::lockstep::World;

/// All sleep, the control thread too; then the first shard has slept until now.
fn wake_first(world: &mut World) {
    let rests = world.conductor.mailbox.rests();
    let threads = world.shards.len() + world.io_cores.len();
    (0..threads).for_each(|thread| rests.falls_asleep(thread));
    let mut seen = Seen::default();
    rests.note(&mut seen);
    assert!(rests.doze(&seen));
    world.conductor.mailbox.read_news();
    let now = world.now();
    world.shards[0].slept_since(now);
    assert!(
        !world.conductor.mailbox.has_news(),
        "what woke it goes first"
    );
}

#[test]
fn the_ring_comes_with_the_first_turn_and_before_a_task() {
    let (mut world, _) = world(13, SPLIT);
    let mailbox = world.conductor.mailbox.clone();
    wake_first(&mut world);
    let _entered = world.shards[0].enter();
    world.shards[0].turn();
    assert!(mailbox.has_news(), "it has worked");
    let rung = Rc::new(Cell::new(None));
    let (there, at) = (Rc::clone(&rung), mailbox.clone());
    drop(crate::spawn(async move {
        there.set(Some(at.has_news()));
    }));
    wake_first(&mut world);
    world.shards[0].turn();
    assert_eq!(rung.get(), Some(true));
}
