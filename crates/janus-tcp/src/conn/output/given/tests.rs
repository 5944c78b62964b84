//! Buffers that are given leave where they lie, whatever the network does, and none is lost.

use core::time::Duration;

use janus_mem::{Depot, Frame, Growth, HEADROOM};

use super::*;
use crate::store::keys::ConnId;
use crate::testing::{Pair, slot};
use crate::{Config, Token};

/// Payload of a full segment between the two, with timestamps.
const FULL: u16 = 1_448;

fn opened(seed: u64) -> (Pair, ConnId, ConnId) {
    let mut pair = Pair::new(&Config::default(), seed);
    let (a, b) = pair.open(40_000);
    pair.steps(10);
    (pair, a, b)
}

fn byte_at(place: usize) -> u8 {
    (place * 31 + place / 251) as u8
}

fn filled_at(mut buf: PacketBuf, off: u16, len: u16, from: usize) -> Piece {
    for i in 0..usize::from(len) {
        buf.bytes_mut()[usize::from(off) + i] = byte_at(from + i);
    }
    Piece { buf, off, len }
}

/// A buffer of `a`'s with `len` bytes that tell their place in the stream.
fn filled(pair: &mut Pair, len: u16, from: usize) -> Piece {
    let buf = pair.a.stack.pool().alloc().expect("a buffer");
    filled_at(buf, HEADROOM, len, from)
}

/// Reads all there is at `b`, which must be the bytes from `from` on; answers how many.
fn read_all(pair: &mut Pair, b: ConnId, from: usize) -> usize {
    let (mut got, mut done) = (vec![0; 1 << 16], 0);
    while let Ok(n @ 1..) = pair.b.stack.read(pair.now, b, &mut got) {
        for (i, byte) in got[..n].iter().enumerate() {
            let at = from + done + i;
            assert_eq!(*byte, byte_at(at), "at {at}");
        }
        done += n;
    }
    done
}

/// What `a` sends now, kept.
fn sent(pair: &mut Pair) -> Vec<Frame> {
    let mut out = Vec::new();
    pair.a.stack.transmit(pair.now, &mut out, 1_000);
    out
}

fn end(mut pair: Pair, a: ConnId, b: ConnId) {
    pair.a.stack.close(pair.now, a);
    pair.b.stack.close(pair.now, b);
    pair.assert_clean();
}

#[test]
fn a_given_buffer_is_what_leaves_and_what_is_sent_again() {
    let (mut pair, a, b) = opened(1);
    let piece = filled(&mut pair, FULL, 0);
    let at = piece.bytes().as_ptr();
    pair.a.stack.send_buf(pair.now, a, piece).expect("room");
    for round in 0..2 {
        let mut frames = sent(&mut pair);
        let frame = frames.pop().expect("a segment");
        assert!(frames.is_empty() && frame.is_lent());
        let headers = frame.data().len() - usize::from(FULL);
        assert_eq!(frame.data()[headers..].as_ptr(), at, "round {round}");
        pair.a.stack.completed(frame);
        // It was lost: the timeout sends it again.
        pair.now = pair.now + Duration::from_secs(5);
        pair.a.stack.advance(pair.now);
    }
    assert!(pair.a.stack.counters().timeouts > 0);
    pair.run_for(Duration::from_secs(5));
    assert_eq!(read_all(&mut pair, b, 0), usize::from(FULL));
    let counters = pair.a.stack.counters();
    assert_eq!((counters.buffers_given, counters.buffers_copied), (1, 0));
    end(pair, a, b);
}

