mod time;

use super::way::QUIET_POLLS;
use super::*;
use crate::backend::wire::{Config, pair};
use crate::queue::Batch;
use crate::testing::{arp, frame, mark, pool, request};
use janus_mem::LENT;
use janus_wire::Link;

const FRAMES: u32 = 2_000;

/// What came out at the far end, in order, of frames sent through faults, and how many of the LENT came home.
fn send_through(faults: Faults) -> (Vec<u32>, Arc<FaultCounters>, usize) {
    let (near, far) = pair(Config::default()).unwrap();
    let backend = FaultyBackend::new(Box::new(near), faults);
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
        ..Faults::default()
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
        ..Faults::default()
    };
    assert_eq!(send_through(faults(3)).0, send_through(faults(3)).0);
    assert_ne!(send_through(faults(3)).0, send_through(faults(4)).0);
}

#[test]
fn what_is_received_meets_faults_too_and_nothing_held_back_is_forgotten() {
    let faults = Faults {
        seed: 2,
        reorder: 1_000,
        distance: 1_000,
        ..Faults::default()
    };
    let (mut near, mut far) = opened(faults);
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

/// Frames sent through faults over Ethernet: what was sent, and what came.
fn spoilt(frames: &[Vec<u8>], faults: Faults) -> (Vec<Vec<u8>>, Arc<FaultCounters>) {
    let config = Config {
        link: Link::Ethernet,
        ..Config::default()
    };
    let (near, far) = pair(config).unwrap();
    let backend = FaultyBackend::new(Box::new(near), faults);
    let counters = backend.counters();
    let mut near = Box::new(backend).open(1).unwrap().remove(0);
    let mut far = Box::new(far).open(1).unwrap().remove(0);
    let mut pool = pool(1_024);
    let (mut batch, mut done, mut arrived) = (Batch::new(), Batch::new(), Batch::new());
    let mut came = Vec::new();
    for bytes in frames {
        far.rx_burst(&mut pool, &mut arrived);
        let mut lent = frame(&mut pool, bytes);
        lent.tag = LENT;
        batch.extend([lent]);
        near.tx_burst(&mut pool, &mut batch, &mut done);
        far.rx_burst(&mut pool, &mut arrived);
        for frame in arrived.pull() {
            came.push(frame.data().to_vec());
            pool.free(frame.buf);
        }
        for home in done.pull() {
            assert_eq!(home.data(), bytes, "what was lent comes home as it was");
            pool.free(home.buf);
        }
    }
    drop((near, far));
    pool.flush();
    assert_eq!(pool.depot().stats().outstanding, 0, "a buffer is missing");
    (came, counters)
}

#[test]
fn one_bit_is_turned_behind_the_link_header_and_what_is_lent_stays_as_it_was() {
    let frames: Vec<Vec<u8>> = (0..300).map(|n| request(Link::Ethernet, 1, n)).collect();
    let faults = Faults {
        seed: 5,
        corrupt: 1_000,
        ..Faults::default()
    };
    let (came, counters) = spoilt(&frames, faults);
    assert_eq!(came.len(), frames.len());
    let mut places = std::collections::BTreeSet::new();
    for (sent, came) in frames.iter().zip(&came) {
        let turned: Vec<usize> = (0..8 * sent.len())
            .filter(|bit| (sent[bit / 8] ^ came[bit / 8]) >> (bit % 8) & 1 == 1)
            .collect();
        assert_eq!(turned.len(), 1, "one bit of each");
        assert!(turned[0] >= 8 * Link::Ethernet.header_len());
        places.insert(turned[0]);
    }
    assert!(places.len() > 100, "everywhere: {places:?}");
    assert_eq!(counters.sent.corrupted.get(), 300);
    assert_eq!(counters.sent.passed.get(), 300);
}

#[test]
fn some_frames_are_spoilt_and_arp_never_is() {
    let faults = Faults {
        seed: 6,
        corrupt: 100,
        ..Faults::default()
    };
    let frames: Vec<Vec<u8>> = (0..1_000).map(|n| request(Link::Ethernet, 1, n)).collect();
    let (came, counters) = spoilt(&frames, faults);
    let differ = frames.iter().zip(&came).filter(|(sent, came)| sent != came);
    let differ = differ.count() as u64;
    assert!((50..200).contains(&differ), "{counters:?}");
    assert_eq!(counters.sent.corrupted.get(), differ);
    let questions = vec![arp(janus_wire::arp::Op::Request); 200];
    let all = Faults {
        corrupt: 1_000,
        ..faults
    };
    let (came, counters) = spoilt(&questions, all);
    assert_eq!((came, counters.sent.corrupted.get()), (questions, 0));
}

/// A device that sees to checksums.
struct Vouches(crate::backend::wire::End, Caps);

struct VouchingQueue(Box<dyn Queue>, Caps);

impl Backend for Vouches {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let opened = Box::new(self.0).open(queues)?;
        let wrap = |queue| -> Box<dyn Queue> { Box::new(VouchingQueue(queue, self.1.clone())) };
        Ok(opened.into_iter().map(wrap).collect())
    }
}

