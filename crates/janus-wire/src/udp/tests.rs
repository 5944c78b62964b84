//! UDP headers against etherparse, against noise, and the two meanings of a checksum of zero.

use super::*;
use proptest::prelude::*;

const V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));

fn v6() -> (Ipv6Addr, Ipv6Addr) {
    let at = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    (at(1), at(2))
}

fn datagram(src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xee; LEN];
    assert_eq!(emit(&mut bytes, src_port, dst_port, payload.len()), LEN);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn lengths_that_lie_are_refused() {
    let mut bytes = datagram(53, 4000, b"seven..");
    assert_eq!(parse(&bytes[..7]), Err(Malformed::Truncated));
    assert_eq!(parse(&bytes[..14]), Err(Malformed::Truncated));
    for short in [0, 1, 7] {
        bytes[5] = short;
        assert_eq!(parse(&bytes), Err(Malformed::Length), "{short}");
    }
    bytes[5] = 8;
    assert_eq!(parse(&bytes).unwrap().payload(), b"");
    bytes[4] = 0xff;
    assert_eq!(parse(&bytes), Err(Malformed::Truncated));
}

#[test]
fn what_follows_the_datagram_is_no_part_of_it() {
    let mut bytes = datagram(1, 2, b"all");
    fill_checksum_v4(&mut bytes, V4.0, V4.1);
    bytes.extend_from_slice(b"link padding");
    let udp = parse(&bytes).unwrap();
    assert_eq!((udp.src_port, udp.dst_port), (1, 2));
    assert_eq!(udp.payload(), b"all");
    assert!(udp.checksum_ok_v4(V4.0, V4.1));
}

#[test]
fn no_checksum_is_allowed_over_ipv4_only() {
    let bytes = datagram(1, 2, b"bare");
    let udp = parse(&bytes).unwrap();
    assert!(!udp.has_checksum());
    assert!(udp.checksum_ok_v4(V4.0, V4.1));
    assert!(!udp.checksum_ok_v6(v6().0, v6().1));
}

#[test]
fn a_sum_of_zero_is_written_as_the_other_zero() {
    // The two bytes that make the sum of everything else zero.
    for last in 0..=u16::MAX {
        let mut bytes = datagram(7, 9, &last.to_be_bytes());
        let pseudo = pseudo_v4(V4.0, V4.1, proto::UDP, bytes.len() as u16);
        if finish(sum(&bytes, pseudo)) != 0 {
            continue;
        }
        fill_checksum_v4(&mut bytes, V4.0, V4.1);
        assert_eq!(&bytes[CHECKSUM_AT..LEN], [0xff, 0xff]);
        let udp = parse(&bytes).unwrap();
        assert!(udp.has_checksum() && udp.checksum_ok_v4(V4.0, V4.1));
        return;
    }
    panic!("some word makes the sum zero");
}

#[test]
fn over_ipv6_a_field_of_zero_is_wrong_even_where_the_sum_is_right() {
    let (src, dst) = v6();
    for last in 0..=u16::MAX {
        let bytes = datagram(7, 9, &last.to_be_bytes());
        let pseudo = pseudo_v6(src, dst, proto::UDP, bytes.len() as u32);
        if finish(sum(&bytes, pseudo)) == 0 {
            assert!(!parse(&bytes).unwrap().checksum_ok_v6(src, dst));
            return;
        }
    }
    panic!("some word makes the sum zero");
}

#[test]
fn the_longest_datagram_is_written_and_read() {
    let bytes = datagram(1, 2, &vec![0x5a; PAYLOAD_MAX]);
    assert_eq!(parse(&bytes).unwrap().payload().len(), PAYLOAD_MAX);
}

#[test]
#[should_panic(expected = "no header can tell of")]
fn a_payload_beyond_the_length_field_is_a_bug() {
    emit(&mut [0; LEN], 1, 2, PAYLOAD_MAX + 1);
}

proptest! {
    #[test]
    fn written_datagrams_read_the_same_in_etherparse(
        ports: (u16, u16), payload in proptest::collection::vec(any::<u8>(), 0..600), v4: (u32, u32), v6: (u128, u128),
    ) {
        let (src, dst) = (Ipv4Addr::from_bits(v4.0), Ipv4Addr::from_bits(v4.1));
        let mut bytes = datagram(ports.0, ports.1, &payload);
        fill_checksum_v4(&mut bytes, src, dst);
        let (theirs, rest) = etherparse::UdpHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!((theirs.source_port, theirs.destination_port), ports);
        prop_assert_eq!((usize::from(theirs.length), rest), (bytes.len(), &payload[..]));
        let expected = theirs.calc_checksum_ipv4_raw(src.octets(), dst.octets(), &payload).unwrap();
        prop_assert_eq!(theirs.checksum, expected);
        let ours = parse(&bytes).unwrap();
        prop_assert_eq!((ours.src_port, ours.dst_port, ours.payload()), (ports.0, ports.1, &payload[..]));
        prop_assert!(ours.checksum_ok_v4(src, dst));

        let (src, dst) = (Ipv6Addr::from_bits(v6.0), Ipv6Addr::from_bits(v6.1));
        let mut bytes = datagram(ports.0, ports.1, &payload);
        fill_checksum_v6(&mut bytes, src, dst);
        let (theirs, _) = etherparse::UdpHeader::from_slice(&bytes).unwrap();
        let expected = theirs.calc_checksum_ipv6_raw(src.octets(), dst.octets(), &payload).unwrap();
        prop_assert_eq!(theirs.checksum, expected);
        prop_assert!(parse(&bytes).unwrap().checksum_ok_v6(src, dst));
    }

    #[test]
    fn agrees_with_etherparse_on_what_parses(bytes in proptest::collection::vec(any::<u8>(), 0..40), len in 0u16..48) {
        let mut bytes = bytes;
        if let Some(field) = bytes.get_mut(4..6) {
            field.copy_from_slice(&len.to_be_bytes());
        }
        match (parse(&bytes), etherparse::UdpSlice::from_slice(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!((ours.src_port, ours.dst_port), (theirs.source_port(), theirs.destination_port()));
                prop_assert_eq!(ours.payload(), theirs.payload());
            }
            // A length of 0 is "the rest" to them, as in a jumbogram.
            (Err(Malformed::Length), Ok(_)) => prop_assert_eq!(len, 0),
            (ours, theirs) => prop_assert!(ours.is_err() && theirs.is_err(), "{:?} {:?}", ours, theirs),
        }
    }

    #[test]
    fn one_bit_wrong_is_noticed(
        payload in proptest::collection::vec(any::<u8>(), 0..100), at: proptest::sample::Index, bit in 0u8..8,
    ) {
        let (src, dst) = v6();
        let mut four = datagram(4000, 53, &payload);
        let mut six = four.clone();
        fill_checksum_v4(&mut four, V4.0, V4.1);
        fill_checksum_v6(&mut six, src, dst);
        let at = at.index(four.len());
        four[at] ^= 1 << bit;
        six[at] ^= 1 << bit;
        // A flipped length is another datagram or none; a checksum of one bit may become "none" over IPv4.
        let good = |bytes: &[u8]| parse(bytes).is_ok_and(|udp| udp.checksum_ok_v4(V4.0, V4.1) && udp.has_checksum());
        prop_assert!(!good(&four));
        prop_assert!(!parse(&six).is_ok_and(|udp| udp.checksum_ok_v6(src, dst)));
    }
}
