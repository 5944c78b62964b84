//! Datagrams in pieces, honest and hostile, and what is said to those who send what nobody takes.

use core::time::Duration;
use std::net::Ipv4Addr;

use crate::support::{Craft, HERE, Host, PEER, Peer, own_address};
use janus_tcp::{Config, Interface};
use janus_wire::tcp::Flags;
use janus_wire::{icmpv4, ipv4, proto};
use proptest::prelude::*;

/// An IPv4 packet cut into fragments with so much payload each.
fn cut(packet: &[u8], id: u16, step: usize) -> Vec<Vec<u8>> {
    let ip = ipv4::parse(packet).unwrap();
    let parts = ip.payload().chunks(step).enumerate();
    let len = ip.payload().len();
    parts
        .map(|(i, part)| {
            let more = (i + 1) * step < len;
            fragment(ip.src, id, ip.proto, i * step, more, part)
        })
        .collect()
}

fn fragment(
    src: Ipv4Addr,
    id: u16,
    proto: u8,
    offset: usize,
    more: bool,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src,
        dst: HERE,
        proto,
        payload_len: payload.len() as u16,
        ttl: 60,
        tos: 0,
        id,
        dont_fragment: false,
    };
    ipv4::emit_fragment(&mut packet, &repr, offset as u16, more);
    packet.extend_from_slice(payload);
    packet
}

fn datagram(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src,
        dst,
        proto,
        payload_len: payload.len() as u16,
        ttl: 60,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut packet, &repr);
    packet.extend_from_slice(payload);
    packet
}

/// A UDP datagram whose checksum was left out.
fn udp(dst: Ipv4Addr) -> Vec<u8> {
    let payload = [0x10, 0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
    datagram(PEER, dst, proto::UDP, &payload)
}

/// Bytes that tell where they are.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8)) as u8).collect()
}

#[test]
fn segments_in_pieces_arrive_in_any_order_and_size() {
    let mut host = Host::plain();
    let mut peer = Peer::open_with_timestamps(&mut host, 4_000);
    for (id, len, step, rotate) in [
        (1, 100, 40, 0),
        (2, 4_000, 1_480, 1),
        (3, 1_801, 88, 7),
        (4, 20_000, 1_480, 3),
        (5, 60_000, 1_480, 39),
    ] {
        let mut parts = cut(&peer.ahead(0, len).packet(), id, step);
        parts.rotate_left(rotate);
        for part in &parts {
            host.feed(part);
        }
        peer.skip(len as u32);
        peer.expect_stream(&mut host);
        assert_eq!(peer.read, peer.sent, "{len} bytes by {step}");
        host.wait(Duration::from_millis(50));
        let acks = host.collect();
        assert_eq!(acks.last().unwrap().header.ack, peer.snd);
    }
    assert_eq!(host.stack.counters().datagrams_reassembled, 5);
    peer.expect_unharmed(&mut host);
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn what_belongs_to_the_end_of_a_segment_in_pieces_comes_at_the_end() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let mut last = peer.ahead(0, 5_000);
    last.flags = Flags::ACK | Flags::PSH | Flags::FIN;
    for part in cut(&last.packet(), 9, 1_480) {
        host.feed(&part);
    }
    peer.skip(5_000);
    peer.expect_stream(&mut host);
    assert_eq!(peer.read, 5_000);
    let ack = host.collect().pop().unwrap();
    assert_eq!(ack.header.ack, peer.snd + 1u32);
    assert_eq!(host.stack.read(host.now, peer.conn, &mut [0; 8]), Ok(0));
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn a_connection_can_open_in_pieces() {
    let mut host = Host::plain();
    let syn = Craft::syn((PEER, 4_000));
    // The SYN's header alone fits no second fragment, so it gets data, which nobody has to take.
    let mut with_data = syn.clone();
    with_data.payload = bytes(40);
    for part in cut(&with_data.packet(), 1, 48) {
        host.feed(&part);
    }
    let answer = host.collect().pop().expect("a SYN-ACK");
    assert!(answer.has(Flags::SYN | Flags::ACK));
    host.end(&[]);
}

#[test]
fn a_changed_byte_costs_the_whole_datagram() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let mut parts = cut(&peer.ahead(0, 4_000).packet(), 1, 1_480);
    parts[1][100] ^= 4;
    for part in &parts {
        host.feed(part);
    }
    assert_eq!(host.stack.counters().dropped_checksum, 1);
    peer.expect_unharmed(&mut host);
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn forged_fragments_that_overlap_put_nothing_into_a_stream() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let parts = cut(&peer.ahead(0, 4_000).packet(), 1, 1_480);
    host.feed(&parts[0]);
    // A forger who knows the identification: the classic teardrop, and a whole replacement of the second part.
    host.feed(&fragment(PEER, 1, proto::TCP, 1_472, true, &[0x41; 16]));
    host.feed(&parts[1]);
    host.feed(&fragment(PEER, 1, proto::TCP, 1_480, true, &[0x42; 1_480]));
    host.feed(&parts[2]);
    assert_eq!(host.stack.counters().datagrams_reassembled, 0);
    // TCP sends it again, under another identification.
    for part in cut(&peer.ahead(0, 4_000).packet(), 2, 1_480) {
        host.feed(&part);
    }
    peer.skip(4_000);
    host.collect();
    peer.expect_unharmed(&mut host);
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn a_flood_of_fragments_holds_little_and_hinders_nobody() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let before = host.held();
    for i in 0..21_000u32 {
        let src = Ipv4Addr::from_bits(0xc633_0000 + i);
        // First fragments, middle ones, ones with holes after every eight bytes, of ever new datagrams.
        let offset = (i as usize % 7) * 16;
        let payload = bytes(if i % 3 == 0 { 1_480 } else { 40 });
        host.feed(&fragment(src, i as u16, proto::TCP, offset, true, &payload));
        if i % 7_000 == 0 {
            peer.expect_unharmed(&mut host);
        }
    }
    assert!(host.held() <= before + 600, "{} buffers", host.held());
    for _ in 0..15 {
        // So many are given up at a time.
        host.wait(Duration::from_secs(10));
        host.packets();
    }
    assert_eq!(host.held(), before);
    peer.expect_unharmed(&mut host);
    let conns = [peer.conn];
    host.end(&conns);
}

