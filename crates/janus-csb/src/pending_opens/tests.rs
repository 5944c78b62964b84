use super::*;

fn id(i: u32) -> FlowId {
    FlowId(u128::from(i))
}

#[test]
fn what_was_learned_is_known_by_key_and_name() {
    let mut opens = PendingOpens::new(64);
    assert!(opens.is_empty() && opens.get(5, || id(1)).is_none());
    opens.insert(5, id(1), ShardId(1));
    opens.insert(5, id(2), ShardId(2));
    assert_eq!(opens.get(5, || id(1)), Some(ShardId(1)));
    assert_eq!(opens.get(5, || id(2)), Some(ShardId(2)));
    assert_eq!(opens.get(5, || id(3)), None);
    assert_eq!(
        opens.get(6, || panic!("an unknown key needs no name")),
        None
    );
    opens.insert(5, id(1), ShardId(3));
    assert_eq!((opens.get(5, || id(1)), opens.len()), (Some(ShardId(3)), 2));
}

#[test]
fn a_flood_is_capped_and_later_ones_are_learned() {
    let mut opens = PendingOpens::new(256);
    for i in 0..100_000 {
        opens.insert(i, id(i), ShardId(i as u8));
        assert!(opens.len() <= 256);
        assert_eq!(opens.get(i, || id(i)), Some(ShardId(i as u8)));
    }
    let mut none = PendingOpens::new(0);
    none.insert(1, id(1), ShardId(1));
    assert!(none.is_empty() && none.get(1, || id(1)).is_none());
}

#[test]
fn forgetting_is_for_good_across_the_wrap() {
    let mut opens = PendingOpens::new(8);
    for generation in [1, u32::MAX] {
        opens.generation = generation;
        opens.insert(7, id(7), ShardId(7));
        opens.clear();
        assert!(opens.is_empty() && opens.get(7, || id(7)).is_none());
    }
    assert_eq!(opens.generation, 1);
    assert!(opens.get(7, || id(7)).is_none());
}
