//! Deadlines of thousands of connections that pass at one moment: one call of `advance` serves a bounded number of them,
//! packets are taken between the calls, and each deadline is served in its turn.

use core::time::Duration;
use std::collections::HashMap;
use std::net::Ipv4Addr;

use crate::support::{Craft, Host, Peer, own_address};
use janus_tcp::Config;
use janus_wire::tcp::Flags;

/// Most timers of connections, and most records of one kind, that one call may serve.
const TIMERS: u64 = 256;
const RECORDS: usize = 1_024;

fn stranger(i: u32) -> (Ipv4Addr, u16) {
    let [_, _, a, b] = (i % 60_000).to_be_bytes();
    (Ipv4Addr::new(198, 18, a, b), 1_024 + (i / 60_000) as u16)
}

fn host(buffers: u32) -> Host {
    Host::new(Config::default(), own_address(), buffers)
}

fn is_due(host: &Host) -> bool {
    host.stack.next_deadline().is_some_and(|at| at <= host.now)
}

/// Opens so many connections and writes to all of them at one moment. Their segments are lost.
fn written_at_once(host: &mut Host, count: u32) -> Vec<Peer> {
    let peers: Vec<Peer> = (0..count)
        .map(|i| Peer::open_with(host, &Craft::syn(stranger(i))))
        .collect();
    for peer in &peers {
        assert_eq!(host.stack.write(host.now, peer.conn, b"lost"), Ok(4));
    }
    assert_eq!(host.collect().len(), count as usize);
    peers
}

#[test]
fn retransmissions_of_one_moment_are_served_in_turn_and_spread() {
    const COUNT: u32 = 20_000;
    let mut host = host(32_768);
    let peers = written_at_once(&mut host, COUNT);
    let mut other = Peer::open(&mut host, 4_000);
    let start = host.now;
    let (mut repeats, mut by_ms) = (HashMap::new(), HashMap::<u128, u32>::new());
    let mut calls = 0;
    while repeats.len() < COUNT as usize {
        let next = host.stack.next_deadline().expect("timers are left");
        host.now = host.now.max(next);
        let before = host.stack.counters().timeouts;
        host.stack.advance(host.now);
        let fired = host.stack.counters().timeouts - before;
        assert!(fired <= TIMERS, "{fired} timers in one call");
        calls += 1;
        assert!(calls < 1_000, "no more calls than it takes");
        let waited = host.now.saturating_since(start);
        for seen in host.collect().iter().filter(|s| !s.payload.is_empty()) {
            assert!(waited >= Duration::from_millis(200), "{waited:?} is early");
            *repeats.entry(seen.to).or_insert(0) += 1;
            *by_ms.entry(waited.as_millis()).or_default() += 1;
        }
        // A packet that comes in between is answered before the next call.
        if calls % 16 == 0 {
            other.expect_unharmed(&mut host);
        }
    }
    assert!(calls >= u64::from(COUNT) / TIMERS);
    assert!(repeats.values().all(|&n| n == 1), "each in its turn");
    // An eighth of 200 ms, and a tick.
    let waited = host.now.saturating_since(start);
    assert!(waited <= Duration::from_millis(226), "{waited:?}");
    let most = by_ms.values().max().expect("some");
    assert!(by_ms.len() >= 20 && *most <= 1_280, "spread: {by_ms:?}");
    let mut conns: Vec<_> = peers.iter().map(|peer| peer.conn).collect();
    conns.push(other.conn);
    for conn in conns {
        host.stack.abort(host.now, conn);
        host.collect();
    }
    host.end(&[]);
}

/// A shard whose turns take longer than the timers' spread: each call comes a millisecond after the one before.
#[test]
fn no_deadline_starves_when_calls_are_late() {
    const COUNT: u32 = 4_000;
    let mut host = host(16_384);
    let peers = written_at_once(&mut host, COUNT);
    let mut other = Peer::open(&mut host, 4_000);
    host.now = host.now + Duration::from_millis(260);
    let mut repeats = HashMap::new();
    let mut calls = 0;
    while repeats.len() < COUNT as usize {
        host.stack.advance(host.now);
        for seen in host.collect().iter().filter(|s| !s.payload.is_empty()) {
            *repeats.entry(seen.to).or_insert(0) += 1;
        }
        if repeats.len() < COUNT as usize {
            assert!(is_due(&host), "the rest is due");
        }
        // Others' timers are armed meanwhile, and do not come first.
        other.expect_unharmed(&mut host);
        host.now = host.now + Duration::from_millis(1);
        calls += 1;
        assert!(calls <= 2 * u64::from(COUNT) / TIMERS);
    }
    assert!(repeats.values().all(|&n| n == 1));
    for conn in peers.iter().map(|peer| peer.conn).chain([other.conn]) {
        host.stack.abort(host.now, conn);
        host.collect();
    }
    host.end(&[]);
}

#[test]
fn time_wait_records_of_one_moment_go_in_portions() {
    const COUNT: u32 = 3_000;
    let mut host = host(8_192);
    for i in 0..COUNT {
        let mut peer = Peer::open_with(&mut host, &Craft::syn(stranger(i)));
        host.stack.close(host.now, peer.conn);
        peer.listen(&mut host, false);
        host.send(&peer.segment(Flags::FIN | Flags::ACK));
        host.collect();
    }
    assert_eq!(host.stack.in_time_wait(), COUNT as usize);
    host.now = host.now + Duration::from_secs(61);
    let mut left = COUNT as usize;
    while left > 0 {
        assert!(is_due(&host), "{left} are left");
        host.stack.advance(host.now);
        let now_left = host.stack.in_time_wait();
        assert!(now_left < left && left - now_left <= RECORDS);
        left = now_left;
    }
    assert!(!is_due(&host));
    host.end(&[]);
}

#[test]
fn syn_acks_of_one_moment_are_repeated_in_portions() {
    const COUNT: u32 = 3_000;
    let mut host = host(8_192);
    for i in 0..COUNT {
        host.send(&Craft::syn(stranger(i)));
    }
    assert_eq!(host.collect().len(), COUNT as usize);
    host.now = host.now + Duration::from_millis(1_001);
    let mut repeats = HashMap::new();
    while repeats.len() < COUNT as usize {
        assert!(is_due(&host), "{} were repeated", repeats.len());
        host.stack.advance(host.now);
        let seen = host.collect();
        assert!((1..=RECORDS).contains(&seen.len()));
        for seen in seen {
            *repeats.entry(seen.to).or_insert(0) += 1;
        }
    }
    assert!(repeats.values().all(|&n| n == 1));
    assert!(!is_due(&host));
    host.end(&[]);
}
