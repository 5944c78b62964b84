//! The packet-buffer pool beside a list of free slots in crossbeam's `ArrayQueue`, which all threads share, and beside the
//! allocator: taken and given back 32 at a time by one thread, and taken by one thread and given back by another.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Barrier;
use std::time::Instant;

use crossbeam::queue::ArrayQueue;
use janus_io::Burst;
use janus_io::ring::ring;
use janus_mem::{Depot, Growth, PacketBuf, Pool, SLOT_SIZE};

use crate::pin::pin;
use crate::support::Scale;
use crate::support::report::{Report, Value};

const BUFFERS: u32 = 8192;
const BATCH: usize = 32;

/// Somewhere to take buffers from and to give them back to, on each of two threads.
trait Source: Send {
    type Buf: Send + 'static;
    fn take(&mut self) -> Option<Self::Buf>;
    fn give(&mut self, buf: Self::Buf);
}

impl Source for Pool {
    type Buf = PacketBuf;

    #[inline]
    fn take(&mut self) -> Option<PacketBuf> {
        self.alloc()
    }

    #[inline]
    fn give(&mut self, buf: PacketBuf) {
        self.free(buf);
    }
}

struct Shared<'a>(&'a ArrayQueue<u64>);

impl Source for Shared<'_> {
    type Buf = u64;

    #[inline]
    fn take(&mut self) -> Option<u64> {
        self.0.pop()
    }

    #[inline]
    fn give(&mut self, buf: u64) {
        // There is room for as many as there are.
        let _ = self.0.push(buf);
    }
}

struct Allocator;

impl Source for Allocator {
    type Buf = Box<[MaybeUninit<u8>; SLOT_SIZE]>;

    #[inline]
    fn take(&mut self) -> Option<Self::Buf> {
        Some(black_box(Box::new([MaybeUninit::uninit(); SLOT_SIZE])))
    }

    #[inline]
    fn give(&mut self, buf: Self::Buf) {
        drop(buf);
    }
}

/// Million buffers a second, taken and given back by one thread.
fn alone<S: Source>(mut source: S, count: u64) -> f64 {
    let _here = pin(0);
    let mut held: Burst<S::Buf, BATCH> = Burst::new();
    let begin = Instant::now();
    for _ in 0..count / BATCH as u64 {
        for _ in 0..BATCH {
            let _ = held.push(black_box(source.take().expect("a buffer")));
        }
        for buf in held.pull() {
            source.give(buf);
        }
    }
    count as f64 * 1e3 / begin.elapsed().as_nanos() as f64
}

/// Million buffers a second from one thread to another, in batches over the ring.
fn across<S: Source>(mut from: S, mut to: S, count: u64) -> f64 {
    let (mut tx, mut rx) = ring::<S::Buf>(1024);
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _there = pin(1);
            let mut burst: Burst<S::Buf, BATCH> = Burst::new();
            let mut made = 0;
            start.wait();
            while made < count || !burst.is_empty() {
                while made < count && !burst.is_full() {
                    // The others are on their way back.
                    let Some(buf) = from.take() else { break };
                    let _ = burst.push(buf);
                    made += 1;
                }
                tx.push_batch(&mut burst);
            }
        });
        let _here = pin(0);
        start.wait();
        let begin = Instant::now();
        let mut seen = 0;
        while seen < count {
            seen += rx.pop_each(BATCH, |buf| to.give(black_box(buf))) as u64;
        }
        count as f64 * 1e3 / begin.elapsed().as_nanos() as f64
    })
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    let (runs, count) = scale.pick((1, 3_200), (15, 3_200_000), (31, 16_000_000));
    let depot = Depot::new(BUFFERS, &Growth::Inline).expect("memory");
    depot.ready_all().expect("memory");
    let free = ArrayQueue::new(BUFFERS as usize);
    (0..u64::from(BUFFERS)).for_each(|slot| free.push(slot).expect("room for all"));
    let mut figures: [[Vec<f64>; 2]; 3] = Default::default();
    for _ in 0..runs {
        figures[0][0].push(alone(depot.pool(), count));
        figures[1][0].push(alone(Shared(&free), count / 4));
        figures[2][0].push(alone(Allocator, count / 4));
        figures[0][1].push(across(depot.pool(), depot.pool(), count));
        figures[1][1].push(across(Shared(&free), Shared(&free), count / 4));
        figures[2][1].push(across(Allocator, Allocator, count / 4));
    }
    assert_eq!(depot.stats().outstanding, 0);
    let names = ["janus", "crossbeam ArrayQueue of slots", "allocator"];
    for (name, [alone, across]) in names.into_iter().zip(&figures) {
        for (threads, runs) in [(1u32, alone), (2, across)] {
            let params: [(&str, Value); 2] = [("pool", name.into()), ("threads", threads.into())];
            report.median("pool_mbufs_per_s", runs, "M/s", &params);
        }
    }
}
