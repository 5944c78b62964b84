//! IPv6: the extension chain by example, and agreement with etherparse.

use super::*;
use crate::proto::TCP;
use proptest::prelude::*;

const SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

fn packet(proto: u8, payload: &[u8]) -> Vec<u8> {
    let repr = Repr {
        src: SRC,
        dst: DST,
        proto,
        payload_len: payload.len() as u16,
        hop_limit: 64,
        traffic_class: 0x82,
        flow_label: 0x12345,
    };
    let mut out = vec![0; LEN];
    assert_eq!(emit(&mut out, &repr), LEN);
    out.extend_from_slice(payload);
    out
}

/// An extension header of eight bytes.
fn extension(next: u8, rest: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = rest;
    [next, 0, a, b, c, d, e, f]
}

#[test]
fn goes_round() {
    let mut bytes = packet(TCP, b"hello");
    bytes.push(0); // link padding
    let ip = parse(&bytes).unwrap();
    assert_eq!(
        (ip.src, ip.dst, ip.proto, ip.hop_limit),
        (SRC, DST, TCP, 64)
    );
    assert_eq!(
        (ip.traffic_class, ip.ecn(), ip.flow_label),
        (0x82, 2, 0x12345)
    );
    assert_eq!(
        (ip.header_len(), ip.total_len(), ip.payload()),
        (40, 45, &b"hello"[..])
    );
    assert!(!ip.is_fragment() && ip.extensions().is_empty());
    assert_eq!(parse(&bytes[..44]), Err(Malformed::Truncated));
    assert_eq!(parse(&bytes[..39]), Err(Malformed::Truncated));
    bytes[0] = 0x45;
    assert_eq!(parse(&bytes), Err(Malformed::Version));
}

#[test]
fn the_chain_is_walked() {
    let mut chain = extension(DESTINATION, [1, 4, 0, 0, 0, 0]).to_vec();
    chain.extend(extension(AUTHENTICATION, [1, 4, 0, 0, 0, 0]));
    chain.extend([TCP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]); // authentication: (1 + 2) words
    chain.extend(b"hello");
    let bytes = packet(HOP_BY_HOP, &chain);
    let ip = parse(&bytes).unwrap();
    assert_eq!(
        (ip.proto, ip.payload(), ip.extensions().len()),
        (TCP, &b"hello"[..], 28)
    );
}

#[test]
fn hop_by_hop_is_known_only_in_front() {
    let chain = [
        extension(HOP_BY_HOP, [1, 4, 0, 0, 0, 0]),
        extension(TCP, [1, 4, 0, 0, 0, 0]),
    ]
    .concat();
    assert_eq!(
        parse(&packet(DESTINATION, &chain)).unwrap().proto,
        HOP_BY_HOP
    );
}

#[test]
fn a_chain_too_long_is_refused() {
    let link = extension(DESTINATION, [1, 4, 0, 0, 0, 0]);
    let chain = |n: usize| {
        [
            link.repeat(n - 1),
            extension(TCP, [1, 4, 0, 0, 0, 0]).to_vec(),
        ]
        .concat()
    };
    assert_eq!(
        parse(&packet(DESTINATION, &chain(EXTENSIONS_MAX)))
            .unwrap()
            .proto,
        TCP
    );
    assert_eq!(
        parse(&packet(DESTINATION, &chain(EXTENSIONS_MAX + 1))),
        Err(Malformed::TooDeep)
    );
}

#[test]
fn lengths_and_routes_that_lie_are_refused() {
    let mut long = extension(TCP, [0; 6]);
    long[1] = 1;
    assert_eq!(parse(&packet(DESTINATION, &long)), Err(Malformed::Length));
    assert_eq!(
        parse(&packet(DESTINATION, &long[..7])),
        Err(Malformed::Truncated)
    );
    assert_eq!(
        parse(&packet(ROUTING, &extension(TCP, [0, 1, 0, 0, 0, 0]))),
        Err(Malformed::Routed)
    );
    assert_eq!(
        parse(&packet(ROUTING, &extension(TCP, [0; 6])))
            .unwrap()
            .proto,
        TCP
    );
}

