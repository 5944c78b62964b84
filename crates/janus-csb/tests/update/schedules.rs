//! Random schedules, many seeds, each replayable: whatever happens in which order, no flow is broken. Every wrong
//! participant goes through the same schedules and must be caught.

use janus_csb::{Limits, Phase, Ring, ShardId};
use janus_seeds::Random;

use crate::world::{Broken, FLOWS, IO, Kind, PORTS, SHARDS, Tally, World, Wrong};

const SEEDS: u64 = 300;
const STEPS: usize = 12_000;

fn send(world: &mut World, random: &mut Random) -> Result<(), Broken> {
    let batch: Vec<_> = (0..1 + random.below(6))
        .map(|_| {
            let kind = match random.below(10) {
                0..3 => Kind::Syn,
                3..8 => Kind::Data,
                8 => Kind::CookieAck,
                _ => Kind::Fin,
            };
            (random.below(FLOWS as usize) as u32, kind)
        })
        .collect();
    world.send(random.below(IO), &batch)
}

/// A few points change hands, or the whole ring; a shard begins to listen on the second port or ends.
fn change(world: &mut World, random: &mut Random) {
    let ring = world.balancer.current().newest().ring();
    let members: Vec<ShardId> = ring.members().iter().collect();
    let points: Vec<u32> = ring.points().map(|(at, _)| at).collect();
    let mut some = || members[random.below(members.len())];
    let (one, two, three) = (some(), some(), some());
    let at = [0; 3].map(|_| points[random.below(points.len())]);
    let (what, seed) = (random.below(6), random.bits() as u32);
    let draft = |draft: &mut janus_csb::Draft| match what {
        0..3 => [one, two, three]
            .into_iter()
            .zip(at)
            .for_each(|(shard, at)| {
                draft.give_point(at, shard);
            }),
        3 => {
            draft.remove_point(at[0]);
            draft.add_point(seed, one);
            draft.add_points(two, 1, seed);
        }
        4 => {
            let mut weights = [0; SHARDS];
            members
                .iter()
                .for_each(|member| weights[member.index()] = 3);
            if let Ok(ring) = Ring::weighted(&weights, seed) {
                draft.set_ring(ring);
            }
        }
        _ => {
            draft.listen(PORTS[1], one);
            if draft.ports().get(PORTS[1]).is_some_and(|set| set.len() > 1) {
                draft.unlisten(PORTS[1], two);
            }
        }
    };
    if world.balancer.phase() == Phase::Idle {
        world.tally.refused += usize::from(world.balancer.begin(draft).is_err());
    } else if seed.is_multiple_of(16) && world.balancer.supersede(draft).is_ok() {
        world.tally.superseded += 1;
    }
}

/// A few packets; where the shard is `slow` nearly none.
fn take(world: &mut World, random: &mut Random, s: usize, slow: usize) -> Result<(), Broken> {
    let count = match s == slow && random.below(12) > 0 {
        true => 0,
        false => 6,
    };
    (0..count).try_for_each(|_| world.take(s, random.below(IO + 1)))
}

fn step(world: &mut World, random: &mut Random, slow: usize) -> Result<(), Broken> {
    let (s, io) = (random.below(SHARDS), random.below(IO));
    match random.below(100) {
        0..20 => send(world, random)?,
        20..60 => take(world, random, s, slow)?,
        60..66 => world.refresh_shard(s),
        66..70 if io != slow || random.below(40) == 0 => {
            world.refresh_io(io, random.below(4) == 0);
        }
        70..84 => world.work(s, 1 + random.below(60)),
        84..92 => _ = world.poll(),
        92..94 => world.expire(s, random.bits()),
        94..96 => world.open(s, random.below(FLOWS as usize) as u32)?,
        96..99 => change(world, random),
        _ => world.leave_or_come(s, random.bits() as u32)?,
    }
    Ok(())
}

/// A shard lets its packets wait over whole updates, and an I/O core goes on with what it has, if they are let.
fn is_slow(seed: u64) -> bool {
    seed.is_multiple_of(5)
}

/// Few flows may differ: updates are refused, and overflow.
fn is_narrow(seed: u64) -> bool {
    seed.is_multiple_of(4)
}

/// One schedule; what it came to, or what broke.
fn run(wrong: Option<Wrong>, seed: u64) -> Result<Tally, Broken> {
    let mut random = Random::new(seed);
    let limits = Limits {
        diverged: if is_narrow(seed) { 90 } else { 1000 },
        pending_opens: 32,
        ..Limits::default()
    };
    let mut world = World::new(wrong, limits);
    let slow = if is_slow(seed) { 0 } else { SHARDS };
    for _ in 0..STEPS {
        step(&mut world, &mut random, slow)?;
    }
    world.settle()?;
    // At rest every live flow is found.
    let all: Vec<_> = (0..FLOWS).map(|flow| (flow, Kind::Data)).collect();
    for some in all.chunks(30) {
        (0..IO).try_for_each(|io| world.send(io, some))?;
        world.settle()?;
    }
    assert!(world.live() > 0);
    Ok(world.tally)
}

#[test]
fn no_flow_is_broken() {
    let mut sum = Tally::default();
    for seed in 0..SEEDS {
        let tally = run(None, seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken:?}"));
        let shows = tally.diverged * 100 > tally.held && tally.forwards > 0;
        assert!(
            shows && tally.updates > 3 || is_narrow(seed) || is_slow(seed),
            "seed {seed} shows little: {tally:?}"
        );
        if tally.superseded + tally.overflows == 0 {
            sum.hops_max = sum.hops_max.max(tally.hops_max);
        }
        sum.updates += tally.updates;
        sum.held += tally.held;
        sum.diverged += tally.diverged;
        sum.exact += tally.exact;
        sum.forwards += tally.forwards;
        sum.lost += tally.lost;
        sum.opened += tally.opened;
        sum.refused += tally.refused;
        sum.overflows += tally.overflows;
        sum.superseded += tally.superseded;
        sum.left += tally.left;
        sum.learned += tally.learned;
    }
    println!("{sum:?}");
    assert!(sum.exact > SEEDS as usize, "{sum:?}");
    let happened = [
        sum.lost,
        sum.opened,
        sum.refused,
        sum.overflows,
        sum.superseded,
        sum.left,
        sum.learned,
    ];
    assert!(happened.iter().all(|&times| times > 0), "{sum:?}");
    assert_eq!(
        sum.hops_max, 2,
        "two hops are the most, and they are reached"
    );
}

#[test]
fn every_wrong_participant_is_caught() {
    for wrong in [
        Wrong::NeverForwards,
        Wrong::TrustsHints,
        Wrong::MovesSilently,
        Wrong::NeverDrains,
        Wrong::OpensByNewestRing,
        Wrong::LeavesEarly,
        Wrong::ReportsNothing,
    ] {
        let caught =
            (0..SEEDS).find_map(|seed| run(Some(wrong), seed).err().map(|broken| (seed, broken)));
        let (seed, broken) =
            caught.unwrap_or_else(|| panic!("{wrong:?} came through {SEEDS} schedules"));
        println!("{wrong:?}: seed {seed}, {broken:?}");
    }
}
