//! What of ICMP errors, path MTUs and fragments is different over IPv6: RFC 4443, RFC 8201, RFC 8200 section 4.5. The rest is
//! in `icmp_errors` and `fragments`, and the code is the same.

use core::time::Duration;
use std::net::{IpAddr, Ipv6Addr};

use crate::support::{Craft, HERE, Host, PEER, PORT, Peer, Seen, family};
use janus_tcp::Error;
use janus_wire::tcp::Flags;
use janus_wire::{icmpv6, ipv6, proto};

const ROUTER_ADDR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

fn over_v6(test: impl Fn()) {
    family::over_both(|| {
        if family::is_v6() {
            test();
        }
    });
}

fn header(src: Ipv6Addr, dst: Ipv6Addr, proto: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![0; ipv6::LEN];
    let repr = ipv6::Repr {
        src,
        dst,
        proto,
        payload_len: len as u16,
        hop_limit: 60,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut packet, &repr);
    packet
}

/// A router's message about a segment of ours.
fn about(seen: &Seen, problem: icmpv6::Problem) -> Vec<u8> {
    let (here, peer) = (family::v6_of(HERE), family::v6_of(seen.to.0));
    let len = seen.header.header_len + seen.payload.len();
    let mut quote = header(here, peer, proto::TCP, len);
    quote.extend(seen.from.1.to_be_bytes());
    quote.extend(seen.to.1.to_be_bytes());
    quote.extend(seen.header.seq.0.to_be_bytes());
    let mut message = vec![0; icmpv6::LEN + quote.len()];
    icmpv6::emit_error(&mut message, ROUTER_ADDR, here, problem, &quote);
    let mut packet = header(ROUTER_ADDR, here, proto::ICMPV6, message.len());
    packet.extend(message);
    packet
}

/// A packet of the peer's, cut into fragments with so much payload each.
fn cut(packet: &[u8], id: u32, step: usize) -> Vec<Vec<u8>> {
    let ip = ipv6::parse(packet).unwrap();
    let len = ip.payload().len();
    let parts = ip.payload().chunks(step).enumerate();
    parts
        .map(|(i, part)| {
            let repr = ipv6::Repr {
                src: ip.src,
                dst: ip.dst,
                proto: ip.proto,
                payload_len: (ipv6::FRAGMENT_LEN + part.len()) as u16,
                hop_limit: 60,
                traffic_class: 0,
                flow_label: 0,
            };
            let fragment = ipv6::Fragment {
                offset: (i * step) as u16,
                more: (i + 1) * step < len,
                id,
            };
            let mut packet = vec![0; ipv6::LEN + ipv6::FRAGMENT_LEN];
            ipv6::emit_fragment(&mut packet, &repr, fragment);
            packet.extend_from_slice(part);
            packet
        })
        .collect()
}

#[test]
fn a_packet_too_big_lowers_the_size_to_1280_at_most() {
    over_v6(|| {
        let mut host = Host::plain();
        let mut peer = Peer::open(&mut host, 4_000);
        host.stack.write(host.now, peer.conn, &[7; 2_800]).unwrap();
        let sent = host.collect();
        assert_eq!(sent[0].payload.len(), 1_400);
        // RFC 8201 section 4: less than the smallest MTU is not believed, nor is what fits.
        for mtu in [0, 68, 1_279, 1_460, 65_535, u32::MAX] {
            host.feed(&about(&sent[0], icmpv6::Problem::TooBig(mtu)));
        }
        assert!(host.collect().is_empty());
        host.feed(&about(&sent[0], icmpv6::Problem::TooBig(1_280)));
        let again = host.collect();
        let lens: Vec<usize> = again.iter().map(|s| s.payload.len()).collect();
        assert_eq!(lens.iter().sum::<usize>(), 2_800);
        assert!(lens.iter().all(|len| *len <= 1_220), "{lens:?}");
        peer.take(&again);
        host.send(&peer.segment(Flags::ACK));
        assert_eq!(peer.got, [7; 2_800]);
        peer.expect_unharmed(&mut host);
        let conns = [peer.conn];
        host.end(&conns);
    });
}

#[test]
fn an_attempt_to_connect_ends_with_what_was_said() {
    use icmpv6::Problem;
    let next_header = Problem::Parameter {
        code: icmpv6::parameter::NEXT_HEADER,
        pointer: 6,
    };
    over_v6(|| {
        for (problem, told) in [
            (Problem::Unreachable(0), Error::NetworkUnreachable),
            (Problem::Unreachable(1), Error::Prohibited),
            (Problem::Unreachable(2), Error::HostUnreachable),
            (Problem::Unreachable(3), Error::HostUnreachable),
            (Problem::Unreachable(4), Error::ConnectionRefused),
            (Problem::Unreachable(5), Error::Prohibited),
            (Problem::Unreachable(6), Error::Prohibited),
            (Problem::TimeExceeded(0), Error::HostUnreachable),
            (next_header, Error::HeaderRefused),
        ] {
            let mut host = Host::plain();
            let (local, remote) = (family::socket(HERE, 40_000), family::socket(PEER, PORT));
            let conn = host.stack.connect(host.now, local, remote).unwrap();
            let syn = host.collect().pop().expect("a SYN");
            host.feed(&about(&syn, Problem::TooBig(1_300)));
            assert_eq!(host.stack.is_connected(conn), Ok(false));
            host.feed(&about(&syn, problem));
            assert_eq!(host.stack.is_connected(conn), Err(told));
            host.end(&[conn]);
        }
    });
}

