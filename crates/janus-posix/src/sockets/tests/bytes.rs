//! Reading and writing in all their forms: flags, buffers in parts, marks, calls in steps.

use super::*;
use crate::transfer::Progress;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

fn set(sockets: &mut Sockets<'_>, now: Instant, fd: i32, option: (i32, i32), value: i32) {
    sockets
        .setsockopt(now, fd, option.0, option.1, &value.to_ne_bytes())
        .expect("an option");
}

#[test]
fn peeking_and_throwing_away_over_several_buffers() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let text: Vec<u8> = (0..3_000u32).map(|n| n as u8).collect();
    two.a.write(two.now, client, &text).expect("room");
    two.exchange();
    let (mut a, mut b, mut c) = ([0; 700], [0; 0], [0; 1_500]);
    let mut parts = [
        IoSliceMut::new(&mut a),
        IoSliceMut::new(&mut b),
        IoSliceMut::new(&mut c),
    ];
    let peeked = two.b.receive(two.now, server, &mut parts, abi::MSG_PEEK, 0);
    assert_eq!(peeked, Ok(Progress::Done(2_200)));
    assert_eq!((&a[..], &c[..]), (&text[..700], &text[700..2_200]));
    // tcp(7): MSG_TRUNC throws away; with MSG_PEEK it only counts.
    let counted = two.b.recv(
        two.now,
        server,
        &mut [0; 4_000],
        abi::MSG_PEEK | abi::MSG_TRUNC,
    );
    assert_eq!(counted, Ok(3_000));
    let thrown = two.b.recv(two.now, server, &mut [9; 1_000], abi::MSG_TRUNC);
    assert_eq!(thrown, Ok(1_000));
    let mut rest = [0; 4_000];
    assert_eq!(two.b.recv(two.now, server, &mut rest, 0), Ok(2_000));
    assert_eq!(&rest[..2_000], &text[1_000..]);
}

#[test]
fn a_patient_reader_gets_all_it_wants_in_steps() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let mut into = [0; 30];
    let mut done = 0;
    for step in [b"0123456789", b"abcdefghij", b"ABCDEFGHIJ"] {
        two.a.write(two.now, client, step).expect("room");
        two.exchange();
        let mut parts = [IoSliceMut::new(&mut into)];
        let progress = two
            .b
            .receive(two.now, server, &mut parts, abi::MSG_WAITALL, done);
        done += 10;
        match done {
            30 => assert_eq!(progress, Ok(Progress::Done(30))),
            _ => assert_eq!(progress, Ok(Progress::Blocked(done))),
        }
    }
    assert_eq!(&into, b"0123456789abcdefghijABCDEFGHIJ");
    // The end is as much as there is.
    two.a.write(two.now, client, b"last").expect("room");
    two.a.shutdown(two.now, client, abi::SHUT_WR).expect("open");
    two.exchange();
    let mut parts = [IoSliceMut::new(&mut into)];
    let progress = two
        .b
        .receive(two.now, server, &mut parts, abi::MSG_WAITALL, 0);
    assert_eq!(progress, Ok(Progress::Done(4)));
}

#[test]
fn less_than_the_low_mark_is_nothing_yet() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let now = two.now;
    set(
        &mut two.b,
        now,
        server,
        (abi::SOL_SOCKET, abi::SO_RCVLOWAT),
        10,
    );
    two.a.write(two.now, client, b"12345").expect("room");
    two.exchange();
    let readable = abi::POLLIN as u32;
    assert_eq!(
        two.b.readiness(two.now, server).expect("open") & readable,
        0
    );
    let mut into = [0; 20];
    let mut parts = [IoSliceMut::new(&mut into)];
    let progress = two.b.receive(two.now, server, &mut parts, 0, 0);
    assert_eq!(progress, Ok(Progress::Blocked(5)));
    two.a.write(two.now, client, b"67890").expect("room");
    two.exchange();
    let mut parts = [IoSliceMut::new(&mut into)];
    let progress = two.b.receive(two.now, server, &mut parts, 0, 5);
    assert_eq!(progress, Ok(Progress::Done(10)));
    assert_eq!(&into[..10], b"1234567890");
    two.a.write(two.now, client, b"1234567890").expect("room");
    two.exchange();
    let now_readable = two.b.readiness(two.now, server).expect("open") & readable;
    assert_eq!(now_readable, readable);
    // Who cannot wait takes what there is (tcp_recvmsg_locked).
    assert_eq!(two.b.recv(two.now, server, &mut into[..4], 0), Ok(4));
}

#[test]
fn what_is_left_to_read_is_told_beside_the_bytes() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let now = two.now;
    set(&mut two.b, now, server, (abi::SOL_TCP, abi::TCP_INQ), 1);
    two.a.write(two.now, client, &[7; 1_000]).expect("room");
    two.a.shutdown(two.now, client, abi::SHUT_WR).expect("open");
    two.exchange();
    let mut control = Vec::new();
    // The end counts for one, so that it is asked for (tcp_inq_hint).
    for (ask, left) in [(400, 601u32), (600, 1), (10, 1)] {
        let mut into = vec![0; ask];
        let mut parts = [IoSliceMut::new(&mut into)];
        let (progress, flags) = two
            .b
            .receive_message(two.now, server, &mut parts, 0, &mut control, 64, 0)
            .expect("open");
        assert_eq!(
            (progress, flags),
            (
                Progress::Done(if left == 1 && ask == 10 { 0 } else { ask }),
                0
            )
        );
        assert_eq!(control[16..20], left.to_ne_bytes());
    }
}

