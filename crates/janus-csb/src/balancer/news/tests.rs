use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::flow::FlowId;

const SHARDS: u8 = 3;

fn flow(key: u32, id: u8, stamp: u32) -> Diverged {
    Diverged::new(key, FlowId(u128::from(id) << 64 | 7), stamp)
}

/// A flow of four keys, the shard it is at, and whether that is its ring's.
fn word() -> impl Strategy<Value = (u32, u8, u8, bool)> {
    (0..4u32, 0..4u8, 0..SHARDS, any::<bool>())
}

proptest! {
    /// Words in any order, some of them twice, about the end of the stamps too: of each flow the last one counts.
    #[test]
    fn of_each_flow_the_last_word_counts(
        words in prop::collection::vec((word(), any::<bool>()), 0..40),
        before in 0..40usize,
        first in prop_oneof![Just(0u32), Just(u32::MAX - 20)],
        shuffled in any::<prop::sample::Index>(),
    ) {
        let stamped = words.iter().enumerate();
        let stamped: Vec<_> = stamped
            .map(|(at, &(word, twice))| (first.wrapping_add(at as u32), word, twice))
            .collect();
        let (old, new) = stamped.split_at(before.min(stamped.len()));
        let mut model = BTreeMap::new();
        for &(_, (key, id, at, home), _) in &stamped {
            model.insert((key, id), (at, home));
        }
        let gone = |&(stamp, (key, id, at, home), _): &(u32, (u32, u8, u8, bool), bool)| Gone {
            at: ShardId(at),
            home,
            flow: flow(key, id, stamp),
        };
        let told = in_order(old.iter().map(gone).collect());
        let mut news: Vec<Gone> = new.iter().map(gone).collect();
        news.extend(new.iter().filter(|(.., twice)| *twice).map(gone));
        let middle = shuffled.index(news.len() + 1).min(news.len());
        news.rotate_left(middle);
        let news = in_order(news);
        for shard in (0..SHARDS).map(ShardId) {
            let list = entered(&[], &told, shard);
            let after = entered(&list, &news, shard);
            prop_assert!(after.is_sorted_by_key(Diverged::place));
            let expected = model.iter().filter(|(_, place)| **place == (shard.0, false));
            let expected: Vec<_> = expected.map(|(&(key, id), _)| flow(key, id, 0).place()).collect();
            let found: Vec<_> = after.iter().map(Diverged::place).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn lists_are_made_anew_when_they_have_doubled_or_are_old() {
    let known = Known::new(1_000_000, u32::MAX);
    assert!(known.is_fresh(2_000_000, 7));
    assert!(!known.is_fresh(2_000_000 + WORN + 1, 7));
    assert!(!known.is_fresh(0, OLD));
}