#[test]
fn segments_in_pieces_arrive_and_overlaps_do_not() {
    over_v6(|| {
        let mut host = Host::plain();
        let mut peer = Peer::open(&mut host, 4_000);
        let mut parts = cut(&peer.ahead(0, 20_000).packet(), 1, 1_232);
        parts.reverse();
        for part in &parts {
            host.feed(part);
        }
        peer.skip(20_000);
        peer.expect_stream(&mut host);
        assert_eq!(peer.read, 20_000);
        // RFC 5722: another piece that overlaps costs the whole packet, and nothing else.
        let parts = cut(&peer.ahead(0, 4_000).packet(), 2, 1_232);
        host.feed(&parts[0]);
        let mut forged = parts[1].clone();
        forged[ipv6::LEN + 3] -= 8;
        host.feed(&forged);
        for part in &parts[1..] {
            host.feed(part);
        }
        assert_eq!(host.stack.counters().datagrams_reassembled, 1);
        host.collect();
        peer.expect_unharmed(&mut host);
        let conns = [peer.conn];
        host.end(&conns);
    });
}

#[test]
fn a_large_ping_is_answered_and_a_packet_in_pieces_complained_about() {
    over_v6(|| {
        let mut host = Host::plain();
        let (here, there) = (family::v6_of(HERE), family::v6_of(PEER));
        let data: Vec<u8> = (0..5_000).map(|i| i as u8).collect();
        let mut message = vec![0; icmpv6::LEN + data.len()];
        icmpv6::emit_echo_request(&mut message, there, here, 7, 1, &data);
        let mut ping = header(there, here, proto::ICMPV6, message.len());
        ping.extend(&message);
        let parts = cut(&ping, 3, 1_232);
        for part in &parts {
            host.feed(part);
        }
        let mut answer = Vec::new();
        for packet in host.packets() {
            let ip = ipv6::parse(&packet).unwrap();
            let fragment = ip.fragment.expect("a part");
            assert!(packet.len() <= 1_500);
            assert_eq!(usize::from(fragment.offset), answer.len());
            answer.extend_from_slice(ip.payload());
        }
        assert!(icmpv6::checksum_ok(here, there, &answer));
        let expected = icmpv6::Message::EchoReply {
            ident: 7,
            sequence: 1,
            data: &data,
        };
        assert_eq!(icmpv6::parse(&answer), Ok(expected));
        // Only the first part comes: 60 seconds, then RFC 8200 section 4.5's message.
        host.feed(&parts[0]);
        host.wait(Duration::from_secs(59));
        assert!(host.packets().is_empty());
        host.wait(Duration::from_secs(1));
        let complaint = host.packets().pop().expect("a complaint");
        let ip = ipv6::parse(&complaint).unwrap();
        assert_eq!((ip.src, ip.dst), (here, there));
        assert_eq!(ip.payload()[..2], [3, 1]);
        assert!(complaint.len() <= 1_280);
        assert_eq!(ip.payload()[8..], parts[0][..ip.payload().len() - 8]);
        host.end(&[]);
    });
}

#[test]
fn strange_protocols_are_told_which_field_was_not_understood() {
    over_v6(|| {
        let mut host = Host::plain();
        let (here, there) = (family::v6_of(HERE), family::v6_of(PEER));
        let mut strange = header(there, here, 132, 16);
        strange.extend([1; 16]);
        host.feed(&strange);
        let complaint = host.packets().pop().expect("a complaint");
        let ip = ipv6::parse(&complaint).unwrap();
        // RFC 4443 section 3.4: parameter problem, unrecognised next header, where it stands.
        assert_eq!(ip.payload()[..2], [4, 1]);
        assert_eq!(ip.payload()[4..8], [0, 0, 0, 6]);
        assert!(icmpv6::checksum_ok(ip.src, ip.dst, ip.payload()));
        // An ICMPv6 error is never answered, whatever is wrong with it.
        let mut error = header(there, here, proto::ICMPV6, 8);
        error.extend([1, 4, 0, 0, 0, 0, 0, 0]);
        host.feed(&error);
        assert!(host.packets().is_empty());
        host.end(&[]);
    });
}

#[test]
fn a_syn_ack_that_cannot_be_delivered_frees_its_record() {
    over_v6(|| {
        let mut host = Host::plain();
        let answer = host.ask(&Craft::syn((PEER, 4_000))).remove(0);
        assert_eq!(IpAddr::V6(family::v6_of(PEER)), family::addr(answer.to.0));
        // What may pass changes nothing, what is final does.
        host.feed(&about(&answer, icmpv6::Problem::Unreachable(0)));
        host.feed(&about(&answer, icmpv6::Problem::TimeExceeded(0)));
        assert_eq!(host.stack.half_open(), 1);
        host.feed(&about(&answer, icmpv6::Problem::Unreachable(1)));
        assert_eq!(host.stack.half_open(), 0);
        host.end(&[]);
    });
}
