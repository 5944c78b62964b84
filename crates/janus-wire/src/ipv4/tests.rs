//! IPv4 against hand-made headers, against etherparse, and against noise.

use super::*;
use proptest::prelude::*;

fn sample(payload: &[u8]) -> Vec<u8> {
    let repr = Repr {
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(198, 51, 100, 2),
        proto: crate::proto::TCP,
        payload_len: payload.len() as u16,
        ttl: 64,
        tos: 0b10,
        id: 7,
        dont_fragment: true,
    };
    let mut out = vec![0; LEN];
    assert_eq!(emit(&mut out, &repr), LEN);
    out.extend_from_slice(payload);
    out
}

#[test]
fn goes_round() {
    let mut bytes = sample(b"hello");
    bytes.extend_from_slice(&[0; 21]); // link padding
    let ip = parse(&bytes).unwrap();
    assert_eq!(
        (ip.header_len(), ip.total_len(), ip.payload()),
        (20, 25, &b"hello"[..])
    );
    assert_eq!(
        (ip.proto, ip.ttl, ip.tos, ip.id, ip.ecn()),
        (6, 64, 2, 7, 2)
    );
    assert!(ip.dont_fragment() && !ip.is_fragment() && ip.checksum_ok() && ip.options().is_empty());
    bytes[8] = 63;
    assert!(!parse(&bytes).unwrap().checksum_ok());
}

#[test]
fn lengths_that_lie_are_refused() {
    let good = sample(b"hello");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        parse(&bytes).map(|_| ())
    };
    assert_eq!(with(0, 0x65), Err(Malformed::Version));
    assert_eq!(with(0, 0x44), Err(Malformed::Length)); // header of 16 bytes
    assert_eq!(with(0, 0x4f), Err(Malformed::Length)); // header of 60 bytes in a datagram of 25
    assert_eq!(with(3, 19), Err(Malformed::Length)); // total length below the header's
    assert_eq!(with(3, 26), Err(Malformed::Truncated));
    assert_eq!(parse(&good[..19]), Err(Malformed::Truncated));
}

#[test]
fn fragments_are_seen() {
    let mut bytes = sample(b"hello");
    bytes[6..8].copy_from_slice(&0x2003u16.to_be_bytes());
    let ip = parse(&bytes).unwrap();
    assert!(ip.is_fragment() && ip.more_fragments());
    assert_eq!(ip.fragment_offset(), 24);
}

proptest! {
    #[test]
    fn written_headers_read_the_same_in_etherparse(
        src: u32, dst: u32, proto: u8, ttl: u8, tos: u8, id: u16, dont_fragment: bool, payload_len in 0u16..1500,
    ) {
        let repr = Repr { src: src.into(), dst: dst.into(), proto, payload_len, ttl, tos, id, dont_fragment };
        let mut bytes = vec![0; LEN + usize::from(payload_len)];
        emit(&mut bytes, &repr);
        let (theirs, _) = etherparse::Ipv4Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(theirs.source, repr.src.octets());
        prop_assert_eq!(theirs.destination, repr.dst.octets());
        prop_assert_eq!(theirs.protocol.0, proto);
        prop_assert_eq!(theirs.total_len, 20 + payload_len);
        prop_assert_eq!((theirs.time_to_live, theirs.identification), (ttl, id));
        prop_assert_eq!(theirs.dont_fragment, dont_fragment);
        prop_assert_eq!(theirs.dscp.value() << 2 | theirs.ecn.value(), tos);
        prop_assert_eq!(theirs.header_checksum, theirs.calc_header_checksum());
        prop_assert!(parse(&bytes).unwrap().checksum_ok());
    }

    /// Headers with options and odd lengths: both parsers must agree on what is there.
    #[test]
    fn agrees_with_etherparse_on_what_parses(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120), words in 0u8..16, total in 0u16..140, shape: bool,
    ) {
        if shape && bytes.len() >= 4 {
            bytes[0] = 0x40 | words;
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
        }
        let theirs = etherparse::Ipv4HeaderSlice::from_slice(&bytes);
        if let Ok(ours) = parse(&bytes) {
            let theirs = theirs.unwrap();
            prop_assert_eq!(ours.header(), theirs.slice());
            prop_assert_eq!(ours.options(), theirs.options());
            prop_assert_eq!(ours.fragment_offset(), usize::from(theirs.fragments_offset().value()) * 8);
            prop_assert_eq!(ours.more_fragments(), theirs.more_fragments());
            prop_assert_eq!(ours.total_len(), usize::from(theirs.total_len()));
            prop_assert_eq!(
                ours.checksum_ok(),
                theirs.header_checksum() == theirs.to_header().calc_header_checksum()
            );
        } else if let Ok(theirs) = theirs {
            // etherparse leaves the total length to its caller; we do not.
            let total = usize::from(theirs.total_len());
            prop_assert!(total < theirs.slice().len() || total > bytes.len());
        }
    }
}
