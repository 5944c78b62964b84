use super::*;
use crate::testing::{CLIENT, SERVER, frame, mark, pool, request, segment};
use janus_mem::{Frame, LENT};
use std::sync::Mutex;

type Queues = Vec<Box<dyn Queue>>;

fn open(config: Config) -> (Queues, Queues, Vec<Arc<WireCounters>>) {
    let [near, far] = config.queues;
    let (a, b) = pair(config).unwrap();
    let counters = a.counters();
    (
        Box::new(a).open(near).unwrap(),
        Box::new(b).open(far).unwrap(),
        counters,
    )
}

fn send(
    queue: &mut dyn Queue,
    pool: &mut Pool,
    frames: impl IntoIterator<Item = Vec<u8>>,
) -> Batch {
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    for bytes in frames {
        batch.push(frame(pool, &bytes)).unwrap();
        if batch.is_full() {
            queue.tx_burst(pool, &mut batch, &mut done);
        }
    }
    queue.tx_burst(pool, &mut batch, &mut done);
    assert!(batch.is_empty());
    done
}

fn receive(queue: &mut dyn Queue, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut batch = Batch::new();
        queue.rx_burst(pool, &mut batch);
        if batch.is_empty() {
            return all;
        }
        for frame in batch.pull() {
            assert_eq!((frame.tag, frame.key), (0, 0));
            all.push(frame.data().to_vec());
            pool.free(frame.buf);
        }
    }
}

#[test]
fn frames_arrive_as_copies_in_buffers_of_the_receiver() {
    let (mut a, mut b, counters) = open(Config::default());
    let (mut pool_a, mut pool_b) = (pool(1024), pool(1024));
    // The first frames come before the receiver was ever polled.
    for round in 0..3u32 {
        let sent: Vec<_> = (0..40)
            .map(|i| request(Link::Ip, 1000, round * 100 + i))
            .collect();
        send(&mut *a[0], &mut pool_a, sent.clone());
        assert_eq!(receive(&mut *b[0], &mut pool_b), sent);
    }
    assert_eq!(
        (counters[0].sent.get(), counters[0].sent_bytes.get()),
        (120, 120 * 40)
    );
    drop((a, b));
    pool_a.flush();
    pool_b.flush();
    assert_eq!(
        (
            pool_a.depot().stats().outstanding,
            pool_b.depot().stats().outstanding
        ),
        (0, 0)
    );
}

#[test]
fn lent_frames_are_done_at_once_and_no_more_are_taken_than_fit() {
    let (mut a, mut b, _) = open(Config::default());
    let (mut pool_a, mut pool_b) = (pool(256), pool(256));
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    for i in 0..3 {
        let mut lent = frame(&mut pool_a, &request(Link::Ip, 1, i));
        (lent.tag, lent.key) = (LENT, 70 + i);
        batch.push(lent).unwrap();
    }
    let filler = |pool: &mut Pool| Frame::new(pool.alloc().unwrap(), 0);
    done.extend((0..BURST - 2).map(|_| filler(&mut pool_a)));
    a[0].tx_burst(&mut pool_a, &mut batch, &mut done);
    assert_eq!(batch.len(), 1, "what has no room for its completion stays");
    assert_eq!(batch[0].key, 72);
    assert_eq!((done[BURST - 2].key, done[BURST - 1].key), (70, 71));
    assert_eq!(receive(&mut *b[0], &mut pool_b).len(), 2);
}

#[test]
fn a_receiver_that_is_not_polled_loses_the_excess_and_it_is_counted() {
    let (mut a, mut b, counters) = open(Config {
        depth: 16,
        ..Config::default()
    });
    let (mut pool_a, mut pool_b) = (pool(1024), pool(1024));
    assert!(receive(&mut *b[0], &mut pool_b).is_empty());
    let sent: Vec<_> = (0..50).map(|i| request(Link::Ip, 1, i)).collect();
    send(&mut *a[0], &mut pool_a, sent.clone());
    assert_eq!(receive(&mut *b[0], &mut pool_b), sent[..16]);
    assert_eq!(
        (counters[0].sent.get(), counters[0].lost_no_buffer.get()),
        (16, 34)
    );
    // And it goes on.
    send(&mut *a[0], &mut pool_a, sent[..10].to_vec());
    assert_eq!(receive(&mut *b[0], &mut pool_b).len(), 10);
}

