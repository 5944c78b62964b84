//! What RFC 5681 demands of a sender, seen from outside: how the window begins, what three duplicates do to it, and what
//! must not. With NewReno, whose figures the RFC gives; where SACK changes the way, with it too.

use core::time::Duration;

use crate::support::family::socket;
use crate::support::{Craft, HERE, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, CongestionControl, Info};
use janus_wire::tcp::Flags;

const MSS: u32 = 1_400;

fn host(congestion: CongestionControl) -> Host {
    Host::with(Config {
        congestion,
        send_buffer: 1 << 20,
        ..Config::default()
    })
}

fn open(host: &mut Host, sack: bool) -> Peer {
    let mut syn = Craft::syn((PEER, 4_000));
    syn.options.sack_permitted = sack;
    let peer = Peer::open_with(host, &syn);
    host.send(&peer.segment(Flags::ACK));
    peer
}

fn info(host: &Host, peer: &Peer) -> Info {
    host.stack.info(peer.conn).expect("a connection")
}

/// As much written as there is room for, and what of it goes out.
fn write(host: &mut Host, peer: &Peer) -> Vec<Seen> {
    let data = bytes_at(0, 500_000);
    host.stack.write(host.now, peer.conn, &data).expect("room");
    host.collect()
}

/// A repeat of the last acknowledgement; with SACK it says that one more segment has come behind the first.
fn duplicate(peer: &Peer, n: u32, sack: bool) -> Craft {
    let mut ack = peer.segment(Flags::ACK);
    if sack {
        let left = peer.rcv + MSS;
        ack.options.sack.push(left, left + MSS * n);
    }
    ack
}

fn new_data(seen: &[Seen], beyond: janus_wire::SeqNum) -> usize {
    seen.iter()
        .filter(|s| !s.payload.is_empty() && s.header.seq.ge(beyond))
        .count()
}

/// Section 3.1: neither the SYN-ACK nor its acknowledgement makes the first window larger, whoever opens.
#[test]
fn the_handshake_does_not_grow_the_window() {
    let mut host = host(CongestionControl::NewReno);
    let peer = open(&mut host, false);
    assert_eq!(info(&host, &peer).cwnd, 10 * MSS);
    assert_eq!(write(&mut host, &peer).len(), 10);
    let (local, remote) = (socket(HERE, 5_000), socket(PEER, 9_000));
    let ours = host
        .stack
        .connect(host.now, local, remote)
        .expect("a connection");
    let syn = host.collect().remove(0);
    let mut answer = Craft::syn((PEER, 9_000));
    (answer.dst.1, answer.flags, answer.ack) = (5_000, Flags::SYN | Flags::ACK, syn.end());
    host.ask(&answer);
    assert_eq!(host.stack.info(ours).map(|info| info.cwnd), Ok(10 * MSS));
    host.stack.abort(host.now, peer.conn);
    host.end(&[ours]);
}

