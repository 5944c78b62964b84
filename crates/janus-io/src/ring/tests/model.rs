//! Every interleaving of a producer and a consumer on a ring small enough to wrap. Both try a fixed number of times, so
//! that the model has an end; what is left is looked at afterwards.

use crate::batch::Burst;
use crate::ring::{Consumer, Producer, ring};
use loom::thread;

/// A ring of `capacity` whose indices stand at `used`.
fn used(capacity: u32, used: u32) -> (Producer<Box<u32>>, Consumer<Box<u32>>) {
    let (mut tx, mut rx) = ring(capacity);
    for i in 0..used {
        tx.push(Box::new(i)).unwrap();
        assert_eq!(rx.pop().as_deref(), Some(&i));
    }
    // Gives all slots back.
    assert!(rx.pop().is_none());
    (tx, rx)
}

fn check(seen: Vec<Box<u32>>, sent: u32) {
    assert!(seen.iter().map(|item| **item).eq(0..sent));
}

/// Items pushed one by one, `waiting` of them before anybody looks, and so many tries while they are popped; `least` get there.
fn single_items(capacity: u32, before: u32, waiting: u32, tries: u32, least: u32) {
    loom::model(move || {
        let (mut tx, mut rx) = used(capacity, before);
        for i in 0..waiting {
            tx.push(Box::new(i)).unwrap();
        }
        let producer = thread::spawn(move || {
            let mut sent = waiting;
            for _ in 0..tries {
                sent += u32::from(tx.push(Box::new(sent)).is_ok());
            }
            sent
        });
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.extend(rx.pop());
        }
        let sent = producer.join().unwrap();
        seen.extend(std::iter::from_fn(|| rx.pop()));
        assert!(sent >= least);
        check(seen, sent);
    });
}

#[test]
fn single_items_across_the_wrap() {
    single_items(2, 1, 0, 4, 2);
}

/// Here two slots are given back at a time, or with the last item.
#[test]
fn single_items_whose_slots_come_back_late() {
    single_items(4, 3, 3, 3, 4);
}

#[test]
fn batches_across_the_wrap() {
    loom::model(|| {
        let (mut tx, mut rx) = used(4, 3);
        let producer = thread::spawn(move || {
            let mut burst: Burst<Box<u32>, 7> = Burst::new();
            burst.extend((0..7).map(Box::new));
            let sent = (0..3).map(|_| tx.push_batch(&mut burst)).sum::<usize>();
            assert_eq!(sent + burst.len(), 7);
            sent as u32
        });
        let mut seen = Vec::new();
        for _ in 0..3 {
            rx.pop_vec(&mut seen, 3);
        }
        let sent = producer.join().unwrap();
        rx.pop_vec(&mut seen, 4);
        assert!(sent >= 4 && rx.is_empty());
        check(seen, sent);
    });
}

#[test]
fn what_is_left_is_dropped_once_whoever_goes_last() {
    loom::model(|| {
        let (mut tx, mut rx) = ring::<loom::sync::Arc<u32>>(2);
        let item = loom::sync::Arc::new(7);
        let copy = item.clone();
        let producer = thread::spawn(move || {
            let _ = tx.push(copy.clone());
            let _ = tx.push(copy);
        });
        let _ = rx.pop();
        drop(rx);
        producer.join().unwrap();
        assert_eq!(loom::sync::Arc::strong_count(&item), 1);
    });
}
