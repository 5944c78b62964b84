use std::sync::atomic::{AtomicU64, Ordering};

use janus_io::park::Parker;

use super::*;

const SHARDS: usize = 3;
const INTERVAL: Duration = Duration::from_millis(100);

/// Looks at shards of which each has so much waiting, until the policy plans a ring; how many looks that took.
fn looks_until_plan(name: PolicyName, queues: [u64; SHARDS]) -> Option<(usize, Ring, Ring)> {
    let elapsed_ns: &'static AtomicU64 = Box::leak(Box::default());
    let mut watch = Watch::new(name, INTERVAL, SHARDS, Clock::Virtual(elapsed_ns))?;
    let mailbox = ControlMailbox::new(SHARDS, 0, Parker::new().unwrap().unparker());
    let ring = Ring::uniform(SHARDS, 32, 1);
    let deepest = queues.into_iter().max()?.max(1);
    for look in 1..100 {
        for (board, queue) in mailbox.boards().iter().zip(queues) {
            board.packets.add(100_000);
            board.opened.add(1_000);
            board.flows.set(10_000);
            board.queue.set(queue);
            board.service_ns.set(1_000);
            let busy = INTERVAL.as_nanos() as u64 * (20 + 75 * queue / deepest) / 100;
            board.busy_ns.add(busy);
        }
        assert!(
            watch.look(&mailbox, &ring).is_none(),
            "not before it is time"
        );
        elapsed_ns.fetch_add(INTERVAL.as_nanos() as u64, Ordering::Relaxed);
        if let Some(planned) = watch.look(&mailbox, &ring) {
            return Some((look, ring, planned));
        }
    }
    None
}

fn points(ring: &Ring, shard: u8) -> u64 {
    let keys = (0..100_000u32).map(|i| i.wrapping_mul(0x9e37_79b1));
    keys.filter(|key| ring.owner(*key) == ShardId(shard))
        .count() as u64
}

#[test]
fn a_shard_with_deep_queues_is_given_less() {
    let (_, before, after) =
        looks_until_plan(PolicyName::Queue, [800, 0, 0]).expect("the policy acts");
    assert!(points(&after, 0) < points(&before, 0));
}

#[test]
fn an_even_load_and_fixed_weights_are_let_be() {
    assert!(looks_until_plan(PolicyName::Queue, [0, 0, 0]).is_none());
    assert!(looks_until_plan(PolicyName::Fixed, [800, 0, 0]).is_none());
}
