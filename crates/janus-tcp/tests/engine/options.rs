//! Socket options as a peer sees them: of a connection, inherited from a listener, and from the first SYN on.

use core::time::Duration;
use std::net::SocketAddrV4;

use crate::support::{Craft, HERE, Host, PEER, PORT, Peer, bytes_at};
use janus_tcp::{CongestionControl, Error, SocketOptions, State};
use janus_wire::tcp::Flags;
use janus_wire::{SeqNum, ipv4};

fn change(host: &mut Host, peer: &Peer, f: impl FnOnce(&mut SocketOptions)) {
    let mut options = host.stack.options(peer.conn).expect("a connection");
    f(&mut options);
    host.stack
        .set_options(host.now, peer.conn, &options)
        .expect("sound options");
}

/// Time to live and type of service of what is sent.
fn ip_fields(host: &mut Host) -> Vec<(u8, u8)> {
    let mut out = Vec::new();
    host.stack.transmit(host.now, &mut out, 1_000);
    let mut fields = Vec::new();
    for frame in &out {
        let ip = ipv4::parse(frame.data()).expect("the engine's own");
        fields.push((ip.ttl, ip.tos));
    }
    host.take_back(out);
    fields
}

#[test]
fn packets_carry_the_time_to_live_and_type_of_service_asked_for() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    let other = Peer::open(&mut host, 4_001);
    change(&mut host, &peer, |o| (o.ttl, o.tos) = (Some(9), 0xb8));
    for conn in [peer.conn, other.conn] {
        host.stack.write(host.now, conn, b"hello").expect("room");
    }
    assert_eq!(ip_fields(&mut host), [(9, 0xb8), (64, 0)]);
    // A bare acknowledgement too.
    host.send(&peer.ahead(0, 10));
    host.wait(Duration::from_millis(50));
    assert_eq!(ip_fields(&mut host), [(9, 0xb8)]);
    host.stack.abort(host.now, peer.conn);
    assert_eq!(ip_fields(&mut host), [(9, 0xb8)]);
    host.end(&[other.conn]);
}

#[test]
fn accepted_connections_begin_with_the_listeners_options() {
    let mut host = Host::plain();
    let wished = SocketOptions {
        nodelay: true,
        ttl: Some(33),
        max_segment: Some(1_000),
        receive_buffer: Some(20_000),
        ..SocketOptions::default()
    };
    let listener = host.listener;
    host.stack
        .set_listener_options(listener, &wished)
        .expect("sound");
    assert_eq!(host.stack.listener_options(listener), Ok(wished));
    let answers = host.ask(&Craft::syn((PEER, 4_000)));
    assert_eq!(answers[0].options.mss, Some(1_000));
    assert_eq!(answers[0].header.window, 20_000);
    let peer = Peer::open_with(&mut host, &Craft::syn((PEER, 4_001)));
    assert_eq!(host.stack.options(peer.conn), Ok(wished));
    assert_eq!(host.stack.info(peer.conn).map(|info| info.mss), Ok(1_000));
    // What the listener gets later is for later ones.
    host.stack
        .set_listener_options(listener, &SocketOptions::default())
        .expect("sound");
    assert_eq!(host.stack.options(peer.conn), Ok(wished));
    let plain = Peer::open(&mut host, 4_002);
    assert_eq!(host.stack.options(plain.conn), Ok(SocketOptions::default()));
    host.end(&[peer.conn, plain.conn]);
}

#[test]
fn our_own_syn_has_them_too() {
    let mut host = Host::plain();
    let (local, remote) = (
        SocketAddrV4::new(HERE, 5_000),
        SocketAddrV4::new(PEER, PORT),
    );
    let wished = SocketOptions {
        max_segment: Some(700),
        ttl: Some(3),
        syn_retries: Some(2),
        congestion: Some(CongestionControl::NewReno),
        ..SocketOptions::default()
    };
    let conn = host
        .stack
        .connect_with(host.now, local, remote, &wished)
        .expect("a connection");
    assert_eq!(host.collect()[0].options.mss, Some(700));
    // Two more, and then no more.
    for wait in [1_010, 2_010] {
        host.wait(Duration::from_millis(wait));
        assert_eq!(host.collect().len(), 1);
    }
    host.wait(Duration::from_millis(4_010));
    assert!(host.collect().is_empty());
    assert_eq!(host.stack.is_connected(conn), Err(Error::TimedOut));
    host.end(&[conn]);
}