#[test]
fn an_unpolled_far_side_bounds_what_the_sender_brings() {
    let (mut a, mut b, counters) = open(Config {
        depth: 16,
        ..Config::default()
    });
    let (mut pool_a, mut pool_b) = (pool(1024), pool(1024));
    let sent: Vec<_> = (0..50).map(|i| request(Link::Ip, 1, i)).collect();
    send(&mut *a[0], &mut pool_a, sent.clone());
    assert_eq!(
        (counters[0].sent.get(), counters[0].lost_no_buffer.get()),
        (16, 34)
    );
    // Brought and posted ones together fit.
    let mut none = Batch::new();
    none.extend((0..BURST).map(|_| Frame::new(pool_b.alloc().unwrap(), 0)));
    b[0].rx_burst(&mut pool_b, &mut none);
    send(&mut *a[0], &mut pool_a, sent.clone());
    assert_eq!(counters[0].sent.get(), 32);
    assert_eq!(receive(&mut *b[0], &mut pool_b).len(), 32);
}

#[test]
fn no_link_and_too_long_are_counted() {
    let (a, b) = pair(Config {
        mtu: 576,
        ..Config::default()
    })
    .unwrap();
    let counters = a.counters();
    let (mut pool_a, mut pool_b) = (pool(64), pool(64));
    let mut a = Box::new(a).open(1).unwrap();
    send(&mut *a[0], &mut pool_a, [request(Link::Ip, 1, 1)]);
    assert_eq!(counters[0].lost_no_link.get(), 1);
    let mut b = Box::new(b).open(1).unwrap();
    let long = |payload| segment(Link::Ip, (CLIENT, 1), (SERVER, 80), 1, payload);
    send(&mut *a[0], &mut pool_a, [long(536), long(537)]);
    assert_eq!(counters[0].lost_too_long.get(), 1);
    assert_eq!(receive(&mut *b[0], &mut pool_b).len(), 1);
    let error = pair(Config {
        mtu: 9000,
        ..Config::default()
    })
    .err()
    .unwrap()
    .to_string();
    assert!(error.contains("MTU"), "{error}");
}

#[test]
fn more_queues_than_there_are_is_an_error_that_says_so() {
    let (a, _b) = pair(Config {
        queues: [2, 1],
        ..Config::default()
    })
    .unwrap();
    let error = Box::new(a).open(3).err().unwrap().to_string();
    assert!(error.contains("1 to 2 queues, not 3"), "{error}");
}

/// Both directions of a flow meet on one queue of each side, whichever queue sends, and all queues get some.
#[test]
fn flows_stay_on_their_queue_in_order() {
    let (mut a, mut b, _) = open(Config {
        link: Link::Ethernet,
        queues: [2, 3],
        ..Config::default()
    });
    let (mut pool_a, mut pool_b) = (pool(8192), pool(8192));
    let mut used = [0; 3];
    for port in 1000..1060u16 {
        let (forth, back) = ((CLIENT, port), (SERVER, 80));
        for mark in 0..2 {
            // One sending queue keeps the order; another may send for the same flow too.
            send(
                &mut *a[port as usize % 2],
                &mut pool_a,
                [segment(Link::Ethernet, forth, back, mark, 10)],
            );
        }
        let got: Vec<_> = b
            .iter_mut()
            .map(|queue| receive(&mut **queue, &mut pool_b))
            .collect();
        let at = got
            .iter()
            .position(|frames| frames.len() == 2)
            .expect("both on one queue");
        assert_eq!(
            [0, 1],
            [
                mark(&got[at][0], Link::Ethernet),
                mark(&got[at][1], Link::Ethernet)
            ]
        );
        used[at] += 1;
        let bytes = segment(Link::Ethernet, back, forth, 0, 0);
        assert_eq!(spread(&bytes, Link::Ethernet, 3), at);
    }
    assert!(used.iter().all(|n| *n > 5), "{used:?}");
}

#[test]
fn opened_with_fewer_queues_everything_goes_to_those() {
    let (a, b) = pair(Config {
        queues: [1, 4],
        ..Config::default()
    })
    .unwrap();
    let (mut a, mut b) = (Box::new(a).open(1).unwrap(), Box::new(b).open(2).unwrap());
    let (mut pool_a, mut pool_b) = (pool(1024), pool(1024));
    send(
        &mut *a[0],
        &mut pool_a,
        (0..60).map(|port| request(Link::Ip, port, 0)),
    );
    let got: Vec<_> = b
        .iter_mut()
        .map(|queue| receive(&mut **queue, &mut pool_b).len())
        .collect();
    assert_eq!(got.iter().sum::<usize>(), 60);
    assert!(got.iter().all(|n| *n > 10), "{got:?}");
}

