mod schedules;
mod traces;
mod world;

use proptest::prelude::*;

use super::*;
use crate::epoch::Epoch;
use crate::ring::Ring;
use crate::steering::HISTORY;

/// A steering through rings of one point each: `owners[e]` owns every key in epoch e.
fn steering(owners: &[u8]) -> Steering {
    let one = |owner: u8| Ring::from_points(&[(0, ShardId(owner))]).unwrap();
    owners[1..]
        .iter()
        .fold(Steering::new(one(owners[0])), |steering, &owner| {
            let mut draft = steering.draft();
            draft.set_ring(one(owner));
            steering.proposed(draft).unwrap()
        })
}

fn tag(epoch: u16, hint: bool) -> Tag {
    Tag::new(Epoch::new(epoch), hint)
}

fn forward(to: u8, epoch: u16) -> Step {
    Step::Forward {
        to: ShardId(to),
        tag: tag(epoch, false),
    }
}

#[test]
fn the_walk_goes_ring_by_ring() {
    let view = steering(&[0, 1, 2]);
    assert_eq!(
        walk(&view, ShardId(0), 5, 80, tag(0, false)),
        forward(1, 1),
        "never straight to the newest"
    );
    assert_eq!(walk(&view, ShardId(1), 5, 80, tag(1, false)), forward(2, 2));
    assert_eq!(walk(&view, ShardId(2), 5, 80, tag(2, false)), Step::Stay);
}

#[test]
fn a_hint_asks_its_own_ring_first() {
    let view = steering(&[0, 1]);
    assert_eq!(walk(&view, ShardId(2), 5, 80, tag(0, true)), forward(0, 0));
    assert_eq!(walk(&view, ShardId(1), 5, 80, tag(0, true)), forward(0, 0));
    assert_eq!(walk(&view, ShardId(1), 5, 80, tag(1, true)), Step::Stay);
    assert_eq!(walk(&view, ShardId(0), 5, 80, tag(0, true)), forward(1, 1));
}

#[test]
fn a_tag_ahead_of_the_view_ends_the_walk() {
    let view = steering(&[0]);
    assert_eq!(walk(&view, ShardId(1), 5, 80, tag(1, false)), Step::Stay);
    assert_eq!(walk(&view, ShardId(1), 5, 80, tag(1, true)), Step::Stay);
}

#[test]
fn a_tag_from_before_the_history_is_expired() {
    let view = steering(&[0; HISTORY + 3]);
    let newest = HISTORY as u16 + 2;
    let oldest = newest + 1 - HISTORY as u16;
    assert_eq!(
        walk(&view, ShardId(0), 5, 80, tag(oldest - 1, false)),
        Step::Stay,
        "every ring after it is known"
    );
    assert_eq!(
        walk(&view, ShardId(0), 5, 80, tag(oldest, true)),
        Step::Stay
    );
    assert_eq!(
        walk(&view, ShardId(0), 5, 80, tag(oldest - 2, false)),
        Step::Expired
    );
    assert_eq!(
        walk(&view, ShardId(0), 5, 80, tag(oldest - 1, true)),
        Step::Expired
    );
}

proptest! {
    /// Follows one packet of a flow nobody knows to its end.
    #[test]
    fn a_walk_ends_with_the_newest_owner_after_at_most_one_hop_an_epoch(
        owners in prop::collection::vec(0u8..4, 1..=HISTORY),
        from in any::<prop::sample::Index>(),
        hint in any::<bool>(),
        start in 0u8..4,
    ) {
        let view = steering(&owners);
        let stage = from.index(owners.len());
        // Without a hint the ring of the stage itself chose the shard.
        let mut me = ShardId(if hint { start } else { owners[stage] });
        let mut carried = tag(stage as u16, hint);
        let mut hops = 0;
        while let Step::Forward { to, tag } = walk(&view, me, 77, 80, carried) {
            prop_assert_ne!(to, me);
            prop_assert!(!tag.is_hint());
            prop_assert!(tag.epoch().since(carried.epoch()) > 0 || carried.is_hint());
            (me, carried, hops) = (to, tag, hops + 1);
            prop_assert!(hops <= owners.len() - stage);
        }
        prop_assert_eq!(walk(&view, me, 77, 80, carried), Step::Stay);
        prop_assert_eq!(me, ShardId(*owners.last().unwrap()));
    }
}
