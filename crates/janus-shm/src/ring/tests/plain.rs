use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::{ASLEEP, HEAD, TAIL};
use super::*;
use proptest::prelude::*;

#[test]
fn a_full_ring_takes_no_more() {
    let (mut producer, mut consumer, _) = ring(2);
    assert_eq!(put(&mut producer, &numbered(0, 5)), Ok(4));
    assert_eq!(consumer.take(), Ok(None), "not published");
    assert!(!producer.publish());
    assert_eq!(take(&mut consumer, 8), Ok(numbered(0, 4)));
    assert_eq!(producer.room(), Ok(0), "not published");
    consumer.publish();
    assert_eq!(producer.room(), Ok(4));
}

#[test]
fn an_index_beyond_the_ring_is_not_believed() {
    let (mut producer, mut consumer, segment) = ring(3);
    assert_eq!(put(&mut producer, &numbered(0, 2)), Ok(2));
    let _ = producer.publish();
    segment.word(TAIL).unwrap().store(9, Ordering::Relaxed);
    let told = Violation::Index { theirs: 9, ours: 0 };
    assert_eq!(consumer.waiting(), Err(told));
    assert_eq!(consumer.take(), Err(told));
    assert_eq!(consumer.arm(), Err(told));
    segment.word(HEAD).unwrap().store(3, Ordering::Relaxed);
    let told = Violation::Index { theirs: 3, ours: 2 };
    assert_eq!(producer.room(), Err(told));
    // For six the index that was read before does.
    assert_eq!(put(&mut producer, &numbered(0, 6)), Ok(6));
    segment.word(HEAD).unwrap().store(9, Ordering::Relaxed);
    let told = Violation::Index { theirs: 9, ours: 8 };
    assert_eq!(producer.put(Descriptor::default()), Err(told));
}

#[test]
fn a_ring_that_is_not_in_its_segment_is_refused() {
    let segment = Arc::new(Segment::create("test", 4096).unwrap());
    for (offset, log2) in [
        (0, 8),
        (4096, 0),
        (u64::MAX - 63, 1),
        (8, 1),
        (0, 63),
        (3700, 4),
    ] {
        assert!(Producer::new(segment.clone(), offset, log2).is_err());
        assert!(Consumer::new(segment.clone(), offset, log2).is_err());
    }
    assert!(Consumer::new(segment, 64, 7).is_ok());
}

#[test]
fn who_sleeps_is_rung_once() {
    let (mut producer, mut consumer, _) = ring(3);
    assert_eq!(consumer.arm(), Ok(true));
    assert_eq!(put(&mut producer, &numbered(0, 1)), Ok(1));
    assert!(producer.publish());
    assert_eq!(put(&mut producer, &numbered(1, 1)), Ok(1));
    assert!(!producer.publish());
    assert_eq!(consumer.arm(), Ok(false), "there is something");
    assert_eq!(put(&mut producer, &numbered(2, 1)), Ok(1));
    assert!(!producer.publish(), "it did not sleep");
}

#[test]
fn what_was_shown_is_rung_for_later() {
    let (mut producer, mut consumer, _) = ring(3);
    assert_eq!(consumer.arm(), Ok(true));
    assert_eq!(put(&mut producer, &numbered(0, 2)), Ok(2));
    producer.show();
    assert_eq!(take(&mut consumer, 8), Ok(numbered(0, 2)));
    assert_eq!(producer.untold(), 2);
    assert!(producer.publish());
    assert_eq!(producer.untold(), 0);
    assert!(!producer.publish());
}

#[test]
fn two_threads_lose_nothing() {
    const MANY: u32 = 200_000;
    let (mut producer, mut consumer, _) = ring(5);
    let sender = std::thread::spawn(move || {
        let mut at = 0;
        while at < MANY {
            let some = numbered(at, (MANY - at).min(7) as usize);
            at += put(&mut producer, &some).unwrap() as u32;
            let _ = producer.publish();
            std::hint::spin_loop();
        }
    });
    let mut next = 0;
    while next < MANY {
        let got = take(&mut consumer, 5).unwrap();
        assert_eq!(got, numbered(next, got.len()));
        next += got.len() as u32;
        consumer.publish();
    }
    sender.join().unwrap();
}

proptest! {
    /// Whatever the other side writes, this one ends no process and holds no more than the ring does.
    #[test]
    fn a_hostile_side_is_told_of(words in proptest::collection::vec(any::<u32>(), 1..40), log2 in 0_u8..6) {
        let (mut producer, mut consumer, segment) = ring(log2);
        let entries = 1 << log2;
        for (at, word) in words.into_iter().enumerate() {
            let place = [TAIL, HEAD, ASLEEP][at % 3];
            segment.word(place).unwrap().store(word, Ordering::Relaxed);
            if let Ok(count) = consumer.waiting() {
                let count = count as usize;
                prop_assert!(count <= entries);
                prop_assert_eq!(take(&mut consumer, count).map(|it| it.len()), Ok(count));
            }
            if let Ok(count) = put(&mut producer, &numbered(0, 70)) {
                prop_assert!(count <= entries);
            }
            let _ = consumer.arm();
            let _ = producer.publish();
            consumer.publish();
        }
    }
}

#[test]
fn the_last_entries_are_there_whether_they_were_taken_or_not() {
    let (mut producer, mut consumer, _) = ring(2);
    for all in numbered(1, 6).chunks(2) {
        assert_eq!(put(&mut producer, all), Ok(2));
        producer.show();
        assert_eq!(take(&mut consumer, 1), Ok(all[..1].to_vec()));
        let _ = take(&mut consumer, usize::from(all[0].tag < 5));
        consumer.publish();
    }
    let mut all: Vec<_> = producer.latest().collect();
    all.reverse();
    assert_eq!(all, numbered(3, 4));
    assert_eq!(producer.untaken(), Ok(numbered(6, 1)));
}
