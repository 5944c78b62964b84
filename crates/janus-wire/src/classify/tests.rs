//! Every class by example, agreement with the full parsers, and noise.

use super::*;
use crate::ethernet::{Header, MacAddr};
use crate::{FlowKeyV4, FlowKeyV6, SeqNum, tcp};
use proptest::prelude::*;

const SRC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

fn packet(proto: u8, payload: &[u8]) -> Vec<u8> {
    let repr = ipv4::Repr {
        src: SRC,
        dst: DST,
        proto,
        payload_len: payload.len() as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    let mut out = vec![0; ipv4::LEN];
    ipv4::emit(&mut out, &repr);
    out.extend_from_slice(payload);
    out
}

fn syn() -> Vec<u8> {
    let header = tcp::Header {
        src_port: 40_000,
        dst_port: 80,
        seq: SeqNum(1),
        ack: SeqNum(0),
        flags: Flags::SYN,
        window: 65_535,
        urgent: 0,
        header_len: 20,
    };
    let mut segment = vec![0; 20];
    tcp::emit(&mut segment, &header, &tcp::Options::NONE);
    packet(proto::TCP, &segment)
}

fn framed(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Header {
        dst: MacAddr::BROADCAST,
        src: MacAddr::ZERO,
        ethertype,
    }
    .to_bytes()
    .to_vec();
    frame.extend_from_slice(payload);
    frame
}

fn expected_syn(l3_offset: usize) -> Class {
    Class::Tcp4(Tcp {
        l3_offset,
        flow: FlowKeyV4 {
            peer: SRC,
            local: DST,
            peer_port: 40_000,
            local_port: 80,
        },
        flags: Flags::SYN,
    })
}

#[test]
fn tcp_over_each_link() {
    assert_eq!(classify(&syn(), Link::Ip), expected_syn(0));
    assert_eq!(
        classify(&framed(ethertype::IPV4, &syn()), Link::Ethernet),
        expected_syn(14)
    );
    let tagged = [&[0, 5, 8, 0][..], &syn()].concat();
    assert_eq!(
        classify(&framed(ethertype::VLAN, &tagged), Link::Ethernet),
        expected_syn(18)
    );
    assert_eq!(
        (Link::Ethernet.header_len(), Link::Ip.header_len()),
        (14, 0)
    );
}

#[test]
fn the_short_way_reads_a_plain_segment_for_one_receiver() {
    let plain = Some(expected_syn(0).segment().unwrap());
    let short = |bytes: &[u8], link| {
        plain_tcp4(bytes, link).map(|(flow, flags)| (FlowKey::V4(flow), flags))
    };
    assert_eq!(short(&syn(), Link::Ip), plain);
    let mut frame = framed(ethertype::IPV4, &syn());
    assert_eq!(short(&frame, Link::Ethernet), None);
    frame[0] = 2;
    assert_eq!(short(&frame, Link::Ethernet), plain);
}

#[test]
fn ipv6_over_each_link() {
    let (src, dst) = (
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | 1),
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | 2),
    );
    let six = |proto, payload: &[u8]| {
        let repr = ipv6::Repr {
            src,
            dst,
            proto,
            payload_len: payload.len() as u16,
            hop_limit: 255,
            traffic_class: 0,
            flow_label: 0,
        };
        let mut out = vec![0; ipv6::LEN];
        ipv6::emit(&mut out, &repr);
        out.extend_from_slice(payload);
        out
    };
    let segment = &syn()[20..];
    let expected = |l3_offset| {
        let flow = FlowKeyV6 {
            peer: src,
            local: dst,
            peer_port: 40_000,
            local_port: 80,
        };
        Class::Tcp6(Tcp {
            l3_offset,
            flow,
            flags: Flags::SYN,
        })
    };
    assert_eq!(classify(&six(proto::TCP, segment), Link::Ip), expected(0));
    assert_eq!(
        classify(
            &framed(ethertype::IPV6, &six(proto::TCP, segment)),
            Link::Ethernet
        ),
        expected(14)
    );
    let mut message = [0; 40];
    let len = icmpv6::emit_solicitation(&mut message, src, dst, dst, MacAddr::ZERO);
    let class = classify(&six(proto::ICMPV6, &message[..len]), Link::Ip);
    assert_eq!(
        class,
        Class::Icmp6(Icmp {
            l3_offset: 0,
            src,
            dst,
            neighbor: true,
            quoted: None,
            socket: None,
        })
    );
    // Address unreachable, about a segment that dst sent to src.
    let error = [&[1, 3, 0, 0, 0, 0, 0, 0][..], &six(proto::TCP, segment)].concat();
    let Class::Icmp6(Icmp {
        quoted: Some(flow), ..
    }) = classify(&six(proto::ICMPV6, &error), Link::Ip)
    else {
        panic!("not an error with a quote");
    };
    assert_eq!(
        flow,
        FlowKeyV6 {
            peer: dst,
            local: src,
            peer_port: 80,
            local_port: 40_000
        }
    );
    let datagram = [0x14, 0xe9, 0, 53, 0, 8, 0, 0];
    assert_eq!(
        classify(&six(proto::UDP, &datagram), Link::Ip),
        Class::Udp6(Udp {
            l3_offset: 0,
            flow: FlowKeyV6 {
                peer: src,
                local: dst,
                peer_port: 5_353,
                local_port: 53,
            },
        })
    );
    let error = [&[1, 4, 0, 0, 0, 0, 0, 0][..], &six(proto::UDP, &datagram)].concat();
    assert!(matches!(
        classify(&six(proto::ICMPV6, &error), Link::Ip),
        Class::Icmp6(Icmp {
            quoted: None,
            socket: Some(5_353),
            ..
        })
    ));
    let fragment = [&[proto::TCP, 0, 0, 1, 0, 0, 0, 1][..], segment].concat();
    assert_eq!(
        classify(&six(44, &fragment), Link::Ip),
        Class::Fragment6 {
            l3_offset: 0,
            src,
            dst,
            id: 1
        }
    );
}

