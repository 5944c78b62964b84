//! Two queues joined by a pair of datagram sockets, in the place of the kernel: what one writes as a frame the other reads as
//! one. The kernel itself is in `tests/tap.rs`.

use janus_mem::{Depot, Growth};
use janus_wire::Link;
use janus_wire::tcp::Flags;
use proptest::prelude::*;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::testing::stream::Stream;
use crate::testing::{self, frame};

const END: Flags = Flags(Flags::ACK.0 | Flags::PSH.0);

fn sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap();
    for fd in [&a, &b] {
        fcntl_setfl(fd, OFlags::NONBLOCK).unwrap();
    }
    (a, b)
}

fn queue(fd: OwnedFd) -> OffloadQueue {
    let caps = Caps {
        link: Link::Ethernet,
        mtu: 1500,
        mac: None,
        tx_checksum: true,
        rx_checksum: true,
        tso: true,
        gro: true,
        name: "pair".into(),
    };
    OffloadQueue::new(caps, fd, Arc::new(Claim::none()), Arc::default())
}

/// Sends all of it, and gives what the other queue makes of it.
fn over(
    from: &mut OffloadQueue,
    to: &mut OffloadQueue,
    pool: &mut Pool,
    frames: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let (mut got, mut left) = (Vec::new(), frames);
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    let mut idle = 0;
    while idle < 2 {
        while let Some((next, rest)) = left.split_first().filter(|_| !batch.is_full()) {
            batch.push(frame(pool, next)).unwrap();
            left = rest;
        }
        from.tx_burst(pool, &mut batch, &mut done);
        let mut burst = Batch::new();
        to.rx_burst(pool, &mut burst);
        idle = if burst.is_empty() { idle + 1 } else { 0 };
        for frame in burst.pull() {
            got.push(frame.data().to_vec());
            pool.free(frame.buf);
        }
    }
    assert!(batch.is_empty() && left.is_empty() && to.arm());
    got
}

fn datagram(header: vnet::Header, frame: &[u8]) -> Vec<u8> {
    [&header.to_bytes(), frame].concat()
}

#[test]
fn a_stream_crosses_in_few_frames_and_falls_into_place() {
    let (a, b) = sockets();
    let (mut a, mut b) = (queue(a), queue(b));
    let mut pool = testing::pool(1024);
    for v6 in [false, true] {
        for timestamps in [true, false] {
            let s = Stream {
                v6,
                timestamps,
                ..Stream::V4
            };
            let size = 1514 - s.headers();
            let sent = s.segments(&[size; 400], END);
            let (out, joined, copied) = counts(&a, &b);
            let got = over(&mut a, &mut b, &mut pool, &sent);
            assert_eq!(got.len(), sent.len());
            for (got, sent) in got.iter().zip(&sent) {
                assert_eq!(&s.without_checksum(got), sent);
            }
            let (out_now, joined_now, copied_now) = counts(&a, &b);
            assert!(out_now - out <= 16, "{} writes for 400", out_now - out);
            assert_eq!(joined_now - joined, out_now - out);
            assert!(
                copied_now - copied <= 45,
                "only the first of a new shape is copied: {}",
                copied_now - copied
            );
        }
    }
}

fn counts(a: &OffloadQueue, b: &OffloadQueue) -> (u64, u64, u64) {
    let (a, b) = (&a.counters, &b.counters);
    (a.joined_out.get(), b.joined_in.get(), b.copied_in.get())
}

