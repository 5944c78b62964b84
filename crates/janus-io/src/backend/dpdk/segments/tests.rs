//! Bursts as the stack sends them, chained.

use janus_wire::tcp::Flags;

use super::*;
use crate::backend::sound;
use crate::testing::stream::Stream;
use crate::testing::{frame, pool};

const LIMITS: Limits = Limits {
    frames: BURST,
    segment: 1514,
    v6: true,
};

fn burst(bytes: &[Vec<u8>]) -> (Vec<Frame>, Vec<ffi::jd_packet>) {
    let mut pool = pool(256);
    let frames: Vec<Frame> = bytes.iter().map(|bytes| frame(&mut pool, bytes)).collect();
    let packets = vec![ffi::jd_packet::default(); frames.len()];
    (frames, packets)
}

/// Of each frame how many the chain has that it begins; 1: it goes alone, 0: it is part of one.
fn chains(packets: &[ffi::jd_packet]) -> Vec<usize> {
    let mut counts = Vec::new();
    while counts.len() < packets.len() {
        let packet = &packets[counts.len()];
        match packet.flags & ffi::JD_TX_TSO {
            0 => counts.push(1),
            _ => {
                let count = (packet.hash >> 24) as usize;
                counts.push(count);
                counts.resize(counts.len() + count - 1, 0);
            }
        }
    }
    counts
}

#[test]
fn what_follows_is_chained_behind_headers_that_speak_for_all() {
    for v6 in [false, true] {
        let stream = Stream {
            v6,
            checksums: true,
            ..Stream::V4
        };
        let mut bytes = stream.segments(&[1400, 1400, 1400, 200, 1400], Flags::ACK);
        let next = Stream {
            seq: 90_000,
            ..stream
        };
        bytes.extend(next.segments(&[700, 700], Flags::ACK));
        let (frames, mut packets) = burst(&bytes);
        let mut joiner = Chains::new(LIMITS);
        assert_eq!(joiner.join(&frames, &mut packets), 2);
        assert_eq!(chains(&packets), [4, 0, 0, 0, 1, 2, 0]);
        let hash = packets[0].hash;
        assert_eq!((hash & 0xffff, hash >> 16 & 0xff), (1400, 32));
        let ip = janus_wire::ethernet::LEN;
        for (head, payload) in joiner.headers.iter().zip([3 * 1400 + 200, 1400]) {
            let said = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
            match v6 {
                false => assert_eq!(said(ip + 2), 20 + 32 + payload),
                true => assert_eq!(said(ip + 4), 32 + payload),
            }
        }
        // Nothing was done to the frames themselves.
        for (frame, bytes) in frames.iter().zip(&bytes) {
            assert!(frame.data() == &bytes[..] && sound::is_sound(frame.data()));
        }
    }
}

#[test]
fn no_chain_is_longer_than_the_device_takes() {
    let bytes = Stream::V4.segments(&[100; 10], Flags::ACK);
    let (frames, mut packets) = burst(&bytes);
    let few = Limits {
        frames: 4,
        ..LIMITS
    };
    Chains::new(few).join(&frames, &mut packets);
    assert_eq!(chains(&packets), [4, 0, 0, 0, 4, 0, 0, 0, 2, 0]);
    // Nor are its segments, nor is it of a family that the device cannot cut.
    let v6 = Stream {
        v6: true,
        ..Stream::V4
    };
    for (stream, size, joined) in [
        (Stream::V4, 1434, true),
        (Stream::V4, 1435, false),
        (v6, 1000, false),
    ] {
        let (frames, mut packets) = burst(&stream.segments(&[size; 2], Flags::ACK));
        let tap = Limits::new("net_tap", 0, 1500);
        Chains::new(tap).join(&frames, &mut packets);
        assert_eq!(packets[0].flags & ffi::JD_TX_TSO != 0, joined, "{size}");
    }
    let card = Limits::new("net_ice", 8, 1500);
    assert_eq!((card.frames, card.segment, card.v6), (7, 1514, true));
}

/// The most that a burst can have.
#[test]
fn pairs_fill_a_burst() {
    let mut bytes = Vec::new();
    for pair in 0..BURST as u32 / 2 {
        let seq = 1_000_000 * pair;
        bytes.extend(Stream { seq, ..Stream::V4 }.segments(&[64, 64], Flags::ACK));
    }
    let (frames, mut packets) = burst(&bytes);
    let mut joiner = Chains::new(LIMITS);
    assert_eq!(joiner.join(&frames, &mut packets), BURST / 2);
    assert_eq!(chains(&packets), [[2, 0]; BURST / 2].concat());
}
