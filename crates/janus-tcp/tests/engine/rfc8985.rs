//! Loss recovery as a peer sees it, where scripts (`tests/packetdrill/{rack,tlp,sack}`) would be long: RFC 8985, RFC 6675
//! section 5.1, RFC 2883.

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, Info};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

const MSS: u32 = 1_400;
const RTT: Duration = Duration::from_millis(100);

fn open() -> (Host, Peer) {
    let mut host = Host::with(Config {
        send_buffer: 1 << 20,
        ..Config::default()
    });
    let mut syn = Craft::syn((PEER, 4_000));
    syn.options.sack_permitted = true;
    let mut peer = Peer::open_with(&mut host, &syn);
    for _ in 0..20 {
        let sent = write(&mut host, &peer, 1);
        host.wait(RTT);
        peer.take(&sent);
        host.ask(&peer.segment(Flags::ACK));
    }
    (host, peer)
}

fn info(host: &Host, peer: &Peer) -> Info {
    host.stack.info(peer.conn).expect("a connection")
}

/// So many full segments.
fn write(host: &mut Host, peer: &Peer, segments: u32) -> Vec<Seen> {
    let data = bytes_at(0, (segments * MSS) as usize);
    assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(data.len()));
    let sent = host.collect();
    assert_eq!(sent.len() as u32, segments);
    sent
}

fn sack(peer: &Peer, blocks: &[(SeqNum, SeqNum)]) -> Craft {
    let mut ack = peer.segment(Flags::ACK);
    for &(left, right) in blocks {
        ack.options.sack.push(left, right);
    }
    ack
}

/// Time passes until something is sent.
fn next_sent(host: &mut Host) -> Vec<Seen> {
    for _ in 0..100 {
        host.now = host.now.max(host.stack.next_deadline().expect("a timer"));
        host.stack.advance(host.now);
        let seen = host.collect();
        if !seen.is_empty() {
            return seen;
        }
    }
    panic!("nothing is sent");
}

