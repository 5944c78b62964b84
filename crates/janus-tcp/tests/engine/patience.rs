//! What gets nowhere ends: the user timeout (RFC 5482), orphans, and half-open records in a full queue; and what only
//! waits does not (deferred accepts).

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, Error, SocketOptions, State};
use janus_wire::tcp::Flags;

const SECOND: Duration = Duration::from_secs(1);

fn with_user_timeout(host: &mut Host, peer: &Peer, seconds: u32) {
    let options = SocketOptions {
        user_timeout: Some(SECOND * seconds),
        ..SocketOptions::default()
    };
    host.stack
        .set_options(host.now, peer.conn, &options)
        .expect("sound options");
}

/// Lets time pass until the connection ends, at most `time`; gives how long it lived.
fn lived(
    host: &mut Host,
    peer: &Peer,
    time: Duration,
    mut turn: impl FnMut(&mut Host, &[Seen]),
) -> Duration {
    let (start, until) = (host.now, host.now + time);
    for _ in 0..200_000 {
        let seen = host.collect();
        turn(host, &seen);
        match host.stack.info(peer.conn) {
            Ok(info) if info.state != State::Closed => {}
            _ => break,
        }
        let Some(next) = host.stack.next_deadline().filter(|&at| at <= until) else {
            host.now = until;
            break;
        };
        host.now = host.now.max(next);
        host.stack.advance(host.now);
    }
    host.now.saturating_since(start)
}

fn about(time: Duration, seconds: f64) {
    assert!(
        (time.as_secs_f64() - seconds).abs() < 0.02,
        "{time:?}, not {seconds} s"
    );
}

#[test]
fn unacknowledged_data_ends_a_connection_after_the_user_timeout() {
    // Shorter than the number of retransmissions would take, and longer (about 15 minutes).
    for seconds in [5, 3_000] {
        let mut host = Host::plain();
        let peer = Peer::open(&mut host, 4_000);
        with_user_timeout(&mut host, &peer, seconds);
        host.stack
            .write(host.now, peer.conn, b"anybody?")
            .expect("room");
        let time = lived(&mut host, &peer, SECOND * 10_000, |_, _| {});
        about(time, f64::from(seconds));
        let mut into = [0; 8];
        assert_eq!(
            host.stack.read(host.now, peer.conn, &mut into),
            Err(Error::TimedOut)
        );
        host.end(&[peer.conn]);
    }
}

#[test]
fn progress_begins_the_user_timeout_anew() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    with_user_timeout(&mut host, &peer, 10);
    host.stack
        .write(host.now, peer.conn, &bytes_at(0, 5_000))
        .expect("room");
    let first = host.collect();
    for part in 0..3 {
        let time = lived(&mut host, &peer, SECOND * 8, |_, _| {});
        about(time, 8.0);
        peer.take(&first[part..=part]);
        host.send(&peer.segment(Flags::ACK));
    }
    let time = lived(&mut host, &peer, SECOND * 100, |_, _| {});
    assert!(time > SECOND * 8 && time < SECOND * 14, "{time:?}");
    host.end(&[peer.conn]);
}

/// MUST-37 says for ever, if the peer answers; an application that says how long is obeyed (RFC 5482, RFC 1122 section
/// 4.2.3.5).
#[test]
fn a_shut_window_counts_as_no_progress_though_the_peer_answers() {
    for (wished, seconds) in [(Some(30), 30.0), (None, 3_600.0)] {
        let mut host = Host::plain();
        let mut peer = Peer::open(&mut host, 4_000);
        if let Some(seconds) = wished {
            with_user_timeout(&mut host, &peer, seconds);
        }
        peer.window = 0;
        host.send(&peer.segment(Flags::ACK));
        host.stack
            .write(host.now, peer.conn, b"waits")
            .expect("room");
        let shut = peer.segment(Flags::ACK);
        let time = lived(&mut host, &peer, SECOND * 3_600, |host, seen| {
            for _ in seen {
                host.send(&shut);
            }
        });
        about(time, seconds);
        host.end(&[peer.conn]);
    }
}

/// A peer that acknowledges a byte in each round trip never lets a retransmission timeout happen.
#[test]
fn an_orphan_whose_peer_nibbles_is_ended() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    host.stack
        .write(host.now, peer.conn, &bytes_at(0, 100_000))
        .expect("room");
    host.stack.close(host.now, peer.conn);
    assert_eq!(host.stack.orphans(), 1);
    let start = host.now;
    let mut reset = false;
    while !reset && host.now.saturating_since(start) < SECOND * 3_600 {
        reset = host.collect().iter().any(|s| s.has(Flags::RST));
        peer.rcv += 1u32;
        if !reset {
            host.send(&peer.segment(Flags::ACK));
        }
        host.wait(Duration::from_millis(100));
    }
    let time = host.now.saturating_since(start);
    let most = Config::default().orphan_timeout;
    assert!(
        reset && time >= most && time < most + SECOND * 300,
        "{time:?}"
    );
    assert_eq!((host.stack.orphans(), host.stack.connections()), (0, 0));
    assert_eq!(host.stack.counters().orphans_aborted, 1);
    host.end(&[]);
}

