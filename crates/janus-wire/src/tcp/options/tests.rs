//! Options: Linux's bytes, tolerance of nonsense, and the round trip.

use super::*;
use proptest::prelude::*;

fn bytes_of(options: &Options) -> Vec<u8> {
    let mut out = [0xee; LEN_MAX];
    let len = options.emit(&mut out);
    assert_eq!(len, options.emitted_len());
    assert_eq!(len % 4, 0);
    out[..len].to_vec()
}

fn seq_blocks(pairs: &[(u32, u32)]) -> SackBlocks {
    let mut blocks = SackBlocks::NONE;
    for &(left, right) in pairs {
        assert!(blocks.push(SeqNum(left), SeqNum(right)));
    }
    blocks
}

#[test]
fn a_syn_looks_like_one_of_linux() {
    let syn = Options {
        mss: Some(1460),
        window_scale: Some(7),
        timestamps: Some((1, 0)),
        sack_permitted: true,
        sack: SackBlocks::NONE,
        user_timeout: None,
    };
    assert_eq!(
        bytes_of(&syn),
        [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7
        ]
    );
    let plain = Options {
        timestamps: None,
        ..syn
    };
    assert_eq!(bytes_of(&plain), [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7]);
    let no_sack = Options {
        sack_permitted: false,
        ..syn
    };
    assert_eq!(bytes_of(&no_sack)[4..8], [1, 1, 8, 10]);
}

#[test]
fn an_ack_with_blocks_looks_like_one_of_linux() {
    let ack = Options {
        sack: seq_blocks(&[(10, 20), (30, 40)]),
        ..Options::timestamps(5, 6)
    };
    let mut expected = vec![1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6, 1, 1, 5, 18];
    for n in [10u32, 20, 30, 40] {
        expected.extend(n.to_be_bytes());
    }
    assert_eq!(bytes_of(&ack), expected);
    assert_eq!(parse(&expected), ack);
}

#[test]
fn blocks_beyond_the_room_are_left_out() {
    let four = seq_blocks(&[(1, 2), (3, 4), (5, 6), (7, 8)]);
    assert_eq!(
        bytes_of(&Options {
            sack: four,
            ..Options::NONE
        })
        .len(),
        36
    );
    let with_ts = bytes_of(&Options {
        sack: four,
        ..Options::timestamps(1, 2)
    });
    assert_eq!((with_ts.len(), parse(&with_ts).sack.len()), (40, 3));
    let mut full = four;
    assert!(!full.push(SeqNum(9), SeqNum(10)));
}

/// RFC 5482 section 3.3, figure 1, and the reserved values of section 3.4.
#[test]
fn user_timeouts_count_seconds_or_minutes() {
    let read = |high: u8, low: u8| parse(&[28, 4, high, low]).user_timeout;
    let seconds = |high, low| read(high, low).map(UserTimeout::as_secs);
    assert_eq!(seconds(0, 1), Some(1));
    assert_eq!(seconds(0x7f, 0xff), Some(32_767));
    assert_eq!(seconds(0x80, 1), Some(60));
    assert_eq!(seconds(0xff, 0xff), Some(32_767 * 60));
    assert_eq!((read(0, 0), read(0x80, 0)), (None, None));
    assert_eq!(parse(&[28, 3, 1, 1]).user_timeout, None);
    for (secs, written) in [
        (0, 1),
        (1, 1),
        (300, 300),
        (32_767, 32_767),
        (32_768, 0x8000 | 547),
        (32_767 * 60, 0xffff),
        (u32::MAX, 0xffff),
    ] {
        assert_eq!(UserTimeout::from_secs(secs).bits(), written, "{secs} s");
    }
}

#[test]
fn a_user_timeout_stands_behind_what_linux_sends() {
    let five_minutes = Some(UserTimeout::from_secs(300));
    let syn = Options {
        mss: Some(1460),
        window_scale: Some(7),
        timestamps: Some((1, 0)),
        sack_permitted: true,
        ..Options::NONE
    };
    let with = Options {
        user_timeout: five_minutes,
        ..syn
    };
    let tail = [28, 4, 1, 44];
    assert_eq!(bytes_of(&with), [&bytes_of(&syn)[..], &tail].concat());
    let ack = Options {
        user_timeout: five_minutes,
        ..Options::timestamps(5, 6)
    };
    let plain = bytes_of(&Options::timestamps(5, 6));
    assert_eq!(bytes_of(&ack), [&plain[..], &tail].concat());
}

