//! Chunks in every cut, and what must not be taken for one.

use super::*;
use proptest::prelude::*;

/// Decodes `input` given in pieces; the data, and how many bytes were used when the body ended.
fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, Option<usize>), Reject> {
    let mut decoder = Decoder::new();
    let (mut data, mut used) = (Vec::new(), 0);
    for piece in pieces {
        let mut at = 0;
        loop {
            let step = decoder.step(&piece[at..])?;
            data.extend_from_slice(&piece[at..][step.data.clone()]);
            at += step.consumed;
            used += step.consumed;
            if decoder.is_done() {
                return Ok((data, Some(used)));
            }
            if step.data.is_empty() {
                assert_eq!(at, piece.len(), "stopped with input left");
                break;
            }
        }
    }
    Ok((data, None))
}

const BODY: &[u8] = b"4\r\nWiki\r\n06;a=\"b\" \r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nTrailer: x\r\nOther:\r\n\r\n";

#[test]
fn a_body_in_any_two_pieces() {
    for cut in 0..=BODY.len() {
        let (a, b) = BODY.split_at(cut);
        let (data, used) = decode(&[a, b, b"GET"]).unwrap();
        assert_eq!(
            (data.as_slice(), used),
            (&b"Wikipedia in \r\n\r\nchunks."[..], Some(BODY.len()))
        );
    }
    let bytes: Vec<&[u8]> = BODY.chunks(1).collect();
    assert_eq!(decode(&bytes).unwrap().1, Some(BODY.len()));
}

#[test]
fn nothing_but_the_last_chunk() {
    assert_eq!(decode(&[b"0\r\n\r\n"]), Ok((vec![], Some(5))));
    assert_eq!(decode(&[b"000\r\n\r"]), Ok((vec![], None)));
}

#[test]
fn what_is_no_chunk_is_refused() {
    for wrong in [
        &b"\r\n"[..],
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b" 1\r\n",
        b";a\r\n",
        b"1\nA\r\n",    // line end without CR
        b"1\r\nA\n",    // the same behind the data
        b"1\r\nAB\r\n", // more data than the size says
        b"1\rA",
        b"1;a\rb\r\n", // CR inside an extension
        b"1;a\nb\r\n", // LF inside an extension
        b"0\r\n\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\nA: b\r\r\n",
        b"0\r\nA: \0\r\n",
        b"1000000000000000\r\n",
        b"0000000000000001\r\n",
    ] {
        assert_eq!(
            decode(&[wrong]),
            Err(Reject::Chunk),
            "{:?}",
            String::from_utf8_lossy(wrong)
        );
    }
}

#[test]
fn extensions_and_trailers_are_bounded_over_the_whole_body() {
    let extended = format!("1;{}\r\nA\r\n", "x".repeat(1000));
    let pieces = [extended.as_bytes(); 5];
    assert!(decode(&pieces[..4]).is_ok());
    assert_eq!(decode(&pieces), Err(Reject::Chunk));
    let trailers = format!(
        "0\r\n{}\r\n",
        "a: b\r\n".repeat(TRAILER_BYTES_MAX as usize / 4 + 1)
    );
    assert_eq!(decode(&[trailers.as_bytes()]), Err(Reject::HeadTooLarge));
}

#[test]
fn sizes_up_to_the_digits_allowed() {
    let mut decoder = Decoder::new();
    let step = decoder.step(b"fffffffffffffff\r\nab").unwrap();
    assert_eq!(
        step,
        Step {
            consumed: 19,
            data: 17..19
        }
    );
    assert!(!decoder.is_done());
}

proptest! {
    #[test]
    fn what_is_coded_is_decoded(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut coded = Vec::new();
        for chunk in &chunks {
            coded.extend(format!("{:X}\r\n", chunk.len()).bytes());
            coded.extend_from_slice(chunk);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\n\r\n");
        let mut cuts: Vec<usize> = cuts.iter().map(|i| i.index(coded.len())).collect();
        cuts.extend([0, coded.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &coded[w[0]..w[1]]).collect();
        prop_assert_eq!(decode(&pieces), Ok((chunks.concat(), Some(coded.len()))));
    }

    #[test]
    fn noise_never_panics_nor_depends_on_the_cut(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'3'), Just(b';'), any::<u8>()], 0..80),
        cut: prop::sample::Index,
    ) {
        let (a, b) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(decode(&[&bytes]), decode(&[a, b]));
    }
}
