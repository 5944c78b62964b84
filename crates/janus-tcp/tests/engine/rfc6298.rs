//! When a sender measures and when its timer goes off, seen from outside: RFC 6298 sections 3, 4 and 5. The formulas
//! themselves are in `store/rto.rs`.

use core::time::Duration;

use crate::support::{Host, Peer, Seen, bytes_at};
use janus_tcp::{Config, Info, Instant};
use janus_wire::tcp::Flags;

const MS: Duration = Duration::from_millis(1);

fn fine() -> Host {
    Host::with(Config {
        // Nothing but the RFC's own rule is to keep the timeout above the round trip.
        rto_min: Duration::from_micros(1),
        ..Config::default()
    })
}

fn info(host: &Host, peer: &Peer) -> Info {
    host.stack.info(peer.conn).expect("a connection")
}

/// A segment and its acknowledgement `rtt` later.
fn round(host: &mut Host, peer: &mut Peer, rtt: Duration) {
    host.stack
        .write(host.now, peer.conn, &bytes_at(0, 100))
        .expect("room");
    let sent = host.collect();
    assert_eq!(sent.len(), 1);
    host.wait(rtt);
    peer.take(&sent);
    host.ask(&peer.segment(Flags::ACK));
}

/// Lets time pass up to the next thing sent; gives when, and what.
fn next_sent(host: &mut Host) -> (Instant, Vec<Seen>) {
    for _ in 0..100 {
        host.now = host.now.max(host.stack.next_deadline().expect("a timer"));
        host.stack.advance(host.now);
        let seen = host.collect();
        if !seen.is_empty() {
            return (host.now, seen);
        }
    }
    panic!("nothing is sent");
}

/// Section 3: each round trip is measured, with timestamps and without.
#[test]
fn every_round_trip_is_measured() {
    for timestamps in [false, true] {
        let mut host = fine();
        let mut peer = if timestamps {
            Peer::open_with_timestamps(&mut host, 4_000)
        } else {
            Peer::open(&mut host, 4_000)
        };
        // The first round trip, the handshake's, took no time.
        let mut smoothed = info(&host, &peer).srtt_us;
        for rtt in [80, 120, 40, 200, 90] {
            round(&mut host, &mut peer, MS * rtt);
            let now = info(&host, &peer).srtt_us;
            let expected = smoothed - smoothed / 8 + rtt * 1_000 / 8;
            assert!(now.abs_diff(expected) <= 1_000, "{now}, not {expected}");
            smoothed = now;
        }
        host.end(&[peer.conn]);
    }
}

/// Section 4: when the round trip never varies the timeout still is more than it, by the clock's granularity.
#[test]
fn a_steady_round_trip_leaves_room_for_a_tick() {
    let mut host = fine();
    let mut peer = Peer::open(&mut host, 4_000);
    for _ in 0..200 {
        round(&mut host, &mut peer, MS * 100);
    }
    let steady = info(&host, &peer);
    assert!(steady.rttvar_us < 100, "{steady:?}");
    host.stack.write(host.now, peer.conn, b"x").expect("room");
    let sent_at = host.now;
    host.collect();
    let (at, _) = next_sent(&mut host);
    let rto = at.saturating_since(sent_at);
    let srtt = Duration::from_micros(steady.srtt_us.into());
    assert!(
        rto >= srtt + MS && rto <= srtt + MS * 5,
        "{rto:?} for {srtt:?}"
    );
    host.end(&[peer.conn]);
}

/// Section 5: nothing is sent again sooner than one timeout after it was sent; an acknowledgement of new data begins the
/// wait anew (5.3); and each timeout doubles the next (5.5).
#[test]
fn nothing_is_repeated_too_early() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    for _ in 0..30 {
        round(&mut host, &mut peer, MS * 100);
    }
    host.stack
        .write(host.now, peer.conn, &bytes_at(0, 1_400))
        .expect("room");
    let first = host.collect();
    host.wait(MS * 90);
    host.stack
        .write(host.now, peer.conn, &bytes_at(0, 1_400))
        .expect("room");
    let second = host.collect();
    assert_eq!((first.len(), second.len()), (1, 1));
    host.wait(MS * 50);
    peer.take(&first);
    host.ask(&peer.segment(Flags::ACK));
    let restarted = host.now;
    let steady = info(&host, &peer);
    // What is added to the round trip is 200 ms at least, as in Linux.
    let spread = Duration::from_micros(u64::from(4 * steady.rttvar_us));
    let rto = Duration::from_micros(u64::from(steady.srtt_us)) + spread.max(MS * 200);
    let (at, again) = next_sent(&mut host);
    assert_eq!(again[0].header.seq, second[0].header.seq);
    let waited = at.saturating_since(restarted);
    assert!(
        waited >= rto - MS * 10 && waited <= rto + MS * 30,
        "{waited:?}, not {rto:?}"
    );
    let (later, _) = next_sent(&mut host);
    let doubled = later.saturating_since(at);
    assert!(
        doubled >= waited * 2 - MS * 30 && doubled <= waited * 2 + MS * 30,
        "{doubled:?} after {waited:?}"
    );
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}
