//! The DPDK backend on devices that need nothing but memory: `net_ring`, which hands back what it is sent by its pointer,
//! and `net_null`, which swallows it. Every frame is checked by its number, every buffer accounted for.

#![cfg(feature = "_dpdk")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_io::dpdk::{Dpdk, DpdkCounters};
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, LENT, Pool};
use janus_seeds::Random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const FRAMES: u64 = 200_000;
const BUFFERS: u32 = 8192;

fn depot() -> Arc<Depot> {
    Depot::new(BUFFERS, &Growth::Inline).unwrap()
}

fn open(
    device: &str,
    depot: &Arc<Depot>,
    queues: usize,
) -> (Vec<Box<dyn Queue>>, Arc<DpdkCounters>) {
    let backend = Dpdk::new(device, depot.clone());
    let (counters, status, facts) = (backend.counters(), backend.status(), backend.facts());
    let opened = Box::new(backend).open(queues).unwrap();
    let facts = facts.get().unwrap();
    assert!(facts.driver.starts_with("net_"), "{facts:?}");
    assert!(status.is_up(), "{status:?}");
    assert_eq!(opened.len(), queues);
    assert_eq!(depot.fill().0, 0, "what it receives into");
    (opened, counters)
}

/// Every buffer is home, and the device has let go of the depot: it says no more that it needs some to receive into.
fn all_home(depot: Arc<Depot>) {
    assert_eq!(depot.stats().outstanding, 0);
    let mut pool = depot.pool();
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc()).take(100).collect();
    pool.flush();
    assert_eq!(depot.fill().0, held.len());
    drop((held, pool));
    assert_eq!(Arc::strong_count(&depot), 1);
}

/// A frame whose length and bytes follow from its number.
fn numbered(pool: &mut Pool, number: u64) -> Frame {
    let len = 64 + (number.wrapping_mul(0x9e37_79b9) >> 7) % 1437;
    let mut frame = Frame::new(pool.alloc().unwrap(), len as u16);
    let bytes = frame.data_mut();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    for (at, byte) in bytes.iter_mut().enumerate().skip(8) {
        *byte = (number as usize).wrapping_mul(31).wrapping_add(at) as u8;
    }
    frame
}

fn check(frame: &Frame, number: u64) {
    let len = 64 + (number.wrapping_mul(0x9e37_79b9) >> 7) % 1437;
    assert_eq!(u64::from(frame.len), len, "frame {number}");
    let bytes = frame.data();
    assert_eq!(bytes[..8], number.to_le_bytes(), "frame {number}");
    let right = |(at, byte): (usize, &u8)| {
        *byte == (number as usize).wrapping_mul(31).wrapping_add(at) as u8
    };
    assert!(
        bytes.iter().enumerate().skip(8).all(right),
        "frame {number}"
    );
}

/// Everything that a run over one queue did.
#[derive(Debug, Default)]
struct Run {
    lent: u64,
    came_back: u64,
}

/// Sends numbered frames in uneven bursts, every `lend`th of them lent, and receives them in order.
fn exchange(queue: &mut dyn Queue, pool: &mut Pool, seed: u64, lend: Option<u64>) -> Run {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut made, mut received, mut run) = (0, 0, Run::default());
    let (mut backlog, mut done, mut out) = (Batch::new(), Batch::new(), Batch::new());
    let mut lent: VecDeque<(u64, u16)> = VecDeque::new();
    let mut idle = 0;
    while received < FRAMES || run.came_back < run.lent {
        let before = (made, received, run.came_back);
        // A few bursts at most are under way: a ring that is full takes nothing.
        for _ in 0..random.below(64) {
            if made == FRAMES || made - received > 500 || backlog.is_full() {
                break;
            }
            let mut frame = numbered(pool, made);
            if lend.is_some_and(|every| made % every == 0) {
                frame.tag = LENT | 0x0300;
                frame.key = made as u32;
                lent.push_back((made, frame.buf.off()));
                run.lent += 1;
            }
            made += 1;
            backlog.push(frame).unwrap();
        }
        queue.tx_burst(pool, &mut backlog, &mut done);
        for frame in done.pull() {
            let (number, off) = lent.pop_front().expect("only what was lent comes back");
            assert_eq!((frame.tag, frame.key), (LENT | 0x0300, number as u32));
            assert_eq!(frame.buf.off(), off);
            check(&frame, number);
            run.came_back += 1;
            pool.free(frame.buf);
        }
        if random.below(3) > 0 || made == FRAMES {
            queue.rx_burst(pool, &mut out);
        }
        for frame in out.pull() {
            check(&frame, received);
            assert_eq!((frame.tag, frame.key), (0, 0));
            received += 1;
            pool.free(frame.buf);
        }
        idle = if before == (made, received, run.came_back) {
            idle + 1
        } else {
            0
        };
        assert!(
            idle < 100_000,
            "stuck: {made} made, {received} received, {run:?}"
        );
    }
    assert_eq!(received, FRAMES, "none twice");
    run
}

#[test]
fn frames_pass_in_order_and_are_not_copied() {
    let depot = depot();
    let (mut queues, counters) = open("net_ring0", &depot, 2);
    let mut pool = depot.pool();
    for (seed, queue) in (1..).zip(&mut queues) {
        exchange(&mut **queue, &mut pool, seed, None);
    }
    assert_eq!(counters.received.get(), 2 * FRAMES);
    assert_eq!(counters.sent.get(), 2 * FRAMES);
    assert_eq!((counters.rx_copied.get(), counters.tx_copied.get()), (0, 0));
    let statistics = counters.statistics();
    assert_eq!(
        (statistics.rx_frames, statistics.tx_frames),
        (2 * FRAMES, 2 * FRAMES)
    );
    drop(queues);
    assert_eq!(counters.statistics(), statistics, "kept after the end");
    drop(pool);
    all_home(depot);
}

