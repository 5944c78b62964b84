use super::*;
use crate::policy::{ShardSample, Shares};

/// A round of shards that have these service times and queues, and equal shares.
fn round(policy: &mut Service, seconds: u64, times: &[Option<u64>], queues: &[u32]) -> Wish {
    let mut shares = Shares::default();
    let mut shards = Vec::new();
    for (shard, (&service_ns, &queue)) in (0..).map(ShardId).zip(times.iter().zip(queues)) {
        shares[shard] = 1.0 / times.len() as f64;
        shards.push(ShardSample {
            shard,
            service_ns,
            queue,
            ..ShardSample::default()
        });
    }
    policy.weigh(&Round {
        at: Duration::from_secs(seconds),
        shards: &shards,
        shares: &shares,
    })
}

fn weights(wish: &Wish) -> Vec<f64> {
    let total: f64 = wish.weights.iter().map(|&(_, weight)| weight).sum();
    wish.weights
        .iter()
        .map(|&(_, weight)| weight / total)
        .collect()
}

fn near(weights: &[f64], expected: &[f64]) -> bool {
    weights
        .iter()
        .zip(expected)
        .all(|(a, b)| (a - b).abs() < 0.001)
}

#[test]
fn weights_are_the_inverse_of_the_time() {
    let wish = round(
        &mut Service::default(),
        0,
        &[Some(200), Some(100), Some(100)],
        &[0; 3],
    );
    assert!(near(&weights(&wish), &[0.2, 0.4, 0.4]), "{wish:?}");
    assert!(wish.strain > 1.0);
    let wish = round(
        &mut Service::default(),
        0,
        &[Some(105), Some(100), Some(95)],
        &[0; 3],
    );
    assert!(wish.strain < 1.0, "five percent are within the band");
    let wish = round(
        &mut Service::default(),
        0,
        &[Some(100), None, Some(100)],
        &[0; 3],
    );
    assert!(
        near(&weights(&wish), &[1.0 / 3.0; 3]),
        "who has served too few counts as the mean"
    );
    let slow = [Some(1_000_000), Some(1), Some(1)];
    let wish = round(&mut Service::default(), 0, &slow, &[0; 3]);
    assert!(weights(&wish)[0] > 0.02, "nobody starves: {wish:?}");
    assert_eq!(
        round(&mut Service::default(), 0, &[None, None], &[0; 2]).strain,
        0.0
    );
}

#[test]
fn a_tariff_is_added_to_a_shards_own_time() {
    let mut policy = Service::default().tariff(ShardId(1), 100);
    let wish = round(&mut policy, 0, &[Some(100), Some(100)], &[0; 2]);
    assert!(near(&weights(&wish), &[2.0 / 3.0, 1.0 / 3.0]), "{wish:?}");
}

#[test]
fn the_filter_takes_hold_at_the_high_watermark_and_lets_go_at_the_low_one() {
    let mut policy = Service::default();
    let times = [Some(100); 4];
    let held = |policy: &Service| policy.filtered().contains(ShardId(0));
    // The depth is a mean over half a second, so after ten seconds it is what it is now.
    for (seconds, queue, expected) in [
        (0, 1000, false),
        (10, 1100, true),
        (20, 600, true),
        (30, 129, true),
        (40, 127, false),
        (50, 1000, false),
    ] {
        let wish = round(&mut policy, seconds, &times, &[queue, 5, 5, 5]);
        assert_eq!(held(&policy), expected, "at {queue} packets");
        let share = weights(&wish)[0];
        let half = 0.5 / 3.5;
        assert!(
            (share - if expected { half } else { 0.25 }).abs() < 1e-9,
            "{share}"
        );
    }
    // All too deep: there is nobody better.
    round(&mut policy, 60, &times, &[5000; 4]);
    assert!(policy.filtered().is_empty());
}