/// The largest ping there is comes back, in pieces that fit.
#[test]
fn a_ping_of_any_size_is_answered_in_full() {
    for len in [10, 1_472, 1_473, 2_000, 20_000, 65_507] {
        let mut host = Host::plain();
        let mut message = vec![0; 8 + len];
        icmpv4::emit_echo_request(&mut message, 7, 1, &bytes(len));
        for part in cut(&datagram(PEER, HERE, proto::ICMP, &message), 3, 1_480) {
            host.feed(&part);
        }
        let mut answer = Vec::new();
        let packets = host.packets();
        for (i, packet) in packets.iter().enumerate() {
            assert!(packet.len() <= 1_500);
            let ip = ipv4::parse(packet).unwrap();
            assert!(ip.checksum_ok());
            assert_eq!((ip.src, ip.dst, ip.proto), (HERE, PEER, proto::ICMP));
            assert_eq!(ip.fragment_offset(), answer.len());
            assert_eq!(ip.more_fragments(), i + 1 < packets.len());
            assert_eq!(ip.is_fragment(), ip.more_fragments() || i > 0);
            answer.extend_from_slice(ip.payload());
        }
        assert!(icmpv4::checksum_ok(&answer));
        let data = bytes(len);
        let expected = icmpv4::Message::EchoReply {
            ident: 7,
            sequence: 1,
            data: &data,
        };
        assert_eq!(icmpv4::parse(&answer), Ok(expected), "{len} bytes");
        host.end(&[]);
    }
}

fn error_about(packets: &[Vec<u8>], packet: &[u8]) -> Option<(u8, u8)> {
    let [answer] = packets else {
        assert!(packets.is_empty(), "{} answers", packets.len());
        return None;
    };
    let ip = ipv4::parse(answer).unwrap();
    assert_eq!((ip.src, ip.dst, ip.proto), (HERE, PEER, proto::ICMP));
    assert!(icmpv4::checksum_ok(ip.payload()));
    let quoted = packet.len().min(548);
    assert_eq!(ip.payload()[8..], packet[..quoted]);
    Some((ip.payload()[0], ip.payload()[1]))
}

