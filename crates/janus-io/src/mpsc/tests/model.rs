//! Every interleaving of two senders and the receiver. All try a fixed number of times, so that the model has an end.

use crate::mpsc::{SendError, inbox};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// A place where loom must try every thread. Left alone it looks only at the last access to each atomic, so a sender's
/// own look at a slot's turn hides that the receiver looked before, and whole orders of events are never tried.
/// Relaxed, so that it orders nothing itself.
#[derive(Clone)]
struct Crossing(Arc<AtomicU32>);

impl Crossing {
    fn new() -> Self {
        Self(Arc::new(AtomicU32::new(0)))
    }

    fn pass(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn two_senders_lose_nothing_and_keep_their_own_order() {
    // With three threads all orders take an hour; with three preemptions every relaxed store above is found still.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (tx, mut rx) = inbox::<Box<(usize, u32)>>(2);
        let crossing = Crossing::new();
        // The positions wrap in the middle of it.
        tx.send(Box::new((2, 0))).unwrap();
        assert_eq!(*rx.pop().unwrap(), (2, 0));
        let senders: Vec<_> = [2, 1]
            .into_iter()
            .enumerate()
            .map(|(who, tries)| {
                let (tx, crossing) = (tx.clone(), crossing.clone());
                thread::spawn(move || {
                    let mut sent = 0;
                    for _ in 0..tries {
                        crossing.pass();
                        match tx.send(Box::new((who, sent))) {
                            Ok(()) => sent += 1,
                            Err(SendError::Full(item)) => assert_eq!(*item, (who, sent)),
                            Err(SendError::Closed(_)) => unreachable!(),
                        }
                    }
                    sent
                })
            })
            .collect();
        let mut next = [0; 2];
        let mut see = |item: Box<(usize, u32)>| {
            assert_eq!(item.1, next[item.0]);
            next[item.0] += 1;
        };
        for _ in 0..2 {
            crossing.pass();
            rx.pop().map(&mut see);
        }
        let sent: Vec<_> = senders
            .into_iter()
            .map(|sender| sender.join().unwrap())
            .collect();
        while let Some(item) = rx.pop() {
            see(item);
        }
        assert_eq!(next[..], sent);
        assert!(next[0] + next[1] >= 2, "two fit at least");
    });
}

#[test]
fn a_slot_is_used_again_only_when_it_is_free() {
    // The model is worth something only if it comes to using a slot again.
    static MOST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    loom::model(|| {
        let (tx, mut rx) = inbox::<Box<u32>>(2);
        let crossing = Crossing::new();
        let crossing_too = crossing.clone();
        let sender = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..4 {
                crossing_too.pass();
                sent += u32::from(tx.send(Box::new(sent)).is_ok());
            }
            sent
        });
        let mut seen = Vec::new();
        for _ in 0..2 {
            crossing.pass();
            seen.extend(rx.pop());
        }
        let sent = sender.join().unwrap();
        seen.extend(std::iter::from_fn(|| rx.pop()));
        assert!(seen.iter().map(|item| **item).eq(0..sent));
        MOST.fetch_max(sent, Ordering::Relaxed);
    });
    assert_eq!(MOST.load(Ordering::Relaxed), 4);
}

#[test]
fn what_is_left_is_dropped_once() {
    loom::model(|| {
        let item = loom::sync::Arc::new(());
        let (tx, mut rx) = inbox::<loom::sync::Arc<()>>(2);
        let copy = item.clone();
        let sender = thread::spawn(move || {
            let _ = tx.send(copy.clone());
            let _ = tx.send(copy);
        });
        let _ = rx.pop();
        drop(rx);
        sender.join().unwrap();
        assert_eq!(loom::sync::Arc::strong_count(&item), 1);
    });
}
