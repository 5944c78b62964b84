//! Time on the link: delays and rates under a clock of the test's, sleeping by the machine's.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::park::{Parker, Woken};

const MS: u64 = 1_000_000;
/// A condition is waited for as long as a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two ends of a wire, the near one with faults under a clock of the test's.
struct Bench {
    near: Vec<Box<dyn Queue>>,
    far: Box<dyn Queue>,
    pool: janus_mem::Pool,
    clock: Arc<AtomicU64>,
    counters: Arc<FaultCounters>,
}

impl Bench {
    fn new(faults: Faults, queues: usize) -> Bench {
        let config = Config {
            queues: [queues, 1],
            ..Config::default()
        };
        let (near, far) = pair(config).unwrap();
        let clock = Arc::new(AtomicU64::new(5));
        let read = clock.clone();
        let backend = FaultyBackend::new(Box::new(near), faults)
            .with_clock(Arc::new(move || read.load(Ordering::Relaxed)));
        let counters = backend.counters();
        let mut bench = Bench {
            near: Box::new(backend).open(queues).unwrap(),
            far: Box::new(far).open(1).unwrap().remove(0),
            pool: pool(4_096),
            clock,
            counters,
        };
        // Buffers are posted before anything can arrive.
        assert!(bench.heard().is_empty());
        bench
    }

    fn pass(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::Relaxed);
    }

    /// Sends LENT frames with these marks; all come home at once, as they have left.
    fn send(&mut self, queue: usize, marks: std::ops::Range<u32>) {
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        for number in marks {
            let mut lent = frame(&mut self.pool, &request(Link::Ip, 1, number));
            lent.tag = LENT;
            batch.extend([lent]);
            self.near[queue].tx_burst(&mut self.pool, &mut batch, &mut done);
            assert!(batch.is_empty());
            assert_eq!(done.len(), 1, "a frame under way is not its sender's");
            done.pull().for_each(|frame| self.pool.free(frame.buf));
        }
    }

    /// What the far end has by now.
    fn heard(&mut self) -> Vec<u32> {
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        for near in &mut self.near {
            for _ in 0..20 {
                near.tx_burst(&mut self.pool, &mut batch, &mut done);
            }
        }
        let mut marks = Vec::new();
        for _ in 0..20 {
            self.far.rx_burst(&mut self.pool, &mut batch);
            for frame in batch.pull() {
                marks.push(mark(frame.data(), Link::Ip));
                self.pool.free(frame.buf);
            }
        }
        marks
    }

    fn end(mut self) {
        self.near.clear();
        drop(self.far);
        self.pool.flush();
        assert_eq!(
            self.pool.depot().stats().outstanding,
            0,
            "a buffer is missing"
        );
    }
}

#[test]
fn a_delay_passes_before_a_frame_arrives_and_who_polls_stays_awake() {
    let faults = Faults {
        delay: Duration::from_millis(20),
        ..Faults::default()
    };
    let mut bench = Bench::new(faults, 1);
    assert!(bench.near[0].arm(), "nothing is under way");
    bench.send(0, 0..3);
    bench.pass(10 * MS);
    bench.send(0, 3..4);
    assert!(!bench.near[0].arm(), "nobody could wake it");
    bench.pass(10 * MS - 1);
    assert_eq!(bench.heard(), []);
    bench.pass(1);
    assert_eq!(bench.heard(), [0, 1, 2]);
    bench.pass(10 * MS);
    assert_eq!(bench.heard(), [3]);
    assert!(bench.near[0].arm());
    bench.end();
}

#[test]
fn what_is_received_takes_as_long() {
    let faults = Faults {
        delay: Duration::from_millis(7),
        ..Faults::default()
    };
    let mut bench = Bench::new(faults, 1);
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    bench.near[0].rx_burst(&mut bench.pool, &mut done);
    batch.extend([frame(&mut bench.pool, &request(Link::Ip, 1, 9))]);
    bench.far.tx_burst(&mut bench.pool, &mut batch, &mut done);
    bench.near[0].rx_burst(&mut bench.pool, &mut batch);
    bench.pass(7 * MS - 1);
    bench.near[0].rx_burst(&mut bench.pool, &mut batch);
    assert!(batch.is_empty() && !bench.near[0].arm());
    bench.pass(1);
    bench.near[0].rx_burst(&mut bench.pool, &mut batch);
    assert_eq!(batch.len(), 1);
    batch.pull().for_each(|frame| bench.pool.free(frame.buf));
    bench.end();
}

#[test]
fn jitter_spreads_arrivals_and_keeps_their_order() {
    let faults = Faults {
        seed: 3,
        delay: Duration::from_millis(10),
        jitter: Duration::from_millis(10),
        ..Faults::default()
    };
    let mut bench = Bench::new(faults, 1);
    let (mut came, mut steps) = (Vec::new(), 0);
    for sent in 0..100 {
        bench.send(0, sent..sent + 1);
        bench.pass(MS);
    }
    for passed in 0..21 {
        let now = bench.heard();
        assert!(passed > 0 || now.len() < 100);
        steps += u32::from(!now.is_empty());
        came.extend(now);
        bench.pass(MS);
    }
    assert_eq!(came, (0..100).collect::<Vec<_>>());
    assert!(steps > 3, "they came one after the other: {steps}");
    bench.end();
}