#[test]
fn capture_sees_both_directions() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let capture: Arc<dyn Capture> = Arc::new(move |direction, bytes: &[u8]| {
        log.lock().unwrap().push((direction, mark(bytes, Link::Ip)));
    });
    let (mut a, mut b, _) = open(Config {
        capture: Some(capture),
        ..Config::default()
    });
    let mut pool = pool(256);
    send(&mut *a[0], &mut pool, [request(Link::Ip, 1, 5)]);
    send(&mut *b[0], &mut pool, [request(Link::Ip, 1, 6)]);
    assert_eq!(
        *seen.lock().unwrap(),
        [(Direction::Forth, 5), (Direction::Back, 6)]
    );
}

#[test]
fn a_sleeping_receiver_is_rung_and_an_awake_one_is_not() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (mut a, mut b, _) = open(Config::default());
    let mut pool = pool(256);
    let readable = |queue: &dyn Queue| {
        let fd = queue.wait_fd().unwrap();
        poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&Timespec::default()),
        )
        .unwrap()
            == 1
    };
    send(&mut *a[0], &mut pool, [request(Link::Ip, 1, 1)]);
    assert!(!readable(&*b[0]), "nobody said it sleeps");
    assert!(!b[0].arm(), "there is work already");
    receive(&mut *b[0], &mut pool);
    assert!(b[0].arm());
    assert!(!readable(&*b[0]));
    send(&mut *a[0], &mut pool, [request(Link::Ip, 1, 2)]);
    assert!(readable(&*b[0]));
    assert_eq!(receive(&mut *b[0], &mut pool).len(), 1);
    assert!(b[0].arm());
    assert!(!readable(&*b[0]), "arming clears an old ring");
}

/// Two threads, each with a pool of its own over one small depot: nothing is lost or doubled that is not counted.
#[test]
fn two_threads_exchange_frames() {
    let (mut a, mut b, counters) = open(Config {
        depth: 64,
        ..Config::default()
    });
    let depot = janus_mem::Depot::new(2048, &janus_mem::Growth::Inline).unwrap();
    let (mut pool_a, mut pool_b) = (depot.pool(), depot.pool());
    const COUNT: u32 = 20_000;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let receiver = std::thread::spawn(move || {
        let mut seen: Vec<u32> = Vec::new();
        loop {
            let last = stopped.load(Ordering::Acquire);
            let got = receive(&mut *b[0], &mut pool_b);
            seen.extend(got.iter().map(|bytes| mark(bytes, Link::Ip)));
            if last && got.is_empty() {
                return seen;
            }
            std::thread::yield_now();
        }
    });
    for start in (0..COUNT).step_by(50) {
        send(
            &mut *a[0],
            &mut pool_a,
            (start..start + 50).map(|i| request(Link::Ip, 1, i)),
        );
    }
    stop.store(true, Ordering::Release);
    let seen = receiver.join().unwrap();
    assert!(seen.is_sorted_by(|a, b| a < b));
    assert_eq!(seen.len() as u64, counters[0].sent.get());
    assert_eq!(
        u64::from(COUNT),
        counters[0].sent.get() + counters[0].lost_no_buffer.get()
    );
    drop(a);
    pool_a.flush();
    assert_eq!(depot.stats().outstanding, 0);
}

/// A queue that is to post more buffers than there are says so, and goes on when there are some.
#[test]
fn buffers_that_are_missing_are_counted() {
    let (a, b) = pair(Config {
        depth: 16,
        ..Config::default()
    })
    .unwrap();
    let losses = b.losses().expect("it counts them");
    let mut a = Box::new(a).open(1).unwrap();
    let mut b = Box::new(b).open(1).unwrap();
    let (mut pool_a, mut pool_b) = (pool(1024), pool(64));
    assert!(receive(&mut *b[0], &mut pool_b).is_empty());
    assert_eq!(losses().no_buffer, 0);
    let held: Vec<_> = std::iter::from_fn(|| pool_b.alloc_reserved()).collect();
    let sent: Vec<_> = (0..16).map(|i| request(Link::Ip, 1, i)).collect();
    let mut batch = Batch::new();
    send(&mut *a[0], &mut pool_a, sent.clone());
    b[0].rx_burst(&mut pool_b, &mut batch);
    assert_eq!((batch.len(), losses().no_buffer), (16, 1));
    let fill = |pool: &mut Pool| {
        pool.flush();
        pool.depot().fill()
    };
    assert_eq!(
        fill(&mut pool_b),
        (64, 48),
        "the 16 of the device are elsewhere"
    );
    held.into_iter().for_each(|buf| pool_b.free(buf));
    batch.pull().for_each(|frame| pool_b.free(frame.buf));
    assert!(receive(&mut *b[0], &mut pool_b).is_empty());
    send(&mut *a[0], &mut pool_a, sent.clone());
    assert_eq!(receive(&mut *b[0], &mut pool_b), sent);
    assert_eq!(losses().no_buffer, 1);
    assert_eq!(fill(&mut pool_b), (0, 48), "it has them all");
}
