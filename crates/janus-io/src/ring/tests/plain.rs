use crate::batch::Burst;
use crate::ring::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

#[test]
fn full_hands_the_item_back() {
    let (mut tx, mut rx) = ring::<u64>(3);
    assert_eq!(tx.capacity(), 4);
    for i in 0..4 {
        tx.push(i).unwrap();
    }
    assert_eq!(tx.push(4), Err(4));
    assert_eq!((tx.room(), tx.in_flight(), rx.waiting()), (0, 4, 4));
    assert_eq!(rx.pop(), Some(0));
    assert_eq!(tx.push(4), Ok(()));
    assert_eq!(
        std::iter::from_fn(|| rx.pop()).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
}

#[test]
fn slots_of_single_items_are_given_back_together() {
    let item = Arc::new(());
    let (mut tx, mut rx) = ring::<Arc<()>>(256);
    while tx.push(item.clone()).is_ok() {}
    // The 32nd part of them, and not one before.
    for _ in 0..7 {
        assert!(rx.pop().is_some());
        assert_eq!(tx.room(), 0);
    }
    assert!(rx.pop().is_some());
    assert_eq!(tx.room(), 8);
    // With a batch, and when nothing is left, so are all.
    assert!(rx.pop().is_some());
    assert_eq!(rx.pop_each(2, drop), 2);
    assert_eq!(tx.room(), 11);
    while rx.pop().is_some() {}
    assert_eq!(tx.room(), 256);
    // What was taken and not given back is nobody's to drop.
    for _ in 0..5 {
        tx.push(item.clone()).unwrap();
    }
    let taken: Vec<_> = (0..3).map(|_| rx.pop().unwrap()).collect();
    drop((tx, rx));
    assert_eq!(Arc::strong_count(&item), 1 + taken.len());
}

#[test]
fn an_item_that_does_not_fit_is_never_asked_for() {
    let (mut tx, _rx) = ring::<u64>(2);
    let mut asked = 0;
    let pushed = tx.push_from(&mut std::iter::from_fn(|| {
        asked += 1;
        Some(asked)
    }));
    assert_eq!((pushed, asked), (2, 2));
}

#[test]
fn a_panicking_source_or_sink_loses_nothing_it_was_not_given() {
    let item = Arc::new(());
    let (mut tx, mut rx) = ring::<Arc<()>>(8);
    let mut left = 3;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        tx.push_from(&mut std::iter::from_fn(|| {
            left -= 1;
            assert!(left >= 0, "the source fails");
            Some(item.clone())
        }))
    }));
    assert!(panicked.is_err());
    assert_eq!(rx.waiting(), 3);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rx.pop_each(3, |_| panic!("the sink fails"))
    }));
    assert!(panicked.is_err());
    assert_eq!(rx.waiting(), 2);
    drop((tx, rx));
    assert_eq!(Arc::strong_count(&item), 1);
}

proptest! {
    #[test]
    fn behaves_like_a_bounded_queue(capacity in 1u32..9, steps in prop::collection::vec((any::<bool>(), 0usize..12), 0..200)) {
        let (mut tx, mut rx) = ring::<Box<u64>>(capacity);
        let (mut model, mut next) = (VecDeque::new(), 0u64);
        for (push, count) in steps {
            if push {
                let mut items: Vec<_> = (next..next + count as u64).map(Box::new).collect();
                let pushed = tx.push_vec(&mut items);
                prop_assert_eq!(pushed, count.min(tx.capacity() - model.len()));
                prop_assert_eq!(items.len(), count - pushed);
                model.extend(next..next + pushed as u64);
                next += pushed as u64;
            } else {
                let mut burst: Burst<_, 8> = Burst::new();
                let popped = rx.pop_batch(&mut burst);
                prop_assert_eq!(popped, model.len().min(8));
                for item in burst.pull() {
                    prop_assert_eq!(Some(*item), model.pop_front());
                }
            }
        }
    }
}

#[test]
fn two_threads_keep_order() {
    let (mut tx, mut rx) = ring::<u64>(64);
    const COUNT: u64 = 200_000;
    let producer = std::thread::spawn(move || {
        let (mut next, mut burst) = (0, Burst::<u64, 32>::new());
        while next < COUNT || !burst.is_empty() {
            let room = burst.room() as u64;
            burst.extend(next..(next + room).min(COUNT));
            next = (next + room).min(COUNT);
            if tx.push_batch(&mut burst) == 0 {
                std::thread::yield_now();
            }
        }
    });
    let mut expected = 0;
    while expected < COUNT {
        if rx.pop_each(48, |item| {
            assert_eq!(item, expected);
            expected += 1;
        }) == 0
        {
            std::thread::yield_now();
        }
    }
    producer.join().unwrap();
}

/// One piece of shared memory mapped twice, at two addresses, as two processes would have it.
#[test]
fn works_at_two_addresses() {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    struct Mapping(usize, usize);
    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: this is the mapping made below, and the end that used it is gone.
            unsafe { munmap(self.0 as *mut _, self.1).unwrap() };
        }
    }
    let layout = layout::<u64>(8);
    let bytes = layout.size().next_multiple_of(4096);
    let file = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, bytes as u64).unwrap();
    let map = || {
        // SAFETY: a fresh shared mapping of a file of that size.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
            .unwrap()
        };
        (
            NonNull::new(at.cast::<u8>()).unwrap(),
            Arc::new(Mapping(at as usize, bytes)),
        )
    };
    let ((here, keep_here), (there, keep_there)) = (map(), map());
    assert_ne!(here, there);
    // SAFETY: fresh memory of the ring's layout, one producer, one consumer, plain numbers as items.
    let (mut tx, mut rx) = unsafe {
        init_at::<u64>(here, 8);
        (
            attach_producer::<u64>(here, keep_here),
            attach_consumer::<u64>(there, keep_there),
        )
    };
    for round in 0..5 {
        assert_eq!(tx.push_from(&mut (round..round + 6)), 6);
        let mut seen = Vec::new();
        rx.pop_vec(&mut seen, 8);
        assert!(seen.into_iter().eq(round..round + 6));
    }
}