#[test]
fn a_stream_of_buffers_survives_loss_and_copies_nothing() {
    const BUFFERS: usize = 400;
    for seed in 1..=20 {
        let (mut pair, a, b) = opened(seed);
        pair.loss = 30;
        let (mut given, mut read) = (0, 0);
        let mut kept = None;
        while read < BUFFERS * usize::from(FULL) {
            while given < BUFFERS {
                let next = kept.take();
                let piece =
                    next.unwrap_or_else(|| filled(&mut pair, FULL, given * usize::from(FULL)));
                match pair.a.stack.send_buf(pair.now, a, piece) {
                    Ok(()) => given += 1,
                    Err((error, piece)) => {
                        assert_eq!(error, Error::WouldBlock);
                        kept = Some(piece);
                        break;
                    }
                }
            }
            pair.step();
            read += read_all(&mut pair, b, read);
        }
        let counters = *pair.a.stack.counters();
        assert_eq!(counters.buffers_given, BUFFERS as u64, "seed {seed}");
        assert_eq!((counters.buffers_copied, counters.segments_cut), (0, 0));
        assert!(counters.retransmissions > 0, "seed {seed}");
        pair.loss = 0;
        end(pair, a, b);
    }
}

#[test]
fn what_is_refused_comes_back_and_is_taken_when_there_is_room() {
    let (mut pair, a, b) = opened(3);
    let mut from = 0;
    let kept = loop {
        let piece = filled(&mut pair, FULL, from);
        match pair.a.stack.send_buf(pair.now, a, piece) {
            Ok(()) => from += usize::from(FULL),
            Err((error, piece)) => {
                assert_eq!(error, Error::WouldBlock);
                break piece;
            }
        }
        assert!(from < 1 << 20, "no end to what may be written ahead");
    };
    assert_eq!(kept.bytes()[0], byte_at(from));
    let refused = pair.a.stack.alloc_buf(pair.now, a);
    assert_eq!(refused.err(), Some(Error::WouldBlock));
    pair.a.stack.wait_write(pair.now, a, Some(Token(7)));
    let writer = |pair: &Pair| {
        pair.a.stack.store().hot[pair.a.stack.store().tcbs[slot(a)].hot()]
            .sender
            .writer
    };
    assert_eq!(writer(&pair), 7);
    let mut read = 0;
    // Told: the harness takes the token, and nobody is waiting any more.
    while writer(&pair) == 7 {
        pair.step();
        read += read_all(&mut pair, b, read);
    }
    pair.a.stack.send_buf(pair.now, a, kept).expect("room");
    pair.run_for(Duration::from_secs(10));
    read += read_all(&mut pair, b, read);
    pair.run_for(Duration::from_secs(10));
    read += read_all(&mut pair, b, read);
    let (buf, capacity) = pair.a.stack.alloc_buf(pair.now, a).expect("room");
    assert_eq!(capacity, FULL);
    pair.a.stack.pool().free(buf);
    assert_eq!(read, from + usize::from(FULL));
    end(pair, a, b);
}

#[test]
fn a_buffer_without_room_for_headers_or_of_others_is_copied_and_counted() {
    let (mut pair, a, b) = opened(4);
    let stranger = Depot::new(64, &Growth::Inline).expect("memory");
    let mut strangers = stranger.pool();
    let foreign = filled_at(strangers.alloc().expect("a buffer"), HEADROOM, FULL, 0);
    pair.a.stack.send_buf(pair.now, a, foreign).expect("room");
    strangers.flush();
    assert_eq!(stranger.stats().outstanding, 0, "it went home");
    for (i, off) in [0, HEADERS_MAX - 1, HEADERS_MAX].into_iter().enumerate() {
        let buf = pair.a.stack.pool().alloc().expect("a buffer");
        let piece = filled_at(buf, off, FULL, (i + 1) * usize::from(FULL));
        pair.a.stack.send_buf(pair.now, a, piece).expect("room");
    }
    let counters = pair.a.stack.counters();
    assert_eq!((counters.buffers_given, counters.buffers_copied), (1, 3));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(read_all(&mut pair, b, 0), 4 * usize::from(FULL));
    end(pair, a, b);
}