impl Queue for VouchingQueue {
    fn caps(&self) -> &Caps {
        &self.1
    }

    fn rx_burst(&mut self, pool: &mut janus_mem::Pool, out: &mut Batch) {
        self.0.rx_burst(pool, out);
    }

    fn tx_burst(&mut self, pool: &mut janus_mem::Pool, frames: &mut Batch, done: &mut Batch) {
        self.0.tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<rustix::fd::BorrowedFd<'_>> {
        self.0.wait_fd()
    }
}

/// What is spoilt on the way out would be made good by a device that fills in checksums, and on the way in hidden by one that
/// has looked already: both are refused, each for its direction.
#[test]
fn a_device_that_sees_to_checksums_is_not_spoilt() {
    let corrupt = Faults {
        corrupt: 1,
        ..Faults::default()
    };
    let open = |tx_checksum, rx_checksum, received, sent| {
        let (near, _far) = pair(Config::default()).unwrap();
        let caps = Caps {
            tx_checksum,
            rx_checksum,
            ..near.caps().clone()
        };
        let backend = FaultyBackend::new(Box::new(Vouches(near, caps)), received);
        Box::new(backend.with_sent(sent)).open(1).map(|_| ())
    };
    let none = Faults::default();
    for (tx, rx, received, sent) in [
        (true, false, corrupt, corrupt),
        (false, true, corrupt, corrupt),
        (true, false, none, corrupt),
        (false, true, corrupt, none),
    ] {
        let refused = open(tx, rx, received, sent).unwrap_err().to_string();
        assert!(refused.contains("offloads"), "{refused}");
    }
    for (tx, rx, received, sent) in [
        (false, false, corrupt, corrupt),
        (true, false, corrupt, none),
        (false, true, none, corrupt),
        (true, true, none, none),
    ] {
        open(tx, rx, received, sent).unwrap();
    }
}

/// A link with an end that is bad, opened.
fn opened(faults: Faults) -> (Box<dyn Queue>, Box<dyn Queue>) {
    let (near, far) = pair(Config::default()).unwrap();
    let open = |backend: Box<dyn Backend>| backend.open(1).unwrap().remove(0);
    let near = open(Box::new(FaultyBackend::new(Box::new(near), faults)));
    (near, open(Box::new(far)))
}

#[test]
fn each_direction_can_have_faults_of_its_own() {
    let (near, far) = pair(Config::default()).unwrap();
    let all = Faults {
        loss: 1_000,
        ..Faults::default()
    };
    let backend = FaultyBackend::new(Box::new(near), all).with_received(Faults::default());
    let counters = backend.counters();
    let mut near = Box::new(backend).open(1).unwrap().remove(0);
    let mut far = Box::new(far).open(1).unwrap().remove(0);
    let mut pool = pool(512);
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    near.rx_burst(&mut pool, &mut done);
    far.rx_burst(&mut pool, &mut done);
    batch.extend([frame(&mut pool, &request(Link::Ip, 1, 7))]);
    far.tx_burst(&mut pool, &mut batch, &mut done);
    near.rx_burst(&mut pool, &mut batch);
    assert_eq!(batch.len(), 1, "it came in");
    near.tx_burst(&mut pool, &mut batch, &mut done);
    far.rx_burst(&mut pool, &mut batch);
    assert!(batch.is_empty(), "it did not go out again");
    assert_eq!(
        (counters.sent.lost.get(), counters.received.lost.get()),
        (1, 0)
    );
}