/// Section 3.2, steps 1 to 6, without SACK: limited transmit changes nothing and is not counted; the third duplicate
/// halves, repeats and inflates; further ones inflate; the acknowledgement of all brings the window to the threshold.
#[test]
fn three_duplicates_halve_the_window() {
    let mut host = host(CongestionControl::NewReno);
    let mut peer = open(&mut host, false);
    let sent = write(&mut host, &peer);
    assert_eq!(sent.len(), 10);
    let end = sent.last().expect("segments").end();
    for n in 1..=2 {
        let out = host.ask(&duplicate(&peer, n, false));
        assert_eq!(new_data(&out, end), 1, "limited transmit");
        assert_eq!(info(&host, &peer).cwnd, 10 * MSS);
    }
    let out = host.ask(&duplicate(&peer, 3, false));
    assert_eq!(
        out[0].header.seq, peer.rcv,
        "the lost segment is sent again"
    );
    let after = info(&host, &peer);
    assert_eq!(
        after.ssthresh,
        5 * MSS,
        "half of ten: the two of limited transmit do not count"
    );
    assert_eq!(after.cwnd, after.ssthresh + 3 * MSS);
    for n in 4..=9 {
        host.ask(&duplicate(&peer, n, false));
        assert_eq!(info(&host, &peer).cwnd, after.ssthresh + n * MSS);
    }
    // Everything sent before the loss, and what was sent since, is there.
    peer.rcv = host_sent(&mut host, &peer, end + 2 * MSS);
    host.ask(&peer.segment(Flags::ACK));
    let done = info(&host, &peer);
    assert!(
        done.cwnd <= done.ssthresh && done.ssthresh == 5 * MSS,
        "{done:?}"
    );
    // Congestion avoidance follows: a segment more for a window's worth of acknowledgements.
    let before = done.cwnd;
    for _ in 0..5 {
        peer.rcv += MSS;
        host.ask(&peer.segment(Flags::ACK));
    }
    let grown = info(&host, &peer).cwnd;
    let most = before.max(done.ssthresh) + MSS;
    assert!(grown <= most, "{before} grew to {grown} in a round trip");
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// An acknowledgement number that covers `at_least`, and is not beyond what was sent.
fn host_sent(host: &mut Host, peer: &Peer, at_least: janus_wire::SeqNum) -> janus_wire::SeqNum {
    let una = peer.rcv + info(host, peer).in_flight;
    assert!(una.ge(at_least));
    at_least
}

/// Section 3.2 step 1: with SACK a duplicate that reports nothing new lets nothing out.
#[test]
fn limited_transmit_needs_news() {
    let mut host = host(CongestionControl::NewReno);
    let mut peer = open(&mut host, true);
    // Round trips are known to take a while, or a probe would come between.
    for _ in 0..10 {
        host.stack
            .write(host.now, peer.conn, &bytes_at(0, 100))
            .expect("room");
        let sent = host.collect();
        host.wait(Duration::from_millis(100));
        peer.take(&sent);
        host.ask(&peer.segment(Flags::ACK));
    }
    let sent = write(&mut host, &peer);
    let end = sent.last().expect("segments").end();
    host.wait(Duration::from_millis(100));
    for _ in 0..2 {
        assert_eq!(new_data(&host.ask(&duplicate(&peer, 0, false)), end), 0);
    }
    let out = host.ask(&duplicate(&peer, 1, true));
    assert_eq!(new_data(&out, end), 1, "{out:?} {:?}", info(&host, &peer));
    assert_eq!(
        new_data(&host.ask(&duplicate(&peer, 1, true)), end),
        0,
        "no summary"
    );
    assert_eq!(info(&host, &peer).cwnd, 10 * MSS);
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// Section 4.3, with SACK: the threshold falls at the first loss in a window and only once; until all is repaired no more
/// goes out in a round trip than the threshold allows; then the window is the threshold at most; and another loss in the
/// next window lowers it again.
#[test]
fn losses_of_one_window_count_once_and_those_of_the_next_again() {
    for (algorithm, tenths) in [
        (CongestionControl::NewReno, 5),
        (CongestionControl::Cubic, 7),
    ] {
        let mut host = host(algorithm);
        let mut peer = open(&mut host, true);
        let mut sent = write(&mut host, &peer);
        let mut before = info(&host, &peer);
        for _window in 0..2 {
            let flight = before.in_flight;
            host.wait(Duration::from_millis(50));
            host.collect();
            let end = sent.last().expect("segments").end();
            let left = peer.rcv;
            // The first and the fourth of the window are lost. All that is sent until the repair is acknowledged:
            let mut in_recovery = 0;
            let segments = flight / MSS;
            for n in 1..segments {
                let mut ack = peer.segment(Flags::ACK);
                if n >= 3 {
                    ack.options.sack.push(left + 4 * MSS, left + (n + 1) * MSS);
                }
                ack.options
                    .sack
                    .push(left + MSS, left + (n + 1).min(3) * MSS);
                if n == 3 {
                    continue;
                }
                let out = host.ask(&ack);
                let lowered = info(&host, &peer);
                if lowered.ssthresh < before.ssthresh {
                    in_recovery += in_flight(&out);
                }
            }
            let lowered = info(&host, &peer).ssthresh;
            assert!(
                lowered <= flight * tenths / 10 + MSS,
                "{lowered} of {flight}, {algorithm:?}"
            );
            assert!(
                lowered >= flight * tenths / 10 - 2 * MSS,
                "{lowered} of {flight}, {algorithm:?}"
            );
            assert!(
                in_recovery <= lowered + 2 * MSS,
                "{in_recovery} went out, {lowered} may"
            );
            peer.rcv = end;
            sent = host.ask(&peer.segment(Flags::ACK));
            let after = info(&host, &peer);
            assert!(after.cwnd <= after.ssthresh + MSS, "{after:?}");
            // A few more round trips, so that the next loss is in a window of its own.
            for _ in 0..3 {
                host.wait(Duration::from_millis(50));
                let flight = info(&host, &peer).in_flight;
                peer.rcv = sent
                    .iter()
                    .map(|s| s.end())
                    .fold(peer.rcv, |a, b| if b.gt(a) { b } else { a });
                assert!(flight > 0);
                sent = host.ask(&peer.segment(Flags::ACK));
            }
            sent.extend(host.collect());
            before = info(&host, &peer);
            assert!(before.in_flight >= 4 * MSS, "{before:?}");
        }
        host.stack.abort(host.now, peer.conn);
        host.end(&[]);
    }
}

fn in_flight(seen: &[Seen]) -> u32 {
    seen.iter().map(|s| s.payload.len() as u32).sum()
}

/// Section 3.1: at a timeout the window is one segment and the threshold half; a second timeout of the same segment does
/// not lower the threshold again; then slow start.
#[test]
fn a_timeout_begins_with_one_segment() {
    for sack in [false, true] {
        let mut host = host(CongestionControl::NewReno);
        let mut peer = open(&mut host, sack);
        let sent = write(&mut host, &peer);
        assert_eq!(sent.len(), 10);
        for _ in 0..2 {
            let timeouts = host.stack.counters().timeouts;
            while host.stack.counters().timeouts == timeouts {
                host.now = host.now.max(host.stack.next_deadline().expect("a timer"));
                host.stack.advance(host.now);
                host.collect();
            }
            let after = info(&host, &peer);
            assert_eq!(after.cwnd, MSS);
            assert!(
                after.ssthresh <= 5 * MSS && after.ssthresh >= 4 * MSS,
                "{after:?}"
            );
        }
        peer.rcv += MSS;
        let out = host.ask(&peer.segment(Flags::ACK));
        assert_eq!(info(&host, &peer).cwnd, 2 * MSS);
        assert_eq!(out.len(), 2, "slow start");
        host.stack.abort(host.now, peer.conn);
        host.end(&[]);
    }
}
