use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn a_port_is_listed_while_somebody_listens() {
    let mut table = PortTable::new();
    assert!(table.get(80).is_none());
    assert!(table.insert(80, ShardId(1)));
    assert!(!table.insert(80, ShardId(1)));
    assert!(table.insert(80, ShardId(0)));
    assert_eq!(table.get(80), Some(&ShardSet::first_n(2)));
    assert!(table.remove(80, ShardId(1)));
    assert!(!table.remove(80, ShardId(1)));
    assert!(table.remove(80, ShardId(0)));
    assert!(table.get(80).is_none());
    assert!(!table.remove(81, ShardId(0)));
}

proptest! {
    #[test]
    fn agrees_with_a_map_of_sets(changes in prop::collection::vec((any::<bool>(), 0u16..200, 0u8..4), 0..300)) {
        let mut table = PortTable::new();
        let mut model: BTreeMap<u16, ShardSet> = BTreeMap::new();
        for (insert, port, shard) in changes {
            // Spread over the words of the bitmap, both ends included.
            let port = port.wrapping_mul(331).wrapping_sub(5);
            let shard = ShardId(shard);
            if insert {
                prop_assert_eq!(table.insert(port, shard), model.entry(port).or_default().insert(shard));
            } else {
                prop_assert_eq!(table.remove(port, shard), model.get_mut(&port).is_some_and(|set| set.remove(shard)));
                model.retain(|_, set| !set.is_empty());
            }
        }
        prop_assert!(table.iter().eq(model.iter().map(|(port, set)| (*port, set))));
        for port in 0..=u16::MAX {
            prop_assert_eq!(table.get(port), model.get(&port));
        }
    }
}
