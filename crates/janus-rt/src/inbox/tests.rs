//! Nothing is lost, nothing overtakes, every bound holds.

use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;

/// Messages as numbers: what a test sends.
fn number(message: Message) -> Option<u64> {
    match message {
        Message::Wake(word) => Some(word.bits()),
        _ => None,
    }
}

fn reader() -> (InboxReader, Arc<AtomicUsize>) {
    let rung = Arc::new(AtomicUsize::new(0));
    let bell = Arc::clone(&rung);
    let reader = InboxReader::new(move || {
        bell.fetch_add(1, Ordering::SeqCst);
    });
    (reader, rung)
}

#[test]
fn messages_beyond_the_ring_spill_and_come_in_order() {
    let (mut reader, rung) = reader();
    let inbox = Arc::clone(reader.inbox());
    let sent = u64::from(RING) * 2;
    for n in 0..sent {
        inbox.wake(WakeWord::from_bits(n));
    }
    assert_eq!(inbox.counters().spilled, u64::from(RING));
    assert_eq!(
        rung.load(Ordering::SeqCst),
        sent as usize,
        "each message rings"
    );
    for n in 0..sent / 2 {
        assert_eq!(reader.pop().and_then(number), Some(n));
    }
    // The ring has room again, but what is spilled was first.
    inbox.wake(WakeWord::from_bits(sent));
    for n in sent / 2..=sent {
        assert!(!reader.is_empty());
        assert_eq!(reader.pop().and_then(number), Some(n));
    }
    assert!(reader.is_empty() && reader.pop().is_none());
    inbox.wake(WakeWord::from_bits(7));
    assert_eq!(
        inbox.counters().spilled,
        u64::from(RING) + 1,
        "after the spill is empty the ring is used again"
    );
    assert_eq!(reader.pop().and_then(number), Some(7));
}

#[test]
fn several_senders_lose_nothing_and_keep_their_order() {
    const SENDERS: u64 = 3;
    let each: u64 = if cfg!(miri) { 600 } else { 30_000 };
    let (mut reader, _) = reader();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let inbox = Arc::clone(reader.inbox());
            thread::spawn(move || {
                for n in 0..each {
                    inbox.wake(WakeWord::from_bits(sender << 32 | n));
                }
            })
        })
        .collect();
    let mut next = [0u64; SENDERS as usize];
    let mut merged = 0;
    while next.iter().sum::<u64>() + merged < SENDERS * each {
        match reader.pop() {
            Some(Message::WakeAll) => {}
            Some(message) => {
                let n = number(message).expect("only wakes are sent");
                let expected = &mut next[(n >> 32) as usize];
                assert!(n as u32 as u64 >= *expected, "overtaken");
                *expected = (n as u32 as u64) + 1;
            }
            None => thread::yield_now(),
        }
        merged = reader.inbox().counters().wakes_merged;
    }
    for sender in senders {
        sender.join().expect("the thread ends");
    }
}

#[test]
fn too_many_wakes_become_one_for_all() {
    let (mut reader, _) = reader();
    let beyond = 5;
    for n in 0..RING as usize + SPILLED_WAKES_MAX + beyond {
        reader.inbox().wake(WakeWord::from_bits(n as u64));
    }
    assert_eq!(reader.inbox().counters().wakes_merged, beyond as u64);
    let (mut single, mut all) = (0, 0);
    while let Some(message) = reader.pop() {
        match message {
            Message::Wake(_) => single += 1,
            Message::WakeAll => all += 1,
            _ => panic!("only wakes are sent"),
        }
    }
    assert_eq!((single, all), (RING as usize + SPILLED_WAKES_MAX, 1));
    assert!(reader.is_empty());
}

#[test]
fn closures_run_or_are_refused_when_too_many_wait_or_the_shard_is_gone() {
    let (mut reader, _) = reader();
    let ran = Arc::new(AtomicUsize::new(0));
    let job = || {
        let ran = Arc::clone(&ran);
        Box::new(move || {
            ran.fetch_add(1, Ordering::SeqCst);
        }) as Job
    };
    let inbox = Arc::clone(reader.inbox());
    for _ in 0..RING as usize + SPILLED_RUNS_MAX {
        assert!(inbox.run(job()).is_ok());
    }
    assert_eq!(inbox.run(job()), Err(Refused::Full));
    assert_eq!(inbox.counters().runs_refused, 1);
    for _ in 0..10 {
        if let Some(Message::Run(job)) = reader.pop() {
            job();
        }
    }
    assert_eq!(ran.load(Ordering::SeqCst), 10);
    drop(reader);
    assert_eq!(inbox.run(job()), Err(Refused::Closed));
    assert_eq!(
        Arc::strong_count(&ran),
        1,
        "what waited was dropped with the shard"
    );
}
