use proptest::prelude::*;

use super::*;
use crate::draft::Draft;
use crate::ring::Ring;
use crate::steering::Steering;

/// A layout of four shards; on port 80 two of them listen.
fn layout(seed: u32) -> Steering {
    let mut draft: Draft = Steering::new(Ring::uniform(4, 16, seed)).draft();
    draft.listen(80, ShardId(1));
    draft.listen(80, ShardId(2));
    Steering::new(Ring::uniform(4, 16, seed))
        .proposed(draft)
        .unwrap()
}

proptest! {
    /// Whatever the number of flows: kept are the same, in the same order, with the same names.
    #[test]
    fn in_batches_the_filter_keeps_what_it_keeps_one_by_one(
        flows in prop::collection::vec((any::<u32>(), prop_oneof![Just(80u16), any::<u16>()]), 0..300),
        seed in any::<u32>(),
        me in 0u8..4,
    ) {
        let steering = layout(seed);
        let name = |flow: &(u32, u16)| FlowId(u128::from(flow.0) << 16 | u128::from(flow.1));
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        let mut gone = Vec::new();
        let mut filter =
            DivergenceFilter::new(steering.newest(), ShardId(me), (7, false), &mut alone, &mut gone);
        for flow in &flows {
            filter.flow(flow.0, flow.1, || name(flow));
        }
        let mut filter = DivergenceFilter::new(steering.newest(), ShardId(me), (7, false), &mut together, &mut gone);
        let mut batch = FlowBatch::new((0, 0));
        for flow in &flows {
            if batch.add(flow.0, flow.1, *flow) {
                filter.flows(&mut batch, name);
            }
        }
        filter.flows(&mut batch, name);
        // What was filtered is gone.
        filter.flows(&mut batch, name);
        prop_assert_eq!(alone, together);
    }
}

#[test]
#[should_panic(expected = "out of bounds")]
fn a_full_batch_takes_no_more() {
    let mut batch = FlowBatch::new(());
    while !batch.add(1, 2, ()) {}
    let _ = batch.add(1, 2, ());
}
