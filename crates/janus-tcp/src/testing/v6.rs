//! The same two engines over IPv6, and over both at once: what differs is where records lie, how large a segment is, and
//! what stands before it.

use janus_wire::ipv6;

use super::*;
use crate::store::flows::V6;
use crate::testing::slot;
use crate::{Error, State};

fn pair(config: &Config, seed: u64) -> Pair {
    let mut pair = Pair::new(config, seed);
    pair.v6 = true;
    pair
}

/// Sends `bytes` from `a` to `b` in pieces and compares what comes.
fn send_through(pair: &mut Pair, a: ConnId, b: ConnId, bytes: &[u8]) {
    let (mut sent, mut got) = (0, Vec::new());
    let mut into = [0; 8_192];
    for _ in 0..200_000 {
        if sent < bytes.len() {
            match pair.a.stack.write(pair.now, a, &bytes[sent..]) {
                Ok(n) => sent += n,
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
        }
        pair.step();
        while let Ok(n @ 1..) = pair.b.stack.read(pair.now, b, &mut into) {
            got.extend_from_slice(&into[..n]);
        }
        if got.len() == bytes.len() {
            break;
        }
    }
    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i ^ (i >> 7)) as u8).collect()
}

#[test]
fn a_whole_life() {
    let mut pair = pair(&Config::default(), 1);
    let (a, b) = pair.open(40_000);
    for (host, conn, own, peer) in [(&pair.a, a, A_V6, B_V6), (&pair.b, b, B_V6, A_V6)] {
        assert_ne!(conn.index & V6, 0, "the index says it");
        let ends = (host.stack.local_addr(conn), host.stack.peer_addr(conn));
        assert_eq!(ends.0.map(|at| at.ip()), Ok(own.into()));
        assert_eq!(ends.1.map(|at| at.ip()), Ok(peer.into()));
    }
    send_through(&mut pair, a, b, &noise(300_000));
    assert_eq!(pair.a.stack.shutdown_write(pair.now, a), Ok(()));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.b.stack.read(pair.now, b, &mut [0; 8]), Ok(0));
    pair.b.stack.close(pair.now, b);
    pair.run_for(Duration::from_secs(1));
    let state = pair.a.stack.info(a).expect("still ours").state;
    assert_eq!(state, State::Closed);
    assert_eq!(pair.a.stack.in_time_wait(), 1);
    pair.a.stack.close(pair.now, a);
    pair.assert_clean();
}

#[test]
fn loss_and_every_kind_of_record_at_its_bound() {
    let config = Config {
        max_half_open: 4,
        max_time_wait: 4,
        syn_cookies: crate::SynCookies::Never,
        ..Config::default()
    };
    let mut pair = pair(&config, 3);
    pair.loss = 50;
    for port in 0..20 {
        pair.v6 = port % 3 != 0;
        let (a, b) = pair.open(40_000 + port);
        send_through(&mut pair, a, b, &noise(20_000));
        pair.a.stack.close(pair.now, a);
        pair.b.stack.close(pair.now, b);
        pair.run_for(Duration::from_secs(3));
        assert!(pair.a.stack.in_time_wait() <= 4, "one bound for both");
    }
    assert!(pair.a.stack.counters().time_wait_evicted > 0);
    pair.loss = 0;
    pair.assert_clean();
}

#[test]
fn segments_leave_room_for_the_longer_header() {
    let mut pair = pair(&Config::default(), 1);
    let (a, b) = pair.open(40_000);
    // The interface's 1,500 bytes without 60 of headers and 12 of timestamps.
    assert_eq!(pair.a.stack.info(a).map(|info| info.mss), Ok(1_428));
    pair.v6 = false;
    let (c, d) = pair.open(40_001);
    assert_eq!(pair.a.stack.info(c).map(|info| info.mss), Ok(1_448));
    for (conn, other) in [(a, b), (c, d)] {
        pair.a.stack.close(pair.now, conn);
        pair.b.stack.close(pair.now, other);
    }
    pair.assert_clean();
}

/// RFC 6437: one label for all packets of a flow, another for another flow.
#[test]
fn packets_carry_the_flows_label() {
    let mut pair = pair(&Config::default(), 1);
    let mut labels = Vec::new();
    for port in [40_000, 40_001] {
        let conn = pair.connect(port);
        let key = pair.a.stack.store().tcbs.key(slot(conn));
        let label = pair.a.stack.rules().flow_label(&key);
        pair.flush();
        for (_, packet) in &pair.b.arriving {
            let ip = ipv6::parse(packet).expect("the engine's own header");
            assert_eq!((ip.flow_label, ip.hop_limit), (label, 64));
        }
        pair.run_for(Duration::from_secs(1));
        labels.push(label);
        pair.a.stack.abort(pair.now, conn);
        pair.run_for(Duration::from_secs(1));
    }
    assert_ne!(labels[0], labels[1]);
}

/// Both families' connections are in one table, under hashes that have nothing to do with each other.
#[test]
fn thousands_of_both_families_are_found() {
    let config = Config {
        syn_cookies: crate::SynCookies::Never,
        ..Config::default()
    };
    let mut pair = pair(&config, 1);
    let mut conns = Vec::new();
    for round in 0..40 {
        for i in 0..50u16 {
            pair.v6 = i % 2 == 0;
            conns.push(pair.connect(10_000 + round * 50 + i));
        }
        pair.run_for(Duration::from_millis(100));
        while let Ok((conn, peer)) = pair.b.stack.accept(pair.listener) {
            assert_eq!(peer.is_ipv6(), conn.index & V6 != 0);
        }
    }
    for (at, &conn) in conns.iter().enumerate() {
        assert_eq!(pair.a.stack.is_connected(conn), Ok(true), "{at}");
        assert_eq!(pair.a.stack.store().tcbs[slot(conn)].hot(), None);
    }
    assert_eq!(pair.b.stack.connections(), conns.len());
    assert_eq!(pair.b.stack.counters().resets_out, 0);
}

#[test]
fn ends_of_two_families_are_no_connection() {
    let pair = &mut pair(&Config::default(), 1);
    let mut connect = |local: &str, remote: &str| {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        pair.a.stack.connect(pair.now, at(local), at(remote))
    };
    let to_v6 = "[2001:db8::2]:80";
    assert_eq!(connect("192.0.2.1:5000", to_v6), Err(Error::InvalidAddress));
    for nowhere in ["[::]:80", "[ff02::1]:80", "[::ffff:192.0.2.2]:80"] {
        assert_eq!(connect("[::]:5000", nowhere), Err(Error::InvalidAddress));
    }
    let not_ours = connect("[2001:db8::7]:5000", to_v6);
    assert_eq!(not_ours, Err(Error::AddrNotAvailable));
    // The address may be left open in the other family's way of writing it.
    assert!(connect("0.0.0.0:5000", to_v6).is_ok());
}
