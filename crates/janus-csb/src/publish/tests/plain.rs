use std::thread;

use crate::publish::*;
use crate::{Epoch, Ring, ShardId, ShardSet};

fn publisher() -> Publisher {
    Publisher::new(Steering::new(Ring::uniform(4, 16, 1)))
}

#[test]
fn a_reader_sees_a_change_only_when_it_refreshes() {
    let mut publisher = publisher();
    let mut reader = publisher.reader();
    assert!(publisher.settled());
    assert!(!reader.refresh());
    publisher.listen(80, ShardId(2));
    assert!(reader.current().published().ports().get(80).is_none());
    assert!(!publisher.settled());
    assert!(reader.refresh());
    assert!(publisher.settled());
    assert_eq!(
        reader.current().published().ports().get(80),
        Some(&ShardSet::one(ShardId(2)))
    );
    for key in 0..1000u32 {
        let (owner, tag) = reader.current().look_up(key.wrapping_mul(0x9e37_79b1), 80);
        assert_eq!(
            (owner, tag.epoch(), tag.is_hint()),
            (ShardId(2), Epoch::new(1), false)
        );
    }
    assert!(!reader.refresh());
    publisher.listen(80, ShardId(2));
    assert!(!reader.refresh(), "what is so already is no new epoch");
    publisher.unlisten(80, ShardId(2));
    assert!(reader.refresh());
    assert!(reader.current().published().ports().get(80).is_none());
}

#[test]
fn pending_layouts_are_walked_to_but_not_looked_up_in() {
    let mut publisher = publisher();
    let mut reader = publisher.reader();
    publisher
        .propose(|draft| draft.set_ring(Ring::uniform(1, 1, 1)))
        .unwrap();
    reader.refresh();
    assert!(reader.current().is_pending());
    assert_eq!(reader.current().look_up(1, 80).1.epoch(), Epoch::new(0));
    assert_eq!(reader.current().newest().epoch(), Epoch::new(1));
    publisher.publish();
    reader.refresh();
    assert_eq!(reader.current().look_up(1, 80).1.epoch(), Epoch::new(1));
    publisher.publish();
    assert!(!reader.refresh(), "nothing pending, nothing to publish");
}

#[test]
fn a_dropped_reader_holds_nobody_up() {
    let mut publisher = publisher();
    let (one, mut two) = (publisher.reader(), publisher.reader().clone());
    publisher.listen(1, ShardId(0));
    assert!(two.refresh());
    assert!(!publisher.settled());
    drop(one);
    assert!(publisher.settled());
}

#[test]
fn replaced_steerings_are_freed_by_the_writer() {
    let mut publisher = publisher();
    let mut reader = publisher.reader();
    for port in 0..100 {
        publisher.listen(port, ShardId(0));
        assert!(publisher.replaced.len() <= 2);
    }
    reader.refresh();
    publisher.listen(1000, ShardId(0));
    assert_eq!(publisher.replaced.len(), 1, "the one the reader holds");
    assert!(publisher.current().history_len() <= crate::HISTORY);
}

#[test]
fn readers_on_other_threads_see_versions_in_order() {
    const UPDATES: u16 = 2000;
    let mut publisher = publisher();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let mut reader = publisher.reader();
            thread::spawn(move || {
                let mut last = reader.current().newest().epoch();
                while last != Epoch::new(UPDATES) {
                    if !reader.refresh() {
                        thread::yield_now();
                        continue;
                    }
                    let now = reader.current().newest().epoch();
                    assert!(now.since(last) > 0);
                    last = now;
                }
            })
        })
        .collect();
    for port in 0..UPDATES {
        publisher.listen(port, ShardId(1));
    }
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(publisher.settled());
}
