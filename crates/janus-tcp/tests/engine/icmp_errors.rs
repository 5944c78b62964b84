//! ICMP errors, true and forged: which are believed, and what they do to a connection (RFC 5927, RFC 5461, RFC 1191).

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::support::{Craft, HERE, Host, PEER, PORT, Peer, Seen};
use janus_tcp::{Config, ConnId, Error};
use janus_wire::tcp::Flags;
use janus_wire::{SeqNum, icmpv4, ipv4, proto};

const ROUTER_ADDR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// What a router sends back of a segment of ours: the IP header and eight bytes.
fn quote(to: (Ipv4Addr, u16), from_port: u16, seq: SeqNum, packet_len: usize) -> Vec<u8> {
    let mut bytes = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: HERE,
        dst: to.0,
        proto: proto::TCP,
        payload_len: (packet_len - ipv4::LEN) as u16,
        ttl: 3,
        tos: 0,
        id: 1,
        dont_fragment: true,
    };
    ipv4::emit(&mut bytes, &repr);
    bytes.extend(from_port.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    bytes.extend(seq.0.to_be_bytes());
    bytes
}

/// An ICMP message from a router, its first eight bytes as given but for the checksum.
fn error(kind: u8, code: u8, mtu: u16, quote: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 8 + quote.len()];
    let len = icmpv4::emit_unreachable(&mut message, code, mtu, quote);
    assert_eq!(len, message.len());
    message[0] = kind;
    message[2..4].fill(0);
    let sum = janus_wire::checksum::finish(janus_wire::checksum::sum(&message, 0));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: ROUTER_ADDR,
        dst: HERE,
        proto: proto::ICMP,
        payload_len: message.len() as u16,
        ttl: 60,
        tos: 0,
        id: 0,
        dont_fragment: false,
    };
    ipv4::emit(&mut packet, &repr);
    packet.extend(message);
    packet
}

const UNREACHABLE: u8 = 3;
const QUENCH: u8 = 4;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

fn packet_len(seen: &Seen) -> usize {
    ipv4::LEN + seen.header.header_len + seen.payload.len()
}

fn about(seen: &Seen, kind: u8, code: u8, mtu: u16) -> Vec<u8> {
    let quoted = quote(
        seen.to,
        seen.header.src_port,
        seen.header.seq,
        packet_len(seen),
    );
    error(kind, code, mtu, &quoted)
}

/// A connection with `segments` full segments in flight, and those.
fn with_flight(host: &mut Host, segments: usize) -> (Peer, Vec<Seen>) {
    let mut peer = Peer::open(host, 4_000);
    peer.say(host, 10);
    peer.expect_stream(host);
    let data: Vec<u8> = (0..segments * 1_400).map(|i| i as u8).collect();
    assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(data.len()));
    let sent = host.collect();
    assert_eq!(sent.len(), segments);
    assert!(sent.iter().all(|s| s.payload.len() == 1_400));
    (peer, sent)
}

/// The peer takes and acknowledges until all is there.
fn expect_all(host: &mut Host, peer: &mut Peer, first: &[Seen], len: usize) {
    peer.take(first);
    host.send(&peer.segment(Flags::ACK));
    for _ in 0..200 {
        peer.listen(host, true);
        if peer.got.len() >= len {
            break;
        }
        host.wait(Duration::from_millis(300));
    }
    let expected: Vec<u8> = (0..len).map(|i| i as u8).collect();
    assert!(peer.got == expected, "{} of {len} bytes", peer.got.len());
}

fn connect(host: &mut Host, port: u16) -> (ConnId, Seen) {
    let local = SocketAddrV4::new(HERE, port);
    let conn = host
        .stack
        .connect(host.now, local, SocketAddrV4::new(PEER, PORT))
        .unwrap();
    let syn = host.collect().pop().expect("a SYN");
    (conn, syn)
}