#[test]
fn small_segments_of_a_large_frame_wait_for_their_turn() {
    let (a, peer) = sockets();
    let mut queue = queue(a);
    let mut pool = testing::pool(4096);
    let s = Stream::V4;
    let sizes = [40; 1500];
    let sent = s.segments(&sizes, END);
    let mut one = sent[0][..s.headers()].to_vec();
    let at = crate::backend::large::layout(&one).unwrap();
    join::seal(&mut one, &at, 40 * 1500, END);
    sent.iter()
        .for_each(|segment| one.extend_from_slice(&segment[s.headers()..]));
    let header = vnet::Header::default()
        .with_checksum(at.tcp, CHECKSUM_AT)
        .with_segments(false, at.payload, 40);
    for _ in 0..2 {
        rustix::io::write(&peer, &datagram(header, &one)).unwrap();
        let mut got = Vec::new();
        loop {
            let mut burst = Batch::new();
            queue.rx_burst(&mut pool, &mut burst);
            if burst.is_empty() {
                break;
            }
            assert_eq!(queue.arm(), got.len() + burst.len() == sent.len());
            for frame in burst.pull() {
                got.push(s.without_checksum(frame.data()));
                pool.free(frame.buf);
            }
        }
        assert_eq!(got, sent);
    }
}

#[test]
fn as_many_buffers_lie_ready_as_the_longest_frame_of_late_had_segments() {
    let (a, b) = sockets();
    let (mut a, mut b) = (queue(a), queue(b));
    let mut pool = testing::pool(1024);
    let mut longest = |segments: usize| {
        let sent = Stream::V4.segments(&vec![1_000; segments], END);
        let got = over(&mut a, &mut b, &mut pool, &sent);
        assert_eq!(got.len(), sent.len());
        for (got, sent) in got.iter().zip(&sent) {
            assert_eq!(&Stream::V4.without_checksum(got), sent);
        }
        b.scatter.prepare(&mut pool);
        b.scatter.ready()
    };
    assert_eq!(longest(4), 4);
    assert_eq!(longest(30), 30);
    assert_eq!(longest(4), 30, "there may be another");
    for _ in 0..2 * 64 {
        longest(4);
    }
    assert_eq!(longest(4), 4);
    longest(30);
    let in_use = |pool: &mut Pool| {
        pool.flush();
        pool.depot().fill().0
    };
    assert_eq!(
        in_use(&mut pool),
        0,
        "what lies ready is no sign of shortage"
    );
    let plain = vec![Stream::V4.segment(0, 0, 0, Flags::ACK); 80];
    over(&mut a, &mut b, &mut pool, &plain);
    assert_eq!(
        in_use(&mut pool),
        b.scatter.ready(),
        "nothing is said of it"
    );
}

#[test]
fn the_more_buffers_lie_ready_the_longer_they_are_kept() {
    for (segments, small) in [(4, 4), (30, 17)] {
        let (a, b) = sockets();
        let (mut a, mut b) = (queue(a), queue(b));
        let mut pool = testing::pool(1024);
        let joined = Stream::V4.segments(&vec![1_000; segments], END);
        over(&mut a, &mut b, &mut pool, &joined);
        let plain = vec![Stream::V4.segment(0, 0, 0, Flags::ACK); small];
        // Each joined one in between begins the count anew.
        for _ in 0..2 {
            over(&mut a, &mut b, &mut pool, &plain);
            assert!(b.scatter.shape().is_some(), "{small} small frames");
            over(&mut a, &mut b, &mut pool, &joined);
        }
        over(&mut a, &mut b, &mut pool, &plain);
        over(&mut a, &mut b, &mut pool, &plain[..1]);
        assert!(b.scatter.shape().is_none() && b.scatter.ready() <= 1);
        let copied = b.counters.copied_in.get();
        assert_eq!(over(&mut a, &mut b, &mut pool, &joined).len(), segments);
        assert_eq!(b.counters.copied_in.get() - copied, segments as u64);
    }
}