#[test]
fn fragments_end_the_walk_unless_atomic() {
    let part = [&extension(TCP, [0x00, 0x11, 0, 0, 0, 9])[..], b"part"].concat();
    let bytes = packet(FRAGMENT, &part);
    let ip = parse(&bytes).unwrap();
    assert_eq!(
        ip.fragment,
        Some(Fragment {
            offset: 16,
            more: true,
            id: 9
        })
    );
    assert_eq!((ip.proto, ip.payload()), (TCP, &b"part"[..]));
    let whole = [&extension(TCP, [0, 0, 0, 0, 0, 9])[..], b"whole"].concat();
    let bytes = packet(FRAGMENT, &whole);
    let ip = parse(&bytes).unwrap();
    assert_eq!((ip.fragment, ip.payload()), (None, &b"whole"[..]));
}

proptest! {
    #[test]
    fn written_headers_read_the_same_in_etherparse(
        src: u128, dst: u128, proto: u8, hop_limit: u8, traffic_class: u8, flow_label in 0u32..1 << 20, payload_len: u16,
    ) {
        let repr = Repr { src: src.into(), dst: dst.into(), proto, payload_len, hop_limit, traffic_class, flow_label };
        let mut bytes = [0; LEN];
        emit(&mut bytes, &repr);
        let (theirs, _) = etherparse::Ipv6Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(theirs.source, repr.src.octets());
        prop_assert_eq!(theirs.destination, repr.dst.octets());
        prop_assert_eq!((theirs.next_header.0, theirs.hop_limit), (proto, hop_limit));
        prop_assert_eq!((theirs.traffic_class, theirs.flow_label.value()), (traffic_class, flow_label));
        prop_assert_eq!(theirs.payload_length, payload_len);
    }

    /// Chains of short extension headers: where both walk to the end they must end at the same place.
    #[test]
    fn agrees_with_etherparse_on_where_the_chain_ends(
        kinds in proptest::collection::vec(prop_oneof![Just(ROUTING), Just(DESTINATION), Just(AUTHENTICATION)], 0..4),
        lens in proptest::collection::vec(0u8..3, 4), tail in proptest::collection::vec(any::<u8>(), 0..24),
    ) {
        let mut chain = Vec::new();
        for (n, kind) in kinds.iter().enumerate() {
            let next = *kinds.get(n + 1).unwrap_or(&TCP);
            let len = if *kind == AUTHENTICATION { (usize::from(lens[n]) + 3) * 4 } else { (usize::from(lens[n]) + 1) * 8 };
            let at = chain.len();
            chain.resize(at + len, 0);
            chain[at] = next;
            chain[at + 1] = if *kind == AUTHENTICATION { lens[n] + 1 } else { lens[n] };
        }
        chain.extend_from_slice(&tail);
        let bytes = packet(*kinds.first().unwrap_or(&TCP), &chain);
        let ours = parse(&bytes).unwrap();
        let theirs = etherparse::Ipv6Slice::from_slice(&bytes).unwrap();
        prop_assert_eq!(ours.payload(), theirs.payload().payload);
        prop_assert_eq!(ours.proto, theirs.payload().ip_number.0);
    }

    #[test]
    fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..160), first in prop_oneof![Just(0u8), Just(43), Just(44), Just(51), Just(60)]) {
        let _ = parse(&bytes);
        let len = bytes.len();
        if len >= LEN {
            bytes[0] = 0x60;
            bytes[4..6].copy_from_slice(&((len - LEN) as u16).to_be_bytes());
            bytes[6] = first;
            if let Ok(ip) = parse(&bytes) {
                prop_assert_eq!(LEN + ip.extensions().len() + ip.payload().len(), ip.total_len());
            }
        }
    }
}