#[test]
fn a_packet_too_big_is_cut_and_sent_again_at_once() {
    let mut host = Host::plain();
    let (mut peer, sent) = with_flight(&mut host, 4);
    let cwnd = host.stack.info(peer.conn).unwrap().cwnd;
    host.feed(&about(&sent[0], UNREACHABLE, 4, 1_000));
    let again = host.collect();
    // All four are too large: 1,400 = 960 + 440.
    let lens: Vec<usize> = again.iter().map(|s| s.payload.len()).collect();
    assert_eq!(lens, [960, 440, 960, 440, 960, 440, 960, 440]);
    assert_eq!(again[0].header.seq, sent[0].header.seq);
    let info = host.stack.info(peer.conn).unwrap();
    assert_eq!((info.mss, info.cwnd), (960, cwnd));
    assert_eq!(host.stack.counters().paths_shrunk, 1);
    // The other three tell nothing new.
    for old in &sent[1..] {
        host.feed(&about(old, UNREACHABLE, 4, 1_000));
    }
    assert!(host.collect().is_empty());
    expect_all(&mut host, &mut peer, &again, 4 * 1_400);
    peer.expect_unharmed(&mut host);
    // The next connection to the same host knows.
    let other = Peer::open(&mut host, 4_001);
    host.stack.write(host.now, other.conn, &[0; 2_000]).unwrap();
    assert_eq!(host.collect()[0].payload.len(), 960);
    assert_eq!(host.stack.info(other.conn).unwrap().mss, 960);
    let conns = [peer.conn, other.conn];
    host.end(&conns);
}