#[test]
fn a_frame_without_room_before_it_leaves_too() {
    let (a, b) = sockets();
    let (mut a, mut b) = (queue(a), queue(b));
    let mut pool = testing::pool(64);
    let sent = testing::arp(janus_wire::arp::Op::Request);
    let (mut batch, mut done, mut got) = (Batch::new(), Batch::new(), Batch::new());
    for off in [0, vnet::LEN as u16 - 1, vnet::LEN as u16] {
        let mut buf = pool.alloc().unwrap();
        buf.set_off(off);
        let mut frame = Frame::new(buf, sent.len() as u16);
        frame.data_mut().copy_from_slice(&sent);
        batch.push(frame).unwrap();
    }
    a.tx_burst(&mut pool, &mut batch, &mut done);
    b.rx_burst(&mut pool, &mut got);
    let got: Vec<_> = got.pull().map(|frame| frame.data().to_vec()).collect();
    assert_eq!(got, [&sent[..]; 3]);
}

#[test]
fn plain_frames_between_large_ones_arrive_as_they_are() {
    let (a, b) = sockets();
    let (mut a, mut b) = (queue(a), queue(b));
    let mut pool = testing::pool(1024);
    let small = Stream {
        checksums: true,
        ..Stream::V4
    };
    // Of an MSS of 500, so that a packet of full length is longer than what is expected in the first buffer.
    let mut sent = small.segments(&[500; 10], END);
    sent.push(Stream::V4.segment(0, 50_000, 1448, END));
    sent.push(testing::arp(janus_wire::arp::Op::Request));
    sent.extend(small.segments(&[500; 10], END));
    sent.push(small.segment(0, 0, 0, Flags::ACK));
    let got = over(&mut a, &mut b, &mut pool, &sent);
    assert_eq!(got.len(), sent.len());
    for (got, sent) in got.iter().zip(&sent) {
        if sent.len() == testing::arp(janus_wire::arp::Op::Request).len() {
            assert_eq!(got, sent);
        } else {
            let s = &small;
            assert_eq!(s.without_checksum(got), s.without_checksum(sent));
        }
    }
    // After many packets that were not joined one buffer lies ready, and no more.
    assert!(b.scatter.shape().is_some());
    let plain = vec![small.segment(0, 0, 0, Flags::ACK); 80];
    assert_eq!(over(&mut a, &mut b, &mut pool, &plain).len(), 80);
    assert!(b.scatter.shape().is_none() && b.scatter.ready() <= 1);
}

#[test]
fn what_nobody_vouches_for_is_looked_at() {
    let (a, peer) = sockets();
    let mut queue = queue(a);
    let mut pool = testing::pool(256);
    let mut receive = |bytes: &[u8]| {
        rustix::io::write(&peer, bytes).unwrap();
        let mut burst = Batch::new();
        queue.rx_burst(&mut pool, &mut burst);
        let got = burst.len();
        burst.pull().for_each(|frame| pool.free(frame.buf));
        (got, queue.counters.lost_checksum.get())
    };
    let s = Stream {
        checksums: true,
        ..Stream::V4
    };
    let good = s.segment(0, 0, 100, END);
    let none = vnet::Header::default();
    assert_eq!(receive(&datagram(none, &good)), (1, 0));
    let mut bad = good.clone();
    bad[100] ^= 1;
    assert_eq!(receive(&datagram(none, &bad)), (0, 1));
    let vouched = none.with_checksum(34, CHECKSUM_AT);
    assert_eq!(
        receive(&datagram(vouched, &bad)),
        (1, 1),
        "the kernel's word"
    );
    let mut bad_ip = good.clone();
    bad_ip[22] ^= 1;
    assert_eq!(
        receive(&datagram(vouched, &bad_ip)),
        (0, 2),
        "the IP header's"
    );
    // A joined frame that nobody vouches for cannot be checked.
    let joined = none.with_segments(false, s.headers(), 50);
    assert_eq!(receive(&datagram(joined, &good)), (0, 3));
    assert_eq!(
        receive(&datagram(joined.with_checksum(34, 16), &good)),
        (2, 3)
    );
    // Nor one that is not what it is said to be.
    let other = none.with_segments(true, s.headers(), 50);
    assert_eq!(
        receive(&datagram(other.with_checksum(34, 16), &good)),
        (0, 3)
    );
}

