//! The ring beside `rtrb` and crossbeam's `ArrayQueue`: items of 16 bytes (a frame) from one pinned thread to another, one
//! at a time and in batches of 32, every item checked; and what one hop takes when the other side has nothing else to do.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam::queue::ArrayQueue;
use janus_io::Burst;
use janus_io::ring::{Consumer, Producer, ring};

use crate::pin::pin;
use crate::support::Scale;
use crate::support::report::{Report, Value};

/// As large as a frame's handle.
type Item = [u64; 2];

const DEPTH: usize = 1024;
const BATCH: usize = 32;
/// Words of a packet's header line.
const LINE: usize = 8;

/// Both ends of one queue, as a benchmark uses them.
trait Ends: Sized {
    type Tx: Send;
    type Rx: Send;
    const NAME: &'static str;
    fn make(depth: usize) -> (Self::Tx, Self::Rx);
    fn push(tx: &mut Self::Tx, item: Item) -> bool;
    fn pop(rx: &mut Self::Rx) -> Option<Item>;
    /// Moves what fits from the front of `items`.
    fn push_batch(tx: &mut Self::Tx, items: &mut Burst<Item, BATCH>);
    /// Takes what fits into `items`.
    fn pop_batch(rx: &mut Self::Rx, items: &mut Burst<Item, BATCH>);
}

struct Janus;

impl Ends for Janus {
    type Tx = Producer<Item>;
    type Rx = Consumer<Item>;
    const NAME: &'static str = "janus";

    fn make(depth: usize) -> (Self::Tx, Self::Rx) {
        ring(depth as u32)
    }

    #[inline]
    fn push(tx: &mut Self::Tx, item: Item) -> bool {
        tx.push(item).is_ok()
    }

    #[inline]
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        rx.pop()
    }

    #[inline]
    fn push_batch(tx: &mut Self::Tx, items: &mut Burst<Item, BATCH>) {
        tx.push_batch(items);
    }

    #[inline]
    fn pop_batch(rx: &mut Self::Rx, items: &mut Burst<Item, BATCH>) {
        rx.pop_batch(items);
    }
}

struct Rtrb;

impl Ends for Rtrb {
    type Tx = rtrb::Producer<Item>;
    type Rx = rtrb::Consumer<Item>;
    const NAME: &'static str = "rtrb";

    fn make(depth: usize) -> (Self::Tx, Self::Rx) {
        rtrb::RingBuffer::new(depth)
    }

    #[inline]
    fn push(tx: &mut Self::Tx, item: Item) -> bool {
        tx.push(item).is_ok()
    }

    #[inline]
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        rx.pop().ok()
    }

    #[inline]
    fn push_batch(tx: &mut Self::Tx, items: &mut Burst<Item, BATCH>) {
        let room = tx.slots().min(items.len());
        if let Ok(chunk) = tx.write_chunk_uninit(room) {
            chunk.fill_from_iter(items.pull());
        }
    }

    #[inline]
    fn pop_batch(rx: &mut Self::Rx, items: &mut Burst<Item, BATCH>) {
        let count = rx.slots().min(items.room());
        if let Ok(chunk) = rx.read_chunk(count) {
            items.extend(chunk);
        }
    }
}

struct Crossbeam;

impl Ends for Crossbeam {
    type Tx = std::sync::Arc<ArrayQueue<Item>>;
    type Rx = std::sync::Arc<ArrayQueue<Item>>;
    const NAME: &'static str = "crossbeam ArrayQueue";

    fn make(depth: usize) -> (Self::Tx, Self::Rx) {
        let queue = std::sync::Arc::new(ArrayQueue::new(depth));
        (queue.clone(), queue)
    }

    #[inline]
    fn push(tx: &mut Self::Tx, item: Item) -> bool {
        tx.push(item).is_ok()
    }

    #[inline]
    fn pop(rx: &mut Self::Rx) -> Option<Item> {
        rx.pop()
    }

    /// It has no batches.
    #[inline]
    fn push_batch(tx: &mut Self::Tx, items: &mut Burst<Item, BATCH>) {
        let mut left = items.pull();
        while !tx.is_full()
            && let Some(item) = left.next()
        {
            // One producer: there is room when it is not full.
            assert!(tx.push(item).is_ok());
        }
    }

    #[inline]
    fn pop_batch(rx: &mut Self::Rx, items: &mut Burst<Item, BATCH>) {
        while !items.is_full() {
            let Some(item) = rx.pop() else { return };
            let _ = items.push(item);
        }
    }
}

/// What travels beside the item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    Nothing,
    /// The sender writes a cache line, the receiver reads it: the headers of a packet.
    Line,
}

/// The header lines: plain memory that only the ring's order protects, as packets are.
struct Lines(Vec<[AtomicU64; LINE]>);

impl Lines {
    fn new() -> Self {
        // Twice the ring, so that a line is read before it is written again.
        Self((0..2 * DEPTH).map(|_| Default::default()).collect())
    }

    #[inline]
    fn write(&self, n: u64) {
        for word in &self.0[n as usize % (2 * DEPTH)] {
            word.store(n, Ordering::Relaxed);
        }
    }

    #[inline]
    fn read(&self, n: u64) {
        let line = &self.0[n as usize % (2 * DEPTH)];
        let sum = line.iter().fold(0u64, |sum, word| {
            sum.wrapping_add(word.load(Ordering::Relaxed))
        });
        assert_eq!(
            sum,
            n.wrapping_mul(LINE as u64),
            "a line is not what was sent"
        );
    }
}

