//! Every interleaving of the two ends of rings small enough to wrap. Entries are cells of which loom tells when both ends have one; a lost
//! wake-up would be a deadlock, which loom reports.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Consumer, Producer, numbered, put, ring, take};

/// A bell as a socket is one: it rings until it is heard.
#[derive(Clone)]
struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Bell {
    fn new() -> Bell {
        Bell(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn ring(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    fn wait(&self) {
        let mut rings = self.0.0.lock().unwrap();
        while !*rings {
            rings = self.0.1.wait(rings).unwrap();
        }
    }

    fn hear(&self) {
        *self.0.0.lock().unwrap() = false;
    }
}

/// All interleavings take hours; three preemptions find every loss that the mutations make.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// Puts in the next of `count`, one at a time, as far as there is room in so many attempts. How many.
fn puts(producer: &mut Producer, count: u32, attempts: u32, bell: &Bell) -> u32 {
    let mut next = 0;
    for _ in 0..attempts {
        if next < count && put(producer, &numbered(next, 1)) == Ok(1) {
            next += 1;
            if producer.publish() {
                bell.ring();
            }
        }
    }
    next
}

/// Takes out what is there, which begins at `next`.
fn takes(consumer: &mut Consumer, next: &mut u32) -> bool {
    let got = take(consumer, 2).unwrap();
    assert_eq!(got, numbered(*next, got.len()));
    *next += got.len() as u32;
    consumer.publish();
    !got.is_empty()
}

#[test]
fn entries_arrive_as_they_were_put_in_and_their_places_come_back() {
    model(|| {
        let (mut producer, mut consumer, _) = ring(1);
        // Two that are there already: the others wait for their places.
        assert_eq!(puts(&mut producer, 2, 2, &Bell::new()), 2);
        let producer = thread::spawn(move || {
            let (mut at, mut attempts) = (2, 0);
            while attempts < 3 {
                at += put(&mut producer, &numbered(at, 2)).unwrap() as u32;
                assert!(!producer.publish(), "nobody sleeps");
                attempts += 1;
            }
            at
        });
        let mut next = 0;
        for _ in 0..3 {
            takes(&mut consumer, &mut next);
        }
        let put = producer.join().unwrap();
        while takes(&mut consumer, &mut next) {}
        assert_eq!(next, put);
    });
}

#[test]
fn no_wake_up_is_lost() {
    const MANY: u32 = 2;
    model(|| {
        let (mut producer, mut consumer, _) = ring(2);
        let bell = Bell::new();
        let rings = bell.clone();
        let producer = thread::spawn(move || puts(&mut producer, MANY, MANY, &rings));
        let mut next = 0;
        while next < MANY {
            if !takes(&mut consumer, &mut next) && consumer.arm().unwrap() {
                bell.wait();
                consumer.disarm();
                bell.hear();
            }
        }
        assert_eq!(producer.join().unwrap(), MANY);
    });
}

/// As the daemon shows a member what was sent, and rings for it once it has time.
#[test]
fn no_wake_up_is_lost_for_what_was_shown_before() {
    model(|| {
        let (mut producer, mut consumer, _) = ring(1);
        let bell = Bell::new();
        let rings = bell.clone();
        let producer = thread::spawn(move || {
            assert_eq!(put(&mut producer, &numbered(0, 1)), Ok(1));
            producer.show();
            if producer.publish() {
                rings.ring();
            }
        });
        let mut next = 0;
        while next < 1 {
            if !takes(&mut consumer, &mut next) && consumer.arm().unwrap() {
                bell.wait();
                consumer.disarm();
                bell.hear();
            }
        }
        producer.join().unwrap();
    });
}

/// As a member's core sleeps, and the daemon: several rings, one bell. An end that was armed in vain stays so, as the others hold something.
#[test]
fn no_wake_up_is_lost_of_two_rings_with_one_bell() {
    model(|| {
        let (mut first, mut one, _) = ring(1);
        let (mut second, mut other, _) = ring(1);
        let bell = Bell::new();
        let rings = bell.clone();
        let producer =
            thread::spawn(move || puts(&mut first, 1, 1, &rings) + puts(&mut second, 1, 1, &rings));
        let mut next = [0; 2];
        while next != [1; 2] {
            let worked = takes(&mut one, &mut next[0]) | takes(&mut other, &mut next[1]);
            if !worked && one.arm().unwrap() && other.arm().unwrap() {
                bell.wait();
                one.disarm();
                other.disarm();
                bell.hear();
            }
        }
        assert_eq!(producer.join().unwrap(), 2);
    });
}
