//! A shard that polls its own queue, in a flood of SYNs and without one.

use super::*;
use crate::core::steer::is_opening;

/// A shard that polls its own queue, and how to bring it frames and to count those it takes in a turn: SYNs, others.
struct OwnQueue(Fabric);

impl OwnQueue {
    fn new() -> Self {
        let mut fabric = fabric(None, 1, 1024);
        fabric.ports[0].0.set_batching(Batching::Fixed(BURST));
        Self(fabric)
    }

    fn turn(&mut self) -> (usize, usize) {
        let (mut frames, (port, pool)) = (Vec::new(), &mut self.0.ports[0]);
        let received = port.receive(pool, &mut frames);
        assert!(received >= frames.len() && frames.len() <= 3 * BURST);
        let all = frames.len();
        let syns = frames.iter().filter(|f| is_opening(f, LINK)).count();
        frames.into_iter().for_each(|frame| pool.free(frame.buf));
        (syns, all - syns)
    }

    fn refused(&self) -> u64 {
        self.0.sum(|c| &c.dropped_syn_room)
    }

    /// As many turns with a whole batch of SYNs as are no flood yet, and with the next look `behind` in the queue.
    fn fill(&mut self, behind: impl IntoIterator<Item = Vec<u8>>) {
        let before = self.refused();
        for _ in 0..16 {
            self.0.far_sends((0..64).map(syn));
            assert_eq!((self.turn(), self.refused()), ((64, 0), before));
        }
        self.0.far_sends((0..64).map(syn).chain(behind));
    }
}

#[test]
fn what_stands_behind_a_flood_in_a_shards_own_queue_is_found_and_the_syns_are_not_served() {
    let mut own = OwnQueue::new();
    let behind = (0..200)
        .map(syn)
        .chain((0..10).map(|port| request(LINK, port, 1)));
    own.fill(behind.chain((0..30).map(syn)));
    assert_eq!((own.turn(), own.refused()), ((64, 10), 230));
    // Its next wave is known at once; one that is no longer than a batch is served.
    assert_eq!(own.turn(), (0, 0));
    own.0.far_sends((0..64).map(syn));
    assert_eq!((own.turn(), own.refused()), ((64, 0), 230));
    own.0.far_sends((0..100).map(syn));
    assert_eq!((own.turn(), own.refused()), ((64, 0), 266));
    // In time it is forgotten.
    for _ in 0..1_024 {
        assert_eq!(own.turn(), (0, 0));
    }
    own.fill([]);
    assert_eq!((own.turn(), own.refused()), ((64, 0), 266));
    assert_eq!(
        own.0.sum(|c| &c.received),
        own.0.sum(|c| &c.delivered) + 266
    );
    own.0.finish();
}

#[test]
fn a_long_queue_of_connections_is_no_flood_and_no_turn_takes_too_much() {
    let mut own = OwnQueue::new();
    // Half of them is not most, for however long.
    let half = |port: u16| match port / 8 % 2 {
        0 => syn(port),
        _ => request(LINK, port, 1),
    };
    for _ in 0..20 {
        own.0.far_sends((0..192).map(half));
        for _ in 0..3 {
            assert_eq!((own.turn(), own.refused()), ((32, 32), 0));
        }
    }
    // All that stands behind is of connections: the rest has its turn later.
    own.fill((0..400).map(|port| request(LINK, port, 1)));
    assert_eq!(own.turn(), (64, 64));
    assert_eq!((own.turn(), own.refused()), ((0, 64), 0));
    while own.turn() != (0, 0) {}
    own.0.finish();
}
