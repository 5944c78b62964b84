//! Every interleaving of a producer and a consumer on a ring small enough to wrap.

use crate::batch::Burst;
use crate::ring::ring;
use loom::thread;

#[test]
fn single_items_across_the_wrap() {
    loom::model(|| {
        let (mut tx, mut rx) = ring::<Box<u32>>(2);
        let producer = thread::spawn(move || {
            let mut next = 0;
            while next < 3 {
                match tx.push(Box::new(next)) {
                    Ok(()) => next += 1,
                    Err(_) => thread::yield_now(),
                }
            }
        });
        let mut expected = 0;
        while expected < 3 {
            match rx.pop() {
                Some(item) => {
                    assert_eq!(*item, expected);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        producer.join().unwrap();
        assert!(rx.is_empty());
    });
}

#[test]
fn batches_across_the_wrap() {
    loom::model(|| {
        let (mut tx, mut rx) = ring::<Box<u32>>(4);
        // Move the indices so that the second batch wraps.
        for i in 0..3 {
            tx.push(Box::new(i)).unwrap();
            assert_eq!(rx.pop().as_deref(), Some(&i));
        }
        let producer = thread::spawn(move || {
            let mut burst: Burst<Box<u32>, 6> = Burst::new();
            burst.extend((0..6).map(Box::new));
            while !burst.is_empty() {
                if tx.push_batch(&mut burst) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut seen = Vec::new();
        while seen.len() < 6 {
            if rx.pop_vec(&mut seen, 4) == 0 {
                thread::yield_now();
            }
        }
        producer.join().unwrap();
        assert!(seen.iter().map(|item| **item).eq(0..6));
    });
}

#[test]
fn what_is_left_is_dropped_once_whoever_goes_last() {
    loom::model(|| {
        // loom itself reports a leak or a double free of its tracked Arc.
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
