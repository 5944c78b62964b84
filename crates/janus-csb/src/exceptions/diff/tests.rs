use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Shard 4 stands for several.
fn whose(shard: u8) -> Whose {
    match shard {
        4 => Whose::Contested,
        shard => Whose::Shard(ShardId(shard)),
    }
}

fn diff_of(keys: &BTreeMap<u32, u8>) -> Diff {
    let mut runs = Runs::default();
    for (&key, &shard) in keys {
        runs.push(key, whose(shard));
    }
    runs.finish()
}

#[test]
fn a_run_is_one_entry() {
    // The paper's example: keys 7 and 8 are held by one shard, one entry at 8 serves both.
    let diff = diff_of(&BTreeMap::from([(7, 1), (8, 1), (30, 255)]));
    assert_eq!(diff.len(), 2);
    for (key, shard) in [(7, 1), (8, 1), (9, 255), (30, 255)] {
        assert_eq!(diff.whose(key), whose(shard));
    }
    // Past the last, and where there is nothing, the exact map is asked, which has nothing either.
    assert_eq!(diff.whose(31), Whose::Contested);
    assert_eq!(diff_of(&BTreeMap::new()).whose(7), Whose::Contested);
}

proptest! {
    #[test]
    fn every_key_put_in_has_its_shard(
        spread in prop::collection::btree_map(any::<u32>(), 0u8..5, 0..400),
        crowd in prop::collection::btree_map(0x7fff_ff00u32..0x8000_0100, 0u8..5, 0..400),
    ) {
        let mut keys = spread;
        keys.extend(crowd);
        let diff = diff_of(&keys);
        for (&key, &shard) in &keys {
            prop_assert_eq!(diff.whose(key), whose(shard), "key {:#x}", key);
        }
        let shards: Vec<u8> = keys.values().copied().collect();
        let runs = shards.windows(2).filter(|pair| pair[0] != pair[1]).count() + usize::from(!keys.is_empty());
        prop_assert_eq!(diff.len(), runs);
    }
}
