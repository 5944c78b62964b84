//! Every interleaving of two senders and the receiver. All try a fixed number of times, so that the model has an end.

use crate::mpsc::{SendError, inbox};
use loom::thread;

#[test]
fn two_senders_lose_nothing_and_keep_their_own_order() {
    loom::model(|| {
        let (tx, mut rx) = inbox::<Box<(usize, u32)>>(2);
        // The positions wrap in the middle of it.
        tx.send(Box::new((2, 0))).unwrap();
        assert_eq!(*rx.pop().unwrap(), (2, 0));
        let senders: Vec<_> = [2, 1]
            .into_iter()
            .enumerate()
            .map(|(who, tries)| {
                let tx = tx.clone();
                thread::spawn(move || {
                    let mut sent = 0;
                    for _ in 0..tries {
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
