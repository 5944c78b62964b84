//! How much of a turn tasks may have: by their number, and by the time they take.

use std::cell::Cell;
use std::rc::Rc;

use super::COMBINED;
use crate::lockstep::World;
use crate::runtime::Builder;
use crate::{spawn, yield_now};

/// A world in which every shard has tasks that go on for as long as they are let, each poll of which takes this long.
fn busy(tasks: usize, poll_ns: u64) -> (World, Rc<Cell<u64>>) {
    let polls: Rc<Cell<u64>> = Rc::default();
    let clock: Rc<Cell<Option<&'static std::sync::atomic::AtomicU64>>> = Rc::default();
    let (count, time) = (polls.clone(), clock.clone());
    let mut world = World::new(
        5,
        COMBINED,
        |builder: Builder| builder,
        move || {
            let (count, time) = (count.clone(), time.clone());
            async move {
                for _ in 0..tasks {
                    let (count, time) = (count.clone(), time.clone());
                    spawn(async move {
                        loop {
                            count.set(count.get() + 1);
                            if let Some(time) = time.get() {
                                time.fetch_add(poll_ns, std::sync::atomic::Ordering::Relaxed);
                            }
                            yield_now().await;
                        }
                    });
                }
                std::future::pending::<()>().await;
            }
        },
    );
    turn(&mut world);
    clock.set(Some(world.elapsed_ns));
    polls.set(0);
    (world, polls)
}

/// One turn of the first shard; answers how long it took.
fn turn(world: &mut World) -> u64 {
    let before = world.now();
    let shard = &mut world.shards[0];
    let _entered = shard.enter();
    shard.turn();
    world.now().saturating_since(before).as_nanos() as u64
}

#[test]
fn quick_tasks_have_a_number() {
    let (mut world, polls) = busy(1000, 100);
    turn(&mut world);
    assert_eq!(polls.get(), 256);
    let used_up = world.shards[0].ctx.statistics.report().task_budget_used_up;
    assert_eq!(used_up, 2, "in the first turn and in this");
}

#[test]
fn slow_tasks_have_a_time() {
    let (mut world, polls) = busy(1000, 10_000);
    let took_ns = turn(&mut world);
    // Some before the clock is looked at, then rounds for 200 µs, the last of which may go beyond it.
    assert_eq!((polls.get(), took_ns), (8 + 64, 720_000));
    let (mut world, polls) = busy(1000, 2_000);
    turn(&mut world);
    assert_eq!(polls.get(), 8 + 2 * 64);
}

#[test]
fn a_few_that_take_very_long_are_enough_for_a_turn() {
    for tasks in [1, 5, 1000] {
        let (mut world, polls) = busy(tasks, 1_000_000);
        turn(&mut world);
        assert_eq!(polls.get(), 8, "{tasks} tasks");
    }
}