/// Million items a second, one at a time.
fn singles<E: Ends>(items: u64) -> f64 {
    between::<E>(
        |tx| {
            for n in 0..items {
                while !E::push(tx, [n, !n]) {
                    std::hint::spin_loop();
                }
            }
        },
        |rx| {
            for n in 0..items {
                let item = loop {
                    match E::pop(rx) {
                        Some(item) => break item,
                        None => std::hint::spin_loop(),
                    }
                };
                assert_eq!(item, [n, !n]);
            }
        },
        items,
    )
}

/// Million items a second, 32 at a time.
fn batches<E: Ends>(items: u64, touch: Touch) -> f64 {
    let lines = Lines::new();
    between::<E>(
        |tx| {
            let mut burst: Burst<Item, BATCH> = Burst::new();
            let mut next = 0;
            while next < items || !burst.is_empty() {
                while next < items && !burst.is_full() {
                    if touch == Touch::Line {
                        lines.write(next);
                    }
                    let _ = burst.push([next, !next]);
                    next += 1;
                }
                E::push_batch(tx, &mut burst);
            }
        },
        |rx| {
            let mut burst: Burst<Item, BATCH> = Burst::new();
            let mut next = 0;
            while next < items {
                E::pop_batch(rx, &mut burst);
                for item in burst.pull() {
                    assert_eq!(item, [next, !next]);
                    if touch == Touch::Line {
                        lines.read(next);
                    }
                    next += 1;
                }
            }
        },
        items,
    )
}

/// Runs both sides on a thread each; million items a second as the receiver saw it.
fn between<E: Ends>(
    send: impl FnOnce(&mut E::Tx) + Send,
    receive: impl FnOnce(&mut E::Rx),
    items: u64,
) -> f64 {
    let (tx, rx) = E::make(DEPTH);
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let start = &start;
        scope.spawn(move || {
            // Each end in its own thread's memory: side by side on one stack they would share a cache line.
            let mut tx = tx;
            let _there = pin(1);
            start.wait();
            send(&mut tx);
        });
        let mut rx = rx;
        let _here = pin(0);
        start.wait();
        let begin = Instant::now();
        receive(&mut rx);
        items as f64 * 1e3 / begin.elapsed().as_nanos() as f64
    })
}

/// Nanoseconds from one side to the other, half of a round trip.
fn hop<E: Ends>(rounds: u64) -> f64 {
    let (mut there_tx, there_rx) = E::make(DEPTH);
    let (back_tx, mut back_rx) = E::make(DEPTH);
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let start = &start;
        scope.spawn(move || {
            let (mut there_rx, mut back_tx) = (there_rx, back_tx);
            let _there = pin(1);
            start.wait();
            for _ in 0..rounds {
                let item = wait::<E>(&mut there_rx);
                assert!(E::push(&mut back_tx, item));
            }
        });
        let _here = pin(0);
        start.wait();
        let begin = Instant::now();
        for n in 0..rounds {
            assert!(E::push(&mut there_tx, [n, !n]));
            assert_eq!(wait::<E>(&mut back_rx), [n, !n]);
        }
        begin.elapsed().as_nanos() as f64 / rounds as f64 / 2.0
    })
}

fn wait<E: Ends>(rx: &mut E::Rx) -> Item {
    loop {
        match E::pop(rx) {
            Some(item) => return black_box(item),
            None => std::hint::spin_loop(),
        }
    }
}

/// One queue's figures, run by run.
#[derive(Default)]
struct Figures {
    singles: Vec<f64>,
    batches: Vec<f64>,
    touched: Vec<f64>,
    hops: Vec<f64>,
}

impl Figures {
    fn take<E: Ends>(&mut self, items: u64, rounds: u64) {
        self.singles.push(singles::<E>(items / 4));
        self.batches.push(batches::<E>(items, Touch::Nothing));
        self.touched.push(batches::<E>(items / 2, Touch::Line));
        self.hops.push(hop::<E>(rounds));
    }

    fn rows(&self, report: &mut Report, who: &'static str) {
        let who = ("ring", Value::from(who));
        let batch = |n: u32| ("batch", Value::from(n));
        let touched = |n: u32| ("touched_bytes", Value::from(n));
        let mut row = |metric, runs: &[f64], unit, params: &[(&str, Value)]| {
            report.median(
                metric,
                runs,
                unit,
                &[std::slice::from_ref(&who), params].concat(),
            );
        };
        row(
            "ring_mitems_per_s",
            &self.singles,
            "M/s",
            &[batch(1), touched(0)],
        );
        row(
            "ring_mitems_per_s",
            &self.batches,
            "M/s",
            &[batch(32), touched(0)],
        );
        row(
            "ring_mitems_per_s",
            &self.touched,
            "M/s",
            &[batch(32), touched(64)],
        );
        row("ring_hop_ns", &self.hops, "ns", &[]);
    }
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    let (runs, items) = scale.pick((1, 10_000), (15, 4_000_000), (31, 20_000_000));
    let rounds = items / 100;
    let (mut janus, mut rtrb, mut crossbeam) =
        (Figures::default(), Figures::default(), Figures::default());
    for _ in 0..runs {
        janus.take::<Janus>(items, rounds);
        rtrb.take::<Rtrb>(items, rounds);
        crossbeam.take::<Crossbeam>(items / 8, rounds);
    }
    janus.rows(report, Janus::NAME);
    rtrb.rows(report, Rtrb::NAME);
    crossbeam.rows(report, Crossbeam::NAME);
}
