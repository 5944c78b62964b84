//! Every interleaving of the writer and its readers. A batch touches a cell that belongs to the ring it was steered by;
//! the writer takes the cell for itself once everybody has adopted the next ring. loom tells when both have it, or
//! when nothing orders one after the other.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::publish::{Publisher, Reader};
use crate::steering::Steering;
use crate::{Epoch, Ring};

const OLD: Epoch = Epoch::new(0);

fn publisher(ring: &Ring) -> Publisher {
    Publisher::new(Steering::new(ring.clone()))
}

fn next(publisher: &mut Publisher) {
    let updated = publisher.update(|draft| _ = draft.listen(80, crate::ShardId(0)));
    updated.unwrap();
}

/// A batch: under the old ring it uses what belongs to it.
fn batch(reader: &mut Reader, old: &UnsafeCell<u32>) {
    reader.refresh();
    if reader.current().published().epoch() == OLD {
        old.with(|_| ());
    }
}

/// The writer: once settled, what belongs to the old ring is nobody else's.
fn retire(publisher: &mut Publisher, old: &UnsafeCell<u32>) {
    next(publisher);
    for _ in 0..2 {
        if publisher.settled() {
            old.with_mut(|_| ());
            return;
        }
        thread::yield_now();
    }
}

fn check(readers: usize, run: fn(&mut Reader, &UnsafeCell<u32>)) {
    let ring = Ring::uniform(1, 1, 1);
    let mut model = loom::model::Builder::new();
    // With two readers all orders take too long; three preemptions find every order that is taken away in the code.
    model.preemption_bound = (readers > 1).then_some(3);
    model.check(move || {
        let mut publisher = publisher(&ring);
        let old = Arc::new(UnsafeCell::new(0));
        let threads: Vec<_> = (0..readers)
            .map(|_| {
                let (mut reader, old) = (publisher.reader(), old.clone());
                thread::spawn(move || {
                    run(&mut reader, &old);
                    reader
                })
            })
            .collect();
        retire(&mut publisher, &old);
        let readers = threads.into_iter().map(|thread| thread.join().unwrap());
        let mut readers: Vec<Reader> = readers.collect();
        for reader in &mut readers {
            // Left in peace it comes to the newest.
            reader.refresh();
            assert_eq!(reader.current().published().epoch(), OLD.next());
        }
        assert!(publisher.settled());
    });
}

#[test]
fn settled_means_that_every_older_batch_is_over() {
    check(1, |reader, old| {
        batch(reader, old);
        batch(reader, old);
    });
}

#[test]
fn two_readers_may_meet_at_the_slot() {
    check(2, batch);
}

#[test]
fn one_that_sleeps_holds_nobody_up_and_wakes_with_the_newest() {
    check(1, |reader, old| {
        batch(reader, old);
        reader.park();
        batch(reader, old);
    });
}