/// A frame of 40 bytes takes 32 ms at 10 kbit/s, whichever queue it comes from.
#[test]
fn all_queues_share_what_the_link_carries() {
    let faults = Faults {
        rate: NonZeroU64::new(10_000),
        ..Faults::default()
    };
    let mut bench = Bench::new(faults, 2);
    bench.send(0, 0..2);
    bench.send(1, 10..12);
    for expected in [0, 1, 10, 11] {
        bench.pass(32 * MS - 1);
        assert_eq!(bench.heard(), []);
        bench.pass(1);
        assert_eq!(bench.heard(), [expected]);
    }
    // A link that was idle carries the next one at once.
    bench.pass(1_000 * MS);
    bench.send(1, 12..13);
    bench.pass(32 * MS);
    assert_eq!(bench.heard(), [12]);
    bench.end();
}

#[test]
fn what_the_link_has_no_room_for_is_lost_and_counted() {
    let faults = Faults {
        rate: NonZeroU64::new(10_000),
        queue: 5,
        duplicate: 0,
        ..Faults::default()
    };
    let mut bench = Bench::new(faults, 1);
    bench.send(0, 0..8);
    bench.pass(8 * 32 * MS);
    assert_eq!(bench.heard(), [0, 1, 2, 3, 4]);
    let sent = &bench.counters.sent;
    assert_eq!((sent.passed.get(), sent.overflowed.get()), (8, 3));
    bench.send(0, 8..9);
    bench.pass(32 * MS);
    assert_eq!(bench.heard(), [8]);
    bench.end();
}

/// Everything at once: what did not get lost arrives, and each buffer comes home.
#[test]
fn all_faults_together_lose_only_what_they_count() {
    let faults = Faults {
        seed: 8,
        loss: 50,
        duplicate: 50,
        reorder: 50,
        distance: 4,
        corrupt: 50,
        delay: Duration::from_millis(3),
        jitter: Duration::from_millis(2),
        rate: NonZeroU64::new(1_000_000),
        queue: 100,
    };
    let mut bench = Bench::new(faults, 1);
    let mut came = 0;
    for number in 0..2_000 {
        bench.send(0, number..number + 1);
        bench.pass(MS / 2);
        came += bench.far_frames();
    }
    for _ in 0..100 {
        bench.pass(MS);
        came += bench.far_frames();
    }
    let sent = &bench.counters.sent;
    assert_eq!(sent.passed.get() + sent.lost.get(), 2_000);
    assert_eq!(
        came,
        sent.passed.get() + sent.duplicated.get() - sent.overflowed.get()
    );
    for count in [
        &sent.lost,
        &sent.duplicated,
        &sent.reordered,
        &sent.corrupted,
    ] {
        assert!((50..150).contains(&count.get()), "{sent:?}");
    }
    bench.end();
}

impl Bench {
    /// As `heard`, for frames whose marks may be spoilt: how many.
    fn far_frames(&mut self) -> u64 {
        let (mut batch, mut done, mut count) = (Batch::new(), Batch::new(), 0);
        for _ in 0..5 {
            self.near[0].tx_burst(&mut self.pool, &mut batch, &mut done);
            self.far.rx_burst(&mut self.pool, &mut batch);
            count += batch.len() as u64;
            batch.pull().for_each(|frame| self.pool.free(frame.buf));
        }
        count
    }
}

/// By the machine's clock a core may sleep while a frame is under way: the queue's descriptor wakes it in time.
#[test]
fn a_sleeper_is_woken_when_a_frame_arrives() {
    let delay = Duration::from_millis(30);
    let faults = Faults {
        delay,
        ..Faults::default()
    };
    let (mut near, mut far) = opened(faults);
    let (mut pool, mut parker) = (pool(512), Parker::new().unwrap());
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    near.rx_burst(&mut pool, &mut batch);
    for round in 0..3 {
        let begin = Instant::now();
        batch.extend([frame(&mut pool, &request(Link::Ip, 1, round))]);
        far.tx_burst(&mut pool, &mut batch, &mut done);
        near.rx_burst(&mut pool, &mut batch);
        let mut slept = false;
        while batch.is_empty() {
            if near.arm() {
                let fd = [near.wait_fd().unwrap()];
                let woken = parker.park(&fd, Some(PATIENCE), || false).unwrap();
                assert_eq!(woken, Woken::Event, "not left to sleep");
                slept = true;
            }
            near.rx_burst(&mut pool, &mut batch);
        }
        let took = begin.elapsed();
        // A machine that was busy for so long has nothing left to sleep for.
        assert!(took >= delay && (slept || took > delay), "{took:?}");
        batch.pull().for_each(|frame| pool.free(frame.buf));
        assert!(near.arm(), "nothing is left, so nothing rings");
        let fd = [near.wait_fd().unwrap()];
        let short = Some(Duration::from_millis(1));
        let woken = parker.park(&fd, short, || false).unwrap();
        assert_eq!(woken, Woken::Timeout);
    }
}