#[test]
fn a_lent_frame_that_comes_round_by_its_pointer_is_copied_and_comes_back_too() {
    let depot = depot();
    let (mut queues, counters) = open("net_ring1", &depot, 1);
    let mut pool = depot.pool();
    let run = exchange(&mut *queues[0], &mut pool, 3, Some(5));
    assert_eq!(run.lent, FRAMES / 5);
    assert_eq!(counters.rx_copied.get(), run.lent, "and no other");
    assert_eq!(counters.completed.get(), run.lent);
    drop((queues, pool));
    all_home(depot);
}

#[test]
fn what_a_device_has_sent_comes_back_uncopied() {
    let depot = depot();
    // Its receiving side makes frames of its own, which nobody asks for here.
    let (mut queues, counters) = open("net_null0", &depot, 1);
    let mut pool = depot.pool();
    let (mut backlog, mut done) = (Batch::new(), Batch::new());
    let mut back = 0;
    for number in 0..10_000 {
        let mut frame = numbered(&mut pool, number);
        frame.tag = if number % 2 == 0 { LENT } else { 0 };
        frame.key = number as u32;
        backlog.push(frame).unwrap();
        queues[0].tx_burst(&mut pool, &mut backlog, &mut done);
        assert!(backlog.is_empty());
        for frame in done.pull() {
            check(&frame, u64::from(frame.key));
            back += 1;
            pool.free(frame.buf);
        }
    }
    assert_eq!(back, 5_000);
    assert_eq!(
        (counters.tx_copied.get(), counters.completed.get()),
        (0, 5_000)
    );
    drop((queues, pool));
    all_home(depot);
}

#[test]
fn frames_of_another_depot_are_copied_and_counted() {
    let (ours, other) = (depot(), depot());
    let (mut queues, counters) = open("net_ring2", &ours, 1);
    let mut pool = other.pool();
    let (mut backlog, mut done, mut out) = (Batch::new(), Batch::new(), Batch::new());
    for number in 0..20 {
        let mut frame = numbered(&mut pool, number);
        frame.tag = if number < 10 { LENT } else { 0 };
        backlog.push(frame).unwrap();
    }
    queues[0].tx_burst(&mut pool, &mut backlog, &mut done);
    assert_eq!((backlog.len(), done.len()), (0, 10));
    done.pull()
        .zip(0..)
        .for_each(|(frame, number)| check(&frame, number));
    queues[0].rx_burst(&mut pool, &mut out);
    assert_eq!(out.len(), 20);
    out.pull()
        .zip(0..)
        .for_each(|(frame, number)| check(&frame, number));
    assert_eq!(counters.tx_copied.get(), 20);
    drop((queues, pool));
    assert_eq!(
        (ours.stats().outstanding, other.stats().outstanding),
        (0, 0)
    );
}

#[test]
fn a_device_that_cannot_wake_us_is_waited_for_by_time() {
    let depot = depot();
    let (mut queues, _) = open("net_ring4", &depot, 1);
    let queue = &mut queues[0];
    let mut pool = depot.pool();
    let mut slept = Duration::ZERO;
    for sleep in 0..10 {
        let mut out = Batch::new();
        queue.rx_burst(&mut pool, &mut out);
        assert!(out.is_empty() && queue.arm(), "nothing to do");
        let fd = queue.wait_fd().expect("a timer");
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let begin = Instant::now();
        let limit = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "sleep {sleep}");
        slept = begin.elapsed();
    }
    assert!(
        slept >= janus_io::dpdk::SLEEP,
        "longer and longer: {slept:?}"
    );
    drop((queues, pool));

    let backend = Dpdk::new("net_ring5", depot.clone()).with_sleep(Duration::ZERO);
    let mut queues = Box::new(backend).open(1).unwrap();
    assert!(queues[0].wait_fd().is_none() && !queues[0].arm(), "never");
    drop(queues);
    all_home(depot);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let open = |device: &str, queues| {
        let error = Box::new(Dpdk::new(device, depot())).open(queues).err();
        error.unwrap().to_string()
    };
    let text = open("net_nosuch0", 1);
    assert!(
        text.contains("net_nosuch0") && text.contains("virtual device"),
        "{text}"
    );
    let text = open("net_ring3", 1000);
    assert!(text.contains("queues"), "{text}");
    let first = Box::new(Dpdk::new("net_ring6", depot())).open(1).unwrap();
    assert!(open("net_ring6", 1).contains("already"));
    drop(first);
    let again = Box::new(Dpdk::new("net_ring6", depot())).open(1);
    assert!(again.is_ok(), "free again");
    let other_arguments = Dpdk::new("net_ring3", depot()).with_eal(["-l", "0,1"]);
    let text = Box::new(other_arguments).open(1).err().unwrap().to_string();
    assert!(text.contains("once in a process"), "{text}");
}

/// DPDK gives the number of a device that is gone to the next.
#[test]
fn a_device_is_not_taken_for_one_that_another_thread_closes() {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                for turn in 0..20 {
                    let name = format!("net_ring{}", 10 + thread);
                    let opened = Box::new(Dpdk::new(name, depot())).open(1);
                    assert!(opened.is_ok(), "turn {turn}: {:?}", opened.err());
                }
            });
        }
    });
}