#[test]
fn a_cork_keeps_small_segments_for_a_fifth_of_a_second() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    change(&mut host, &peer, |o| o.cork = true);
    host.stack
        .write(host.now, peer.conn, &bytes_at(0, 1_500))
        .expect("room");
    let seen = peer.listen(&mut host, true);
    assert_eq!(
        seen.iter().map(|s| s.payload.len()).collect::<Vec<_>>(),
        [1_400]
    );
    host.stack
        .write(host.now, peer.conn, &bytes_at(1_500, 100))
        .expect("room");
    host.wait(Duration::from_millis(199));
    assert!(peer.listen(&mut host, true).is_empty());
    host.wait(Duration::from_millis(2));
    let seen = peer.listen(&mut host, true);
    assert_eq!(
        seen.iter().map(|s| s.payload.len()).collect::<Vec<_>>(),
        [200]
    );
    // Or until it is taken away.
    host.stack
        .write(host.now, peer.conn, b"waits")
        .expect("room");
    assert!(peer.listen(&mut host, true).is_empty());
    change(&mut host, &peer, |o| o.cork = false);
    assert_eq!(peer.listen(&mut host, true)[0].payload, b"waits");
    assert_eq!(host.stack.counters().timeouts, 0);
    // A FIN does not wait.
    change(&mut host, &peer, |o| o.cork = true);
    host.stack.write(host.now, peer.conn, b"end").expect("room");
    host.stack.close(host.now, peer.conn);
    assert!(
        peer.listen(&mut host, true)
            .iter()
            .any(|s| s.has(Flags::FIN))
    );
    host.end(&[]);
}

#[test]
fn quick_acknowledgements_do_not_wait() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    // It has learned that answers come soon.
    peer.expect_unharmed(&mut host);
    peer.say(&mut host, 100);
    host.stack
        .write(host.now, peer.conn, b"answer")
        .expect("room");
    peer.listen(&mut host, true);
    assert!(peer.say(&mut host, 100).is_empty());
    change(&mut host, &peer, |o| o.quick_ack = true);
    assert_eq!(host.collect().len(), 1, "the one that was put off");
    assert_eq!(peer.say(&mut host, 100).len(), 1);
    host.end(&[peer.conn]);
}

#[test]
fn closing_may_mean_resetting() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    change(&mut host, &peer, |o| o.reset_on_close = true);
    host.stack
        .write(host.now, peer.conn, b"lost")
        .expect("room");
    host.stack.close(host.now, peer.conn);
    let seen = host.collect();
    assert!(seen.len() == 1 && seen[0].has(Flags::RST));
    assert_eq!(host.stack.connections(), 0);
    host.end(&[]);
}

#[test]
fn buffers_have_the_sizes_asked_for() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    change(&mut host, &peer, |o| o.send_buffer = Some(10_000));
    peer.window = 0;
    host.send(&peer.segment(Flags::ACK));
    let written = host.stack.write(host.now, peer.conn, &[1; 50_000]);
    assert!(written.is_ok_and(|n| n <= 10_000), "{written:?}");
    host.end(&[peer.conn]);
}

#[test]
fn what_means_nothing_is_refused_and_a_stale_handle_told() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    let wrong = SocketOptions {
        ttl: Some(0),
        ..SocketOptions::default()
    };
    assert_eq!(
        host.stack.set_options(host.now, peer.conn, &wrong),
        Err(Error::InvalidOption)
    );
    let (local, remote) = (
        SocketAddrV4::new(HERE, 5_000),
        SocketAddrV4::new(PEER, PORT),
    );
    let refused = host.stack.connect_with(host.now, local, remote, &wrong);
    assert_eq!(refused, Err(Error::InvalidOption));
    host.stack.abort(host.now, peer.conn);
    host.collect();
    assert_eq!(host.stack.options(peer.conn), Err(Error::Stale));
    host.end(&[]);
}

/// Their places are given back with the connections, or 255 clients with a wish each would use them up for ever.
#[test]
fn sets_of_options_are_given_back() {
    let mut host = Host::plain();
    for round in 0..600u32 {
        let peer = Peer::open(&mut host, 4_000 + round as u16);
        change(&mut host, &peer, |o| {
            o.receive_buffer = Some(10_000 + round)
        });
        host.stack.abort(host.now, peer.conn);
        host.collect();
    }
    let (local, remote) = (
        SocketAddrV4::new(HERE, 5_000),
        SocketAddrV4::new(PEER, PORT),
    );
    for round in 0..600 {
        let wished = SocketOptions {
            send_buffer: Some(10_000 + round),
            ..SocketOptions::default()
        };
        let conn = host.stack.connect_with(host.now, local, remote, &wished);
        host.stack.abort(host.now, conn.expect("a place"));
        host.collect();
    }
    let last = Peer::open_with(&mut host, &{
        let mut syn = Craft::syn((PEER, 3_999));
        syn.seq = SeqNum(9);
        syn
    });
    assert_eq!(
        host.stack.info(last.conn).map(|info| info.state),
        Ok(State::Established)
    );
    host.end(&[last.conn]);
}
