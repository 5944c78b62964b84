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
    fn plausible_noise_never_panics(parts in proptest::collection::vec((0u8..10, 0u8..20, any::<[u8; 4]>()), 0..8)) {
        let bytes: Vec<u8> = parts.iter().flat_map(|(k, l, b)| [*k, *l, b[0], b[1], b[2], b[3]]).take(LEN_MAX).collect();
        let read = parse(&bytes);
        prop_assert!(read.sack.as_slice().len() <= SACK_BLOCKS_MAX);
    }

    #[test]
    fn the_fast_path_reads_what_the_walk_reads(value: u32, echo: u32) {
        let bytes = timestamps_bytes(NOP, NOP, (value, echo));
        prop_assert_eq!(parse(&bytes), parse_any(&bytes));
    }

    #[test]
    fn what_is_written_is_read_back(
        mss: Option<u16>, window_scale: Option<u8>, timestamps: Option<(u32, u32)>, sack_permitted: bool,
        blocks in proptest::collection::vec(any::<(u32, u32)>(), 0..=SACK_BLOCKS_MAX),
    ) {
        let sent = Options { mss, window_scale, timestamps, sack_permitted, sack: seq_blocks(&blocks) };
        let bytes = bytes_of(&sent);
        prop_assert!(bytes.len() <= LEN_MAX);
        let read = parse(&bytes);
        prop_assert_eq!(read.mss, mss);
        prop_assert_eq!(read.window_scale, window_scale);
        prop_assert_eq!(read.timestamps, timestamps);
        prop_assert_eq!(read.sack_permitted, sack_permitted);
        let fit = read.sack.len();
        prop_assert_eq!(read.sack.as_slice(), &sent.sack.as_slice()[..fit]);
        prop_assert!(fit == blocks.len() || bytes.len() + 8 > LEN_MAX);
    }
}
