use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn diff_of(keys: &BTreeMap<u32, u8>) -> Diff {
    let mut runs = Runs::default();
    for (&key, &shard) in keys {
        runs.push(key, ShardId(shard));
    }
    runs.finish()
}

#[test]
fn a_run_is_one_entry() {
    // The paper's example: keys 7 and 8 are held by one shard, one entry at 8 serves both.
    let diff = diff_of(&BTreeMap::from([(7, 1), (8, 1)]));
    assert_eq!(diff.len(), 1);
    assert_eq!(diff.shard(7), Some(ShardId(1)));
    assert_eq!(diff.shard(8), Some(ShardId(1)));
    assert_eq!(
        diff.shard(20),
        Some(ShardId(1)),
        "a false positive gets some answer"
    );
    assert_eq!(diff_of(&BTreeMap::new()).shard(7), None);
}

proptest! {
    #[test]
    fn every_key_put_in_has_its_shard(
        spread in prop::collection::btree_map(any::<u32>(), 0u8..4, 0..400),
        crowd in prop::collection::btree_map(0x7fff_ff00u32..0x8000_0100, 0u8..4, 0..400),
    ) {
        let mut keys = spread;
        keys.extend(crowd);
        let diff = diff_of(&keys);
        for (&key, &shard) in &keys {
            prop_assert_eq!(diff.shard(key), Some(ShardId(shard)), "key {:#x}", key);
        }
        let shards: Vec<u8> = keys.values().copied().collect();
        let runs = shards.windows(2).filter(|pair| pair[0] != pair[1]).count() + usize::from(!keys.is_empty());
        prop_assert_eq!(diff.len(), runs);
    }
}
