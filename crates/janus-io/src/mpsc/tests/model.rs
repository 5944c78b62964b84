//! Every interleaving of two senders and the receiver.

use crate::mpsc::{SendError, inbox};
use loom::thread;

#[test]
fn two_senders_lose_nothing_and_keep_their_own_order() {
    loom::model(|| {
        let (tx, mut rx) = inbox::<Box<(u8, u8)>>(2);
        let senders: Vec<_> = (0..2u8)
            .map(|who| {
                let tx = tx.clone();
                thread::spawn(move || {
                    // The second sender sends one, to keep the model small; together they wrap the inbox.
                    let mut next = 0;
                    while next < 2 - who {
                        match tx.send(Box::new((who, next))) {
                            Ok(()) => next += 1,
                            Err(SendError::Full(_)) => thread::yield_now(),
                            Err(SendError::Closed(_)) => unreachable!(),
                        }
                    }
                })
            })
            .collect();
        let mut next = [0u8; 2];
        while next != [2, 1] {
            match rx.pop() {
                Some(item) => {
                    assert_eq!(item.1, next[item.0 as usize]);
                    next[item.0 as usize] += 1;
                }
                None => thread::yield_now(),
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
        assert!(rx.is_empty());
    });
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
