//! The control loop over single flows in virtual time, with the real update machine carrying out what it decides: shards
//! with service rates, flows that begin and end and whose packet rates follow Zipf's law, queues that follow from both.
//! It must converge, the queues must fall, it must then be still, and what it predicts must come to pass.

mod world;

use janus_csb::policy::{Fixed, Policy, Queue, Service, level};
use janus_csb::{Ring, ShardId};
use world::{Load, World};

const SHARDS: usize = 16;
const LOAD: Load = Load {
    flows: 40_000,
    lifetime: 4.0,
    busy: 0.72,
};

/// What the parts of a run say, for the log and the assertions.
fn tell(world: &World, title: &str) {
    println!("{title}, seed {}", world.seed());
    for update in world.updates() {
        println!("  {update}");
    }
}

/// By chance one of sixteen shards has half more than the mean: it is overloaded until the points are chosen.
#[test]
fn the_queue_policy_repairs_a_ring_that_chance_made() {
    let ring = Ring::uniform(SHARDS, 16, 7);
    let mut world = World::new(ring, Box::new(Queue::default()), LOAD, 1);
    world.run(3.0);
    let before = world.mean_queue(2.0);
    world.run(117.0);
    let after = world.mean_queue(10.0);
    tell(&world, "a ring made by chance, policy queue");
    println!("  mean queue {before:.0} packets before, {after:.1} after");
    assert!(before > 50.0, "nobody was overloaded: {before}");
    assert!(after < before / 10.0, "{before} before, {after} after");
    assert!((1..=8).contains(&world.updates().len()));
    // What few heavy flows do by chance may still fill a shard for seconds, and is answered by a step that small.
    let late: Vec<_> = world
        .updates()
        .iter()
        .filter(|update| update.at >= 60.0)
        .collect();
    assert!(late.len() <= 1, "still in the second half");
    assert!(late.iter().all(|update| update.forecast.moved < 0.01));
    assert_eq!(world.refused(), 0);
}

/// A shard becomes half as fast.
#[test]
fn a_shard_that_slows_down_gets_less_and_then_all_is_still() {
    let policies: [(&str, Box<dyn Policy + Send>, usize); 2] = [
        ("queue", Box::new(Queue::default()), 6),
        ("service", Box::new(Service::default()), 6),
    ];
    for (name, policy, most) in policies {
        let ring = level(&Ring::uniform(SHARDS, 16, 7), &[]);
        let mut world = World::new(ring, policy, LOAD, 2);
        world.run(20.0);
        assert_eq!(world.updates().len(), 0, "{name}: nothing was wrong yet");
        let calm = world.mean_queue(5.0);
        world.slow_down(ShardId(3), 0.5);
        world.run(6.0);
        let worst = world.mean_queue(3.0);
        world.run(94.0);
        let after = world.mean_queue(10.0);
        tell(&world, &format!("one shard half as fast, policy {name}"));
        println!("  mean queue {calm:.1} before, {worst:.0} at once, {after:.1} after");
        assert!(
            worst > 10.0 * calm && after < worst / 10.0,
            "{name}: {calm}, {worst}, {after}"
        );
        assert!((1..=most).contains(&world.updates().len()), "{name}");
        assert_eq!(world.updates_since(70.0), 0, "{name}: still in the end");
    }
}

/// Flows that live on are diverged; as many as were predicted, and the tables are as large as was predicted.
#[test]
fn what_is_predicted_comes_to_pass() {
    let ring = level(&Ring::uniform(SHARDS, 16, 9), &[]);
    let weights = [(ShardId(0), 0.4), (ShardId(5), 1.5)];
    let mut world = World::new(ring, Box::new(Fixed::new(&weights)), LOAD, 3);
    world.run(30.0);
    tell(&world, "weights set by hand");
    let first = &world.updates()[0];
    let near = |predicted: u64, actual: usize, part: f64| {
        (predicted as f64 / actual as f64 - 1.0).abs() < part
    };
    let (forecast, report) = (&first.forecast, &first.report);
    assert!(
        report.diverged > LOAD.flows / 100,
        "more than one in a hundred"
    );
    assert!(near(forecast.diverged, report.diverged, 0.1));
    assert!(near(forecast.filter_bytes, report.filter_bytes, 0.15));
    assert!(near(forecast.diff_bytes, report.diff_bytes, 0.5));
    // How busy the busiest shard is once all flows have turned over.
    let busiest = world.busiest();
    println!(
        "  busiest {:.3} predicted, {busiest:.3} measured",
        forecast.busiest_after
    );
    assert!((forecast.busiest_after - busiest).abs() < 0.15);
    assert!(
        forecast.busiest_before < forecast.busiest_after,
        "weights by hand can be unwise"
    );
}
