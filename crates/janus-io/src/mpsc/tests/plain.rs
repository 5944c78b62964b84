use crate::mpsc::{SendError, inbox};
use std::sync::Arc;

#[test]
fn full_and_closed_hand_the_item_back() {
    let (tx, mut rx) = inbox::<u32>(1);
    assert_eq!((tx.send(1), tx.send(2)), (Ok(()), Ok(())));
    assert_eq!(tx.send(3), Err(SendError::Full(3)));
    assert_eq!((rx.waiting(), rx.pop()), (2, Some(1)));
    assert_eq!(tx.send(3), Ok(()));
    assert_eq!((rx.pop(), rx.pop(), rx.pop()), (Some(2), Some(3), None));
    drop(rx);
    assert!(tx.is_closed());
    assert_eq!(tx.send(4), Err(SendError::Closed(4)));
}

#[test]
fn what_would_fit_is_known_wherever_the_wrap_is() {
    let (tx, mut rx) = inbox::<u32>(4);
    assert_eq!(tx.capacity(), 4);
    for held in 0..=4 {
        for _ in 0..9 {
            for item in 0..held {
                tx.send(item).unwrap();
            }
            for more in 0..=5 {
                assert_eq!(tx.fits(more), more + held <= 4, "{more} to {held}");
            }
            for item in 0..held {
                assert_eq!(rx.pop(), Some(item));
            }
            // One further around.
            tx.send(0).unwrap();
            rx.pop().unwrap();
        }
    }
}

#[test]
fn leftovers_are_dropped_wherever_the_wrap_is() {
    for taken in 0..9 {
        for left in 0..=4 {
            let item = Arc::new(());
            let (tx, mut rx) = inbox::<Arc<()>>(4);
            for _ in 0..taken {
                tx.send(item.clone()).unwrap();
                rx.pop().unwrap();
            }
            for _ in 0..left {
                tx.send(item.clone()).unwrap();
            }
            assert_eq!(Arc::strong_count(&item), 1 + left);
            drop((tx, rx));
            assert_eq!(Arc::strong_count(&item), 1, "taken {taken}, left {left}");
        }
    }
}

#[test]
fn many_senders_keep_their_own_order() {
    const SENDERS: u32 = 4;
    const EACH: u32 = 20_000;
    let (tx, mut rx) = inbox::<(u32, u32)>(64);
    let senders: Vec<_> = (0..SENDERS)
        .map(|who| {
            let tx = tx.clone();
            std::thread::spawn(move || {
                for i in 0..EACH {
                    while tx.send((who, i)).is_err() {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut next = [0; SENDERS as usize];
    while next.iter().sum::<u32>() < SENDERS * EACH {
        match rx.pop() {
            Some((who, i)) => {
                assert_eq!(i, next[who as usize]);
                next[who as usize] += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    for sender in senders {
        sender.join().unwrap();
    }
}
