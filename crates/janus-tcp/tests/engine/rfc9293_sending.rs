//! How data is cut into segments and pushed, and how acknowledgements are gathered: RFC 9293 sections 3.7.4, 3.8.6.3,
//! 3.9.1.2 and 3.10.7.4.

use core::time::Duration;

use crate::support::{Craft, Host, Peer, Seen, bytes_at};
use janus_mem::{Frame, HEADROOM};
use janus_tcp::{Config, Local};
use janus_wire::tcp::Flags;

const MSS: usize = 1_400;

/// Hands several packets in at once.
fn feed_batch(host: &mut Host, crafts: &[Craft]) {
    let mut frames = Vec::new();
    for craft in crafts {
        let packet = craft.packet();
        let mut buf = host.device.alloc().expect("a buffer");
        let start = usize::from(HEADROOM);
        buf.bytes_mut()[start..start + packet.len()].copy_from_slice(&packet);
        frames.push(Frame::new(buf, packet.len() as u16));
    }
    host.stack.input(host.now, &mut frames, &mut Local);
}

fn lens(seen: &[Seen]) -> Vec<usize> {
    seen.iter().map(|s| s.payload.len()).collect()
}

fn pushes(seen: &[Seen]) -> Vec<bool> {
    seen.iter().map(|s| s.has(Flags::PSH)).collect()
}

/// MUST-58, MUST-59: all that arrives in a turn is processed before anything is acknowledged, by one segment; so are
/// segments out of order.
#[test]
fn a_batch_gets_one_acknowledgement() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let batch: Vec<Craft> = (0..10).map(|i| peer.ahead(1_000 * i, 1_000)).collect();
    feed_batch(&mut host, &batch);
    let answers = host.collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].header.ack, peer.snd + 10_000u32);
    peer.skip(10_000);
    // In any order, in several calls, the last segment first.
    for i in (0..10).rev() {
        host.send(&peer.ahead(1_000 * i, 1_000));
    }
    let answers = host.collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].header.ack, peer.snd + 10_000u32);
    peer.skip(10_000);
    peer.expect_stream(&mut host);
    assert_eq!(peer.read, 20_000);
    host.end(&[peer.conn]);
}

/// SHLD-27, SHLD-28: writes that wait are joined to segments as large as can be, and one push is left of many.
#[test]
fn small_writes_that_wait_become_large_segments() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    assert_eq!(
        host.stack.write(host.now, peer.conn, &bytes_at(0, 100)),
        Ok(100)
    );
    let first = host.collect();
    assert_eq!((lens(&first), pushes(&first)), (vec![100], vec![true]));
    // Nagle's algorithm: these wait for the first. The pieces do not divide a segment.
    let mut at = 100;
    for _ in 0..30 {
        assert_eq!(
            host.stack.write(host.now, peer.conn, &bytes_at(at, 99)),
            Ok(99)
        );
        at += 99;
        let early = host.collect();
        assert!(
            early.iter().all(|s| s.payload.len() == MSS),
            "{:?}",
            lens(&early)
        );
        peer.take(&first);
        peer.take(&early);
    }
    let mut sent = peer.listen(&mut host, false);
    host.send(&peer.segment(Flags::ACK));
    sent.extend(peer.listen(&mut host, true));
    assert_eq!(peer.got, bytes_at(0, 100 + 30 * 99));
    assert_eq!(
        sent.last().map(|s| (s.payload.len(), s.has(Flags::PSH))),
        Some((170, true))
    );
    host.end(&[peer.conn]);
}

/// MUST-61: the last segment of what is there pushes; SHLD-27: and no other does.
#[test]
fn the_last_segment_of_a_write_pushes() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    assert_eq!(
        host.stack.write(host.now, peer.conn, &bytes_at(0, 3_000)),
        Ok(3_000)
    );
    let sent = peer.listen(&mut host, true);
    assert_eq!(lens(&sent), [MSS, MSS, 200]);
    assert_eq!(pushes(&sent), [false, false, true]);
    host.end(&[peer.conn]);
}

/// MUST-60: what a small segment in flight holds back goes out once that is acknowledged, with no further call.
#[test]
fn nothing_written_is_kept_back_for_ever() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    for (i, byte) in [b"a", b"b", b"c"].into_iter().enumerate() {
        assert_eq!(host.stack.write(host.now, peer.conn, byte), Ok(1));
        assert_eq!(host.collect().len(), usize::from(i == 0));
    }
    // The first is lost; even so everything comes in the end.
    for _ in 0..10 {
        let next = host.stack.next_deadline();
        let Some(next) = next.filter(|_| peer.got.len() < 3) else {
            break;
        };
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        peer.listen(&mut host, true);
    }
    peer.listen(&mut host, true);
    assert_eq!(peer.got, b"abc");
    host.end(&[peer.conn]);
}

/// MUST-40, and RFC 5681 section 4.2: however data dribbles in, no acknowledgement comes later than half a second after
/// the first byte it is for, and no segment gets more than one.
#[test]
fn acknowledgements_come_within_half_a_second() {
    let mut host = Host::with(Config::default());
    let mut peer = Peer::open(&mut host, 4_000);
    for gap in [0u64, 1, 10, 39, 41, 200] {
        let mut owed_since = None;
        let mut acked = peer.snd;
        for _ in 0..30 {
            host.send(&peer.ahead(0, 1));
            peer.skip(1);
            owed_since.get_or_insert(host.now);
            let at_once = host.collect();
            assert!(at_once.len() <= 1);
            let until = host.now + Duration::from_millis(gap);
            let mut seen = at_once;
            while let Some(next) = host.stack.next_deadline().filter(|&at| at <= until) {
                host.now = host.now.max(next);
                host.stack.advance(host.now);
                seen.extend(host.collect());
            }
            for s in seen {
                acked = s.header.ack;
                if acked == peer.snd {
                    owed_since = None;
                }
            }
            host.now = host.now.max(until);
            let waited = owed_since.map(|since| host.now.saturating_since(since));
            assert!(waited.unwrap_or_default() < Duration::from_millis(500));
        }
        host.wait(Duration::from_millis(500));
        host.collect();
        assert!(acked.le(peer.snd));
    }
    peer.expect_stream(&mut host);
    host.end(&[peer.conn]);
}
