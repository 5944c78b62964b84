use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn address(bits: u128, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::from_bits(bits as u32).into(),
        true => Ipv6Addr::from_bits(bits).into(),
    }
}

fn option() -> impl Strategy<Value = TcpOption> {
    prop_oneof![
        Just(TcpOption::Nop),
        any::<u16>().prop_map(TcpOption::Mss),
        any::<u8>().prop_map(TcpOption::WindowScale),
        Just(TcpOption::SackPermitted),
        proptest::collection::vec((any::<u32>(), any::<u32>()), 1..3).prop_map(TcpOption::Sack),
        (any::<u32>(), any::<u32>()).prop_map(|(val, ecr)| TcpOption::Timestamps { val, ecr }),
        proptest::collection::vec(any::<u8>(), 0..6)
            .prop_map(|data| TcpOption::Other { kind: 30, data }),
    ]
}

prop_compose! {
    fn segment()(
        addresses in any::<(u128, u128)>(),
        v6 in any::<bool>(),
        ports in any::<(u16, u16)>(),
        (seq, ack) in any::<(u32, u32)>(),
        (flags, window, urgent, tos, ttl) in (0u16..0x200, any::<u16>(), any::<u16>(), any::<u8>(), any::<u8>()),
        flow_label in 0u32..=0xf_ffff,
        options in proptest::collection::vec(option(), 0..4),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) -> Segment {
        let mut options = options;
        while options.iter().map(TcpOption::wire_len).sum::<usize>() > 40 {
            options.pop();
        }
        let len: usize = options.iter().map(TcpOption::wire_len).sum();
        options.extend(vec![TcpOption::Nop; len.next_multiple_of(4) - len]);
        Segment {
            source: address(addresses.0, v6),
            destination: address(addresses.1, v6),
            source_port: ports.0,
            destination_port: ports.1,
            seq, ack, flags: Flags(flags), window, urgent, tos, ttl, options, payload,
            flow_label: if v6 { flow_label } else { 0 },
        }
    }
}

proptest! {
    #[test]
    fn encoded_segments_decode_to_themselves(segment in segment()) {
        prop_assert_eq!(decode(&encode(&segment)), Ok(segment));
    }

    #[test]
    fn one_flipped_bit_never_passes_as_the_same_segment(segment in segment(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut packet = encode(&segment);
        let at = at.index(packet.len());
        // The flow label is no part of a segment.
        prop_assume!(segment.source.is_ipv4() || !(1..4).contains(&at));
        packet[at] ^= 1 << bit;
        prop_assert_ne!(decode(&packet), Ok(segment));
    }

    #[test]
    fn no_bytes_can_panic_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = decode(&bytes);
    }
}

#[test]
fn prints_as_a_script_would_write_it() {
    let segment = Segment {
        source: Ipv4Addr::new(192, 0, 2, 1).into(),
        destination: Ipv4Addr::new(198, 51, 100, 1).into(),
        tos: 0,
        ttl: 64,
        flow_label: 0,
        source_port: 1,
        destination_port: 2,
        seq: 1,
        ack: 7,
        flags: Flags::PSH | Flags::ACK,
        window: 257,
        urgent: 0,
        options: vec![
            TcpOption::Nop,
            TcpOption::Nop,
            TcpOption::Sack(vec![(1, 2), (3, 4)]),
        ],
        payload: vec![0; 10],
    };
    assert_eq!(
        segment.to_string(),
        "P. 1:11(10) ack 7 win 257 <nop,nop,sack 1:2 3:4>"
    );
    assert_eq!(Flags(0).to_string(), "-");
}

#[test]
fn a_checksum_worked_by_hand() {
    // RFC 1071's example: 0001 f203 f4f5 f6f7 sums to ddf2.
    let mut segment = decode(&encode(&Segment {
        flow_label: 0,
        source: Ipv4Addr::UNSPECIFIED.into(),
        destination: Ipv4Addr::UNSPECIFIED.into(),
        tos: 0,
        ttl: 0,
        source_port: 0x0001,
        destination_port: 0xf203,
        seq: 0xf4f5_f6f7,
        ack: 0,
        flags: Flags(0),
        window: 0,
        urgent: 0,
        options: vec![],
        payload: vec![],
    }))
    .expect("sound");
    segment.seq = 0xf4f5_f6f7;
    let packet = encode(&segment);
    // Pseudo header adds protocol 6 and length 20, the data offset adds 0x5000.
    let sum: u32 = 0xddf2 + 6 + 20 + 0x5000;
    let folded = (sum & 0xffff) + (sum >> 16);
    assert_eq!(
        u32::from(u16::from_be_bytes([packet[36], packet[37]])),
        0xffff - folded
    );
}