/// RFC 8985 section 3.3.2 and 6.2: each round in which a repeat was in vain widens the reordering window, and it is never
/// wider than a round trip.
#[test]
fn the_reordering_window_is_bounded_by_a_round_trip() {
    let (mut host, mut peer) = open();
    // It is seen once that the network reorders: before, three segments beyond a gap are proof enough.
    let sent = write(&mut host, &peer, 3);
    host.wait(RTT);
    host.ask(&sack(&peer, &[(sent[1].header.seq, sent[1].end())]));
    peer.rcv = sent[2].end();
    host.ask(&peer.segment(Flags::ACK));
    let mut waits = Vec::new();
    let mut sent = write(&mut host, &peer, 5);
    for _ in 0..12 {
        let (first, second) = (sent[0].header.seq, sent[1].header.seq);
        let end = sent.last().expect("segments").end();
        host.wait(RTT);
        // The first seems to be missing: when is it sent again?
        let at = host.now;
        let mut again = host.ask(&sack(&peer, &[(second, end)]));
        while !again
            .iter()
            .any(|s| s.header.seq == first && !s.payload.is_empty())
        {
            again = next_sent(&mut host);
        }
        waits.push(host.now.saturating_since(at));
        // It was only late, and the repeat comes too. There is always something in flight: an idle connection forgets.
        host.wait(RTT);
        let data = bytes_at(0, 5 * MSS as usize);
        host.stack.write(host.now, peer.conn, &data).expect("room");
        let mut next = host.collect();
        peer.rcv = end;
        next.extend(host.ask(&sack(&peer, &[(first, second)])));
        next.retain(|s| s.header.seq.ge(end) && !s.payload.is_empty());
        assert!(next.len() >= 3, "{} new segments", next.len());
        sent = next;
    }
    assert!(host.stack.counters().dsacks_in >= 12);
    let srtt = Duration::from_micros(info(&host, &peer).srtt_us.into());
    assert!(waits[0] + RTT / 2 < waits[11], "it widens: {waits:?}");
    assert!(
        waits.iter().all(|&w| w <= srtt + Duration::from_millis(10)),
        "{waits:?}, {srtt:?}"
    );
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// RFC 6675 section 5.1: a timeout in recovery ends it and notes how far had been sent; what is found lost below that is
/// no new recovery and lowers nothing again; beyond it, it is.
#[test]
fn a_timeout_in_recovery_is_remembered() {
    let (mut host, mut peer) = open();
    let sent = write(&mut host, &peer, 10);
    host.wait(RTT);
    host.ask(&sack(&peer, &[(sent[1].header.seq, sent[5].end())]));
    assert_eq!(host.stack.counters().fast_retransmits, 1);
    let timeouts = host.stack.counters().timeouts;
    while host.stack.counters().timeouts == timeouts {
        next_sent(&mut host);
    }
    let lowered = info(&host, &peer);
    assert!(lowered.cwnd <= 2 * MSS, "{lowered:?}");
    // The repeat of the first arrives; of those that go out next, the first is lost once more.
    host.wait(RTT);
    peer.rcv = sent[6].header.seq;
    let repeats = host.ask(&peer.segment(Flags::ACK));
    assert!(repeats.len() >= 2 && repeats[0].header.seq == peer.rcv);
    for n in [7, 8, 9] {
        host.wait(RTT);
        host.ask(&sack(&peer, &[(sent[7].header.seq, sent[n].end())]));
        assert_eq!(host.stack.counters().fast_retransmits, 1, "no new recovery");
        assert_eq!(info(&host, &peer).ssthresh, lowered.ssthresh);
    }
    peer.rcv = sent[9].end();
    host.ask(&peer.segment(Flags::ACK));
    while info(&host, &peer).in_flight > 0 {
        peer.listen(&mut host, true);
    }
    // What is lost later, when the window has grown again, is a new one.
    for _ in 0..6 {
        let data = bytes_at(0, 10 * MSS as usize);
        host.stack.write(host.now, peer.conn, &data).expect("room");
        while info(&host, &peer).in_flight + info(&host, &peer).unsent > 0 {
            for s in host.collect() {
                peer.rcv = if s.end().gt(peer.rcv) {
                    s.end()
                } else {
                    peer.rcv
                };
            }
            host.wait(RTT);
            host.send(&peer.segment(Flags::ACK));
        }
    }
    let sent = write(&mut host, &peer, 5);
    host.wait(RTT);
    host.ask(&sack(&peer, &[(sent[1].header.seq, sent[4].end())]));
    assert_eq!(host.stack.counters().fast_retransmits, 2);
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// RFC 8985 section 7.4.2: an acknowledgement beyond a probe that repeated the last segment, without a sign that both
/// copies came, means that one was lost and repaired: congestion control is told. With the sign, it is not.
#[test]
fn a_probe_that_repaired_a_loss_lowers_the_window() {
    for both_came in [false, true] {
        let (mut host, mut peer) = open();
        let sent = write(&mut host, &peer, 6);
        let before = info(&host, &peer);
        // The last is lost, nobody says so, and after two round trips it is sent again.
        host.wait(RTT);
        peer.rcv = sent[5].header.seq;
        host.ask(&peer.segment(Flags::ACK));
        let probe = next_sent(&mut host);
        assert_eq!(probe[0].header.seq, sent[5].header.seq);
        assert_eq!(host.stack.counters().tail_probes, 1);
        let more = write(&mut host, &peer, 1);
        host.wait(RTT);
        if both_came {
            peer.rcv = sent[5].end();
            host.ask(&sack(&peer, &[(sent[5].header.seq, sent[5].end())]));
        }
        peer.rcv = more[0].end();
        host.ask(&peer.segment(Flags::ACK));
        let after = info(&host, &peer);
        assert_eq!(host.stack.counters().tail_losses, u64::from(!both_came));
        assert_eq!(after.cwnd < before.cwnd, !both_came, "{before:?} {after:?}");
        host.end(&[peer.conn]);
    }
}

/// RFC 2883 section 5: acknowledgements that come out of order. The block of the older one lies below SND.UNA by then, and
/// above its own acknowledgement: nothing came twice.
#[test]
fn a_block_is_judged_by_its_own_acknowledgement() {
    let (mut host, mut peer) = open();
    let sent = write(&mut host, &peer, 6);
    host.wait(RTT);
    let old = sack(&peer, &[(sent[2].header.seq, sent[2].end())]);
    peer.rcv = sent[4].end();
    host.ask(&peer.segment(Flags::ACK));
    host.ask(&old);
    assert_eq!(host.stack.counters().dsacks_in, 0);
    // The same block with an acknowledgement above it says that it came twice.
    host.ask(&sack(&peer, &[(sent[2].header.seq, sent[2].end())]));
    assert_eq!(host.stack.counters().dsacks_in, 1);
    peer.rcv = sent[5].end();
    host.ask(&peer.segment(Flags::ACK));
    host.end(&[peer.conn]);
}

/// RFC 8985 section 7.3: a probe goes out when none is unanswered and nothing is known to be missing, and never holds the
/// timeout up for longer than one more timeout.
#[test]
fn a_silent_peer_gets_one_probe_and_then_the_timeout() {
    let (mut host, peer) = open();
    let sent = write(&mut host, &peer, 4);
    let start = host.now;
    let probe = next_sent(&mut host);
    assert_eq!((probe.len(), probe[0].header.seq), (1, sent[3].header.seq));
    let probed = host.now.saturating_since(start);
    let srtt = Duration::from_micros(info(&host, &peer).srtt_us.into());
    assert!(
        probed >= srtt * 2 && probed < srtt * 2 + RTT / 2,
        "{probed:?}"
    );
    let again = next_sent(&mut host);
    assert_eq!(
        again[0].header.seq, sent[0].header.seq,
        "the timeout's repeat"
    );
    assert_eq!(host.stack.counters().tail_probes, 1);
    let timeout = host.now.saturating_since(start) - probed;
    assert!(
        timeout >= srtt + Duration::from_millis(190) && timeout < srtt * 4,
        "{timeout:?}"
    );
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// RFC 8985 section 9.3: what is marked lost goes out again only as congestion control lets it. Of seven that are lost
/// at once no more go out than three delivered ones, and one, make room for.
#[test]
fn what_is_lost_waits_for_room() {
    let (mut host, mut peer) = open();
    let sent = write(&mut host, &peer, 10);
    host.wait(RTT);
    let out = host.ask(&sack(&peer, &[(sent[7].header.seq, sent[9].end())]));
    assert_eq!(info(&host, &peer).lost_segments + out.len() as u32, 7);
    assert!((1..=4).contains(&out.len()), "{} of 7", out.len());
    assert!(
        out.iter()
            .zip(&sent)
            .all(|(o, s)| o.header.seq == s.header.seq)
    );
    host.wait(RTT);
    // Each that arrives makes room for the next.
    let before = out.len();
    peer.rcv = sent[before].header.seq;
    let more = host.ask(&sack(&peer, &[(sent[7].header.seq, sent[9].end())]));
    assert_eq!(
        more.first().map(|s| s.header.seq),
        Some(sent[before].header.seq)
    );
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// RFC 8985 section 7.3: no second probe before the first is answered, though an acknowledgement comes between.
#[test]
fn one_probe_at_a_time() {
    let (mut host, mut peer) = open();
    let sent = write(&mut host, &peer, 6);
    assert_eq!(next_sent(&mut host)[0].header.seq, sent[5].header.seq);
    assert_eq!(host.stack.counters().tail_probes, 1);
    // A part is acknowledged late, not the probe; then silence.
    host.wait(Duration::from_millis(10));
    peer.rcv = sent[2].header.seq;
    host.ask(&peer.segment(Flags::ACK));
    let timeouts = host.stack.counters().timeouts;
    next_sent(&mut host);
    assert_eq!(host.stack.counters().tail_probes, 1);
    assert_eq!(host.stack.counters().timeouts, timeouts + 1);
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}
