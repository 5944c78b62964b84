//! The short way against the long one, both directions.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::tcp::Options;
use proptest::prelude::*;

/// A segment as TCP's own codec writes it, without checksum.
fn segment_by_parts<I>(headers: &Headers<I>, payload: &[u8]) -> Vec<u8> {
    let options = match headers.options {
        UsualOptions::None => Options::NONE,
        UsualOptions::Timestamps(value, echo) => Options::timestamps(value, echo),
        UsualOptions::Syn {
            mss,
            timestamps: (value, echo),
            scale,
        } => Options {
            mss: Some(mss),
            sack_permitted: true,
            window_scale: Some(scale),
            ..Options::timestamps(value, echo)
        },
        UsualOptions::PlainSyn { mss, scale } => Options {
            mss: Some(mss),
            sack_permitted: true,
            window_scale: Some(scale),
            ..Options::NONE
        },
    };
    assert_eq!(options.usual(), Some(headers.options));
    let tcp_len = tcp::LEN + options.emitted_len();
    let mut segment = vec![0; tcp_len + payload.len()];
    let header = tcp::Header {
        src_port: headers.src_port,
        dst_port: headers.dst_port,
        seq: headers.seq,
        ack: headers.ack,
        flags: headers.flags,
        window: headers.window,
        urgent: 0,
        header_len: 0,
    };
    tcp::emit(&mut segment, &header, &options);
    segment[tcp_len..].copy_from_slice(payload);
    segment
}

/// Headers and payload as the general codecs write them.
fn by_parts(headers: &Headers<IpV4>, payload: &[u8], sum: bool) -> Vec<u8> {
    let mut segment = segment_by_parts(headers, payload);
    let IpV4 { src, dst, ttl, tos } = headers.ip;
    if sum {
        tcp::fill_checksum_v4(&mut segment, src, dst);
    }
    let repr = ipv4::Repr {
        src,
        dst,
        proto: proto::TCP,
        payload_len: segment.len() as u16,
        ttl,
        tos,
        id: 0,
        dont_fragment: true,
    };
    let mut packet = vec![0; ipv4::LEN];
    ipv4::emit(&mut packet, &repr);
    [packet, segment].concat()
}

/// Like [`by_parts`].
fn by_parts_v6(headers: &Headers<IpV6>, payload: &[u8], sum: bool) -> Vec<u8> {
    let mut segment = segment_by_parts(headers, payload);
    if sum {
        let field = checksum::tcp_v6(headers.ip.src, headers.ip.dst, &segment);
        segment[16..18].copy_from_slice(&field.to_be_bytes());
    }
    let repr = ipv6::Repr {
        src: headers.ip.src,
        dst: headers.ip.dst,
        proto: proto::TCP,
        payload_len: segment.len() as u16,
        hop_limit: headers.ip.hop_limit,
        traffic_class: headers.ip.traffic_class,
        flow_label: headers.ip.flow_label,
    };
    let mut packet = vec![0; ipv6::LEN];
    ipv6::emit(&mut packet, &repr);
    [packet, segment].concat()
}

/// Compares what is read of the segment with what TCP's own parser says.
fn check_segment<const IP: usize>(s: &Segment<'_, IP>, ports: (u16, u16), segment: &[u8]) {
    let (header, options, payload) = tcp::parse(segment).expect("what is usual is sound");
    let read = tcp::Header {
        src_port: ports.0,
        dst_port: ports.1,
        seq: s.seq(),
        ack: s.ack(),
        flags: s.flags(),
        window: s.window(),
        urgent: header.urgent,
        header_len: tcp::LEN + s.options_len(),
    };
    assert_eq!((read, s.options_len()), (header, options.len()));
    assert_eq!(s.payload_len(), payload.len());
    assert_eq!(s.headers_len(), IP + tcp::LEN);
    assert_eq!(s.timestamps(), tcp::options::parse(options).timestamps);
}