#[test]
fn what_a_router_said_is_forgotten_after_ten_minutes() {
    let mut host = Host::plain();
    let (mut peer, sent) = with_flight(&mut host, 2);
    host.feed(&about(&sent[0], UNREACHABLE, 4, 1_000));
    let again = host.collect();
    expect_all(&mut host, &mut peer, &again, 2 * 1_400);
    host.wait(Duration::from_secs(599));
    host.stack.write(host.now, peer.conn, &[1; 1_400]).unwrap();
    assert_eq!(peer.listen(&mut host, true)[0].payload.len(), 960);
    peer.listen(&mut host, true);
    host.wait(Duration::from_secs(2));
    host.stack.write(host.now, peer.conn, &[1; 1_400]).unwrap();
    assert_eq!(peer.listen(&mut host, true)[0].payload.len(), 1_400);
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn a_router_that_names_no_size_is_met_with_the_next_plateau() {
    let mut host = Host::plain();
    let (mut peer, sent) = with_flight(&mut host, 1);
    host.feed(&about(&sent[0], UNREACHABLE, 4, 0));
    let again = host.collect();
    assert_eq!(again[0].payload.len(), 1_006 - 40);
    expect_all(&mut host, &mut peer, &again, 1_400);
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn forged_fragmentation_needed_does_nothing_or_little() {
    let mut host = Host::plain();
    let (mut peer, sent) = with_flight(&mut host, 3);
    let seq = sent[0].header.seq;
    let with_seq = |seq| error(UNREACHABLE, 4, 600, &quote(peer.at, PORT, seq, 1_440));
    // Outside of what is in flight; within it, but no segment begins there; another port; not TCP.
    for wrong in [
        seq + u32::MAX,
        seq + 4_201u32,
        seq + 77u32,
        seq + 0x8000_0000u32,
    ] {
        host.feed(&with_seq(wrong));
    }
    host.feed(&error(
        UNREACHABLE,
        4,
        600,
        &quote((PEER, 4_001), PORT, seq, 1_440),
    ));
    let mut udp = quote(peer.at, PORT, seq, 1_440);
    udp[9] = proto::UDP;
    host.feed(&error(UNREACHABLE, 4, 600, &udp));
    // A wrong checksum.
    let mut damaged = with_seq(seq);
    damaged[30] ^= 1;
    host.feed(&damaged);
    // Claims no less than what was sent.
    host.feed(&error(
        UNREACHABLE,
        4,
        1_440,
        &quote(peer.at, PORT, seq, 1_440),
    ));
    host.feed(&error(
        UNREACHABLE,
        4,
        65_535,
        &quote(peer.at, PORT, seq, 1_440),
    ));
    assert!(host.collect().is_empty());
    assert_eq!(host.stack.info(peer.conn).unwrap().mss, 1_400);
    assert_eq!(host.stack.counters().paths_shrunk, 0);
    // With everything guessed right a forger gets no further than what every host must take.
    host.feed(&error(
        UNREACHABLE,
        4,
        68,
        &quote(peer.at, PORT, seq, 1_440),
    ));
    let again = host.collect();
    assert!(again.iter().all(|s| packet_len(s) <= 552));
    assert_eq!(host.stack.info(peer.conn).unwrap().mss, 512);
    expect_all(&mut host, &mut peer, &again, 3 * 1_400);
    peer.expect_unharmed(&mut host);
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn a_storm_of_packet_too_big_is_cheap_and_harmless() {
    let mut host = Host::plain();
    let (mut peer, sent) = with_flight(&mut host, 3);
    let before = host.held();
    let mut again = Vec::new();
    for mtu in (0..2_000).rev().chain(0..2_000) {
        host.feed(&about(&sent[0], UNREACHABLE, 4, mtu));
        again.extend(host.collect());
    }
    assert!(host.held() < before + 40, "{} buffers", host.held());
    // Each byte went out again a bounded number of times, however many messages there were.
    assert!(again.len() < 2_000, "{} segments", again.len());
    expect_all(&mut host, &mut peer, &again, 3 * 1_400);
    peer.expect_unharmed(&mut host);
    let conns = [peer.conn];
    host.end(&conns);
}

/// MUST-55, MUST-56, SHLD-25, SHLD-26 with RFC 5461: nothing an established connection hears from routers ends it.
#[test]
fn an_established_connection_outlives_every_error_and_tells_the_last_one() {
    for (kind, code, told) in [
        (UNREACHABLE, 0, Error::NetworkUnreachable),
        (UNREACHABLE, 1, Error::HostUnreachable),
        (UNREACHABLE, 2, Error::ProtocolUnreachable),
        (UNREACHABLE, 3, Error::ConnectionRefused),
        (UNREACHABLE, 5, Error::RouteFailed),
        (UNREACHABLE, 7, Error::HostUnknown),
        (UNREACHABLE, 8, Error::HostIsolated),
        (UNREACHABLE, 13, Error::HostUnreachable),
        (TIME_EXCEEDED, 0, Error::HostUnreachable),
        (PARAMETER_PROBLEM, 0, Error::HeaderRefused),
        (QUENCH, 0, Error::TimedOut),
        (UNREACHABLE, 77, Error::TimedOut),
    ] {
        let mut host = Host::plain();
        let (mut peer, sent) = with_flight(&mut host, 2);
        let cwnd = host.stack.info(peer.conn).unwrap().cwnd;
        host.feed(&about(&sent[0], kind, code, 0));
        assert!(host.collect().is_empty());
        assert_eq!(host.stack.info(peer.conn).unwrap().cwnd, cwnd);
        // It may be over: then nothing is remembered.
        peer.take(&sent[..1]);
        host.send(&peer.segment(Flags::ACK));
        host.feed(&about(&sent[1], kind, code, 0));
        let mut outcome = Err(Error::WouldBlock);
        for _ in 0..40 {
            host.wait(Duration::from_secs(60));
            host.collect();
            outcome = host.stack.read(host.now, peer.conn, &mut [0; 10]);
        }
        assert_eq!(outcome, Err(told), "type {kind} code {code}");
        let conns = [peer.conn];
        host.end(&conns);
    }
}

#[test]
fn a_complaint_about_what_is_not_outstanding_is_not_remembered() {
    let mut host = Host::plain();
    let (peer, sent) = with_flight(&mut host, 2);
    let seq = sent[0].header.seq;
    for wrong in [seq + u32::MAX, seq + 2_801u32, seq + 0x8000_0000u32] {
        let quoted = quote(peer.at, PORT, wrong, 1_440);
        host.feed(&error(UNREACHABLE, 1, 0, &quoted));
    }
    assert_eq!(host.stack.counters().icmp_errors_ignored, 3);
    for _ in 0..40 {
        host.wait(Duration::from_secs(60));
        host.collect();
    }
    let outcome = host.stack.read(host.now, peer.conn, &mut [0; 10]);
    assert_eq!(outcome, Err(Error::TimedOut));
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn progress_makes_a_complaint_forgotten() {
    let mut host = Host::plain();
    let (mut peer, sent) = with_flight(&mut host, 2);
    host.feed(&about(&sent[0], UNREACHABLE, 1, 0));
    peer.take(&sent[..1]);
    host.send(&peer.segment(Flags::ACK));
    for _ in 0..40 {
        host.wait(Duration::from_secs(60));
        host.collect();
    }
    let outcome = host.stack.read(host.now, peer.conn, &mut [0; 10]);
    assert_eq!(outcome, Err(Error::TimedOut));
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn an_attempt_to_connect_ends_with_what_the_router_said() {
    for (kind, code, told) in [
        (UNREACHABLE, 0, Error::NetworkUnreachable),
        (UNREACHABLE, 1, Error::HostUnreachable),
        (UNREACHABLE, 2, Error::ProtocolUnreachable),
        (UNREACHABLE, 3, Error::ConnectionRefused),
        (UNREACHABLE, 5, Error::RouteFailed),
        (UNREACHABLE, 6, Error::NetworkUnreachable),
        (UNREACHABLE, 7, Error::HostUnknown),
        (UNREACHABLE, 8, Error::HostIsolated),
        (UNREACHABLE, 13, Error::HostUnreachable),
        (TIME_EXCEEDED, 0, Error::HostUnreachable),
        (PARAMETER_PROBLEM, 0, Error::HeaderRefused),
    ] {
        let mut host = Host::plain();
        let (conn, syn) = connect(&mut host, 40_000);
        // A guess at the sequence number is not enough.
        for wrong in [syn.header.seq + 1u32, syn.header.seq + u32::MAX, SeqNum(0)] {
            host.feed(&error(kind, code, 0, &quote(syn.to, 40_000, wrong, 60)));
        }
        assert_eq!(host.stack.is_connected(conn), Ok(false));
        host.feed(&about(&syn, kind, code, 0));
        let outcome = host.stack.is_connected(conn);
        assert_eq!(outcome, Err(told), "type {kind} code {code}");
        host.end(&[conn]);
    }
}

#[test]
fn an_attempt_to_connect_outlives_what_passes() {
    for (kind, code) in [(QUENCH, 0), (UNREACHABLE, 4), (UNREACHABLE, 16)] {
        let mut host = Host::plain();
        let (conn, syn) = connect(&mut host, 40_000);
        host.feed(&about(&syn, kind, code, 500));
        assert_eq!(host.stack.is_connected(conn), Ok(false), "type {kind}");
        host.wait(Duration::from_millis(1_100));
        assert_eq!(host.collect().len(), 1, "the SYN again");
        host.end(&[conn]);
    }
}

#[test]
fn a_syn_ack_that_cannot_be_delivered_frees_its_record_if_the_number_is_right() {
    let mut host = Host::plain();
    let answer = host.ask(&Craft::syn((PEER, 4_000))).remove(0);
    let wrong = quote(answer.to, PORT, answer.header.seq + 1u32, 60);
    host.feed(&error(UNREACHABLE, 1, 0, &wrong));
    host.feed(&about(&answer, UNREACHABLE, 3, 0));
    host.feed(&about(&answer, TIME_EXCEEDED, 0, 0));
    assert_eq!(host.stack.half_open(), 1);
    host.feed(&about(&answer, UNREACHABLE, 1, 0));
    assert_eq!(host.stack.half_open(), 0);
    host.end(&[]);
}

/// RFC 4821: the router that drops says nothing, and nothing but size is wrong.
#[test]
fn a_black_hole_is_found_stepped_round_and_probed_until_it_heals() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let mut carries = 1_300;
    let mut written = 0;
    let mut in_time = |host: &mut Host, peer: &mut Peer, carries: usize, rounds: usize| {
        for _ in 0..rounds {
            let data: Vec<u8> = (written..written + 5_000).map(|i: usize| i as u8).collect();
            if let Ok(n) = host.stack.write(host.now, peer.conn, &data) {
                written += n;
            }
            let arrived: Vec<Seen> = host
                .collect()
                .into_iter()
                .filter(|s| packet_len(s) <= carries)
                .collect();
            let before = peer.rcv;
            peer.take(&arrived);
            for _ in 0..arrived.len().min(4) {
                host.send(&peer.segment(Flags::ACK));
            }
            host.wait(Duration::from_millis(if peer.rcv == before {
                1_000
            } else {
                2_000
            }));
        }
        written
    };
    in_time(&mut host, &mut peer, carries, 40);
    assert!(host.stack.counters().black_holes >= 1);
    assert_eq!(host.stack.info(peer.conn).unwrap().mss, 1_024);
    // Probes find how much goes through, without being told.
    in_time(&mut host, &mut peer, carries, 1_300);
    let mss = host.stack.info(peer.conn).unwrap().mss;
    assert!((1_200..=1_260).contains(&mss), "{mss}");
    // And that it has healed.
    carries = 1_500;
    in_time(&mut host, &mut peer, carries, 1_300);
    assert_eq!(host.stack.info(peer.conn).unwrap().mss, 1_400);
    let probes = host.stack.counters().path_probes;
    assert!(probes < 30, "{probes} probes");
    let expected: Vec<u8> = (0..peer.got.len()).map(|i| i as u8).collect();
    assert!(peer.got == expected && peer.got.len() > 500_000);
    let conns = [peer.conn];
    host.end(&conns);
}

#[test]
fn a_black_hole_is_not_suspected_when_that_is_switched_off() {
    let mut host = Host::with(Config {
        mtu_probing: false,
        ..Config::default()
    });
    let (peer, _) = with_flight(&mut host, 1);
    for _ in 0..10 {
        host.wait(Duration::from_secs(20));
        for again in host.collect() {
            assert_eq!(again.payload.len(), 1_400);
        }
    }
    assert_eq!(host.stack.counters().black_holes, 0);
    let conns = [peer.conn];
    host.end(&conns);
}