#[test]
fn the_other_classes() {
    assert_eq!(
        classify(&framed(ethertype::ARP, &[0; 28]), Link::Ethernet),
        Class::Arp
    );
    assert_eq!(
        classify(&framed(0x88cc, &[0; 28]), Link::Ethernet),
        Class::Other
    );
    assert_eq!(classify(&packet(132, &[0; 8]), Link::Ip), Class::Other);
    assert_eq!(
        classify(&packet(proto::TCP, &[0; 19]), Link::Ip),
        Class::Malformed(Malformed::Truncated)
    );
    assert_eq!(
        classify(&[], Link::Ip),
        Class::Malformed(Malformed::Truncated)
    );
    assert_eq!(
        classify(&[0x75; 40], Link::Ip),
        Class::Malformed(Malformed::Version)
    );
    let mut fragment = syn();
    fragment[6] = 0x20;
    fragment[4..6].copy_from_slice(&[3, 4]);
    assert_eq!(
        classify(&fragment, Link::Ip),
        Class::Fragment4 {
            l3_offset: 0,
            src: SRC,
            dst: DST,
            id: 0x0304,
            proto: proto::TCP,
        }
    );
}

#[test]
fn an_icmp_error_is_steered_by_what_it_quotes() {
    // We (SRC) sent a segment to DST; a router answers us.
    let mut message = [0; 64];
    let len = icmpv4::emit_unreachable(&mut message, icmpv4::unreachable::HOST, 0, &syn());
    let Class::Icmp4(Icmp {
        quoted: Some(flow), ..
    }) = classify(&packet(proto::ICMP, &message[..len]), Link::Ip)
    else {
        panic!("not an error with a quote");
    };
    assert_eq!(
        flow,
        FlowKeyV4 {
            peer: DST,
            local: SRC,
            peer_port: 80,
            local_port: 40_000
        }
    );

    let len = icmpv4::emit_echo_request(&mut message, 1, 2, b"x");
    assert_eq!(
        classify(&packet(proto::ICMP, &message[..len]), Link::Ip),
        Class::Icmp4(Icmp {
            l3_offset: 0,
            src: SRC,
            dst: DST,
            neighbor: false,
            quoted: None,
            socket: None,
        })
    );
}

#[test]
fn a_datagram_has_ports_and_an_error_about_one_names_its_socket() {
    // From port 5,353 to 53, empty.
    let datagram = [0x14, 0xe9, 0, 53, 0, 8, 0, 0];
    let whole = packet(proto::UDP, &datagram);
    assert_eq!(
        classify(&whole, Link::Ip),
        Class::Udp4(Udp {
            l3_offset: 0,
            flow: FlowKeyV4 {
                peer: SRC,
                local: DST,
                peer_port: 5_353,
                local_port: 53,
            },
        })
    );
    let mut message = [0; 64];
    let len = icmpv4::emit_unreachable(&mut message, icmpv4::unreachable::PORT, 0, &whole);
    let Class::Icmp4(Icmp {
        quoted: None,
        socket: Some(5_353),
        ..
    }) = classify(&packet(proto::ICMP, &message[..len]), Link::Ip)
    else {
        panic!("not an error about the datagram");
    };
    assert!(matches!(
        classify(&packet(proto::UDP, &datagram[..7]), Link::Ip),
        Class::Malformed(_)
    ));
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        let _ = classify(&bytes, Link::Ip);
        let _ = classify(&bytes, Link::Ethernet);
    }

    /// Frames that were right once and then damaged: the interesting paths of every parser behind this one.
    #[test]
    fn damaged_frames_never_panic(at in 0usize..60, value: u8, cut in 0usize..100, error: bool) {
        let mut bytes = syn();
        if error {
            let mut message = [0; 64];
            let len = icmpv4::emit_unreachable(&mut message, 1, 0, &syn());
            bytes = packet(proto::ICMP, &message[..len]);
        }
        let mut frame = framed(ethertype::IPV4, &bytes);
        let len = frame.len();
        frame[at % len] = value;
        frame.truncate(cut);
        if let Class::Tcp4(Tcp { l3_offset, flow, flags }) = classify(&frame, Link::Ethernet) {
            let ip = ipv4::parse(&frame[l3_offset..]).unwrap();
            prop_assert_eq!((ip.src, ip.dst), (flow.peer, flow.local));
            if let Ok((header, _, _)) = tcp::parse(ip.payload()) {
                prop_assert_eq!((header.src_port, header.dst_port, header.flags), (flow.peer_port, flow.local_port, flags));
            }
        }
        // For one receiver, as the short way has it.
        if let Some(first) = frame.first_mut() {
            *first &= !1;
        }
        for (bytes, link) in [(&frame[..], Link::Ethernet), (frame.get(14..).unwrap_or_default(), Link::Ip)] {
            if let Some((flow, flags)) = plain_tcp4(bytes, link) {
                prop_assert_eq!(classify(bytes, link).segment(), Some((FlowKey::V4(flow), flags)));
            }
        }
    }
}