#[test]
fn who_sent_the_first_part_is_told_that_the_rest_did_not_come() {
    let mut host = Host::plain();
    let parts = cut(&datagram(PEER, HERE, proto::UDP, &bytes(3_000)), 1, 1_480);
    host.feed(&parts[0]);
    host.wait(Duration::from_secs(29));
    assert!(host.packets().is_empty());
    host.wait(Duration::from_secs(1));
    assert_eq!(error_about(&host.packets(), &parts[0]), Some((11, 1)));
    // Without the first part there is nobody to tell.
    host.feed(&parts[1]);
    host.wait(Duration::from_secs(31));
    assert!(host.packets().is_empty());
    assert_eq!(host.stack.counters().reassembly_expired, 2);
    host.end(&[]);
}

#[test]
fn udp_and_unknown_protocols_are_answered_as_rfc_1122_says() {
    let mut host = Host::plain();
    host.feed(&udp(HERE));
    assert_eq!(error_about(&host.packets(), &udp(HERE)), Some((3, 3)));
    let strange = datagram(PEER, HERE, 132, &bytes(40));
    host.feed(&strange);
    assert_eq!(error_about(&host.packets(), &strange), Some((3, 2)));
    // In pieces too, once it is whole.
    let long = datagram(PEER, HERE, 132, &bytes(3_000));
    for part in cut(&long, 4, 1_480) {
        host.feed(&part);
    }
    assert_eq!(host.packets().len(), 1);
    assert_eq!(host.stack.counters().icmp_errors_out, 3);
    host.end(&[]);
}

