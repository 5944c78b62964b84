use super::*;

fn draft() -> Draft {
    Draft::new(Arc::new(Ring::uniform(3, 8, 1)), Arc::new(PortTable::new()))
}

#[test]
fn points_come_go_and_change_hands() {
    let mut draft = draft();
    assert!(draft.add_point(5, ShardId(9)));
    assert!(!draft.add_point(5, ShardId(1)), "taken");
    assert_eq!(draft.give_point(5, ShardId(2)), Some(ShardId(9)));
    assert_eq!(draft.give_point(6, ShardId(2)), None);
    assert_eq!(draft.points().len(), 25);
    let (ring, _) = draft.clone().finish().unwrap();
    assert_eq!(ring.owner(5), ShardId(2));
    assert_eq!(draft.remove_point(5), Some(ShardId(2)));
    assert_eq!(draft.remove_point(5), None);
    let (ring, _) = draft.finish().unwrap();
    assert!(ring.points().eq(Ring::uniform(3, 8, 1).points()));
}

#[test]
fn a_shard_comes_and_goes() {
    let mut draft = draft();
    draft.listen(80, ShardId(1));
    draft.listen(80, ShardId(2));
    draft.add_points(ShardId(200), 16, 1);
    assert_eq!(draft.points().len(), 40);
    assert_eq!(draft.remove_shard(ShardId(1)), 8);
    assert_eq!(draft.remove_shard(ShardId(1)), 0);
    let (ring, ports) = draft.finish().unwrap();
    assert!(ring.members().contains(ShardId(200)) && !ring.members().contains(ShardId(1)));
    assert_eq!(ports.get(80).unwrap().len(), 1);
    // Placed as a weighted ring places them.
    let mut weights = [0; 201];
    (weights[0], weights[2], weights[200]) = (8, 8, 16);
    assert!(
        ring.points()
            .eq(Ring::weighted(&weights, 1).unwrap().points())
    );
}

#[test]
fn a_ring_without_points_is_refused() {
    let mut draft = draft();
    (0..3).for_each(|shard| _ = draft.remove_shard(ShardId(shard)));
    assert_eq!(draft.finish().unwrap_err(), RingError::Empty);
}
