use std::net::{Ipv4Addr, Ipv6Addr};

use janus_wire::MacAddr;
use janus_wire::tcp::{Flags, Header, Options};
use proptest::prelude::*;

use super::*;

const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
];

/// Where the checksum of a packet's segment or datagram stands.
fn field_at(six: bool, protocol: u8) -> usize {
    let ip = if six { ipv6::LEN } else { ipv4::LEN };
    let within = match protocol {
        proto::TCP => tcp::CHECKSUM_AT,
        _ => udp::CHECKSUM_AT,
    };
    ethernet::LEN + ip + within
}

/// A frame as its sender makes it that computes checksums, and as one that leaves them to its device.
fn frames(six: bool, protocol: u8, payload: &[u8]) -> [Vec<u8>; 2] {
    let mut inner = vec![
        0;
        if protocol == proto::TCP {
            tcp::LEN
        } else {
            udp::LEN
        }
    ];
    if protocol == proto::TCP {
        let header = Header {
            src_port: 80,
            dst_port: 40_000,
            seq: janus_wire::SeqNum(7),
            ack: janus_wire::SeqNum(9),
            flags: Flags::ACK,
            window: 512,
            urgent: 0,
            header_len: 0,
        };
        tcp::emit(&mut inner, &header, &Options::NONE);
    } else {
        udp::emit(&mut inner, 53, 40_000, payload.len());
    }
    inner.extend_from_slice(payload);
    let len = inner.len();
    match (six, protocol) {
        (false, proto::TCP) => tcp::fill_checksum_v4(&mut inner, V4[0], V4[1]),
        (true, proto::TCP) => tcp::fill_checksum_v6(&mut inner, V6[0], V6[1]),
        (false, _) => udp::fill_checksum_v4(&mut inner, V4[0], V4[1]),
        (true, _) => udp::fill_checksum_v6(&mut inner, V6[0], V6[1]),
    }
    let ethertype = match six {
        false => ethernet::ethertype::IPV4,
        true => ethernet::ethertype::IPV6,
    };
    let header = ethernet::Header {
        dst: MacAddr([2, 0, 0, 0, 0, 1]),
        src: MacAddr([2, 0, 0, 0, 0, 2]),
        ethertype,
    };
    let mut frame = vec![0; ethernet::LEN + if six { ipv6::LEN } else { ipv4::LEN }];
    header.emit(&mut frame);
    let packet = &mut frame[ethernet::LEN..];
    let sum = if six {
        let repr = ipv6::Repr {
            src: V6[0],
            dst: V6[1],
            proto: protocol,
            payload_len: len as u16,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        ipv6::emit(packet, &repr);
        checksum::pseudo_v6(V6[0], V6[1], protocol, len as u32)
    } else {
        let repr = ipv4::Repr {
            src: V4[0],
            dst: V4[1],
            proto: protocol,
            payload_len: len as u16,
            ttl: 64,
            tos: 0,
            id: 0,
            dont_fragment: true,
        };
        ipv4::emit(packet, &repr);
        checksum::pseudo_v4(V4[0], V4[1], protocol, len as u16)
    };
    frame.extend(inner);
    let mut in_part = frame.clone();
    let at = field_at(six, protocol);
    in_part[at..at + 2].copy_from_slice(&(!checksum::finish(sum)).to_be_bytes());
    [frame, in_part]
}

fn completed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    complete(&mut frame);
    frame
}

proptest! {
    #[test]
    fn what_is_left_out_is_filled_in_and_all_else_stays(
        six: bool, tcp: bool, payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let protocol = if tcp { proto::TCP } else { proto::UDP };
        let [whole, in_part] = frames(six, protocol, &payload);
        prop_assert!(is_sound(&whole));
        prop_assert_eq!(&completed(&in_part), &whole);
        prop_assert_eq!(&completed(&whole), &whole);
        // Behind a link that pads short frames.
        let padded = [&in_part[..], &[0; 6]].concat();
        prop_assert_eq!(&completed(&padded)[..whole.len()], &whole[..]);
    }

    #[test]
    fn whatever_comes_does_no_harm(frame in proptest::collection::vec(any::<u8>(), 0..120), ethertype in prop_oneof![Just(0x0800_u16), Just(0x86dd)]) {
        let mut frame = frame;
        if let Some(field) = frame.get_mut(12..14) {
            field.copy_from_slice(&ethertype.to_be_bytes());
        }
        let once = completed(&frame);
        prop_assert_eq!(once.len(), frame.len());
        prop_assert_eq!(completed(&once), once);
    }
}

#[test]
fn damage_is_not_made_good() {
    for (six, protocol) in [false, true].into_iter().zip([proto::TCP, proto::UDP]) {
        let [whole, _] = frames(six, protocol, b"some text");
        for bit in ethernet::LEN * 8..whole.len() * 8 {
            let mut wrong = whole.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(is_sound(&completed(&wrong)), is_sound(&wrong), "bit {bit}");
        }
    }
}

#[test]
fn a_datagram_that_adds_up_to_zero_says_so_in_the_other_way() {
    let [whole, _] = frames(false, proto::UDP, &[0, 0]);
    let at = field_at(false, proto::UDP);
    // With its own checksum as its payload all of it adds up to zero.
    let payload = [whole[at], whole[at + 1]];
    let [_, in_part] = frames(false, proto::UDP, &payload);
    assert_eq!(completed(&in_part)[at..at + 2], [0xff, 0xff]);
}

#[test]
fn fragments_and_datagrams_without_a_checksum_stay_as_they_are() {
    let [_, mut fragment] = frames(false, proto::UDP, b"text");
    fragment[ethernet::LEN + 6] = 0x20;
    assert_eq!(completed(&fragment), fragment);
    let [_, mut none] = frames(false, proto::UDP, b"text");
    let at = field_at(false, proto::UDP);
    none[at..at + 2].fill(0);
    assert_eq!(completed(&none), none);
}
