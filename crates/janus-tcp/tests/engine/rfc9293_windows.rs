//! Windows, ours and the peer's: how they are counted, that ours never shrinks, silly windows on both sides, and windows
//! that are shut. RFC 9293 sections 3.1, 3.4 and 3.8.6.

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, Error, SocketOptions, State};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

const BUFFER: u32 = 60_000;
const MSS: usize = 1_400;

fn small() -> Config {
    Config {
        receive_buffer: BUFFER,
        send_buffer: BUFFER,
        receive_buffer_max: 0,
        send_buffer_max: 0,
        // These tests look at the window by probes that follow each other at once.
        invalid_ack_interval: None,
        ..Config::default()
    }
}

fn in_flight(seen: &[Seen]) -> usize {
    seen.iter().map(|s| s.payload.len()).sum()
}

/// What our window reaches to, by a segment of ours on a connection that does not scale (the buffer is small).
fn edge(seen: &Seen) -> SeqNum {
    seen.header.ack + u32::from(seen.header.window)
}

/// A peer whose data has filled our buffer: the window we offer is shut.
fn filled() -> (Host, Peer) {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    for _ in 0..200 {
        let unread = host.stack.info(peer.conn).expect("a connection").unread;
        let room = (BUFFER - unread) as usize;
        if room == 0 {
            break;
        }
        peer.say(&mut host, room.min(1_000));
    }
    assert_eq!(ask_for_the_window(&mut host, &peer), 0);
    (host, peer)
}

/// A probe is answered with the window.
fn ask_for_the_window(host: &mut Host, peer: &Peer) -> u16 {
    let mut probe = peer.segment(Flags::ACK);
    probe.seq = peer.snd - 1;
    let answers = host.ask(&probe);
    assert_eq!(answers.len(), 1, "a probe is answered");
    assert_eq!(answers[0].header.ack, peer.snd);
    answers[0].header.window
}

/// MUST-1: 65,535 is a large window, not one below zero.
#[test]
fn a_window_is_an_unsigned_number() {
    let mut host = Host::plain();
    let mut syn = Craft::syn((PEER, 4_000));
    syn.options.window_scale = None;
    let mut peer = Peer::open_with(&mut host, &syn);
    let (mut most, mut written) = (0, 0);
    for _ in 0..12 {
        let data = bytes_at(written, 200_000);
        let done = host.stack.write(host.now, peer.conn, &data).unwrap_or(0);
        written += done as u32;
        let seen = peer.listen(&mut host, true);
        most = most.max(in_flight(&seen));
    }
    assert!(most > 0x8000 && most <= 0xffff, "{most}");
    assert_eq!(peer.got, bytes_at(0, peer.got.len()));
    host.stack.abort(host.now, peer.conn);
    host.end(&[]);
}

/// REC-1: a gigabyte's window loses no bit. How far back an acknowledgement may lie shows how large it is taken to be
/// (RFC 5961 section 5.2).
#[test]
fn windows_are_counted_in_32_bits() {
    let mut host = Host::plain();
    let mut syn = Craft::syn((PEER, 4_000));
    syn.options.window_scale = Some(14);
    let peer = Peer::open_with(&mut host, &syn);
    host.send(&peer.segment(Flags::ACK));
    let mut old = peer.segment(Flags::ACK);
    old.ack = peer.rcv - (0xffff << 14);
    assert!(host.ask(&old).is_empty(), "old, and within the window");
    old.ack = old.ack - 1;
    assert_eq!(host.ask(&old).len(), 1, "too old");
    host.end(&[peer.conn]);
}

/// SHLD-14: whatever is received, kept and read, what was offered stays offered.
#[test]
fn our_window_never_shrinks() {
    for seed in 1..20u32 {
        let mut host = Host::with(small());
        let mut peer = Peer::open(&mut host, 4_000);
        let mut random = seed;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let mut reached = peer.snd + BUFFER;
        for turn in 0..400 {
            // In the middle the application wishes for less room: what was offered stands until it is used.
            if turn == 200 {
                let less = SocketOptions {
                    receive_buffer: Some(8_000),
                    ..SocketOptions::default()
                };
                let wished = host.stack.set_options(host.now, peer.conn, &less);
                wished.expect("sound options");
            }
            let room = (reached - peer.snd).max(0) as u32;
            let len = next(1_400).min(room);
            let seen = match next(5) {
                0 | 1 if len > 0 => peer.say(&mut host, len as usize),
                2 if len + 2_000 < room => host.ask(&peer.ahead(next(2_000), len as usize)),
                3 => {
                    let mut into = vec![0; next(20_000) as usize];
                    let read = host.stack.read(host.now, peer.conn, &mut into);
                    peer.read += read.unwrap_or(0) as u32;
                    host.collect()
                }
                _ => {
                    let mut probe = peer.segment(Flags::ACK);
                    probe.seq = peer.snd - 1;
                    host.ask(&probe)
                }
            };
            // What was sent ahead counts as soon as the gap is filled.
            if let Some(last) = seen.last() {
                let known = (last.header.ack - peer.snd).max(0) as u32;
                peer.skip(known);
            }
            for s in &seen {
                assert!(
                    edge(s).ge(reached),
                    "seed {seed}: {reached} was offered, {s:?}"
                );
                reached = edge(s);
            }
        }
        host.stack.abort(host.now, peer.conn);
        host.end(&[]);
    }
}

