//! The way past, over a wire polled by the test.

use janus_wire::{Link, ethernet};

use super::*;
use crate::backend::wire::{self, End};
use crate::queue::Backend;
use crate::testing::{frame, pool, request};

/// Even last bytes are for the way past, 7 for both.
fn by_last(bytes: &[u8]) -> Whose {
    match bytes.last() {
        Some(7) => Whose::Both,
        Some(last) if last % 2 == 0 => Whose::Aside,
        _ => Whose::Shards,
    }
}

fn wired(queues: usize) -> (Vec<Box<dyn Queue>>, Aside, Box<dyn Queue>) {
    let config = wire::Config {
        link: Link::Ethernet,
        queues: [queues, 1],
        ..wire::Config::default()
    };
    let (near, far): (End, End) = wire::pair(config).unwrap();
    let opened = Box::new(near).open(queues).unwrap();
    let (queues, aside) = wrap(opened, by_last).unwrap();
    let far = Box::new(far).open(1).unwrap().remove(0);
    (queues, aside, far)
}

fn marked(port: u16, last: u8) -> Vec<u8> {
    let mut bytes = request(Link::Ethernet, port, 1);
    bytes.push(last);
    bytes
}

fn all(queue: &mut dyn Queue, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    queue.rx_burst(pool, &mut batch);
    let mut got = Vec::new();
    for frame in batch.pull() {
        got.push(frame.data().to_vec());
        pool.free(frame.buf);
    }
    got
}

fn sent(queue: &mut dyn Queue, pool: &mut Pool, frames: &[Vec<u8>]) {
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    batch.extend(frames.iter().map(|bytes| frame(pool, bytes)));
    queue.tx_burst(pool, &mut batch, &mut done);
    assert!(batch.is_empty());
}

#[test]
fn what_the_filter_picks_goes_past_and_the_rest_does_not() {
    let (mut queues, aside, mut far) = wired(1);
    let mut pool = pool(1024);
    all(&mut *queues[0], &mut pool);
    let frames = [marked(1, 1), marked(2, 2), marked(3, 7), marked(4, 3)];
    sent(&mut *far, &mut pool, &frames);
    let kept = all(&mut *queues[0], &mut pool);
    assert_eq!(kept, [&frames[0], &frames[2], &frames[3]].map(Vec::clone));
    for expected in [&frames[1], &frames[2]] {
        let got = aside.receive(Duration::ZERO).unwrap();
        assert_eq!(got.as_ref(), Some(expected));
    }
    assert_eq!(aside.receive(Duration::ZERO), Ok(None));
    assert_eq!(aside.counters().received.get(), 2);
}

#[test]
fn what_nobody_fetches_is_lost_and_counted() {
    let (mut queues, aside, mut far) = wired(1);
    let mut pool = pool(1024);
    all(&mut *queues[0], &mut pool);
    for _ in 0..DEPTH + 10 {
        sent(&mut *far, &mut pool, &[marked(1, 2)]);
        assert!(all(&mut *queues[0], &mut pool).is_empty());
    }
    assert_eq!(aside.counters().lost_received.get(), 10);
    let waiting = std::iter::from_fn(|| aside.receive(Duration::ZERO).unwrap());
    assert_eq!(waiting.count(), DEPTH);
}

#[test]
fn frames_given_leave_by_one_queue_and_wake_it() {
    let (mut queues, aside, mut far) = wired(2);
    let mut pool = pool(1024);
    all(&mut *far, &mut pool);
    assert!(queues[0].arm(), "nothing to do");
    let fd = queues[0].wait_fd().unwrap();
    let is_ready = |fd: BorrowedFd<'_>| {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            fd,
            rustix::event::PollFlags::IN,
        )];
        let none = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&none)).unwrap() > 0
    };
    assert!(!is_ready(fd));
    for number in 0..DEPTH as u8 {
        assert!(aside.send(marked(9, number)));
    }
    assert!(!aside.send(marked(9, 0)), "bounded");
    assert!(is_ready(queues[0].wait_fd().unwrap()), "a sleeper wakes");
    assert!(!queues[0].arm(), "there is work already");
    all(&mut *queues[0], &mut pool);
    sent(&mut *queues[1], &mut pool, &[]);
    assert!(all(&mut *far, &mut pool).is_empty(), "not by the other");
    sent(&mut *queues[0], &mut pool, &[]);
    let got = all(&mut *far, &mut pool);
    assert_eq!(got.len(), DEPTH);
    assert!(
        got.iter()
            .zip(0..)
            .all(|(frame, number)| *frame.last().unwrap() == number)
    );
    // Whether that was all, the next turn finds out.
    sent(&mut *queues[0], &mut pool, &[]);
    assert!(queues[0].arm());
    // Longer than the link carries: not sent, and not in the way.
    assert!(aside.send(vec![1; ethernet::LEN + 1501]));
    assert!(aside.send(vec![1; 4000]));
    assert!(aside.send(marked(9, 5)));
    sent(&mut *queues[0], &mut pool, &[]);
    assert_eq!(all(&mut *far, &mut pool).len(), 1);
}

#[test]
fn without_buffers_what_is_given_waits() {
    let (mut queues, aside, mut far) = wired(1);
    let mut plenty = pool(1024);
    let mut none = pool(64);
    all(&mut *far, &mut plenty);
    let held: Vec<_> = std::iter::from_fn(|| none.alloc()).collect();
    assert!(aside.send(marked(9, 5)));
    sent(&mut *queues[0], &mut none, &[]);
    assert!(all(&mut *far, &mut plenty).is_empty());
    assert!(!queues[0].arm(), "it is not forgotten");
    held.into_iter().for_each(|buf| none.free(buf));
    sent(&mut *queues[0], &mut none, &[]);
    assert_eq!(all(&mut *far, &mut plenty).len(), 1);
}

#[test]
fn the_end_of_the_device_is_told() {
    let (queues, aside, _far) = wired(1);
    assert_eq!(aside.receive(Duration::ZERO), Ok(None));
    drop(queues);
    assert_eq!(aside.receive(Duration::from_secs(5)), Err(Gone));
}

#[test]
fn the_queue_that_sent_is_left_for_a_last_word() {
    let (queues, aside, mut far) = wired(2);
    let mut pool = pool(1024);
    all(&mut *far, &mut pool);
    let mut queues = queues.into_iter();
    drop(queues.next());
    assert_eq!(
        aside.receive(Duration::ZERO),
        Ok(None),
        "one is there still"
    );
    drop(queues.next());
    assert_eq!(aside.receive(Duration::ZERO), Err(Gone));
    let mut left = aside.inherit().expect("the first queue");
    let word = marked(5, 2);
    sent(&mut *left, &mut pool, std::slice::from_ref(&word));
    assert_eq!(all(&mut *far, &mut pool), [word]);
    assert!(aside.inherit().is_none());
}
