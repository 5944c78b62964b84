//! One transfer with buffers as they are by default, which grow, through a queue that overflows in slow start: how long it takes
//! in virtual time, and that nothing which arrived within the window came in vain.

use janus_sim::net::{LinkModel, Network, Pair};
use janus_tcp::{Config, Error, SocketOptions};
use std::time::Duration;

const BYTES: usize = 10_000_000;
/// Bits a second, and the time there and back.
const RATE: u64 = 1_000_000_000;
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// Bytes that may wait: half of what the path holds.
const QUEUE: usize = 625_000;
/// Slow start takes 9 round trips to fill the path, and what is left then 60 ms.
const LIMIT: Duration = Duration::from_millis(180);

#[test]
fn a_queue_that_overflows_costs_little_more_than_what_it_lost() {
    let mut network = Network::new(1);
    let delay = ROUND_TRIP / 2;
    let there = LinkModel {
        delay,
        rate: Some(RATE),
        queue: QUEUE,
        ..LinkModel::default()
    };
    let back = LinkModel {
        delay,
        ..LinkModel::default()
    };
    let mut pair = Pair::new(&mut network, &Config::default(), there, back);
    let (client, server) = pair.open_with(&SocketOptions::default());
    let begin = pair.network.now();
    let (mut written, mut read, mut chunk) = (0, 0, vec![0; 64 << 10]);
    while read < BYTES {
        let now = pair.network.now();
        let stack = &mut pair.network.host(pair.client).stack;
        while written < BYTES {
            let len = chunk.len().min(BYTES - written);
            match stack.write(now, client, &chunk[..len]) {
                Ok(taken) => written += taken,
                Err(Error::WouldBlock) => break,
                Err(error) => panic!("write: {error}"),
            }
        }
        assert!(
            pair.network.step_until(begin + LIMIT),
            "{read} of {BYTES} bytes after {LIMIT:?}"
        );
        let now = pair.network.now();
        let stack = &mut pair.network.host(pair.server).stack;
        loop {
            match stack.read(now, server, &mut chunk) {
                Ok(taken) if taken > 0 => read += taken,
                Err(Error::WouldBlock) => break,
                other => panic!("read: {other:?}"),
            }
        }
    }
    let sent = *pair.network.host(pair.client).stack.counters();
    let got = *pair.network.host(pair.server).stack.counters();
    assert!(sent.fast_retransmits > 0, "the queue never overflowed");
    assert_eq!((sent.timeouts, sent.sack_reneged), (0, 0));
    assert_eq!((got.dropped_reordered, got.reordered_pruned), (0, 0));
}