/// MUST-66: a shut window keeps data out, not what else a segment says.
#[test]
fn resets_and_acknowledgements_count_at_a_shut_window() {
    let (mut host, mut peer) = filled();
    assert_eq!(
        host.stack.write(host.now, peer.conn, &bytes_at(0, 500)),
        Ok(500)
    );
    peer.listen(&mut host, false);
    // Data that finds no room, with the acknowledgement of ours.
    let answers = host.ask(&peer.ahead(0, 100));
    assert_eq!((answers.len(), answers[0].header.window), (1, 0));
    let info = host.stack.info(peer.conn).expect("a connection");
    assert_eq!((info.in_flight, info.unread), (0, BUFFER));
    // And its window: what we write now does not fit into it.
    peer.window = 0;
    host.ask(&peer.ahead(0, 100));
    host.stack
        .write(host.now, peer.conn, b"more")
        .expect("room");
    assert!(host.collect().is_empty());
    let rst = peer.segment(Flags::RST);
    assert!(host.ask(&rst).is_empty());
    let state = host.stack.info(peer.conn).map(|info| info.state);
    assert_eq!(state, Ok(State::Closed));
    host.end(&[peer.conn]);
}

/// MAY-8: for as long as nobody reads, an hour of probes is answered with no window; then all goes on.
#[test]
fn our_window_may_stay_shut() {
    let (mut host, mut peer) = filled();
    for _ in 0..60 {
        host.wait(Duration::from_secs(60));
        assert_eq!(ask_for_the_window(&mut host, &peer), 0);
    }
    peer.expect_stream(&mut host);
    let update = host.collect();
    assert_eq!(update.len(), 1, "the window opens by itself");
    assert_eq!(update[0].header.window as u32, BUFFER);
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

/// MUST-38: a window that opens bit by bit lets nothing out before a full segment fits.
#[test]
fn a_window_in_small_steps_gets_no_small_segments() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    peer.window = 0;
    host.send(&peer.segment(Flags::ACK));
    let data = bytes_at(0, 10 * MSS);
    assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(data.len()));
    host.collect();
    // The peer's window is scaled by 3.
    for window in (1..MSS.div_ceil(8) as u16).step_by(7) {
        peer.window = window;
        let sent = host.ask(&peer.segment(Flags::ACK));
        assert_eq!(in_flight(&sent), 0, "into {} bytes", window * 8);
    }
    peer.window = MSS.div_ceil(8) as u16;
    let sent = host.ask(&peer.segment(Flags::ACK));
    assert_eq!(in_flight(&sent), MSS);
    peer.take(&sent);
    peer.window = 0xffff;
    host.send(&peer.segment(Flags::ACK));
    while !peer.listen(&mut host, true).is_empty() {}
    assert!(peer.got == data);
    host.end(&[peer.conn]);
}

/// MUST-38, second rule of section 3.8.6.2.1: a peer whose window is never as large as a segment gets what half of its
/// window holds, at once and not by the persist timer.
#[test]
fn a_peer_with_a_small_window_need_not_wait() {
    for window in [60u16, 170] {
        let mut host = Host::with(small());
        let mut syn = Craft::syn((PEER, 4_000));
        syn.window = window;
        let mut peer = Peer::open_with(&mut host, &syn);
        peer.window = window;
        host.send(&peer.segment(Flags::ACK));
        let data = bytes_at(0, 5_000);
        assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(5_000));
        for _ in 0..100 {
            if peer.got.len() == data.len() {
                break;
            }
            let sent = peer.listen(&mut host, true);
            assert!(in_flight(&sent) <= usize::from(window) * 8);
        }
        assert!(
            peer.got == data,
            "{} bytes came without the clock",
            peer.got.len()
        );
        host.end(&[peer.conn]);
    }
}

