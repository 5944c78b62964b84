//! Received buffers: where their bytes lie, what stops them, and sending them on.

use super::*;
use crate::Received;
use janus_tcp::Piece;

fn bytes(received: Result<Received>) -> Piece {
    match received {
        Ok(Received::Bytes(piece)) => piece,
        other => panic!("no bytes: {other:?}"),
    }
}

#[test]
fn an_echo_sends_the_buffer_that_it_received() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let text: Vec<u8> = (0..5_000u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(two.a.write(two.now, client, &text), Ok(5_000));
    two.exchange();
    let mut seen = Vec::new();
    while two.b.has_unread(server) {
        let piece = bytes(two.b.receive_buf(two.now, server, 0));
        seen.extend_from_slice(piece.bytes());
        let sent = two.b.send_buf(two.now, server, piece);
        assert!(sent.is_ok());
    }
    assert_eq!(seen, text);
    two.exchange();
    let given = two.b.stack().counters().buffers_given;
    assert!(given >= 3, "full segments go as they are: {given}");
    let mut back = vec![0; 5_000];
    assert_eq!(two.a.recv(two.now, client, &mut back, 0), Ok(5_000));
    assert_eq!(back, text);
}

#[test]
fn nothing_to_receive_is_said_as_by_recv() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let now = two.now;
    let lone = two.client();
    assert!(matches!(two.a.receive_buf(now, 99, 0), Err(Errno::EBADF)));
    assert!(matches!(
        two.a.receive_buf(now, lone, 0),
        Err(Errno::ENOTCONN)
    ));
    let waiting = two.b.receive_buf(now, server, 0);
    assert!(matches!(waiting, Ok(Received::Blocked)));
    let flags = abi::MSG_DONTWAIT;
    let none = two.b.receive_buf(now, server, flags);
    assert!(matches!(none, Err(Errno::EAGAIN)));
    let peek = two.b.receive_buf(now, server, abi::MSG_PEEK);
    assert!(matches!(peek, Err(Errno::EOPNOTSUPP)));
    two.a.write(now, client, b"last").expect("room");
    two.a.shutdown(now, client, abi::SHUT_WR).expect("open");
    two.exchange();
    let last = bytes(two.b.receive_buf(now, server, 0));
    assert_eq!(last.bytes(), b"last");
    let end = two.b.receive_buf(now, server, 0);
    assert!(matches!(end, Ok(Received::End)));
    // Sent nowhere, it is its owner's still.
    let (error, last) = two.b.send_buf(now, 99, last).expect_err("no socket");
    assert_eq!((error, last.bytes()), (Errno::EBADF, &b"last"[..]));
    two.b.release(last);
}

/// The urgent octet is none of the stream's, and a buffer ends before it, as reading does.
#[test]
fn a_buffer_ends_at_urgent_data() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let now = two.now;
    two.a
        .send(now, client, b"before!", abi::MSG_OOB)
        .expect("room");
    two.a.write(now, client, b"behind").expect("room");
    two.exchange();
    let before = bytes(two.b.receive_buf(now, server, 0));
    assert_eq!(before.bytes(), b"before");
    let behind = bytes(two.b.receive_buf(now, server, 0));
    assert_eq!(behind.bytes(), b"behind");
    two.b.release(before);
    two.b.release(behind);
}

#[test]
fn a_buffer_for_which_there_is_no_room_comes_back() {
    let mut two = Two::new();
    let (client, server) = two.open();
    let now = two.now;
    two.a.write(now, client, &[7; 1_400]).expect("room");
    two.exchange();
    let piece = bytes(two.b.receive_buf(now, server, 0));
    while two.b.send(now, server, &[1; 10_000], 0).is_ok() {}
    let (error, piece) = two.b.send_buf(now, server, piece).expect_err("no room");
    assert_eq!((error, piece.len), (Errno::EAGAIN, 1_400));
    two.b.wait(now, server).expect("open");
    while two.b.next_woken().is_none() {
        two.exchange();
        let mut into = vec![0; 100_000];
        while two.a.recv(now, client, &mut into, 0).is_ok() {}
        two.b.gather();
    }
    assert!(two.b.send_buf(now, server, piece).is_ok());
}