/// The segment is usual, and all that is read of it equals what the general parsers say; or it is not, and one of them says
/// why.
fn check(packet: &[u8]) -> bool {
    let ip = ipv4::parse(packet);
    let Some(s) = SegmentV4::read(packet) else {
        if let Ok(ip) = ip {
            let whole = !ip.is_fragment() && ip.header_len() == ipv4::LEN && ip.proto == proto::TCP;
            assert!(!whole || tcp::parse(ip.payload()).is_err(), "{packet:02x?}");
        }
        return false;
    };
    let ip = ip.expect("what is usual is sound");
    assert!(!ip.is_fragment() && ip.proto == proto::TCP && ip.header_len() == ipv4::LEN);
    let ends = [s.src(), s.dst()].map(|word| Ipv4Addr::from_octets(word.to_ne_bytes()));
    assert_eq!((ends, s.ecn()), ([ip.src, ip.dst], ip.ecn()));
    let flow = s.flow();
    assert_eq!([flow.peer, flow.local], ends);
    check_segment(&s, (flow.peer_port, flow.local_port), ip.payload());
    assert_eq!(s.ip_is_sound(), ip.checksum_ok());
    let sum = checksum::tcp_v4(ip.src, ip.dst, ip.payload());
    assert_eq!(s.tcp_is_sound(), sum == 0);
    true
}

/// Like [`check`].
fn check_v6(packet: &[u8]) -> bool {
    let ip = ipv6::parse(packet);
    let Some(s) = SegmentV6::read(packet) else {
        if let Ok(ip) = ip {
            let whole = ip.fragment.is_none() && packet[6] == proto::TCP;
            assert!(!whole || tcp::parse(ip.payload()).is_err(), "{packet:02x?}");
        }
        return false;
    };
    let ip = ip.expect("what is usual is sound");
    assert!(ip.fragment.is_none() && ip.proto == proto::TCP);
    assert_eq!((s.src(), s.dst(), s.ecn()), (ip.src, ip.dst, ip.ecn()));
    let flow = s.flow();
    assert_eq!((flow.peer, flow.local), (ip.src, ip.dst));
    check_segment(&s, (flow.peer_port, flow.local_port), ip.payload());
    let sum = checksum::tcp_v6(ip.src, ip.dst, ip.payload());
    assert_eq!(s.tcp_is_sound(), sum == 0);
    true
}

fn any_options() -> impl Strategy<Value = UsualOptions> {
    let numbers = any::<(u32, u32)>();
    prop_oneof![
        Just(UsualOptions::None),
        numbers.prop_map(|(value, echo)| UsualOptions::Timestamps(value, echo)),
        (any::<u16>(), numbers, any::<u8>()).prop_map(|(mss, timestamps, scale)| {
            UsualOptions::Syn {
                mss,
                timestamps,
                scale,
            }
        }),
        any::<(u16, u8)>().prop_map(|(mss, scale)| UsualOptions::PlainSyn { mss, scale }),
    ]
}

prop_compose! {
    fn any_headers()(
        ends: (u32, u32), ip: (u8, u8), ports: (u16, u16), numbers: (u32, u32),
        flags: u8, window: u16, options in any_options(),
    ) -> Headers<IpV4> {
        Headers {
            ip: IpV4 {
                src: Ipv4Addr::from_bits(ends.0),
                dst: Ipv4Addr::from_bits(ends.1),
                ttl: ip.0,
                tos: ip.1,
            },
            src_port: ports.0,
            dst_port: ports.1,
            seq: SeqNum(numbers.0),
            ack: SeqNum(numbers.1),
            flags: Flags(flags),
            window,
            options,
        }
    }
}

prop_compose! {
    fn any_headers_v6()(
        headers in any_headers(), src: u128, dst: u128, flow_label in 0u32..1 << 20,
    ) -> Headers<IpV6> {
        let Headers { ip, src_port, dst_port, seq, ack, flags, window, options } = headers;
        let ip = IpV6 {
            src: Ipv6Addr::from_bits(src),
            dst: Ipv6Addr::from_bits(dst),
            hop_limit: ip.ttl,
            traffic_class: ip.tos,
            flow_label,
        };
        Headers { ip, src_port, dst_port, seq, ack, flags, window, options }
    }
}

/// Checks a packet as it is, with these bits turned one after the other, and cut.
fn check_damaged(
    mut packet: Vec<u8>,
    changes: &[(usize, u8)],
    cut: usize,
    check: fn(&[u8]) -> bool,
) {
    assert!(check(&packet));
    for &(at, bits) in changes {
        if let Some(byte) = packet.get_mut(at) {
            *byte ^= bits;
        }
        check(&packet);
    }
    packet.truncate(cut);
    check(&packet);
}

