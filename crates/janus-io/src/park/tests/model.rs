//! Every interleaving of sleeping and bringing work: a lost wake-up would be a deadlock, which loom reports.

use crate::park::{Parker, Woken};
use crate::ring::ring;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

#[test]
fn no_wake_is_lost_with_two_who_bring_work() {
    // With three threads all interleavings take an hour; three preemptions find every loss the mutations make.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let work = Arc::new(AtomicU32::new(0));
        let mut parker = Parker::new().unwrap();
        let bringers: Vec<_> = (0..2)
            .map(|_| {
                let (work, unparker) = (work.clone(), parker.unparker());
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::Relaxed);
                    unparker.wake();
                })
            })
            .collect();
        let mut done = 0;
        while done < 2 {
            done += work.swap(0, Ordering::Relaxed);
            if done < 2 {
                parker.park(|| work.load(Ordering::Relaxed) != 0).unwrap();
            }
        }
        for bringer in bringers {
            bringer.join().unwrap();
        }
    });
}

#[test]
fn no_wake_is_lost_over_the_ring() {
    loom::model(|| {
        let (mut tx, mut rx) = ring::<u32>(2);
        let mut parker = Parker::new().unwrap();
        let unparker = parker.unparker();
        let producer = thread::spawn(move || {
            for i in 0..2 {
                tx.push(i).unwrap();
                unparker.wake();
            }
        });
        let mut next = 0;
        while next < 2 {
            next += rx.pop_each(2, |_| ()) as u32;
            if next < 2 {
                let woken = parker.park(|| !rx.is_empty()).unwrap();
                assert_ne!(woken, Woken::Timeout);
            }
        }
        producer.join().unwrap();
    });
}
