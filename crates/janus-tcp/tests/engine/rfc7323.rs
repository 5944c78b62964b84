//! Window scale and timestamps as a peer sees them: RFC 7323 sections 2, 3, 4 and 5.

use core::time::Duration;

use crate::support::{Craft, HERE, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, Error};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

/// What the scale in our SYN-ACK is to a SYN with a scale.
fn our_scale(host: &mut Host, port: u16) -> u8 {
    let answers = host.ask(&Craft::syn((PEER, port)));
    answers[0].options.window_scale.expect("it is scaled")
}

/// Section 2.3: our shift is never more than 14, however large the buffer.
#[test]
fn our_shift_is_14_at_most() {
    for receive_buffer in [1 << 30, u32::MAX] {
        let mut host = Host::with(Config {
            receive_buffer,
            ..Config::default()
        });
        assert_eq!(our_scale(&mut host, 4_000), 14);
        host.end(&[]);
    }
}

/// Section 2.3: a peer's shift above 14 counts as 14. How far back an acknowledgement may lie shows how it was taken
/// (RFC 5961 section 5.2).
#[test]
fn the_peers_shift_is_14_at_most() {
    for (port, scale) in [(4_000, 15), (4_001, 31), (4_002, 255)] {
        let mut host = Host::plain();
        let mut syn = Craft::syn((PEER, port));
        syn.options.window_scale = Some(scale);
        let mut peer = Peer::open_with(&mut host, &syn);
        host.send(&peer.segment(Flags::ACK));
        let mut old = peer.segment(Flags::ACK);
        old.ack = peer.rcv - (0xffff << 14);
        assert!(host.ask(&old).is_empty(), "old, and within the window");
        old.ack = old.ack - 1;
        assert_eq!(host.ask(&old).len(), 1, "too old");
        peer.expect_unharmed(&mut host);
        host.end(&[peer.conn]);
    }
}

