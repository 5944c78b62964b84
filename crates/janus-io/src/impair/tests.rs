use super::*;
use crate::testing::{frame, mark, pool, request};
use crate::wire::{Config, pair};
use janus_mem::LENT;
use janus_wire::Link;

const FRAMES: u32 = 2_000;

/// What came out at the far end, in order, of frames sent through faults, and how many of the LENT came home.
fn send_through(faults: Faults) -> (Vec<u32>, Arc<FaultCounters>, usize) {
    let (near, far) = pair(Config::default()).unwrap();
    let backend = ImpairedBackend::new(Box::new(near), faults);
    let counters = backend.counters();
    let mut near = Box::new(backend).open(1).unwrap().remove(0);
    let mut far = Box::new(far).open(1).unwrap().remove(0);
    let mut pool = pool(4_096);
    let (mut batch, mut done, mut arrived) = (Batch::new(), Batch::new(), Batch::new());
    let (mut marks, mut home, mut next) = (Vec::new(), 0, 0);
    for _ in 0..10_000 {
        far.rx_burst(&mut pool, &mut arrived);
        for frame in arrived.pull() {
            marks.push(mark(frame.data(), Link::Ip));
            pool.free(frame.buf);
        }
        while next < FRAMES && !batch.is_full() {
            let mut lent = frame(&mut pool, &request(Link::Ip, 1, next));
            (lent.tag, lent.key) = (LENT, next);
            batch.extend([lent]);
            next += 1;
        }
        near.tx_burst(&mut pool, &mut batch, &mut done);
        home += done.len();
        done.pull().for_each(|frame| pool.free(frame.buf));
    }
    drop((near, far));
    pool.flush();
    assert_eq!(pool.depot().stats().outstanding, 0, "a buffer is missing");
    (marks, counters, home)
}

#[test]
fn without_faults_nothing_changes() {
    let (marks, counters, home) = send_through(Faults::default());
    assert_eq!(marks, (0..FRAMES).collect::<Vec<_>>());
    assert_eq!((home, counters.sent.passed.get()), (2_000, 2_000));
}

#[test]
fn each_fault_happens_and_is_counted_and_every_lent_frame_comes_home() {
    let faults = Faults {
        seed: 1,
        loss: 50,
        duplicate: 50,
        reorder: 50,
        distance: 8,
    };
    let (mut marks, counters, home) = send_through(faults);
    let sent = &counters.sent;
    for count in [&sent.lost, &sent.duplicated, &sent.reordered] {
        assert!((60..140).contains(&count.get()), "{counters:?}");
    }
    assert_eq!(sent.passed.get() + sent.lost.get(), u64::from(FRAMES));
    assert_eq!(
        marks.len() as u64,
        sent.passed.get() + sent.duplicated.get()
    );
    assert!(!marks.is_sorted());
    marks.sort_unstable();
    marks.dedup();
    assert_eq!(marks.len() as u64, sent.passed.get());
    assert_eq!(home, FRAMES as usize);
}

#[test]
fn the_same_seed_takes_the_same_course() {
    let faults = |seed| Faults {
        seed,
        loss: 20,
        duplicate: 20,
        reorder: 20,
        distance: 5,
    };
    assert_eq!(send_through(faults(3)).0, send_through(faults(3)).0);
    assert_ne!(send_through(faults(3)).0, send_through(faults(4)).0);
}

#[test]
fn what_is_received_is_impaired_too_and_nothing_held_back_is_forgotten() {
    let faults = Faults {
        seed: 2,
        reorder: 1_000,
        distance: 1_000,
        ..Faults::default()
    };
    let (near, far) = pair(Config::default()).unwrap();
    let mut near = Box::new(ImpairedBackend::new(Box::new(near), faults))
        .open(1)
        .unwrap()
        .remove(0);
    let mut far = Box::new(far).open(1).unwrap().remove(0);
    let mut pool = pool(512);
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    // Received: buffers are posted before anything can arrive.
    near.rx_burst(&mut pool, &mut done);
    batch.extend([frame(&mut pool, &request(Link::Ip, 1, 7))]);
    far.tx_burst(&mut pool, &mut batch, &mut done);
    near.rx_burst(&mut pool, &mut batch);
    assert!(batch.is_empty() && !near.arm(), "held back, so not asleep");
    for _ in 0..=QUIET_POLLS {
        near.rx_burst(&mut pool, &mut batch);
    }
    assert_eq!(batch.len(), 1);
    assert_eq!(mark(batch[0].data(), Link::Ip), 7);
}
