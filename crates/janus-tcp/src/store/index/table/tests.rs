//! The table against a `HashMap`, through growth, removal and colliding hashes.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn mix(x: u32) -> u64 {
    let x = (u64::from(x) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

proptest! {
    #[test]
    fn ways_are_those_whose_tags_agree(tags: [u8; WAYS], few in proptest::bool::ANY, tag: u8) {
        // Of few tags many agree, and neighbours in value stand side by side.
        let reduce = |t: u8| if few { t % 3 } else { t };
        let group = Group { tags: tags.map(reduce), ..Group::default() };
        for tag in [reduce(tag), 0, 1, 0x80, 0xff] {
            let mut ways: Vec<usize> = group.matches(tag).collect();
            ways.sort_unstable();
            let expected: Vec<usize> = (0..WAYS).filter(|&w| group.tags[w] == tag).collect();
            prop_assert_eq!(ways, expected);
        }
    }
}

#[test]
fn holds_a_hundred_thousand_and_lets_them_go() {
    let mut table = FlowTable::new(200_000, &Growth::Inline).expect("memory");
    for i in 0..100_000 {
        table.insert(mix(i), i, mix, |_| ()).expect("room");
    }
    assert_eq!(table.len(), 100_000);
    for i in 0..100_000 {
        assert_eq!(table.find(mix(i), |found| found == i), Some(i));
    }
    assert_eq!(table.find(mix(100_001), |found| found == 100_001), None);
    for i in (0..100_000).step_by(2) {
        assert!(table.remove(mix(i), i));
        assert!(!table.remove(mix(i), i));
    }
    for i in 0..100_000 {
        assert_eq!(table.find(mix(i), |found| found == i).is_some(), i % 2 == 1);
    }
}

#[test]
fn the_candidate_is_nearly_always_the_entry() {
    let mut table = FlowTable::new(200_000, &Growth::Inline).expect("memory");
    for i in 0..100_000 {
        table.insert(mix(i), i, mix, |_| ()).expect("room");
    }
    let right = (0..100_000)
        .filter(|&i| table.candidate(mix(i)) == Some(i))
        .count();
    assert!(
        right > 90_000,
        "only {right} of 100,000 prefetches would be right"
    );
}

#[test]
fn an_entry_can_change_its_index_in_place() {
    let mut table = FlowTable::new(1_000, &Growth::Inline).expect("memory");
    table.insert(mix(1), 1, mix, |_| ()).expect("room");
    assert!(table.replace(mix(1), 1, 77));
    assert!(!table.replace(mix(1), 1, 78));
    assert_eq!(table.find(mix(1), |i| i == 77), Some(77));
}

#[test]
fn equal_hashes_are_bounded_not_endless() {
    let mut table = FlowTable::new(100_000, &Growth::Inline).expect("memory");
    let mut refused = 0;
    for i in 0..5_000 {
        refused += usize::from(table.insert(42, i, |_| 42, |_| ()).is_err());
    }
    assert!(refused > 0, "a chain must have an end");
    assert!(table.len() >= WAYS * MAX_CHAIN);
    assert_eq!(table.find(42, |i| i == 3), Some(3));
}

proptest! {
    #[test]
    fn agrees_with_a_hash_map(ops in proptest::collection::vec((0u32..400, 0u8..4), 1..2_000), weak in any::<bool>()) {
        // A weak hash sends many entries to few buckets, so that chains and their splits are walked too.
        let hash = move |i: u32| if weak { mix(i % 7) } else { mix(i) };
        let mut table = FlowTable::new(10_000, &Growth::Inline).expect("memory");
        let mut model: HashMap<u32, ()> = HashMap::new();
        for (i, op) in ops {
            if op == 0 {
                prop_assert_eq!(table.remove(hash(i), i), model.remove(&i).is_some());
            } else if model.insert(i, ()).is_none() {
                prop_assert!(table.insert(hash(i), i, hash, |_| ()).is_ok());
            }
            prop_assert_eq!(table.len(), model.len());
        }
        for i in 0..400 {
            prop_assert_eq!(table.find(hash(i), |f| f == i).is_some(), model.contains_key(&i));
            prop_assert!(table.candidate(hash(i)).is_some() || !model.contains_key(&i));
        }
    }
}