#[test]
fn a_record_ends_where_its_writer_says_and_more_waits_for_more() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let now = two.now;
    set(&mut two.a, now, client, (abi::SOL_TCP, abi::TCP_NODELAY), 1);
    let sent = |two: &Two| two.a.stack().counters().segments_out;
    let before = sent(&two);
    for flags in [abi::MSG_EOR, abi::MSG_EOR, 0, 0] {
        assert_eq!(two.a.send(two.now, client, b"0123456789", flags), Ok(10));
    }
    two.exchange();
    // The third joins nothing, the fourth joins it.
    assert_eq!(sent(&two) - before, 3);
    let mut into = [0; 100];
    assert_eq!(two.b.read(two.now, server, &mut into), Ok(40));
    let before = sent(&two);
    let parts = [
        IoSlice::new(b"01234"),
        IoSlice::new(b""),
        IoSlice::new(b"56789"),
    ];
    let progress = two.a.transmit(two.now, client, &parts, abi::MSG_MORE, 0);
    assert_eq!(progress, Ok(Progress::Done(10)));
    two.exchange();
    assert_eq!(sent(&two), before);
    assert_eq!(two.a.send(two.now, client, b"!", 0), Ok(1));
    two.exchange();
    assert_eq!(sent(&two) - before, 1);
    assert_eq!(two.b.read(two.now, server, &mut into), Ok(11));
    assert_eq!(&into[..11], b"0123456789!");
    // Not for ever.
    assert_eq!(two.a.send(two.now, client, b"?", abi::MSG_MORE), Ok(1));
    two.exchange();
    assert_eq!(two.b.read(two.now, server, &mut into), Err(Errno::EAGAIN));
    two.now = two.now + Duration::from_millis(300);
    two.a.stack_mut().advance(two.now);
    two.exchange();
    assert_eq!(two.b.read(two.now, server, &mut into), Ok(1));
}

#[test]
fn a_patient_writer_is_done_when_all_is_taken() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let now = two.now;
    set(
        &mut two.a,
        now,
        client,
        (abi::SOL_SOCKET, abi::SO_SNDBUF),
        20_000,
    );
    let bytes = vec![5; 200_000];
    let (mut done, mut read, mut into) = (0, 0, vec![0; 200_000]);
    for _ in 0..1_000 {
        let parts = [IoSlice::new(&bytes)];
        match two.a.transmit(two.now, client, &parts, 0, done) {
            Ok(Progress::Blocked(n)) => done = n,
            Ok(Progress::Done(n)) => {
                assert_eq!(n, 200_000);
                break;
            }
            Err(error) => panic!("{error}"),
        }
        // One that sleeps goes on when a third is free, not before (sk_stream_write_space).
        assert!(
            done > 0
                && !two
                    .a
                    .stack()
                    .status(
                        two.a
                            .files
                            .table
                            .peek(client)
                            .expect("open")
                            .state
                            .connection()
                            .expect("one")
                    )
                    .expect("one")
                    .writable
        );
        two.exchange();
        read += two.b.read(two.now, server, &mut into).unwrap_or(0);
        two.now = two.now + Duration::from_millis(50);
        two.a.stack_mut().advance(two.now);
        two.b.stack_mut().advance(two.now);
        two.exchange();
    }
    assert!(read > 100_000, "{read}");
}

/// A host that counts as Linux does.
fn as_linux(two: &mut Two) {
    let config = Config {
        send_buffer: 50_000,
        send_buffer_max: 4 << 20,
        count_as_linux: true,
        ..Config::default()
    };
    two.a = sockets_with(config, A, A_V6, 1);
}

#[test]
fn a_budget_of_linux_is_looked_at_where_a_large_segment_begins() {
    let mut two = Two::new();
    as_linux(&mut two);
    let (client, _) = two.open();
    // Half of the window is one large segment of 22 packets; the first flight of ten is gone from the one that is cut,
    // which is filled up again. 2 * 10 * (4,096 + 256) bytes is the budget.
    let mss = 1_448;
    let goal = 65_535 / 2 / mss * mss;
    let taken = two
        .a
        .write(two.now, client, &vec![0; 1 << 20])
        .expect("room");
    let begun = (taken - 10 * mss).div_ceil(goal);
    assert_eq!((taken - 10 * mss) % goal, 0, "{taken} in steps of {goal}");
    assert!(taken < 87_040 + goal && begun >= 3, "{taken}");
    assert_eq!(two.a.write(two.now, client, b"x"), Err(Errno::EAGAIN));
}

#[test]
fn a_writer_is_stopped_by_what_is_unsent() {
    for linux in [false, true] {
        let mut two = Two::new();
        if linux {
            as_linux(&mut two);
        }
        let (client, server) = two.open();
        let now = two.now;
        let low = (abi::SOL_TCP, abi::TCP_NOTSENT_LOWAT);
        set(&mut two.a, now, client, low, 1);
        assert_eq!(two.a.write(two.now, client, &[0; 100]), Ok(100));
        let more = two.a.write(two.now, client, &[0; 100]);
        match linux {
            // It joins the last segment, which is not looked at (tcp_sendmsg_locked).
            true => assert_eq!(more, Ok(100)),
            false => assert_eq!(more, Err(Errno::EAGAIN)),
        }
        let writable = abi::POLLOUT as u32;
        assert_eq!(
            two.a.readiness(two.now, client).expect("open") & writable,
            0
        );
        two.exchange();
        assert_ne!(
            two.a.readiness(two.now, client).expect("open") & writable,
            0
        );
        assert!(two.b.read(two.now, server, &mut [0; 300]).expect("data") >= 100);
    }
}