/// MUST-39: when the application reads byte by byte, the window opens by a segment or half the buffer, not before.
#[test]
fn our_window_opens_in_large_steps() {
    let (mut host, mut peer) = filled();
    let (mut offered, mut steps) = (0, 0);
    for read in 1..=10_000u32 {
        let mut into = [0; 1];
        assert_eq!(host.stack.read(host.now, peer.conn, &mut into), Ok(1));
        assert_eq!(into[0], crate::support::byte_at(peer.read));
        peer.read += 1;
        for seen in host.collect() {
            assert!(u32::from(seen.header.window) >= offered + MSS as u32);
            offered = seen.header.window.into();
        }
        let now = u32::from(ask_for_the_window(&mut host, &peer));
        assert!(
            now == offered || now >= offered + MSS as u32,
            "{offered}, {now}"
        );
        assert!(now <= read);
        steps += u32::from(now != offered);
        offered = now;
    }
    assert!((1..=10_000 / MSS as u32).contains(&steps), "{steps}");
    peer.expect_stream(&mut host);
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

/// Repeats what is in flight whenever its time has come, and has the peer answer with its window, `times` over.
fn answer_repeats(host: &mut Host, peer: &Peer, times: usize) -> usize {
    let mut repeats = 0;
    while repeats < times {
        let Some(next) = host.stack.next_deadline() else {
            break;
        };
        host.now = host.now.max(next);
        host.stack.advance(host.now);
        let sent = host.collect();
        if !sent.is_empty() {
            repeats += 1;
            host.send(&peer.segment(Flags::ACK));
        }
    }
    repeats
}

/// MUST-34, MUST-35, SHLD-17: a window may shrink to nothing under what is in flight. As long as the peer answers, what
/// is repeated are probes of its window, and the connection lives.
#[test]
fn a_window_that_shrinks_to_nothing_is_probed_for_ever() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    let data = bytes_at(0, 3 * MSS);
    assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(data.len()));
    assert_eq!(in_flight(&host.collect()), data.len());
    peer.window = 0;
    host.send(&peer.segment(Flags::ACK));
    assert_eq!(answer_repeats(&mut host, &peer, 40), 40);
    let state = host.stack.info(peer.conn).map(|info| info.state);
    assert_eq!(state, Ok(State::Established));
    peer.window = 0xffff;
    host.send(&peer.segment(Flags::ACK));
    for _ in 0..20 {
        peer.listen(&mut host, true);
        let Some(next) = host.stack.next_deadline() else {
            break;
        };
        host.now = host.now.max(next);
        host.stack.advance(host.now);
    }
    assert!(peer.got == data);
    host.end(&[peer.conn]);
}

/// SHLD-15: behind a right edge that moved to the left nothing new is sent; MUST-34: nor does anything overflow.
#[test]
fn nothing_new_is_sent_beyond_a_window_that_shrank() {
    let mut host = Host::with(small());
    let mut peer = Peer::open(&mut host, 4_000);
    host.stack
        .write(host.now, peer.conn, &bytes_at(0, 5 * MSS))
        .expect("room");
    let first = host.collect();
    assert_eq!(in_flight(&first), 5 * MSS);
    peer.window = (2 * MSS / 8) as u16;
    host.send(&peer.segment(Flags::ACK));
    host.stack
        .write(host.now, peer.conn, &bytes_at(5 * MSS as u32, 5 * MSS))
        .expect("room");
    assert_eq!(in_flight(&host.collect()), 0);
    // Three are acknowledged, two are in flight and fill the window.
    peer.take(&first[..3]);
    let sent = host.ask(&peer.segment(Flags::ACK));
    assert_eq!(in_flight(&sent), 0);
    peer.take(&first[3..]);
    let sent = host.ask(&peer.segment(Flags::ACK));
    assert_eq!(in_flight(&sent), 2 * MSS);
    peer.take(&sent);
    peer.window = 0xffff;
    host.send(&peer.segment(Flags::ACK));
    while !peer.listen(&mut host, true).is_empty() {}
    assert_eq!(peer.got, bytes_at(0, 10 * MSS));
    assert_eq!(
        host.stack.read(host.now, peer.conn, &mut [0]),
        Err(Error::WouldBlock)
    );
    host.end(&[peer.conn]);
}