proptest! {
    #[test]
    fn what_is_written_equals_what_the_parts_write(
        headers in any_headers(), payload in proptest::collection::vec(any::<u8>(), 0..300), sum: bool,
    ) {
        let whole = by_parts(&headers, &payload, sum);
        let mut packet = vec![0xa5; whole.len()];
        let at = whole.len() - payload.len();
        packet[at..].copy_from_slice(&payload);
        headers.write(&mut packet, sum);
        prop_assert_eq!(&packet, &whole);
        prop_assert!(check(&packet));
    }

    #[test]
    fn over_ipv6_what_is_written_equals_what_the_parts_write(
        headers in any_headers_v6(), payload in proptest::collection::vec(any::<u8>(), 0..300), sum: bool,
    ) {
        let whole = by_parts_v6(&headers, &payload, sum);
        let mut packet = vec![0xa5; whole.len()];
        let at = whole.len() - payload.len();
        packet[at..].copy_from_slice(&payload);
        headers.write(&mut packet, sum);
        prop_assert_eq!(&packet, &whole);
        prop_assert!(check_v6(&packet));
    }

    #[test]
    fn what_is_read_equals_what_the_parts_read(
        headers in any_headers(), payload in proptest::collection::vec(any::<u8>(), 0..100),
        changes in proptest::collection::vec((0usize..80, any::<u8>()), 0..4), cut in 0usize..80, padding in 0usize..8,
    ) {
        let mut packet = by_parts(&headers, &payload, true);
        packet.extend(std::iter::repeat_n(0x5a, padding));
        check_damaged(packet, &changes, cut, check);
    }

    #[test]
    fn over_ipv6_what_is_read_equals_what_the_parts_read(
        headers in any_headers_v6(), payload in proptest::collection::vec(any::<u8>(), 0..100),
        changes in proptest::collection::vec((0usize..100, any::<u8>()), 0..4), cut in 0usize..100, padding in 0usize..8,
    ) {
        let mut packet = by_parts_v6(&headers, &payload, true);
        packet.extend(std::iter::repeat_n(0x5a, padding));
        check_damaged(packet, &changes, cut, check_v6);
    }
}

/// Each of the conditions alone.
#[test]
fn what_is_out_of_the_ordinary_is_left_to_others() {
    let headers = Headers {
        ip: IpV4 {
            src: Ipv4Addr::new(192, 0, 2, 1),
            dst: Ipv4Addr::new(192, 0, 2, 2),
            ttl: 64,
            tos: 0,
        },
        src_port: 1000,
        dst_port: 80,
        seq: SeqNum(1),
        ack: SeqNum(2),
        flags: Flags::ACK,
        window: 100,
        options: UsualOptions::Timestamps(3, 4),
    };
    let usual = by_parts(&headers, b"payload", true);
    assert!(check(&usual));
    for (at, bits) in [
        (0, 0x10),  // version 5
        (0, 0x03),  // a header of six words
        (2, 0x80),  // longer than what is there
        (3, 0x20),  // shorter than both headers
        (6, 0x20),  // more fragments
        (7, 0x01),  // not the first fragment
        (9, 0x01),  // no TCP
        (32, 0xc0), // a TCP header of four words
        (32, 0x70), // longer than the segment
    ] {
        let mut packet = usual.clone();
        packet[at] ^= bits;
        assert!(!check(&packet), "byte {at} by {bits:#x}");
    }
    for (at, bits) in [(6, 0x40), (6, 0x80), (1, 0x03)] {
        let mut packet = usual.clone();
        packet[at] ^= bits;
        assert!(check(&packet), "byte {at} by {bits:#x}");
    }
}

/// Whatever else there is, or is missing, goes the long way.
#[test]
fn other_options_are_out_of_the_ordinary() {
    let all = Options {
        mss: Some(1460),
        sack_permitted: true,
        window_scale: Some(7),
        ..Options::timestamps(1, 2)
    };
    assert!(all.usual().is_some());
    let mut sack = tcp::SackBlocks::NONE;
    sack.push(SeqNum(1), SeqNum(2));
    let user_timeout = tcp::UserTimeout::from_bits(30);
    for other in [
        Options { mss: None, ..all },
        Options {
            window_scale: None,
            ..all
        },
        Options {
            sack_permitted: false,
            ..all
        },
        Options {
            timestamps: None,
            sack_permitted: false,
            ..all
        },
        Options { sack, ..all },
        Options {
            user_timeout,
            ..all
        },
        Options {
            sack,
            ..Options::timestamps(1, 2)
        },
        Options {
            user_timeout,
            ..Options::NONE
        },
        Options {
            sack_permitted: true,
            ..Options::NONE
        },
        Options {
            mss: Some(1460),
            ..Options::NONE
        },
        Options {
            window_scale: Some(7),
            ..Options::timestamps(1, 2)
        },
    ] {
        assert_eq!(other.usual(), None, "{other:?}");
    }
}
