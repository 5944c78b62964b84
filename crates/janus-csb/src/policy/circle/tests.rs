use proptest::prelude::*;

use super::*;
use crate::ring::Ring;

fn points_of(circle: &Circle) -> Vec<(u32, ShardId)> {
    circle
        .arcs()
        .iter()
        .map(|arc| (arc.end, arc.owner))
        .collect()
}

fn load_of(circle: &Circle, shard: ShardId) -> f64 {
    let arcs = circle.arcs().iter();
    arcs.filter(|arc| arc.owner == shard)
        .map(|arc| arc.load)
        .sum()
}

/// The arcs are sorted, distinct, have the load that their ends say, and all of it together.
fn check(circle: &Circle) {
    let again = Circle::new(points_of(circle).into_iter(), circle.density.clone());
    for (arc, fresh) in circle.arcs().iter().zip(again.arcs()) {
        assert!(
            (arc.load - fresh.load).abs() < 1e-9,
            "{arc:?}, by its ends {fresh:?}"
        );
    }
    let ends: Vec<u32> = circle.arcs().iter().map(|arc| arc.end).collect();
    assert!(ends.windows(2).all(|pair| pair[0] < pair[1]), "{ends:x?}");
}

proptest! {
    /// Whatever is done to arcs, they stay a circle, and what was moved is what the one lost and the other got.
    #[test]
    fn what_one_loses_another_gets(
        points in prop::collection::btree_map(any::<u32>(), 0u8..4, 3..40),
        steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>(), 0.0..0.2f64, 0u8..4), 1..30),
    ) {
        let points: Vec<_> = points.into_iter().map(|(at, shard)| (at, ShardId(shard))).collect();
        let mut circle = Circle::new(points.into_iter(), Density::Even);
        for (what, which, load, to) in steps {
            let i = which.index(circle.arcs().len());
            let (arc, next) = (circle.arcs()[i], circle.arcs()[circle.after(i)]);
            let (from, to) = match what {
                0 => (arc.owner, next.owner),
                1 => (next.owner, arc.owner),
                _ => (arc.owner, ShardId(to)),
            };
            if from == to {
                continue;
            }
            let (lost, got) = (load_of(&circle, from), load_of(&circle, to));
            let moved = match what {
                0 => circle.slide_down(i, load),
                1 => circle.slide_up(i, load),
                2 => circle.give(i, to),
                _ => circle.cut(i, load, to),
            };
            check(&circle);
            prop_assert!((lost - load_of(&circle, from) - moved).abs() < 1e-9);
            prop_assert!((load_of(&circle, to) - got - moved).abs() < 1e-9);
            let size = if what == 0 || what == 3 { arc.load } else { next.load };
            if what != 2 && load > 1e-8 && load < size - 1e-8 {
                prop_assert!((moved - load).abs() < 1e-8, "asked for {load}, moved {moved}");
            }
        }
    }

    /// `moved` names exactly the keys whose owner differs.
    #[test]
    fn what_changes_hands_is_named(
        old in prop::collection::btree_map(any::<u32>(), 0u8..4, 1..20),
        new in prop::collection::btree_map(any::<u32>(), 0u8..4, 1..20),
        keys in prop::collection::vec(any::<u32>(), 50),
    ) {
        let list = |points: std::collections::BTreeMap<u32, u8>| -> Vec<(u32, ShardId)> {
            points.into_iter().map(|(at, shard)| (at, ShardId(shard))).collect()
        };
        let (old, new) = (list(old), list(new));
        let parts = moved(&old, &new);
        let rings = [&old, &new].map(|points| Ring::from_points(points).unwrap());
        let ends = old.iter().chain(&new).flat_map(|&(at, _)| [at, at.wrapping_add(1)]);
        for key in keys.into_iter().chain(ends) {
            let (from, to) = (rings[0].owner(key), rings[1].owner(key));
            // The whole circle when after and end are the same point.
            let inside = |part: &&Moved| {
                part.after == part.end
                    || key.wrapping_sub(part.after).wrapping_sub(1) < part.end.wrapping_sub(part.after)
            };
            let named: Vec<_> = parts.iter().filter(inside).map(|part| (part.from, part.to)).collect();
            let expected = if from == to { vec![] } else { vec![(from, to)] };
            prop_assert_eq!(named, expected, "key {:#x}", key);
        }
    }
}

#[test]
fn an_arc_that_is_given_to_a_neighbor_becomes_part_of_its_arc() {
    let points = [(100, 0), (200, 1), (300, 0), (400, 2)];
    let points = points.map(|(at, shard)| (at, ShardId(shard)));
    let mut circle = Circle::new(points.into_iter(), Density::Even);
    circle.give(1, ShardId(0));
    assert_eq!(points_of(&circle), [(300, ShardId(0)), (400, ShardId(2))]);
    circle.cut(1, circle.arcs()[1].load / 2.0, ShardId(0));
    assert_eq!(points_of(&circle).len(), 2, "what is cut off beside it too");
    check(&circle);
}
