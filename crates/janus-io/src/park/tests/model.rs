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

/// As an I/O core sleeps: it arms the device, looks at it, and then sleeps on the device's bell and on its own, looking
/// only at the shard's ring once more.
#[test]
fn no_wake_is_lost_between_two_bells() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let mut parker = Parker::new().unwrap();
        let device = Arc::new(parker.device_bell());
        let unparker = parker.unparker();
        let (mut from_device, mut received) = ring::<u32>(2);
        let (mut from_shard, mut sent) = ring::<u32>(2);
        let bell = device.clone();
        let nic = thread::spawn(move || {
            from_device.push(1).unwrap();
            bell.ring();
        });
        let shard = thread::spawn(move || {
            from_shard.push(2).unwrap();
            unparker.wake();
        });
        let mut moved = 0;
        loop {
            device.disarm();
            moved += received.pop_each(2, |_| ()) + sent.pop_each(2, |_| ());
            if moved == 2 {
                break;
            }
            device.arm();
            let ready = !received.is_empty();
            parker.park(|| ready || !sent.is_empty()).unwrap();
        }
        nic.join().unwrap();
        shard.join().unwrap();
    });
}
