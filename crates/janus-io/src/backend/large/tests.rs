//! Joining and cutting are each other's inverse; what does not belong together is not joined; nothing panics.

use janus_mem::Frame;
use janus_wire::tcp::{CHECKSUM_AT, Flags};
use janus_wire::{ethernet, ipv4};
use proptest::prelude::*;

use super::cut::Cut;
use super::join::{run, seal, seal_one};
use super::*;
use crate::backend::sound;
use crate::testing::stream::Stream;
use crate::testing::{frame, pool};

const END: Flags = Flags(Flags::ACK.0 | Flags::PSH.0);

fn frames(bytes: &[Vec<u8>]) -> Vec<Frame> {
    let mut pool = pool(256);
    bytes.iter().map(|bytes| frame(&mut pool, bytes)).collect()
}

/// How many of these frames leave as one.
fn joined(bytes: &[Vec<u8>]) -> usize {
    run(&frames(bytes)).count
}

/// The first frames as one, as far as they join.
fn as_one(bytes: &[Vec<u8>]) -> (Vec<u8>, usize) {
    let run = run(&frames(bytes));
    let at = run.layout.expect("segments");
    let mut one = bytes[0][..at.payload].to_vec();
    seal(&mut one, &at, run.total, run.flags);
    for bytes in &bytes[..run.count] {
        one.extend_from_slice(&bytes[at.payload..]);
    }
    (one, run.size)
}

fn pieces(one: &[u8], size: usize) -> Vec<Vec<u8>> {
    let cut = Cut::new(one, one.len(), size).expect("it was joined");
    let piece = |index| {
        let mut piece = vec![0; cut.headers_len()];
        cut.write_headers(index, &mut piece);
        let part = cut.part(index);
        piece.extend_from_slice(&one[cut.headers_len()..][part]);
        piece
    };
    (0..cut.count()).map(piece).collect()
}

#[test]
fn a_run_ends_with_what_ends_it() {
    let s = Stream::V4;
    assert_eq!(joined(&s.segments(&[100, 100, 100], Flags::ACK)), 3);
    assert_eq!(joined(&s.segments(&[100, 100, 40], END)), 3);
    assert_eq!(joined(&s.segments(&[100, 40, 40], END)), 2, "a short one");
    assert_eq!(joined(&s.segments(&[40, 100], END)), 1, "a longer one");
    assert_eq!(joined(&s.segments(&[100, 0], END)), 1, "no payload");
    assert_eq!(joined(&s.segments(&[0, 0], END)), 1);
    let mut pushed = s.segments(&[100, 100, 100], Flags::ACK);
    pushed[1] = s.segment(1, 100, 100, END);
    assert_eq!(joined(&pushed), 2, "pushed in the middle");
    pushed[0] = s.segment(0, 0, 100, END);
    assert_eq!(joined(&pushed), 1, "pushed at once");
    for alone in [Flags::SYN, Flags::RST, Flags::URG, Flags::CWR, Flags::FIN] {
        let mut with = s.segments(&[100, 100], Flags::ACK);
        with[0] = s.segment(0, 0, 100, Flags::ACK | alone);
        assert_eq!(joined(&with), 1, "{alone} first");
        with[0] = s.segment(0, 0, 100, Flags::ACK);
        with[1] = s.segment(1, 100, 100, Flags::ACK | alone);
        let expected = if alone == Flags::FIN { 2 } else { 1 };
        assert_eq!(joined(&with), expected, "{alone} second");
    }
}

