//! What is told of calls with MSG_ZEROCOPY, as Linux 6.18 tells it where it copies.

use super::*;
use crate::transfer::Progress;
use std::io::{IoSlice, IoSliceMut};

const FLAGS: i32 = abi::MSG_ZEROCOPY | abi::MSG_DONTWAIT;
const ERROR: u32 = abi::EPOLLERR as u32;

/// A connection whose client has SO_ZEROCOPY.
fn open(two: &mut Two) -> (i32, i32) {
    let (client, server) = two.open();
    let (now, on) = (two.now, 1_i32.to_ne_bytes());
    let set = two
        .a
        .setsockopt(now, client, abi::SOL_SOCKET, abi::SO_ZEROCOPY, &on);
    set.expect("an option");
    (client, server)
}

/// The first and the last call that the client's error queue tells to be over; looks at all else in the message.
fn told(two: &mut Two, client: i32) -> Option<(u32, u32)> {
    let (mut control, mut parts) = (Vec::new(), []);
    let asked = two.a.receive_message(
        two.now,
        client,
        &mut parts,
        abi::MSG_ERRQUEUE,
        &mut control,
        100,
        0,
    );
    let (progress, flags) = match asked {
        Err(errno) => {
            assert_eq!((errno, &control[..]), (Errno::EAGAIN, &[][..]));
            return None;
        }
        Ok(told) => told,
    };
    assert_eq!((progress, flags), (Progress::Done(0), abi::MSG_ERRQUEUE));
    // The header, SOL_IP and IP_RECVERR, and a `struct sockaddr_in` behind the error.
    assert_eq!(control.len(), 16 + 16 + 16);
    assert_eq!(control[8..16], [0, 0, 0, 0, 11, 0, 0, 0]);
    assert_eq!(control[16..24], [0, 0, 0, 0, 5, 0, 1, 0]);
    assert_eq!(control[32..], [0; 16]);
    let number = |at: usize| u32::from_ne_bytes(*control[at..].first_chunk().expect("four bytes"));
    Some((number(24), number(28)))
}

fn send(two: &mut Two, client: i32, len: usize, done: usize) -> Result<Progress> {
    let bytes = vec![7; len];
    let sent = two.a.transmit(
        two.now,
        client,
        &[IoSlice::new(&bytes)],
        abi::MSG_ZEROCOPY,
        done,
    );
    two.exchange();
    sent
}

#[test]
fn calls_that_are_over_are_told_together() {
    let mut two = Two::new();
    let (client, server) = open(&mut two);
    assert_eq!(told(&mut two, client), None);
    for _ in 0..3 {
        assert_eq!(two.a.send(two.now, client, b"zero", FLAGS), Ok(4));
    }
    assert_eq!(
        two.a.readiness(two.now, client).expect("open") & ERROR,
        ERROR
    );
    assert_eq!(told(&mut two, client), Some((0, 2)));
    assert_eq!(two.a.readiness(two.now, client).expect("open") & ERROR, 0);
    assert_eq!(two.a.send(two.now, client, b"", FLAGS), Ok(0));
    assert_eq!(
        two.a.send(two.now, client, b"no flag", abi::MSG_DONTWAIT),
        Ok(7)
    );
    assert_eq!(told(&mut two, client), None);
    // A plain recv takes it too, and a small room is told to be one.
    assert_eq!(two.a.send(two.now, client, b"zero", FLAGS), Ok(4));
    assert_eq!(
        two.a.recv(two.now, client, &mut [0; 9], abi::MSG_ERRQUEUE),
        Ok(0)
    );
    assert_eq!(told(&mut two, client), None);
    assert_eq!(two.a.send(two.now, client, b"zero", FLAGS), Ok(4));
    let mut control = Vec::new();
    let cut = two.a.receive_message(
        two.now,
        client,
        &mut [],
        abi::MSG_ERRQUEUE,
        &mut control,
        20,
        0,
    );
    assert_eq!(
        cut,
        Ok((Progress::Done(0), abi::MSG_ERRQUEUE | abi::MSG_CTRUNC))
    );
    // The bytes have come all the same.
    two.exchange();
    assert_eq!(two.b.read(two.now, server, &mut [0; 100]), Ok(5 * 4 + 7));
}