#[test]
fn nothing_is_said_where_rfc_1122_forbids_it() {
    let mut host = Host::plain();
    let before = host.stack.counters().icmp_errors_out;
    // Groups, broadcast, others; sources that are no host.
    for dst in [
        [224, 0, 0, 1],
        [255, 255, 255, 255],
        [192, 0, 2, 255],
        [192, 0, 2, 9],
    ] {
        host.feed(&udp(Ipv4Addr::from(dst)));
    }
    for src in [
        [224, 0, 0, 1],
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [192, 0, 2, 255],
        [192, 0, 2, 2],
    ] {
        let payload = [0x10, 0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
        host.feed(&datagram(Ipv4Addr::from(src), HERE, proto::UDP, &payload));
    }
    // A wrong UDP checksum, and half a header.
    let mut damaged = udp(HERE);
    damaged[ipv4::LEN + 7] = 1;
    host.feed(&damaged);
    host.feed(&datagram(PEER, HERE, proto::UDP, &[0; 7]));
    // ICMP errors, of any kind: about something that is not ours, and nonsense; and pieces of one that stay pieces.
    for kind in [3u8, 4, 5, 11, 12] {
        let mut message = vec![0; 36];
        icmpv4::emit_unreachable(&mut message, 3, 0, &udp(HERE)[..28]);
        message[0] = kind;
        host.feed(&datagram(PEER, HERE, proto::ICMP, &message));
        host.feed(&fragment(
            PEER,
            u16::from(kind),
            proto::ICMP,
            0,
            true,
            &message[..32],
        ));
    }
    host.wait(Duration::from_secs(31));
    assert!(host.packets().is_empty());
    assert_eq!(host.stack.counters().icmp_errors_out, before);
    host.end(&[]);
}

#[test]
fn errors_are_rationed_and_only_one_of_several_stacks_sends_them() {
    let config = Config {
        icmp_errors_per_second: 100,
        ..Config::default()
    };
    let mut host = Host::with(config.clone());
    for _ in 0..10_000 {
        host.feed(&udp(HERE));
    }
    let sent = host.packets().len();
    assert!((20..=150).contains(&sent), "{sent}");
    assert_eq!(
        host.stack.counters().icmp_errors_limited as usize,
        10_000 - sent
    );
    host.end(&[]);
    let silent = Interface {
        answers: false,
        ..own_address()
    };
    let mut host = Host::new(config, silent, 1_024);
    host.feed(&udp(HERE));
    assert!(host.packets().is_empty());
    host.end(&[]);
}

/// What a router, a peer or a forger might send, and what nobody would.
#[derive(Clone, Debug)]
enum Strange {
    Fragment(Vec<u8>),
    Icmp {
        kind: u8,
        code: u8,
        mtu: u16,
        /// The sequence number quoted, from the stream's begin.
        offset: u32,
        quoted: usize,
        sound: bool,
    },
}

impl Strange {
    fn packet(&self, base: u32) -> Vec<u8> {
        let (kind, code, mtu, offset, quoted, sound) = match *self {
            Strange::Fragment(ref packet) => return packet.clone(),
            Strange::Icmp {
                kind,
                code,
                mtu,
                offset,
                quoted,
                sound,
            } => (kind, code, mtu, offset, quoted, sound),
        };
        let mut segment = [0, 80, 15, 160, 0, 0, 0, 0];
        segment[4..].copy_from_slice(&base.wrapping_add(offset).to_be_bytes());
        let mut quote = datagram(HERE, PEER, proto::TCP, &segment);
        quote[2..4].copy_from_slice(&1_440u16.to_be_bytes());
        quote.truncate(quoted);
        let mut message = vec![0; 8 + quote.len()];
        icmpv4::emit_unreachable(&mut message, code, mtu, &quote);
        message[0] = kind;
        message[2..4].fill(0);
        let sum = janus_wire::checksum::finish(janus_wire::checksum::sum(&message, 0));
        message[2..4].copy_from_slice(&(sum ^ u16::from(!sound)).to_be_bytes());
        datagram(PEER, HERE, proto::ICMP, &message)
    }
}

fn strange() -> impl Strategy<Value = Strange> {
    let protocols = prop_oneof![
        Just(proto::TCP),
        Just(proto::ICMP),
        Just(proto::UDP),
        any::<u8>()
    ];
    let data = prop::collection::vec(any::<u8>(), 0..80);
    let fragment = (0..4u16, protocols, 0..40usize, any::<bool>(), data).prop_map(
        |(id, proto, at, more, payload)| {
            Strange::Fragment(fragment(PEER, id, proto, at * 8, more, &payload))
        },
    );
    let offsets = prop_oneof![Just(0), Just(1_400), Just(2_800), 0..4_000u32, any::<u32>()];
    let kinds = prop_oneof![Just(3), 0..20u8];
    let codes = prop_oneof![Just(4), 0..20u8];
    let lens = prop_oneof![Just(28usize), 0..28usize];
    let mtus = prop_oneof![Just(0), 500..1_600u16, any::<u16>()];
    let icmp = (kinds, codes, mtus, offsets, lens, prop::bool::weighted(0.9)).prop_map(
        |(kind, code, mtu, offset, quoted, sound)| Strange::Icmp {
            kind,
            code,
            mtu,
            offset,
            quoted,
            sound,
        },
    );
    prop_oneof![fragment, icmp]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes, a connection's stream is what was sent, and nothing is left in the end.
    #[test]
    fn no_fragment_or_error_harms_a_stream(
        strangers in prop::collection::vec(strange(), 1..120),
        write in 1..4_000usize,
    ) {
        let mut host = Host::plain();
        let mut peer = Peer::open(&mut host, 4_000);
        let base = peer.rcv.0;
        host.stack.write(host.now, peer.conn, &bytes(write)).unwrap();
        for stranger in &strangers {
            peer.listen(&mut host, false);
            host.feed(&stranger.packet(base));
        }
        host.send(&peer.segment(Flags::ACK));
        for _ in 0..20 {
            host.wait(Duration::from_secs(1));
            peer.listen(&mut host, true);
        }
        prop_assert_eq!(&peer.got, &bytes(write));
        peer.expect_unharmed(&mut host);
        host.wait(Duration::from_secs(31));
        host.packets();
        let conns = [peer.conn];
        host.end(&conns);
    }
}
