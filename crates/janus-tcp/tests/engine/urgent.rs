//! The urgent pointer (RFC 9293 section 3.8.5, RFC 6093), sent and received.

use core::time::Duration;

use crate::support::{Host, Peer, bytes_at};
use janus_tcp::{Error, Token};
use janus_wire::tcp::Flags;

/// A segment with the next `len` bytes, whose pointer is `pointer`.
fn urgent(peer: &Peer, len: usize, pointer: u16) -> crate::support::Craft {
    let mut craft = peer.ahead(0, len);
    craft.flags |= Flags::URG;
    craft.urgent = pointer;
    craft
}

/// MUST-62: the pointer names the first octet that is not urgent, from wherever the segment begins (MUST-31: any length).
#[test]
fn the_pointer_names_the_octet_behind_the_urgent_data() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    assert_eq!(
        host.stack
            .write_urgent(host.now, peer.conn, &bytes_at(0, 3_000)),
        Ok(3_000)
    );
    assert_eq!(
        host.stack.write(host.now, peer.conn, &bytes_at(3_000, 100)),
        Ok(100)
    );
    let seen = peer.listen(&mut host, true);
    let pointers: Vec<_> = seen
        .iter()
        .map(|s| (s.payload.len(), s.has(Flags::URG), s.header.urgent))
        .collect();
    assert_eq!(
        pointers,
        [(1_400, true, 3_000), (1_400, true, 1_600), (300, true, 200)]
    );
    assert_eq!(peer.got, bytes_at(0, 3_100));
    // All of it is acknowledged: nothing is urgent any more.
    host.stack
        .write(host.now, peer.conn, b"calm")
        .expect("room");
    assert!(!peer.listen(&mut host, true)[0].has(Flags::URG));
    host.end(&[peer.conn]);
}

#[test]
fn what_is_sent_again_is_still_urgent() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    host.stack
        .write_urgent(host.now, peer.conn, b"quick")
        .expect("room");
    host.collect();
    host.wait(Duration::from_secs(2));
    let again = peer.listen(&mut host, true);
    assert!(again[0].has(Flags::URG) && again[0].header.urgent == 5);
    host.end(&[peer.conn]);
}

/// MUST-32 and MUST-33; delivery is in line, and one read ends at the mark.
#[test]
fn the_application_is_told_and_can_see_how_much_is_urgent() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    assert_eq!(host.stack.urgent(peer.conn), Ok(None));
    host.stack.wait_read(peer.conn, Some(Token(7)));
    host.send(&urgent(&peer, 10, 4));
    peer.skip(10);
    assert_eq!(host.stack.pop_ready(), Some(Token(7)));
    assert_eq!(host.stack.urgent(peer.conn), Ok(Some(4)));
    let mut into = [0; 100];
    assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(3));
    assert_eq!(host.stack.urgent(peer.conn), Ok(Some(1)), "at the mark");
    assert_eq!(host.stack.read(host.now, peer.conn, &mut into[3..]), Ok(7));
    assert_eq!(into[..10], bytes_at(0, 10));
    assert_eq!(host.stack.urgent(peer.conn), Ok(None));
    assert_eq!(
        host.stack.read(host.now, peer.conn, &mut into),
        Err(Error::WouldBlock)
    );
    host.collect();
    host.wait(Duration::from_secs(1));
    host.collect();
    assert_eq!(host.stack.hot_in_use(), 0);
    host.end(&[peer.conn]);
}

#[test]
fn the_pointer_only_moves_forward_and_may_point_ahead_of_the_data() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    host.send(&urgent(&peer, 10, 500));
    peer.skip(10);
    assert_eq!(host.stack.urgent(peer.conn), Ok(Some(500)));
    host.stack.wait_read(peer.conn, Some(Token(1)));
    while host.stack.pop_ready().is_some() {}
    // Shorter: not heard. Longer, and without data: told.
    let mut shorter = urgent(&peer, 0, 5);
    host.send(&shorter);
    assert_eq!(host.stack.urgent(peer.conn), Ok(Some(500)));
    shorter.urgent = 600;
    host.stack.wait_read(peer.conn, Some(Token(2)));
    host.send(&shorter);
    assert_eq!(host.stack.pop_ready(), Some(Token(2)));
    assert_eq!(host.stack.urgent(peer.conn), Ok(Some(610)));
    // A pointer of zero, or one on a segment with nothing behind it, says nothing.
    host.send(&urgent(&peer, 10, 0));
    peer.skip(10);
    assert_eq!(host.stack.urgent(peer.conn), Ok(Some(610)));
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