#[test]
fn what_differs_is_not_joined() {
    for s in [
        Stream::V4,
        Stream {
            v6: true,
            ..Stream::V4
        },
    ] {
        let good = s.segments(&[100, 100], Flags::ACK);
        let at = layout(&good[0]).unwrap();
        assert_eq!(joined(&good), 2);
        // Every byte of the headers but those that a device fills in.
        let filled_in = |place: usize| match s.v6 {
            true => (at.ip + 4..at.ip + 6).contains(&place),
            false => {
                (at.ip + 4..at.ip + 6).contains(&place) || (at.ip + 10..at.ip + 12).contains(&place)
            }
        };
        let tcp_checksum = at.tcp + CHECKSUM_AT..at.tcp + CHECKSUM_AT + 2;
        for place in 0..at.payload {
            let mut other = good.clone();
            other[1][place] ^= 0x40;
            let may = (!s.v6 && filled_in(place)) || tcp_checksum.contains(&place);
            assert_eq!(
                joined(&other),
                if may { 2 } else { 1 },
                "{s:?} byte {place}"
            );
        }
        let mut gap = good.clone();
        gap[1] = s.segment(1, 101, 100, Flags::ACK);
        assert_eq!(joined(&gap), 1);
        let mut padded = good.clone();
        padded[1].extend([0; 4]);
        assert_eq!(joined(&padded), 1, "padding is no payload");
        // Not even where the next carries on behind the padding.
        padded[0] = [&good[0][..], &[0; 4]].concat();
        padded[1] = s.segment(1, 104, 100, Flags::ACK);
        assert_eq!(joined(&padded), 1);
    }
}

#[test]
fn no_run_is_longer_than_a_packet_may_be() {
    let s = Stream {
        timestamps: false,
        ..Stream::V4
    };
    let many = s.segments(&[1460; 60], Flags::ACK);
    // 20 + 20 + 44 × 1460 = 64,280; one more would be 65,740.
    assert_eq!(joined(&many), 44);
    let (one, size) = as_one(&many);
    assert_eq!(pieces(&one, size).len(), 44);
}