#[test]
fn one_that_finds_no_room_has_no_number_and_one_in_part_has_one() {
    let mut two = Two::new();
    let (client, server) = open(&mut two);
    let mut calls = 0;
    while two.a.send(two.now, client, &[1; 30_000], FLAGS).is_ok() {
        calls += 1;
        two.exchange();
    }
    assert!(calls > 1);
    assert_eq!(two.a.send(two.now, client, b"x", FLAGS), Err(Errno::EAGAIN));
    assert_eq!(told(&mut two, client), Some((0, calls - 1)));
    let mut into = vec![0; 1 << 20];
    while two.b.read(two.now, server, &mut into).is_ok() {
        two.exchange();
    }
    assert_eq!(two.a.send(two.now, client, b"x", FLAGS), Ok(1));
    assert_eq!(told(&mut two, client), Some((calls, calls)));
}

#[test]
fn one_whose_caller_sleeps_is_told_when_it_is_over() {
    let mut two = Two::new();
    let (client, server) = open(&mut two);
    let len = 1 << 20;
    let Ok(Progress::Blocked(mut done)) = send(&mut two, client, len, 0) else {
        panic!("there is no room for that much");
    };
    assert!(done > 0);
    let mut into = vec![0; 1 << 20];
    loop {
        assert_eq!(told(&mut two, client), None, "at {done}");
        two.b
            .recv(two.now, server, &mut into, 0)
            .expect("something");
        two.exchange();
        match send(&mut two, client, len, done).expect("open") {
            Progress::Blocked(more) => done = more,
            Progress::Done(all) => {
                assert_eq!(all, len);
                break;
            }
        }
    }
    assert_eq!(told(&mut two, client), Some((0, 0)));
}

/// A caller whose patience ends (SO_SNDTIMEO) has sent a part, and is never heard of again: the next call tells of it.
#[test]
fn one_that_was_given_up_is_told_with_the_next() {
    let mut two = Two::new();
    let (client, server) = open(&mut two);
    assert!(matches!(
        send(&mut two, client, 1 << 20, 0),
        Ok(Progress::Blocked(1..))
    ));
    let mut into = vec![0; 1 << 20];
    while two.b.read(two.now, server, &mut into).is_ok() {
        two.exchange();
    }
    assert_eq!(send(&mut two, client, 10, 0), Ok(Progress::Done(10)));
    assert_eq!(told(&mut two, client), Some((0, 1)));
}

#[test]
fn over_v6_it_is_a_message_of_v6() {
    let mut two = Two::new();
    let fd = two
        .a
        .socket(abi::AF_INET6, abi::SOCK_STREAM, 0)
        .expect("a socket");
    let on = 1_i32.to_ne_bytes();
    let set = two
        .a
        .setsockopt(two.now, fd, abi::SOL_SOCKET, abi::SO_ZEROCOPY, &on);
    assert_eq!(set, Ok(()));
    two.listener();
    let mapped = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped().into(), 80);
    assert_eq!(two.a.connect(two.now, fd, mapped), Err(Errno::EINPROGRESS));
    two.exchange();
    assert_eq!(two.a.send(two.now, fd, b"zero", FLAGS), Ok(4));
    let (mut control, mut parts) = (Vec::new(), [IoSliceMut::new(&mut [])]);
    two.a
        .receive_message(
            two.now,
            fd,
            &mut parts,
            abi::MSG_ERRQUEUE,
            &mut control,
            100,
            0,
        )
        .expect("something is told");
    assert_eq!(control.len(), (16 + 16 + 28_usize).next_multiple_of(8));
    assert_eq!(control[..8], 60_usize.to_ne_bytes());
    assert_eq!(control[8..16], [41, 0, 0, 0, 25, 0, 0, 0]);
}