/// Section 2.2 and 2.3: the window of our SYN-ACK is as it stands, later ones are shifted by what we said; data up to the
/// edge they name is taken and none beyond.
#[test]
fn our_windows_are_shifted_as_we_said() {
    let mut host = Host::with(Config {
        receive_buffer: 256 << 10,
        receive_buffer_max: 256 << 10,
        ..Config::default()
    });
    let syn = Craft::syn((PEER, 4_000));
    let first = host.ask(&syn).remove(0);
    let shift = first.options.window_scale.expect("it is scaled");
    assert!(shift > 0);
    let mut peer = Peer::open_with(&mut host, &syn);
    // A few round trips of data that is read at once: the window is as large as it gets.
    for _ in 0..400 {
        peer.say(&mut host, 1_400);
        peer.expect_stream(&mut host);
        host.collect();
    }
    let mut probe = peer.segment(Flags::ACK);
    probe.seq = peer.snd - 1;
    host.wait(Duration::from_secs(1));
    let answer = host.ask(&probe).remove(0);
    let window = u32::from(answer.header.window) << shift;
    assert!(
        window > 0xffff,
        "{window} is more than a field can say unshifted"
    );
    // The last byte within it is kept for later, the next is not.
    let before = host.stack.counters().dropped_window;
    host.ask(&peer.ahead(window, 1));
    assert_eq!(host.stack.counters().dropped_window, before + 1);
    host.ask(&peer.ahead(window - 1, 1));
    assert_eq!(host.stack.counters().dropped_window, before + 1);
    peer.expect_unharmed(&mut host);
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

fn has_timestamps(seen: &[Seen]) -> bool {
    assert!(!seen.is_empty());
    seen.iter().all(|s| s.options.timestamps.is_some())
}

/// Section 3.2: once both SYNs had it, the option is in each segment but resets: acknowledgements, data, repeats, probes,
/// challenges, FINs, and what is said in SYN-RECEIVED and TIME-WAIT.
#[test]
fn every_segment_of_a_connection_with_timestamps_has_one() {
    let mut host = Host::plain();
    let mut syn = Craft::syn((PEER, 4_000));
    syn.options.timestamps = Some((1_000, 0));
    assert!(has_timestamps(&host.ask(&syn)));
    // A stray for the half-open record is answered.
    let mut stray = Craft::new(syn.src, Flags::ACK);
    stray.seq = SeqNum(5_000_000);
    stray.options.timestamps = Some((1_000, 0));
    assert!(has_timestamps(&host.ask(&stray)));
    let mut peer = Peer::open_with(&mut host, &syn);
    let mut acknowledged = peer.say(&mut host, 100);
    host.wait(Duration::from_millis(100));
    acknowledged.extend(host.collect());
    assert!(has_timestamps(&acknowledged));
    let mut rst = peer.segment(Flags::RST);
    rst.seq += 100u32;
    assert!(has_timestamps(&host.ask(&rst)), "a challenge");
    host.stack
        .write(host.now, peer.conn, b"data")
        .expect("room");
    assert!(has_timestamps(&host.collect()), "data");
    host.wait(Duration::from_secs(2));
    assert!(has_timestamps(&peer.listen(&mut host, false)), "a repeat");
    peer.window = 0;
    host.send(&peer.segment(Flags::ACK));
    host.stack
        .write(host.now, peer.conn, b"data")
        .expect("room");
    assert!(host.collect().is_empty());
    host.wait(Duration::from_secs(10));
    assert!(has_timestamps(&peer.listen(&mut host, false)), "a probe");
    peer.window = 0xffff;
    host.send(&peer.segment(Flags::ACK));
    assert!(has_timestamps(&peer.listen(&mut host, true)));
    peer.expect_stream(&mut host);
    host.collect();
    host.stack
        .shutdown_write(host.now, peer.conn)
        .expect("open");
    assert!(has_timestamps(&peer.listen(&mut host, true)), "a FIN");
    let fin = peer.segment(Flags::FIN | Flags::ACK);
    assert!(has_timestamps(&host.ask(&fin)), "its acknowledgement");
    assert_eq!(host.stack.in_time_wait(), 1);
    host.wait(Duration::from_secs(1));
    assert!(has_timestamps(&host.ask(&fin)), "in TIME-WAIT");
    host.end(&[peer.conn]);
}

/// Section 3.2: a segment without the option is dropped at most; the connection goes on.
#[test]
fn a_missing_timestamp_ends_nothing() {
    let mut host = Host::plain();
    let mut peer = Peer::open_with_timestamps(&mut host, 4_000);
    peer.expect_unharmed(&mut host);
    for flags in [
        Flags::ACK,
        Flags::ACK | Flags::FIN,
        Flags::SYN,
        Flags::ACK | Flags::PSH,
    ] {
        for len in [0, 10] {
            let mut bare = peer.ahead(0, len);
            (bare.flags, bare.options.timestamps) = (flags, None);
            host.wait(Duration::from_secs(1));
            let answers = host.ask(&bare);
            assert!(answers.iter().all(|s| !s.has(Flags::RST)));
        }
    }
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

/// Section 3.2: on a connection that did not agree upon it the option is ignored, however old or new it claims to be.
#[test]
fn a_timestamp_nobody_agreed_upon_is_ignored() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    for value in [1u32 << 31, 5, u32::MAX, 0, 77] {
        let mut data = peer.ahead(0, 50);
        data.options.timestamps = Some((value, value));
        host.send(&data);
        peer.skip(50);
        host.wait(Duration::from_millis(100));
        let answers = host.collect();
        let last = answers.last().expect("an acknowledgement");
        assert_eq!((last.header.ack, last.options.timestamps), (peer.snd, None));
    }
    peer.expect_stream(&mut host);
    assert_eq!(peer.read, 250);
    host.end(&[peer.conn]);
}

/// Section 3.2: the echo of a segment without ACK, a SYN, is not looked at: what it would say of the round trip is false.
#[test]
fn the_echo_of_a_syn_means_nothing() {
    for echo in [0, 1, 4_000, u32::MAX] {
        let mut host = Host::plain();
        let mut syn = Craft::syn((PEER, 4_000));
        syn.options.timestamps = Some((1_000, echo));
        let answer = host.ask(&syn).remove(0);
        host.wait(Duration::from_millis(70));
        let mut ack = Craft::new(syn.src, Flags::ACK);
        (ack.seq, ack.ack) = (SeqNum(1), answer.end());
        let ours = answer.options.timestamps.expect("agreed upon").0;
        ack.options.timestamps = Some((1_070, ours));
        host.send(&ack);
        let (conn, _) = host.stack.accept(host.listener).expect("a connection");
        let srtt_us = host.stack.info(conn).expect("a connection").srtt_us;
        assert_eq!(srtt_us, 70_000);
        host.end(&[conn]);
    }
}

/// A handshake ends by the echo of one of its SYN-ACKs. A repeated SYN may come after its connection has ended, and the number of our answer
/// may be what the peer, in TIME-WAIT, still acknowledges: an older echo makes no connection (Linux: tcp_check_req), one of nothing does.
#[test]
fn a_handshake_ends_by_the_echo_of_its_syn_ack() {
    for (repeats, good) in [(0, true), (2, true), (0, false)] {
        let mut host = Host::plain();
        let mut syn = Craft::syn((PEER, 4_000));
        syn.options.timestamps = Some((1_000, 0));
        let answer = host.ask(&syn).remove(0);
        let ours = answer.options.timestamps.expect("agreed upon").0;
        let mut again = Vec::new();
        for repeat in 0..repeats {
            host.wait(Duration::from_millis(1_100 << repeat));
            again.extend(host.collect());
        }
        host.wait(Duration::from_millis(70));
        assert_eq!(again.len(), repeats, "SYN-ACKs once more");
        let mut ack = Craft::new(syn.src, Flags::ACK);
        (ack.seq, ack.ack) = (SeqNum(1), answer.end());
        let last = again.last().and_then(|seen| seen.options.timestamps);
        let last = last.map_or(ours, |(ours, _)| ours);
        let future = last.wrapping_add(4_000);
        for (count, echo) in [ours - 60_000, future, future + (1 << 30)]
            .into_iter()
            .enumerate()
        {
            ack.options.timestamps = Some((1_070, echo));
            let answers = host.ask(&ack);
            assert!(answers.iter().all(|seen| seen.header.flags == Flags::ACK));
            assert_eq!(host.stack.accept(host.listener), Err(Error::WouldBlock));
            assert_eq!(host.stack.counters().dropped_paws, count as u64 + 1);
        }
        let echo = if good { ours } else { 0 };
        ack.options.timestamps = Some((1_070, echo));
        host.send(&ack);
        let (conn, _) = host.stack.accept(host.listener).expect("a connection");
        host.end(&[conn]);
    }
}

/// Sections 4.1 and 5.4: our clock ticks with the time, a millisecond a tick, so it takes 49 days to go round.
#[test]
fn our_clock_keeps_time() {
    let mut host = Host::plain();
    let mut peer = Peer::open_with_timestamps(&mut host, 4_000);
    let mut stamp = |host: &mut Host| {
        let mut probe = peer.segment(Flags::ACK);
        probe.seq = peer.snd - 1;
        peer.clock = peer.clock.map(|value| value + 1);
        let answer = host.ask(&probe).remove(0);
        answer.options.timestamps.expect("agreed upon").0
    };
    let (start, first) = (host.now, stamp(&mut host));
    for seconds in [1, 60, 3_600, 86_400, 40 * 86_400] {
        host.now = start + Duration::from_secs(seconds);
        host.stack.advance(host.now);
        let passed = stamp(&mut host).wrapping_sub(first);
        assert_eq!(u64::from(passed), seconds * 1_000);
    }
    host.end(&[peer.conn]);
}

/// Section 5.2: what is echoed, and so compared with, never goes back, in whichever order segments and their timestamps
/// come.
#[test]
fn what_is_echoed_never_goes_back() {
    let mut host = Host::plain();
    let mut peer = Peer::open_with_timestamps(&mut host, 4_000);
    let mut random = 12_345u32;
    let mut echoed = 1_000_000u32;
    for round in 0..300u32 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let ahead = [0, 0, 0, 1_000, 2_000][(random >> 8) as usize % 5];
        let mut craft = peer.ahead(ahead, 100);
        let value = 1_000_000 + round * 10;
        let value = value.wrapping_add((random >> 16) % 200).wrapping_sub(100);
        craft.options.timestamps = Some((value, 0));
        for seen in host.ask(&craft) {
            let (_, echo) = seen.options.timestamps.expect("agreed upon");
            assert!(
                echo.wrapping_sub(echoed) as i32 >= 0,
                "{echo} after {echoed}"
            );
            echoed = echo;
            let known = (seen.header.ack - peer.snd).max(0) as u32;
            peer.skip(known);
        }
        host.wait(Duration::from_millis(600));
        host.collect();
    }
    assert!(echoed > 1_000_000);
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// Section 5.2: a reset is not subject to PAWS.
#[test]
fn a_reset_with_an_old_timestamp_is_a_reset() {
    for timestamps in [Some((5, 0)), None] {
        let mut host = Host::plain();
        let mut peer = Peer::open_with_timestamps(&mut host, 4_000);
        peer.expect_unharmed(&mut host);
        let mut rst = peer.segment(Flags::RST);
        rst.options.timestamps = timestamps;
        assert!(host.ask(&rst).is_empty());
        assert_eq!(host.stack.counters().resets_in, 1);
        host.end(&[peer.conn]);
    }
}

/// Section 5.3: only an arriving segment is judged. What waits beyond a gap may by then have an older timestamp than the
/// segment that fills it.
#[test]
fn what_waits_is_not_judged_again() {
    let mut host = Host::plain();
    let mut peer = Peer::open_with_timestamps(&mut host, 4_000);
    let mut waits = peer.ahead(100, 100);
    waits.options.timestamps = Some((1_000_010, 0));
    host.ask(&waits);
    let mut fills = peer.ahead(0, 100);
    fills.options.timestamps = Some((1_500_000, 0));
    let answers = host.ask(&fills);
    assert_eq!(answers[0].header.ack, peer.snd + 200u32);
    peer.skip(200);
    peer.expect_stream(&mut host);
    assert_eq!(peer.read, 200);
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// Both directions of an open: what our own SYN offers and how its answer is taken.
#[test]
fn our_own_syn_offers_and_takes_only_what_is_answered() {
    let remote = crate::support::family::socket(PEER, 9_000);
    for (i, (scale, stamp)) in [(None, None), (Some(2), None), (None, Some((9, 0)))]
        .into_iter()
        .enumerate()
    {
        let mut host = Host::plain();
        let port = 5_000 + i as u16;
        let local = crate::support::family::socket(HERE, port);
        let conn = host.stack.connect(host.now, local, remote);
        let conn = conn.expect("a connection");
        let syn = host.collect().remove(0);
        assert!(syn.options.window_scale.is_some() && syn.options.timestamps.is_some());
        let mut answer = Craft::syn((PEER, 9_000));
        (answer.dst.1, answer.flags, answer.ack) = (port, Flags::SYN | Flags::ACK, syn.end());
        (answer.options.window_scale, answer.options.timestamps) = (scale, stamp);
        answer.window = 100;
        let ack = host.ask(&answer).remove(0);
        assert_eq!(ack.options.timestamps.is_some(), stamp.is_some());
        // Unscaled, our first window is the field as it stands; scaled, it was shifted.
        assert_eq!(ack.header.window == 0xffff, scale.is_none());
        let mut update = Craft::new((PEER, 9_000), Flags::ACK);
        (update.dst.1, update.seq, update.ack, update.window) =
            (port, SeqNum(1), ack.header.seq, 100);
        update.options.timestamps = stamp;
        host.send(&update);
        host.stack
            .write(host.now, conn, &bytes_at(0, 300))
            .expect("room");
        let sent: usize = host.collect().iter().map(|s| s.payload.len()).sum();
        assert_eq!(
            sent,
            if scale.is_some() { 300 } else { 100 },
            "window of 100, scale {scale:?}"
        );
        host.stack.abort(host.now, conn);
        host.end(&[]);
    }
}
