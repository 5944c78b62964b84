//! ICMP: round trips, quotes cut short, agreement with etherparse.

use super::*;
use crate::SeqNum;
use proptest::prelude::*;

/// An IPv4 datagram with the first eight bytes of a TCP segment.
fn quoted_segment() -> Vec<u8> {
    let repr = crate::ipv4::Repr {
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(198, 51, 100, 2),
        proto: crate::proto::TCP,
        payload_len: 1460, // longer than what is quoted
        ttl: 1,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    let mut bytes = vec![0; 20];
    crate::ipv4::emit(&mut bytes, &repr);
    bytes.extend([0, 80, 0x9c, 0x40, 0, 0, 0, 9]);
    bytes
}

#[test]
fn echo_goes_round() {
    let mut out = [0xee; 32];
    let len = emit_echo_request(&mut out, 7, 9, b"abcde");
    assert!(checksum_ok(&out[..len]));
    assert_eq!(
        parse(&out[..len]),
        Ok(Message::EchoRequest {
            ident: 7,
            sequence: 9,
            data: b"abcde"
        })
    );
    let len = emit_echo_reply(&mut out, 7, 9, b"abcde");
    assert_eq!(
        parse(&out[..len]),
        Ok(Message::EchoReply {
            ident: 7,
            sequence: 9,
            data: b"abcde"
        })
    );
    out[9] ^= 1;
    assert!(!checksum_ok(&out[..len]));
}

#[test]
fn an_error_names_our_connection() {
    let mut out = [0; 100];
    let len = emit_unreachable(
        &mut out,
        unreachable::FRAGMENTATION_NEEDED,
        1400,
        &quoted_segment(),
    );
    assert!(checksum_ok(&out[..len]));
    let message = parse(&out[..len]).unwrap();
    let Message::Unreachable { code, mtu, quote } = message else {
        panic!("{message:?}")
    };
    assert_eq!(
        (code, mtu, quote.seq),
        (unreachable::FRAGMENTATION_NEEDED, 1400, SeqNum(9))
    );
    let flow = quote.flow().unwrap();
    assert_eq!(
        (flow.local, flow.local_port),
        (Ipv4Addr::new(192, 0, 2, 1), 80)
    );
    assert_eq!(
        (flow.peer, flow.peer_port),
        (Ipv4Addr::new(198, 51, 100, 2), 40_000)
    );
    assert_eq!(message.quote(), Some(&quote));
}

#[test]
fn a_quote_is_cut_at_what_fits() {
    let mut out = [0; 2000];
    assert_eq!(
        emit_unreachable(&mut out, unreachable::PORT, 0, &[0x45; 1500]),
        576 - 20
    );
    assert_eq!(
        emit_unreachable(&mut out[..36], unreachable::PORT, 0, &[0x45; 1500]),
        36
    );
}

#[test]
fn quotes_that_lack_ports_are_refused() {
    let datagram = quoted_segment();
    assert_eq!(Quote::parse(&datagram[..27]), Err(Malformed::Truncated));
    assert_eq!(Quote::parse(&datagram[..19]), Err(Malformed::Truncated));
    let mut later_fragment = datagram.clone();
    later_fragment[7] = 5;
    assert_eq!(Quote::parse(&later_fragment), Err(Malformed::Version));
    let mut udp = datagram;
    udp[9] = crate::proto::UDP;
    assert_eq!(Quote::parse(&udp).unwrap().flow(), None);
}

proptest! {
    #[test]
    fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0u8..14, words in 0u8..16) {
        let _ = parse(&bytes);
        if bytes.len() > 8 {
            bytes[0] = kind;
            bytes[8] = 0x40 | words;
        }
        let _ = parse(&bytes);
    }

    #[test]
    fn echo_reads_the_same_in_etherparse(ident: u16, sequence: u16, data in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut out = vec![0; LEN + data.len()];
        emit_echo_reply(&mut out, ident, sequence, &data);
        let theirs = etherparse::Icmpv4Slice::from_slice(&out).unwrap();
        let expected = etherparse::Icmpv4Type::EchoReply(etherparse::IcmpEchoHeader { id: ident, seq: sequence });
        prop_assert_eq!(theirs.icmp_type(), expected.clone());
        prop_assert_eq!(theirs.payload(), &data[..]);
        prop_assert_eq!(theirs.checksum(), expected.calc_checksum(&data));
    }
}
