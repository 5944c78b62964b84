use super::*;
use crate::policy::plan::{Bounds, level, plan_by};
use crate::shard::ShardId;

const BOUNDS: Bounds = Bounds {
    tolerance: 0.01,
    steps: 1000,
    moved: 1.0,
    points: 64,
};

fn sample(shard: u8, flows: u64, busy: f64) -> ShardSample {
    ShardSample {
        shard: ShardId(shard),
        flows,
        busy,
        ..ShardSample::default()
    }
}

/// Four even shards; shard 0 is to have half of what the others have.
fn half_for_one(shards: &[ShardSample]) -> (Ring, Planned, Forecast) {
    let ring = level(&Ring::uniform(4, 16, 3), &[]);
    let mut targets = Targets::default();
    for (shard, weight) in [(0, 0.5), (1, 1.0), (2, 1.0), (3, 1.0)] {
        targets.set(ShardId(shard), weight);
    }
    let planned = plan_by(&ring, &targets, &Density::Even, &BOUNDS).unwrap();
    let (placed, costs) = (Shares::of(&ring, None), Costs::default());
    let forecast = forecast(
        &ring,
        &targets,
        &planned,
        &Density::Even,
        shards,
        &placed,
        &costs,
    );
    (ring, planned, forecast)
}

#[test]
fn flows_that_will_be_diverged_are_those_under_the_moved_keys() {
    let flows = 200_000;
    let shards: Vec<_> = (0..4).map(|s| sample(s, flows, 0.5)).collect();
    let (ring, planned, forecast) = half_for_one(&shards);
    // Counted: flows of random keys, each with the shard that the old ring names.
    let mut random = 1u64;
    let diverged = (0..4 * flows).filter(|_| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let key = (random >> 32) as u32;
        ring.owner(key) != planned.ring().owner(key)
    });
    let counted = diverged.count() as f64;
    let error = forecast.diverged as f64 / counted - 1.0;
    println!("{} predicted, {counted} counted", forecast.diverged);
    assert!(error.abs() < 0.02, "{error}");
    assert!(counted > 4.0 * flows as f64 * 0.05);
    // All of it moves away from one shard, so it is one run; and the filter is in proportion.
    assert!(planned.moved().iter().all(|part| part.from == ShardId(0)));
    let (filter, diff) = bytes_for(forecast.diverged as usize, 1);
    assert_eq!(
        (forecast.filter_bytes, forecast.diff_bytes),
        (filter as u64, diff as u64)
    );
}

#[test]
fn a_busy_shard_gains_and_an_idle_one_does_not() {
    // A quarter becomes a seventh: the slow shard was 1.75 times as busy as it should be.
    let busy = [
        sample(0, 1000, 0.9),
        sample(1, 1000, 0.4),
        sample(2, 1000, 0.4),
        sample(3, 1000, 0.4),
    ];
    let (.., forecast) = half_for_one(&busy);
    assert!((forecast.spread_before - 1.75).abs() < 0.01, "{forecast:?}");
    assert!(forecast.spread_after < 1.011);
    assert!((forecast.busiest_before - 0.9).abs() < 1e-9);
    assert!(
        (forecast.busiest_after - 0.9 / 1.75).abs() < 0.01,
        "{forecast:?}"
    );
    assert!(forecast.pays());
    // Twenty million connections that do nothing: the traversal is all there is.
    let idle: Vec<_> = (0..4).map(|s| sample(s, 5_000_000, 0.001)).collect();
    let (.., forecast) = half_for_one(&idle);
    assert!(!forecast.pays(), "{forecast:?}");
    assert!(forecast.cost > Duration::from_millis(25));
    // The same connections, busy.
    let loaded: Vec<_> = (0..4).map(|s| sample(s, 5_000_000, 0.5)).collect();
    assert!(half_for_one(&loaded).2.pays());
}

#[test]
fn who_is_how_busy_goes_by_what_the_flows_were_placed_by() {
    // A ring of a moment ago gave shard 0 twice as much as it has now; its flows are still there.
    let ring = level(&Ring::uniform(2, 16, 3), &[]);
    let mut targets = Targets::default();
    targets.set(ShardId(0), 1.0);
    targets.set(ShardId(1), 3.0);
    let planned = plan_by(&ring, &targets, &Density::Even, &BOUNDS).unwrap();
    let mut placed = Shares::of(&ring, None);
    (placed[ShardId(0)], placed[ShardId(1)]) = (0.8, 0.2);
    let shards = [sample(0, 1000, 0.8), sample(1, 1000, 0.2)];
    let costs = Costs::default();
    let forecast = forecast(
        &ring,
        &targets,
        &planned,
        &Density::Even,
        &shards,
        &placed,
        &costs,
    );
    assert!((forecast.busiest_after - 0.75).abs() < 0.02, "{forecast:?}");
}
