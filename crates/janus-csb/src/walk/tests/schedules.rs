//! Random schedules of the small world, many seeds, each replayable: whatever the order of sends, updates and views,
//! the walk breaks no flow. The wrong strategies go through the same schedules and must be caught.

use janus_seeds::Random;

use super::world::{Broken, Kind, Strategy, World};

const SEEDS: u64 = 3000;
const STEPS: usize = 120;
const IO: usize = 2;
const SHARDS: usize = 4;
const FLOWS: u32 = 3;

fn step(world: &mut World, random: &mut Random) -> Result<(), Broken> {
    let shard = random.below(SHARDS);
    let io = random.below(IO);
    match random.below(16) {
        0..5 => {
            let flow = random.below(FLOWS as usize) as u32;
            let kind = match random.below(8) {
                0..3 => Kind::Syn,
                3..7 => Kind::Data,
                _ => Kind::Fin,
            };
            let hint = (random.below(4) == 0).then_some(shard as u8);
            world.send(io, kind, flow, hint);
        }
        5..11 => world.take(shard)?,
        11..13 => world.refresh_shard(shard),
        13 => world.refresh_io(io),
        14 if world.may_propose() => world.propose(shard as u8),
        15 if world.may_publish() => world.publish(),
        _ => {}
    }
    Ok(())
}

/// One schedule; the greatest number of hops a packet made and the number of swaps, or what broke.
fn run(strategy: Strategy, seed: u64) -> Result<(usize, usize), Broken> {
    let mut random = Random::new(seed);
    let mut world = World::new(strategy, IO, SHARDS, 0);
    let mut swaps = 0;
    for _ in 0..STEPS {
        let pending = world.is_pending();
        step(&mut world, &mut random)?;
        swaps += usize::from(pending && !world.is_pending());
    }
    world.drain()?;
    assert_eq!(world.queued(), 0);
    Ok((world.hops_max, swaps))
}

#[test]
fn the_walk_breaks_no_flow_and_needs_two_hops() {
    let mut hops_max = 0;
    let mut swaps = 0;
    for seed in 0..SEEDS {
        let (hops, swapped) =
            run(Strategy::Walk, seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken:?}"));
        hops_max = hops_max.max(hops);
        swaps += swapped;
    }
    assert_eq!(
        hops_max, 2,
        "rule 9 is kept here, so two hops are the most, and they are reached"
    );
    assert!(
        swaps > SEEDS as usize / 4,
        "{swaps} swaps: the schedules must get through whole updates"
    );
}

#[test]
fn the_schedules_catch_every_wrong_strategy() {
    for strategy in [
        Strategy::JumpToNewest,
        Strategy::TrustHints,
        Strategy::NeverForward,
    ] {
        let broken = (0..SEEDS)
            .filter(|&seed| run(strategy, seed).is_err())
            .count();
        assert!(broken > 0, "{strategy:?} came through {SEEDS} schedules");
    }
}