#[test]
fn too_many_orphans_are_reset() {
    let mut host = Host::with(Config {
        max_orphans: 3,
        ..Config::default()
    });
    for port in 4_000..4_010 {
        let peer = Peer::open(&mut host, port);
        host.stack.write(host.now, peer.conn, b"bye").expect("room");
        host.stack.close(host.now, peer.conn);
        let reset = host.collect().iter().any(|s| s.has(Flags::RST));
        assert_eq!(reset, port >= 4_003);
    }
    assert_eq!(host.stack.orphans(), 3);
    assert_eq!(host.stack.counters().orphans_aborted, 7);
    host.end(&[]);
}

/// Handshakes up to the acknowledgement; gives it.
fn shake(host: &mut Host, port: u16) -> Craft {
    let syn = Craft::syn((PEER, port));
    let answers = host.ask(&syn);
    let mut ack = Craft::new(syn.src, Flags::ACK);
    (ack.seq, ack.ack) = (syn.seq + 1u32, answers[0].end());
    ack
}

#[test]
fn a_deferred_accept_waits_for_data() {
    let mut host = Host::plain();
    host.stack
        .set_defer_accept(host.listener, Some(SECOND * 3))
        .expect("a listener");
    let mut ack = shake(&mut host, 4_000);
    assert!(host.ask(&ack).is_empty());
    assert_eq!(
        host.stack.accept(host.listener).err(),
        Some(Error::WouldBlock)
    );
    assert_eq!(
        (host.stack.half_open(), host.stack.counters().deferred),
        (1, 1)
    );
    ack.payload = bytes_at(0, 10);
    host.send(&ack);
    let (conn, _) = host.stack.accept(host.listener).expect("a connection");
    let mut into = [0; 20];
    assert_eq!(host.stack.read(host.now, conn, &mut into), Ok(10));
    host.end(&[conn]);
}

#[test]
fn a_deferred_accept_does_not_wait_for_ever() {
    let mut host = Host::plain();
    host.stack
        .set_defer_accept(host.listener, Some(SECOND * 3))
        .expect("a listener");
    let ack = shake(&mut host, 4_000);
    host.send(&ack);
    // Answered, so nothing is said until the time is nearly over; then the peer gets its last chance.
    let mut said = Vec::new();
    let start = host.now;
    while let Some(next) = host.stack.next_deadline() {
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        for seen in host.collect() {
            assert!(seen.has(Flags::SYN | Flags::ACK));
            said.push(host.now.saturating_since(start).as_secs());
            if said.len() == 2 {
                host.send(&ack);
            }
        }
    }
    assert_eq!(said, [3, 7]);
    let (conn, _) = host.stack.accept(host.listener).expect("a connection");
    host.end(&[conn]);
}

/// Linux: reqsk_timer_handler. In a queue that is more than half full old records go sooner, the fewer young ones there are.
#[test]
fn old_half_open_records_go_sooner_from_a_full_queue() {
    for (flood, left) in [(40, 40), (60, 50)] {
        let mut host = Host::plain();
        let local: std::net::SocketAddr = "0.0.0.0:81".parse().expect("an address");
        let busy = host.stack.listen(local, 100).expect("a free port");
        let start = host.now;
        for port in 0..flood {
            let mut syn = Craft::syn((PEER, 4_000 + port));
            syn.dst.1 = 81;
            host.send(&syn);
        }
        host.collect();
        // Three SYN-ACKs each, seven seconds.
        while host.now.saturating_since(start) < SECOND * 10 {
            host.now = host.stack.next_deadline().expect("a deadline");
            host.stack.advance(host.now);
            host.collect();
        }
        assert_eq!(host.stack.half_open(), left);
        host.stack.unlisten(host.now, busy);
        host.end(&[]);
    }
}

/// As Linux: the connection is accepted, and reading it says what happened.
#[test]
fn a_reset_before_the_accept_is_told_by_the_read() {
    let mut host = Host::plain();
    let ack = shake(&mut host, 4_000);
    host.send(&ack);
    let mut rst = ack.clone();
    rst.flags = Flags::RST;
    host.send(&rst);
    let (conn, from) = host.stack.accept(host.listener).expect("a connection");
    assert_eq!(from.port(), 4_000);
    let mut into = [0; 8];
    assert_eq!(
        host.stack.read(host.now, conn, &mut into),
        Err(Error::ConnectionReset)
    );
    host.end(&[conn]);
}
