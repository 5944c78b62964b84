//! ICMPv6: round trips, quotes behind extension headers, neighbour options that lie, agreement with etherparse.

use super::*;
use crate::{FlowKeyV6, SeqNum};
use proptest::prelude::*;

const US: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);
const PEER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 2);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

fn quoted(proto: u8, rest: &[u8]) -> Vec<u8> {
    let repr = ipv6::Repr {
        src: US,
        dst: PEER,
        proto,
        payload_len: 1440, // longer than what is quoted
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
    };
    let mut bytes = vec![0; ipv6::LEN];
    ipv6::emit(&mut bytes, &repr);
    bytes.extend_from_slice(rest);
    bytes
}

const PORTS: [u8; 8] = [0, 80, 0x9c, 0x40, 0, 0, 0, 9];

#[test]
fn echo_goes_round() {
    let mut out = [0; 32];
    let len = emit_echo_request(&mut out, PEER, US, 7, 9, b"abc");
    assert!(checksum_ok(PEER, US, &out[..len]) && !checksum_ok(PEER, PEER, &out[..len]));
    assert_eq!(
        parse(&out[..len]),
        Ok(Message::EchoRequest {
            ident: 7,
            sequence: 9,
            data: b"abc"
        })
    );
    let len = emit_echo_reply(&mut out, US, PEER, 7, 9, b"abc");
    assert_eq!(
        parse(&out[..len]),
        Ok(Message::EchoReply {
            ident: 7,
            sequence: 9,
            data: b"abc"
        })
    );
}

#[test]
fn neighbors_ask_and_answer() {
    let mut out = [0; 40];
    let group = solicited_node(US);
    assert_eq!(group, "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap());
    assert_eq!(
        multicast_mac(group),
        MacAddr([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])
    );
    let len = emit_solicitation(&mut out, PEER, group, US, MAC);
    assert!(checksum_ok(PEER, group, &out[..len]));
    let asked = parse(&out[..len]).unwrap();
    assert_eq!(
        asked,
        Message::NeighbourSolicitation {
            target: US,
            source: Some(MAC)
        }
    );
    assert!(asked.is_neighbour());
    let flags = Advertised {
        router: false,
        solicited: true,
        r#override: true,
    };
    let len = emit_advertisement(&mut out, US, PEER, US, MAC, flags);
    assert!(checksum_ok(US, PEER, &out[..len]));
    assert_eq!(
        parse(&out[..len]),
        Ok(Message::NeighbourAdvertisement {
            target: US,
            mac: Some(MAC),
            flags
        })
    );
}

#[test]
fn neighbor_options_that_lie_are_refused() {
    let mut out = [0; NEIGHBOUR_LEN];
    emit_solicitation(&mut out, PEER, US, US, MAC);
    assert_eq!(
        parse(&out[..24]),
        Ok(Message::NeighbourSolicitation {
            target: US,
            source: None
        })
    );
    assert_eq!(parse(&out[..28]), Err(Malformed::Length));
    assert_eq!(parse(&out[..23]), Err(Malformed::Truncated));
    for len in [0, 2] {
        out[25] = len;
        assert_eq!(parse(&out), Err(Malformed::Length));
    }
    out[25] = 1;
    out[8] = 0xff;
    assert_eq!(parse(&out), Err(Malformed::Version));
}

#[test]
fn an_error_names_our_connection_behind_extension_headers() {
    let extension = [proto::TCP, 0, 1, 4, 0, 0, 0, 0];
    let packet = quoted(60, &[&extension[..], &PORTS].concat());
    let message = [&[PACKET_TOO_BIG, 0, 0, 0, 0, 0, 5, 0][..], &packet].concat();
    let Ok(Message::PacketTooBig { mtu: 1280, quote }) = parse(&message) else {
        panic!("{:?}", parse(&message))
    };
    let expected = FlowKeyV6 {
        peer: PEER,
        local: US,
        peer_port: 40_000,
        local_port: 80,
    };
    assert_eq!((quote.flow(), quote.seq), (Some(expected), SeqNum(9)));
    assert_eq!(
        parse(&message[..message.len() - 1]),
        Err(Malformed::Truncated)
    );
    assert_eq!(
        Quote::parse(&quoted(proto::UDP, &PORTS)).unwrap().flow(),
        None
    );
    let later_fragment = [proto::TCP, 0, 0, 8, 0, 0, 0, 1];
    assert_eq!(
        Quote::parse(&quoted(44, &[later_fragment, PORTS].concat())),
        Err(Malformed::Version)
    );
}

proptest! {
    #[test]
    fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in prop_oneof![0u8..5, 128u8..137]) {
        let _ = parse(&bytes);
        if bytes.len() > 14 {
            bytes[0] = kind;
            bytes[8] = 0x60;
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn echo_reads_the_same_in_etherparse(src: u128, dst: u128, ident: u16, sequence: u16, data in proptest::collection::vec(any::<u8>(), 0..64)) {
        let (src, dst) = (Ipv6Addr::from_bits(src), Ipv6Addr::from_bits(dst));
        let mut out = vec![0; LEN + data.len()];
        emit_echo_reply(&mut out, src, dst, ident, sequence, &data);
        let theirs = etherparse::Icmpv6Slice::from_slice(&out).unwrap();
        let echo = etherparse::IcmpEchoHeader { id: ident, seq: sequence };
        prop_assert_eq!(theirs.icmp_type(), etherparse::Icmpv6Type::EchoReply(echo));
        prop_assert!(theirs.is_checksum_valid(src.octets(), dst.octets()));
    }
}

#[test]
fn the_link_local_address_is_made_of_the_hardware_address() {
    let mac = MacAddr([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);
    let expected: Ipv6Addr = "fe80::11:22ff:fe33:4455".parse().unwrap();
    assert_eq!(link_local(mac), expected);
}
