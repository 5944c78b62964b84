use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const S0: ShardId = ShardId(0);
const S1: ShardId = ShardId(1);
const S2: ShardId = ShardId(2);

/// A filter whose false positives are named, not left to chance.
struct Named {
    keys: BTreeSet<u32>,
    also: &'static [u32],
}

impl Named {
    fn new(also: &'static [u32]) -> Named {
        Named {
            keys: BTreeSet::new(),
            also,
        }
    }
}

impl Filter for Named {
    fn insert(&mut self, key: u32) {
        self.keys.insert(key);
    }

    fn contains(&self, key: u32) -> bool {
        self.keys.contains(&key) || !self.keys.is_empty() && self.also.contains(&key)
    }

    fn bytes(&self) -> usize {
        0
    }
}

fn ring(points: &[(u32, ShardId)]) -> Arc<Ring> {
    Arc::new(Ring::from_points(points).unwrap())
}

/// The paper's worked example (its Figure 3 and Table II): keys 7 and 8 move, 20 is a false positive, one point at 8
/// serves both that moved, and the fly set {9, 19} shrinks to {9}.
#[test]
fn the_worked_example() {
    let now = ring(&[(10, S0), (25, S1), (40, S2)]);
    let next = ring(&[(6, S0), (15, S2), (25, S1), (40, S2)]);
    let held = [(S0, vec![3, 7, 8]), (S1, vec![16, 20]), (S2, vec![30])];
    let filter = || Named::new(&[9, 20]);
    let mut io = IoCore::new(Arc::new(Tables::new(now, filter())));
    for (shard, keys) in &held {
        assert_eq!(io.broken(*shard, keys.clone()), 0);
    }

    let mut update = Update::new(next.clone(), filter());
    io.begin(next);
    assert_eq!([9, 19].map(|key| io.steer_syn(key)), [S2, S1]);
    assert_eq!(io.steer(9), S2, "a SYN's flow is found where it was placed");
    assert_eq!(io.steer(7), S0, "the others by the old ring until the swap");

    let moved: Vec<usize> = held
        .iter()
        .map(|(shard, keys)| update.pass_one(*shard, keys.clone()))
        .collect();
    assert_eq!(moved, [2, 0, 0], "keys 7 and 8");
    let found: Vec<usize> = held
        .iter()
        .map(|(shard, keys)| update.pass_two(*shard, keys.clone()))
        .collect();
    assert_eq!(found, [2, 1, 0], "7, 8, and the false positive 20");

    io.swap(Arc::new(update.finish()));
    let points: Vec<_> = io.tables.diff().points().collect();
    assert_eq!(points, [(8, S0), (20, S1)], "one point at 8 serves both");
    assert_eq!(io.fly().collect::<Vec<_>>(), [9], "19 needs no entry");
    for (shard, keys) in &held {
        assert_eq!(io.broken(*shard, keys.clone()), 0, "{shard}");
    }
    assert_eq!([9, 19].map(|key| io.steer(key)), [S2, S1]);
}

#[test]
fn two_shards_with_one_key_are_one_point_too_few() {
    let diff = Diff::new(vec![(5, S1), (5, S0), (9, S1)]);
    assert_eq!(diff.points().collect::<Vec<_>>(), [(5, S0), (9, S1)]);
    assert_eq!(diff.owner(5), Some(S0), "the flow at s1 is lost");
    assert_eq!(Diff::default().owner(5), None);
}

#[test]
fn the_bloom_filter_keeps_its_rate() {
    let (keys, rate) = (10_000_u32, 1e-2);
    let mut bloom = Bloom::new(keys as usize, rate, 7);
    assert!(!bloom.contains(1), "an empty filter affirms nothing");
    // Odd multipliers are bijections: no key of the second kind is one of the first.
    (0..keys).for_each(|i| bloom.insert(i.wrapping_mul(0x9e37_79b1)));
    assert!((0..keys).all(|i| bloom.contains(i.wrapping_mul(0x9e37_79b1))));
    let foreign = 100_000_u32;
    let wrong = (keys..keys + foreign)
        .filter(|&i| bloom.contains(i.wrapping_mul(0x9e37_79b1)))
        .count() as f64;
    let expected = rate * f64::from(foreign);
    assert!(
        (expected * 0.8..expected * 1.2).contains(&wrong),
        "{wrong} false positives, {expected} expected"
    );
    assert!(bloom.bytes() < keys as usize * 10 / 8, "9.6 bits a key");
}

proptest! {
    /// In a quiet world (no packet while the update runs, no two flows with one key) the paper is right: this is what
    /// it proves, and the module must keep it.
    #[test]
    fn a_quiet_update_breaks_nothing(
        keys in prop::collection::btree_set(any::<u32>(), 0..400),
        weights in prop::collection::vec(prop::collection::vec(1u16..9, 3), 1..4),
    ) {
        let ring = |weights: &[u16]| Arc::new(Ring::weighted(weights, 3).unwrap());
        let first = ring(&[4, 4, 4]);
        let mut held = vec![Vec::new(); 3];
        for &key in &keys {
            held[first.owner(key).index()].push(key);
        }
        let mut io = IoCore::new(Arc::new(Tables::new(first, Bloom::new(1, 1e-2, 0))));
        let shards = || (0u8..3).map(ShardId);
        for weights in &weights {
            let next = ring(weights);
            let mut update = Update::new(next.clone(), Bloom::new(keys.len(), 1e-2, 0));
            io.begin(next);
            for shard in shards() {
                update.pass_one(shard, held[shard.index()].iter().copied());
            }
            for shard in shards() {
                update.pass_two(shard, held[shard.index()].iter().copied());
            }
            io.swap(Arc::new(update.finish()));
            for shard in shards() {
                prop_assert_eq!(io.broken(shard, held[shard.index()].iter().copied()), 0);
            }
        }
    }

    /// `H_diff` answers for every key it was made from, as long as no key is at two shards.
    #[test]
    fn the_compressed_diff_answers_as_the_whole(
        found in prop::collection::btree_map(any::<u32>(), 0u8..3, 1..200),
    ) {
        let all: Vec<_> = found.iter().map(|(&key, &shard)| (key, ShardId(shard))).collect();
        let diff = Diff::new(all.clone());
        for (key, shard) in all {
            prop_assert_eq!(diff.owner(key), Some(shard));
        }
        let points: Vec<_> = diff.points().collect();
        prop_assert!(points.windows(2).all(|pair| pair[0].1 != pair[1].1), "runs are one point");
    }
}