#[test]
fn what_the_kernel_has_no_room_for_stays_in_order() {
    let (a, peer) = sockets();
    let mut queue = queue(a);
    let mut pool = testing::pool(1024);
    let s = Stream::V4;
    let sent = s.segments(&[1448; 60], Flags::ACK);
    let (mut batch, mut done, mut got) = (Batch::new(), Batch::new(), Vec::new());
    let mut refused = 0;
    for round in 0..40 {
        if batch.is_empty() && round < 30 {
            batch.extend(sent.iter().map(|bytes| frame(&mut pool, bytes)));
        }
        let before = batch.len();
        queue.tx_burst(&mut pool, &mut batch, &mut done);
        if before > 0 && batch.len() == before {
            refused += 1;
            let mut datagram = vec![0; 70_000];
            while let Ok(len) = rustix::io::read(&peer, &mut datagram) {
                let header = vnet::Header::from_bytes(*datagram.first_chunk().unwrap());
                let bytes = &datagram[vnet::LEN..len];
                let size = if header.size == 0 { 1448 } else { header.size };
                let cut = Cut::new(bytes, bytes.len(), size.into()).unwrap();
                got.push(cut.count());
            }
        }
    }
    assert!(refused > 0, "the socket never filled");
    assert!(
        got.iter()
            .all(|count| *count == 44 || *count == 16 || *count == 45 || *count == 15)
    );
    assert_eq!(queue.counters.lost_refused.get(), 0);
}

#[test]
fn without_buffers_what_fits_arrives_and_the_rest_is_counted() {
    let (a, b) = sockets();
    let (mut a, mut b) = (queue(a), queue(b));
    let (mut plenty, mut few) = (testing::pool(256), testing::pool(8));
    let s = Stream::V4;
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    for segment in s.segments(&[1448; 20], END) {
        batch.push(frame(&mut plenty, &segment)).unwrap();
    }
    a.tx_burst(&mut plenty, &mut batch, &mut done);
    let mut burst = Batch::new();
    b.rx_burst(&mut few, &mut burst);
    assert!(!burst.is_empty() && burst.len() < 8, "{}", burst.len());
    let lost = b.counters.no_buffer.get() as usize;
    assert!(burst.len() + lost >= 20, "{} and {lost}", burst.len());
    burst.pull().for_each(|frame| few.free(frame.buf));
}

proptest! {
    /// Whatever stands in a datagram, nothing panics and no buffer is lost.
    #[test]
    fn hostile_frames_do_no_harm(
        before: [u8; 10], joined in proptest::sample::select(vec![0_u8, 1, 4, 3, 0x81]),
        cuts in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4), size in 0_u16..3_000,
        v6: bool, len in 0_usize..60_000, short in any::<proptest::sample::Index>(),
    ) {
        let depot = Depot::new(4096, &Growth::Inline).unwrap();
        let mut pool = depot.pool();
        let (a, peer) = sockets();
        let mut queue = queue(a);
        let s = Stream { v6, ..Stream::V4 };
        let mut bytes = s.segment(0, 0, len, END);
        for (at, value) in cuts {
            let at = at.index(s.headers());
            bytes[at] = value;
        }
        bytes.truncate(if short.index(3) == 0 { short.index(bytes.len() + 1) } else { bytes.len() });
        let mut before = before;
        before[1] = joined;
        before[4..6].copy_from_slice(&size.to_ne_bytes());
        for _ in 0..2 {
            rustix::io::write(&peer, &[&before[..], &bytes].concat()).unwrap();
            loop {
                let mut burst = Batch::new();
                queue.rx_burst(&mut pool, &mut burst);
                if burst.is_empty() && queue.arm() {
                    break;
                }
                for frame in burst.pull() {
                    prop_assert!(frame.data().len() <= BUFFER_ROOM);
                    pool.free(frame.buf);
                }
            }
        }
        drop(queue);
        pool.flush();
        prop_assert_eq!(depot.stats().outstanding, 0);
    }
}