#[test]
fn headers_of_the_whole_are_what_a_device_wants() {
    for v6 in [false, true] {
        let s = Stream { v6, ..Stream::V4 };
        let (one, size) = as_one(&s.segments(&[500, 500, 30], END));
        let at = layout(&one).unwrap();
        assert_eq!((size, frame_len(&one, &at)), (500, one.len()));
        assert!(sound::has_sound_header(&one));
        // The checksum over all bytes, with the pseudo header's sum in its field, is the segment's.
        let sum = janus_wire::checksum::finish(janus_wire::checksum::sum(&one[at.tcp..], 0));
        let mut filled = one.clone();
        filled[at.tcp + CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
        assert!(sound::is_sound(&filled));
        filled[at.payload] ^= 1;
        assert!(!sound::is_sound(&filled));
    }
}

#[test]
fn one_segment_is_sealed_in_its_place_however_often() {
    let s = Stream::V4;
    let mut once = s.segment(0, 0, 33, END);
    let at = layout(&once).unwrap();
    seal_one(&mut once, &at);
    assert_eq!(s.without_checksum(&once), s.segment(0, 0, 33, END));
    let mut twice = once.clone();
    seal_one(&mut twice, &at);
    assert_eq!(once, twice);
    // A length that leads beyond the frame, and one that ends within the headers.
    for len in [0xffff_u16, 0, 30] {
        once[at.ip + 2..at.ip + 4].copy_from_slice(&len.to_be_bytes());
        seal_one(&mut once, &at);
    }
}

#[test]
fn a_reduced_window_is_told_once_and_an_end_last() {
    let s = Stream::V4;
    let (mut one, size) = as_one(&s.segments(&[100, 100, 100], END));
    let flags_at = layout(&one).unwrap().tcp + FLAGS_AT;
    one[flags_at] = (Flags::ACK | Flags::CWR | Flags::PSH | Flags::FIN | Flags::ECE).0;
    let flags: Vec<Flags> = pieces(&one, size)
        .iter()
        .map(|piece| Flags(piece[flags_at]))
        .collect();
    let every = Flags::ACK | Flags::ECE;
    let last = every | Flags::PSH | Flags::FIN;
    assert_eq!(flags, [every | Flags::CWR, every, last]);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let s = Stream::V4;
    let (one, size) = as_one(&s.segments(&[100, 100], END));
    assert!(Cut::new(&one, one.len(), size).is_some());
    assert!(Cut::new(&one, one.len(), 0).is_none(), "no size");
    assert!(Cut::new(&one, one.len() + 1, size).is_none(), "padding");
    assert!(
        Cut::new(&one[..60], one.len(), size).is_none(),
        "no headers"
    );
    let bare = s.segment(0, 0, 0, END);
    assert!(Cut::new(&bare, bare.len(), 100).is_none(), "no payload");
    for (place, value) in [
        (12, 9),
        (14, 0x65),
        (14, 0x44),
        (20, 0x20),
        (23, 17),
        (46, 0x40),
    ] {
        let mut other = one.clone();
        other[place] = value;
        assert!(
            Cut::new(&other, other.len(), size).is_none(),
            "byte {place}"
        );
    }
}

#[test]
fn headers_between_are_walked_but_no_fragment() {
    let s = Stream {
        v6: true,
        ..Stream::V4
    };
    let plain = s.segment(0, 0, 10, END);
    let with = |next: u8, extension: &[u8]| {
        let mut bytes = plain.clone();
        bytes[ethernet::LEN + 6] = next;
        bytes.splice(54..54, extension.iter().copied());
        bytes
    };
    let found = layout(&with(
        60,
        &[6, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ));
    assert_eq!(found.map(|at| (at.ip, at.tcp)), Some((14, 70)));
    assert_eq!(layout(&with(44, &[6, 0, 0, 0, 0, 0, 0, 1])), None);
    let chain = |count: usize| -> Vec<u8> {
        let next = |index| if index + 1 == count { 6 } else { 60 };
        (0..count)
            .flat_map(|index| [next(index), 0, 1, 4, 0, 0, 0, 0])
            .collect()
    };
    assert!(layout(&with(60, &chain(EXTENSIONS_MAX))).is_some());
    assert_eq!(layout(&with(60, &chain(EXTENSIONS_MAX + 1))), None);
    let mut fragment = Stream::V4.segment(0, 0, 10, END);
    fragment[ethernet::LEN + 6] = 0x20;
    assert_eq!(layout(&fragment), None);
    assert!(layout(&Stream::V4.segment(0, 0, 10, END)[..14 + ipv4::LEN]).is_none());
}

proptest! {
    #[test]
    fn cutting_undoes_joining(
        v6: bool, timestamps: bool, seq: u32, id: u16, size in 1_usize..1500, count in 2_usize..64,
        last in 1_usize..1500, fin: bool,
    ) {
        let s = Stream { v6, timestamps, seq, id, checksums: false };
        let mut lens = vec![size; count];
        lens[count - 1] = last.min(size);
        let flags = if fin { END | Flags::FIN } else { END };
        let sent = s.segments(&lens, flags);
        let (one, _) = as_one(&sent);
        let pieces = pieces(&one, lens[0]);
        let whole = 40 + size * count;
        prop_assert!(pieces.len() == count || whole > 60_000, "{} of {count}", pieces.len());
        for (piece, sent) in pieces.iter().zip(&sent) {
            prop_assert!(sound::has_sound_header(piece));
            prop_assert_eq!(&s.without_checksum(piece), sent);
        }
    }

    #[test]
    fn noise_does_no_harm(
        mut noise in proptest::collection::vec(any::<u8>(), 0..200), size: u16, len in 0_usize..70_000,
        kind in proptest::sample::select(vec![[8_u8, 0], [0x86, 0xdd], [0x81, 0]]), version in 4_u8..7, words in 5_u8..16,
    ) {
        if noise.len() > 15 {
            noise[12..14].copy_from_slice(&kind);
            noise[14] = version << 4 | words;
        }
        if let Some(at) = layout(&noise) {
            seal_one(&mut noise, &at);
        }
        if let Some(cut) = Cut::new(&noise, len, size.into()) {
            let mut out = [0; 256];
            for index in 0..cut.count() {
                cut.write_headers(index, &mut out);
            }
            prop_assert_eq!(cut.part(cut.count() - 1).end + cut.headers_len(), len);
        }
        let two = [noise.clone(), noise];
        prop_assert!(joined(&two) <= 2);
    }

    #[test]
    fn one_byte_wrong_does_no_harm(at in 0_usize..80, value: u8, v6: bool) {
        let s = Stream { v6, ..Stream::V4 };
        let mut sent = s.segments(&[60, 60, 60], END);
        sent[0][at] = value;
        let run = run(&frames(&sent));
        if let Some(at) = run.layout {
            let mut head = sent[0][..at.payload].to_vec();
            if run.count > 1 {
                seal(&mut head, &at, run.total, run.flags);
            }
        }
    }
}
