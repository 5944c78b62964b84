use std::net::{Ipv4Addr, Ipv6Addr};

use janus_wire::{MacAddr, checksum, tcp};

use super::*;

const V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
const GOOD: u16 = ffi::JD_RX_IP_GOOD | ffi::JD_RX_L4_GOOD;

fn v6() -> (Ipv6Addr, Ipv6Addr) {
    let addr = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    (addr(1), addr(2))
}

fn frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::LEN];
    let header = ethernet::Header {
        dst: MacAddr([2, 0, 0, 0, 0, 1]),
        src: MacAddr([2, 0, 0, 0, 0, 2]),
        ethertype,
    };
    header.emit(&mut bytes);
    bytes.extend_from_slice(packet);
    bytes
}

/// A segment of 20 bytes of header and 5 of text, without its checksum.
fn segment() -> Vec<u8> {
    let mut bytes = vec![
        0, 80, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
    ];
    bytes.extend_from_slice(b"hello");
    bytes
}

fn over_v4(proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: V4.0,
        dst: V4.1,
        proto,
        payload_len: payload.len() as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut packet, &repr);
    packet.extend_from_slice(payload);
    frame(ethernet::ethertype::IPV4, &packet)
}

fn over_v6(payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv6::LEN];
    let repr = ipv6::Repr {
        src: v6().0,
        dst: v6().1,
        proto: proto::TCP,
        payload_len: payload.len() as u16,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut packet, &repr);
    packet.extend_from_slice(payload);
    frame(ethernet::ethertype::IPV6, &packet)
}

fn believed(flags: u16, frame: &[u8]) -> bool {
    is_sound(flags, &mut frame.to_vec())
}

fn sound() -> [Vec<u8>; 2] {
    let (mut four, mut six) = (segment(), segment());
    tcp::fill_checksum_v4(&mut four, V4.0, V4.1);
    tcp::fill_checksum_v6(&mut six, v6().0, v6().1);
    [over_v4(proto::TCP, &four), over_v6(&six)]
}

#[test]
fn what_the_device_did_not_check_is_checked_here() {
    for frame in sound() {
        for flags in [0, GOOD, ffi::JD_RX_L4_BAD, ffi::JD_RX_IP_GOOD] {
            assert!(believed(flags, &frame), "a device's doubt is not enough");
        }
        let mut wrong = frame.clone();
        *wrong.last_mut().unwrap() ^= 1;
        for flags in [0, ffi::JD_RX_L4_BAD, ffi::JD_RX_IP_GOOD, ffi::JD_RX_IP_BAD] {
            assert!(!believed(flags, &wrong), "{flags:#x}");
        }
        assert!(believed(GOOD, &wrong), "the device's word counts");
        // Padding of a short frame is no part of it.
        let padded = [&frame[..], &[7; 6]].concat();
        assert!(believed(0, &padded));
    }
    let [mut four, six] = sound();
    assert!(
        believed(ffi::JD_RX_L4_GOOD, &six),
        "IPv6 has none of its own"
    );
    four[ethernet::LEN + 8] ^= 1;
    assert!(!believed(ffi::JD_RX_L4_GOOD, &four), "the IP header's");
}

#[test]
fn what_a_sender_left_to_its_device_is_filled_in() {
    let pseudo = [
        checksum::pseudo_v4(V4.0, V4.1, proto::TCP, 25),
        checksum::pseudo_v6(v6().0, v6().1, proto::TCP, 25),
    ];
    for (whole, pseudo) in sound().into_iter().zip(pseudo) {
        let at = whole.len() - 25 + tcp::CHECKSUM_AT;
        let mut left = whole.clone();
        left[at..at + 2].copy_from_slice(&(!checksum::finish(pseudo)).to_be_bytes());
        assert!(!believed(0, &left), "nobody has said so");
        assert!(is_sound(ffi::JD_RX_L4_LEFT, &mut left));
        assert_eq!(left, whole);
        // With the word of a device, anything else than that is looked at as if there were none.
        let mut wrong = whole.clone();
        *wrong.last_mut().unwrap() ^= 1;
        assert!(!believed(ffi::JD_RX_L4_LEFT, &wrong));
        assert!(believed(ffi::JD_RX_L4_LEFT, &whole));
    }
}

#[test]
fn what_is_no_segment_is_left_to_others() {
    let udp = over_v4(proto::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]);
    assert!(believed(0, &udp));
    assert!(believed(0, &frame(ethernet::ethertype::ARP, &[0; 28])));
    assert!(believed(0, &[1, 2, 3]));
    let mut bad_header = udp;
    bad_header[ethernet::LEN + 8] ^= 1;
    assert!(!believed(0, &bad_header));
}

#[test]
fn whole_segments_are_for_the_device_to_fill_in() {
    let [four, six] = sound();
    assert_eq!(offload(&four), (ffi::JD_TX_TCP_CHECKSUM, 14, 20));
    let v6 = ffi::JD_TX_TCP_CHECKSUM | ffi::JD_TX_IPV6;
    assert_eq!(offload(&six), (v6, 14, 40));
    let mut fragment = four;
    fragment[ethernet::LEN + 6] = 0x20;
    for other in [
        fragment,
        over_v4(proto::UDP, &[0; 8]),
        frame(ethernet::ethertype::ARP, &[0; 28]),
        vec![0; 3],
    ] {
        assert_eq!(offload(&other), (0, 0, 0));
    }
}
