use super::*;
use crate::policy::{ShardSample, Shares};
use crate::shard::ShardId;

fn weigh(depths: &[u32], shares: &[f64]) -> Wish {
    let mut have = Shares::default();
    let mut shards = Vec::new();
    for (shard, (&queue, &share)) in (0..).map(ShardId).zip(depths.iter().zip(shares)) {
        have[shard] = share;
        shards.push(ShardSample {
            shard,
            queue,
            busy: if queue > 100 { 1.0 } else { 0.5 },
            ..ShardSample::default()
        });
    }
    let round = Round {
        at: Duration::ZERO,
        shards: &shards,
        shares: &have,
    };
    Queue::default().weigh(&round)
}

fn weight(wish: &Wish, shard: usize) -> f64 {
    let total: f64 = wish.weights.iter().map(|&(_, weight)| weight).sum();
    wish.weights[shard].1 / total
}

#[test]
fn a_deep_queue_gets_less_and_only_depth_above_the_floor_counts() {
    let wish = weigh(&[2000, 4, 4, 4], &[0.25; 4]);
    assert!(
        wish.strain > 1.0 && (weight(&wish, 0) - 0.25 * 0.625).abs() < 0.001,
        "{wish:?}"
    );
    assert!(weight(&wish, 1) > 0.25);
    let wish = weigh(&[16, 0, 0, 0], &[0.25; 4]);
    assert!(wish.strain < 1.0, "sixteen packets are no queue: {wish:?}");
    let wish = weigh(&[2000; 4], &[0.25; 4]);
    assert_eq!(
        wish.strain, 0.0,
        "all are equally deep: there is nobody to give to"
    );
}

#[test]
fn nobody_starves_and_a_shard_that_is_added_counts_as_one_of_the_others() {
    let wish = weigh(&[100_000, 0, 0, 0], &[0.02, 0.33, 0.33, 0.32]);
    assert!(weight(&wish, 0) > 0.25 / 16.1, "{wish:?}");
    let wish = weigh(&[1, 1, 1], &[0.5, 0.5, 0.0]);
    assert!((weight(&wish, 2) - 1.0 / 3.0).abs() < 0.01, "{wish:?}");
    assert!(weigh(&[], &[]).weights.is_empty());
}