#[test]
fn lengths_that_lie_end_the_walk_and_keep_what_was_read() {
    let mss = [2, 4, 5, 180];
    let behind = |tail: &[u8]| parse(&[&mss, tail].concat());
    let only_mss = Options {
        mss: Some(1460),
        ..Options::NONE
    };
    assert_eq!(behind(&[3, 0, 7, 0]), only_mss); // length zero: would loop for ever
    assert_eq!(behind(&[3, 1, 7, 0]), only_mss);
    assert_eq!(behind(&[8, 10, 0, 0]), only_mss); // runs past the end
    assert_eq!(behind(&[3]), only_mss); // no length byte
    assert_eq!(behind(&[0, 3, 3, 7]), only_mss); // end of list
    assert_eq!(
        behind(&[3, 4, 7, 7, 4, 2]),
        Options {
            sack_permitted: true,
            ..only_mss
        }
    ); // wrong size: skipped
    assert_eq!(behind(&[5, 9, 1, 2, 3, 4, 5, 6, 7, 0]), only_mss); // no whole block
    assert_eq!(
        behind(&[254, 4, 9, 9, 1, 3, 3, 7]),
        Options {
            window_scale: Some(7),
            ..only_mss
        }
    );
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..=LEN_MAX)) {
        let _ = parse(&bytes);
    }

    /// Noise made of plausible kinds and lengths reaches deeper than uniform bytes do.
    #[test]
    fn plausible_noise_never_panics(parts in proptest::collection::vec((0u8..30, 0u8..20, any::<[u8; 4]>()), 0..8)) {
        let bytes: Vec<u8> = parts.iter().flat_map(|(k, l, b)| [*k, *l, b[0], b[1], b[2], b[3]]).take(LEN_MAX).collect();
        let read = parse(&bytes);
        prop_assert!(read.sack.as_slice().len() <= SACK_BLOCKS_MAX);
    }

    #[test]
    fn the_fast_path_reads_what_the_walk_reads(value: u32, echo: u32) {
        let bytes = timestamps_bytes(NOP, NOP, (value, echo));
        prop_assert_eq!(parse(&bytes), parse_any(&bytes));
    }

    /// Never shorter than asked for, and by less than a minute longer.
    #[test]
    fn user_timeouts_are_rounded_up(secs in 1..=UserTimeout::LONGEST_SECS) {
        let timeout = UserTimeout::from_secs(secs);
        prop_assert!((secs..secs + 60).contains(&timeout.as_secs()));
        prop_assert!(secs > 32_767 || timeout.as_secs() == secs);
        prop_assert_eq!(UserTimeout::from_bits(timeout.bits()), Some(timeout));
    }

    #[test]
    fn what_is_written_is_read_back(
        mss: Option<u16>, window_scale: Option<u8>, timestamps: Option<(u32, u32)>, sack_permitted: bool,
        blocks in proptest::collection::vec(any::<(u32, u32)>(), 0..=SACK_BLOCKS_MAX), user_timeout: Option<u16>,
    ) {
        let user_timeout = user_timeout.and_then(UserTimeout::from_bits);
        let sack = seq_blocks(&blocks);
        let sent = Options { mss, window_scale, timestamps, sack_permitted, sack, user_timeout };
        let bytes = bytes_of(&sent);
        prop_assert!(bytes.len() <= LEN_MAX);
        let read = parse(&bytes);
        prop_assert_eq!(read.mss, mss);
        prop_assert_eq!(read.window_scale, window_scale);
        prop_assert_eq!(read.timestamps, timestamps);
        prop_assert_eq!(read.sack_permitted, sack_permitted);
        prop_assert_eq!(read.user_timeout, user_timeout);
        let fit = read.sack.len();
        prop_assert_eq!(read.sack.as_slice(), &sent.sack.as_slice()[..fit]);
        prop_assert!(fit == blocks.len() || bytes.len() + 8 > LEN_MAX);
    }
}

proptest! {
    /// The short way through a SYN's options says what the long one says, whatever byte is not as usual.
    #[test]
    fn a_usual_syn_is_read_as_any_other(mss: u16, ts: (u32, u32), scale: u8, at in 0usize..40, byte: u8) {
        let usual = Options {
            mss: Some(mss), window_scale: Some(scale), sack_permitted: true, ..Options::timestamps(ts.0, ts.1)
        };
        let mut bytes = bytes_of(&usual);
        prop_assert_eq!(parse(&bytes), usual);
        prop_assert_eq!(parse_any(&bytes), usual);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        prop_assert_eq!(parse(&bytes), parse_any(&bytes));
    }

    /// A SYN without timestamps, in our order and with the scale before "SACK permitted", is read likewise.
    #[test]
    fn a_plain_syn_is_read_as_any_other(mss: u16, scale: u8, turned: bool, at in 0usize..16, byte: u8) {
        let plain = Options {
            mss: Some(mss), window_scale: Some(scale), sack_permitted: true, ..Options::NONE
        };
        let mut bytes = bytes_of(&plain);
        if turned {
            bytes[4..].rotate_left(4);
        }
        prop_assert_eq!(parse(&bytes), plain);
        prop_assert_eq!(parse_any(&bytes), plain);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        prop_assert_eq!(parse(&bytes), parse_any(&bytes));
    }
}
