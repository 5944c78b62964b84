use proptest::prelude::*;

use super::*;

/// The definition, word for word: go round clockwise from the key and take the first point.
fn naive_owner(
    points: &[(u32, ShardId)],
    key: u32,
    among: impl Fn(ShardId) -> bool,
) -> Option<ShardId> {
    points
        .iter()
        .filter(|&&(_, shard)| among(shard))
        .min_by_key(|&&(at, _)| at.wrapping_sub(key))
        .map(|&(_, shard)| shard)
}

fn points_of(ring: &Ring) -> Vec<(u32, ShardId)> {
    ring.points().collect()
}

/// Keys that matter: the points, their neighbours, and both ends.
fn edge_keys(points: &[(u32, ShardId)]) -> Vec<u32> {
    let near = points
        .iter()
        .flat_map(|&(at, _)| [at.wrapping_sub(1), at, at.wrapping_add(1)]);
    near.chain([0, 1, u32::MAX - 1, u32::MAX]).collect()
}

fn check(ring: &Ring, keys: &[u32]) {
    let points = points_of(ring);
    let mut batch = vec![ShardId(0); keys.len()];
    ring.owners(keys, &mut batch);
    for (&key, &batched) in keys.iter().zip(&batch) {
        let owner = naive_owner(&points, key, |_| true).unwrap();
        assert_eq!(ring.owner(key), owner, "key {key:#x}");
        assert_eq!(batched, owner, "key {key:#x} in a batch");
    }
}

#[test]
fn a_point_owns_its_own_position() {
    // The paper's example has keys 7 and 8 both served by the point at 8.
    let ring = Ring::from_points(&[(8, ShardId(1)), (20, ShardId(2))]).unwrap();
    assert_eq!(ring.owner(7), ShardId(1));
    assert_eq!(ring.owner(8), ShardId(1));
    assert_eq!(ring.owner(9), ShardId(2));
    assert_eq!(ring.owner(20), ShardId(2));
    assert_eq!(
        ring.owner(21),
        ShardId(1),
        "past the last point the circle closes"
    );
    assert_eq!(ring.owner(u32::MAX), ShardId(1));
    assert_eq!(ring.owner(0), ShardId(1));
}

#[test]
fn what_cannot_be_a_ring_is_refused() {
    assert_eq!(Ring::from_points(&[]).unwrap_err(), RingError::Empty);
    assert_eq!(Ring::weighted(&[0, 0], 1).unwrap_err(), RingError::Empty);
    assert_eq!(
        Ring::from_points(&[(5, ShardId(0)), (5, ShardId(1))]).unwrap_err(),
        RingError::Duplicate(5)
    );
    assert_eq!(
        Ring::weighted(&[300; 256], 1).unwrap_err(),
        RingError::TooManyPoints
    );
}

#[test]
fn uniform_rings_agree_with_the_definition() {
    for (shards, points) in [(1, 1), (1, 16), (3, 1), (16, 16), (256, 4)] {
        let ring = Ring::uniform(shards, points, 7);
        assert_eq!(ring.points().len(), shards * usize::from(points));
        assert_eq!(*ring.members(), ShardSet::first_n(shards));
        check(&ring, &edge_keys(&points_of(&ring)));
    }
}

#[test]
fn the_largest_ring_builds() {
    let ring = Ring::uniform(256, 256, 3);
    assert_eq!(ring.points().len(), MAX_POINTS);
    for (at, shard) in ring.points().step_by(97) {
        assert_eq!(ring.owner(at), shard);
    }
    assert!(ring.bytes() < 1 << 20);
}

#[test]
fn a_crowd_in_one_cell_is_found() {
    let points: Vec<_> = (0..600u32)
        .map(|i| (0x8000_0000 + i * 3, ShardId((i % 7) as u8)))
        .collect();
    let ring = Ring::from_points(&points).unwrap();
    check(&ring, &edge_keys(&points));
}

#[test]
fn a_shard_that_leaves_moves_only_its_own_keys() {
    let before = Ring::weighted(&[16; 8], 11).unwrap();
    let mut weights = [16; 8];
    weights[3] = 0;
    let after = Ring::weighted(&weights, 11).unwrap();
    for key in (0..100_000u32).map(|i| i.wrapping_mul(0x9e37_79b1)) {
        if before.owner(key) != ShardId(3) {
            assert_eq!(before.owner(key), after.owner(key));
        } else {
            assert_ne!(after.owner(key), ShardId(3));
        }
    }
}

#[test]
fn arcs_are_about_even() {
    let ring = Ring::uniform(16, 16, 1);
    let mut load = [0u32; 16];
    for key in (0..1_000_000u32).map(|i| i.wrapping_mul(0x9e37_79b1)) {
        load[ring.owner(key).index()] += 1;
    }
    let max = load.iter().max().unwrap();
    assert!(*max < 3 * 1_000_000 / 16, "{load:?}");
}

prop_compose! {
    fn any_points()(positions in prop::collection::btree_map(any::<u32>(), 0u8..=255, 1..200)) -> Vec<(u32, ShardId)> {
        positions.into_iter().map(|(at, shard)| (at, ShardId(shard))).collect()
    }
}

prop_compose! {
    /// Many points close together: several in one cell, several cells without any.
    fn crowded_points()(base in any::<u32>(), spread in 1u32..64, shards in prop::collection::vec(0u8..5, 1..120))
        -> Vec<(u32, ShardId)> {
        shards.into_iter().enumerate().map(|(i, shard)| (base.wrapping_add(i as u32 * spread), ShardId(shard))).collect()
    }
}

proptest! {
    #[test]
    fn owner_equals_the_clockwise_search(points in any_points(), keys in prop::collection::vec(any::<u32>(), 0..200)) {
        let ring = Ring::from_points(&points).unwrap();
        check(&ring, &keys);
        check(&ring, &edge_keys(&points));
    }

    #[test]
    fn owner_equals_the_clockwise_search_in_a_crowd(points in crowded_points(), keys in prop::collection::vec(any::<u32>(), 0..50)) {
        let ring = Ring::from_points(&points).unwrap();
        check(&ring, &keys);
        check(&ring, &edge_keys(&points));
    }

    #[test]
    fn owner_among_equals_the_filtered_search(
        points in any_points(),
        listeners in prop::collection::vec(0u8..=255, 0..20),
        keys in prop::collection::vec(any::<u32>(), 1..50),
    ) {
        let ring = Ring::from_points(&points).unwrap();
        // Half of the listeners are certainly on the ring.
        let among: ShardSet = listeners.iter().map(|&s| ShardId(s)).chain(points.iter().step_by(9).map(|p| p.1)).collect();
        for key in keys.into_iter().chain(edge_keys(&points)) {
            prop_assert_eq!(ring.owner_among(key, &among), naive_owner(&points, key, |s| among.contains(s)));
            prop_assert_eq!(ring.owner_among(key, ring.members()), Some(ring.owner(key)));
            prop_assert_eq!(ring.owner_among(key, &ShardSet::EMPTY), None);
        }
    }
}