#[test]
fn short_ones_join_what_waits_and_longer_ones_go_alone() {
    let (mut pair, a, b) = opened(5);
    pair.a.stack.set_nodelay(a, true).expect("open");
    let mut from = 0;
    for len in [100, 100, JOINS_MAX + 1, JOINS_MAX, 424, 1] {
        let piece = filled(&mut pair, len, from);
        pair.a.stack.send_buf(pair.now, a, piece).expect("room");
        from += usize::from(len);
    }
    // 513 would fit behind the first 200, but are worth a segment; 424 do not fit behind 513 and 512.
    let counters = *pair.a.stack.counters();
    assert_eq!((counters.buffers_given, counters.buffers_copied), (3, 3));
    // A write fills up what was given last.
    let more: Vec<u8> = (from..from + 10).map(byte_at).collect();
    assert_eq!(pair.a.stack.write(pair.now, a, &more), Ok(10));
    from += 10;
    let frames = sent(&mut pair);
    // Of the three only the last pushes.
    let pushes = |frame: &Frame| {
        let ip = janus_wire::ipv4::parse(frame.data()).expect("our own packet");
        let (header, _, _) = tcp::parse(ip.payload()).expect("our own segment");
        header.flags.contains(tcp::Flags::PSH)
    };
    let pushing: Vec<bool> = frames.iter().map(pushes).collect();
    assert_eq!(pushing, [false, false, true]);
    frames
        .into_iter()
        .for_each(|f| pair.a.stack.ip().recycle(f));
    pair.run_for(Duration::from_secs(5));
    assert_eq!(read_all(&mut pair, b, 0), from);
    end(pair, a, b);
}

#[test]
fn one_that_is_too_long_for_a_segment_is_cut() {
    let (mut pair, a, b) = opened(6);
    let piece = filled(&mut pair, PAYLOAD_MAX, 0);
    pair.a.stack.send_buf(pair.now, a, piece).expect("room");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(read_all(&mut pair, b, 0), usize::from(PAYLOAD_MAX));
    let counters = pair.a.stack.counters();
    assert_eq!((counters.buffers_given, counters.segments_cut), (1, 1));
    end(pair, a, b);
}

#[test]
fn what_is_given_after_the_end_comes_back() {
    let (mut pair, a, b) = opened(7);
    let empty = filled(&mut pair, 0, 0);
    pair.a.stack.send_buf(pair.now, a, empty).expect("nothing");
    pair.a.stack.shutdown_write(pair.now, a).expect("open");
    let piece = filled(&mut pair, 10, 0);
    let refused = pair.a.stack.send_buf(pair.now, a, piece);
    let (error, piece) = refused.expect_err("shut");
    assert_eq!(error, Error::BrokenPipe);
    pair.a.stack.pool().free(piece.buf);
    let refused = pair.a.stack.alloc_buf(pair.now, a);
    assert_eq!(refused.err(), Some(Error::BrokenPipe));
    end(pair, a, b);
}

/// Those who hold the last buffers, to send them, are what would end the shortage: each may send one.
#[test]
fn when_memory_is_short_one_that_has_nothing_out_may_still_give() {
    let (mut pair, a, b) = opened(8);
    let piece = filled(&mut pair, FULL, 0);
    let next = filled(&mut pair, FULL, FULL.into());
    let mut others = pair.a.depot.pool();
    let mut held = Vec::new();
    others.alloc_many(usize::MAX, &mut held);
    pair.a.stack.pool().alloc_many(usize::MAX, &mut held);
    pair.a.stack.update_pressure();
    assert_eq!(pair.a.stack.pressure(), Pressure::Critical);
    let refused = pair.a.stack.alloc_buf(pair.now, a);
    assert_eq!(refused.err(), Some(Error::WouldBlock));
    pair.a
        .stack
        .send_buf(pair.now, a, piece)
        .expect("the first");
    let refused = pair.a.stack.send_buf(pair.now, a, next);
    let (error, next) = refused.expect_err("one is out");
    assert_eq!(error, Error::WouldBlock);
    held.into_iter().for_each(|buf| others.free(buf));
    drop(others);
    pair.run_for(Duration::from_secs(1));
    pair.a.stack.send_buf(pair.now, a, next).expect("room");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(read_all(&mut pair, b, 0), 2 * usize::from(FULL));
    end(pair, a, b);
}