/// MUST-66: the urgent pointer counts while our window is shut.
#[test]
fn a_shut_window_lets_the_pointer_through() {
    let mut host = Host::with(janus_tcp::Config {
        receive_buffer: 4_096,
        receive_buffer_max: 4_096,
        ..janus_tcp::Config::default()
    });
    let mut peer = Peer::open(&mut host, 4_000);
    for len in [1_000, 1_000, 1_000, 1_000, 96] {
        peer.say(&mut host, len);
    }
    host.send(&urgent(&peer, 100, 50));
    assert_eq!(host.stack.urgent(peer.conn), Ok(Some(4_146)));
    let mut into = [0; 8_000];
    assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(4_096));
    host.end(&[peer.conn]);
}

/// One who takes the last octet aside finds it, also beyond a gap, and learns which octets were marks when the pointer
/// moved on (Linux: tcp_check_urg, tcp_urg).
#[test]
fn the_last_octet_can_be_had_aside() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let mark = |host: &Host, peer: &Peer| {
        let mark = host.stack.urgent_mark(peer.conn).expect("there");
        mark.map(|mark| (mark.left, mark.passed, mark.here, mark.taken))
    };
    assert_eq!(mark(&host, &peer), None);
    let mut beyond = peer.ahead(10, 10);
    beyond.flags |= Flags::URG;
    beyond.urgent = 4;
    host.send(&beyond);
    assert_eq!(mark(&host, &peer), Some((14, 0, true, false)));
    let octet = bytes_at(13, 1)[0];
    assert_eq!(host.stack.urgent_octet(peer.conn), Ok(Some(octet)));
    peer.say(&mut host, 10);
    peer.skip(10);
    assert_eq!(host.stack.take_urgent_octet(peer.conn), Ok(()));
    assert_eq!(mark(&host, &peer), Some((14, 0, true, true)));
    let mut into = [0; 100];
    assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(13));
    // At the mark: another pointer passes over it; one more leaves the second to the stream.
    host.send(&urgent(&peer, 10, 1));
    peer.skip(10);
    assert_eq!(mark(&host, &peer), Some((8, 1, true, false)));
    host.send(&urgent(&peer, 10, 20));
    peer.skip(10);
    assert_eq!(mark(&host, &peer), Some((37, 1, false, false)));
    assert_eq!(host.stack.urgent_octet(peer.conn), Ok(None));
    assert_eq!(host.stack.keep_passed_octets(peer.conn), Ok(()));
    assert_eq!(mark(&host, &peer), Some((37, 0, false, false)));
    while host.stack.recv(host.now, peer.conn).is_ok() {}
    assert_eq!(mark(&host, &peer), Some((10, 0, false, false)));
    host.end(&[peer.conn]);
}

#[test]
fn pointers_from_a_hostile_peer_do_no_harm() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    for (len, pointer) in [
        (0, 1),
        (0, 0xffff),
        (1, 0xffff),
        (1_000, 1),
        (1_000, 999),
        (0, 0),
    ] {
        host.ask(&urgent(&peer, len, pointer));
        peer.skip(len as u32);
        let mut into = [0; 3_000];
        while let Ok(n) = host.stack.read(host.now, peer.conn, &mut into) {
            assert_eq!(into[..n], bytes_at(peer.read, n));
            peer.read += n as u32;
        }
    }
    // A FIN behind it, an end, and another connection in the same block.
    let mut fin = urgent(&peer, 10, 100);
    fin.flags |= Flags::FIN;
    host.send(&fin);
    let mut into = [0; 100];
    assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(10));
    assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(0));
    host.stack.abort(host.now, peer.conn);
    host.collect();
    let mut next = Peer::open(&mut host, 4_001);
    assert_eq!(host.stack.urgent(next.conn), Ok(None));
    next.expect_unharmed(&mut host);
    host.end(&[next.conn]);
}

/// The reset finds the connection in the output queue, and something unread before the mark.
#[test]
fn a_mark_that_a_reset_leaves_behind_is_not_the_next_connections() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    host.send(&urgent(&peer, 10, 5_000));
    peer.skip(10);
    host.stack
        .write(host.now, peer.conn, b"late")
        .expect("room");
    let mut reset = peer.ahead(0, 0);
    reset.flags = Flags::RST;
    host.send(&reset);
    host.collect();
    assert_eq!(host.stack.audit(), Ok(()));
    let mut into = [0; 100];
    assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(10));
    host.stack.abort(host.now, peer.conn);
    host.collect();
    assert_eq!(host.stack.audit(), Ok(()));
    let mut next = Peer::open(&mut host, 4_001);
    host.send(&urgent(&next, 10, 4));
    next.skip(10);
    assert_eq!(host.stack.urgent(next.conn), Ok(Some(4)));
    host.stack.abort(host.now, next.conn);
    host.end(&[]);
}
