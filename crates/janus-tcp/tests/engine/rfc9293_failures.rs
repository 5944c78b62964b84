//! What becomes of a connection whose peer, or the way to it, is dead: RFC 9293 section 3.8.3, advice to IP at R1.

use core::time::Duration;
use std::net::Ipv4Addr;

use crate::support::{HERE, Host, Peer, ROUTER, own_address};
use janus_tcp::{Config, Interface};
use janus_wire::tcp::Flags;
use janus_wire::{Link, MacAddr, arp, ethernet};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn arp_frame(op: arp::Op) -> Vec<u8> {
    let packet = arp::Packet {
        op,
        sender_mac: ROUTER,
        sender_ip: GATEWAY,
        target_mac: MAC,
        target_ip: HERE,
    };
    let header = ethernet::Header {
        dst: MAC,
        src: ROUTER,
        ethertype: ethernet::ethertype::ARP,
    };
    let mut frame = vec![0; 60];
    let link = header.emit(&mut frame);
    packet.emit(&mut frame[link..]);
    frame
}

/// On an Ethernet whose gateway has just said where it is.
fn host() -> Host {
    let interface = Interface {
        link: Link::Ethernet,
        mac: MAC,
        gateway: Some(GATEWAY),
        ..own_address()
    };
    let mut host = Host::new(Config::default(), interface, 1_024);
    host.feed_frame(&arp_frame(arp::Op::Request));
    host.collect();
    host
}

/// What goes out now: questions for the gateway, and other frames.
fn frames(host: &mut Host) -> (usize, usize) {
    let mut out = Vec::new();
    host.stack.transmit(host.now, &mut out, 1_000);
    let (mut questions, mut others) = (0, 0);
    for frame in &out {
        let is_arp = frame.data()[12..14] == ethernet::ethertype::ARP.to_be_bytes();
        questions += usize::from(is_arp);
        others += usize::from(!is_arp);
    }
    host.take_back(out);
    (questions, others)
}

fn next_timeout(host: &mut Host) {
    let timeouts = host.stack.counters().timeouts;
    while host.stack.counters().timeouts == timeouts {
        host.now = host.now.max(host.stack.next_deadline().expect("a timer"));
        host.stack.advance(host.now);
    }
}

/// MUST-20 and SHLD-10: after three timeouts in a row the gateway is asked whether it is still there; before, and while it
/// answers, it is not; and the advice of many connections is one question.
#[test]
fn ip_is_told_when_three_repeats_brought_nothing() {
    let mut host = host();
    let peers: Vec<Peer> = (0..20).map(|i| Peer::open(&mut host, 4_000 + i)).collect();
    host.wait(Duration::from_secs(10));
    for peer in &peers {
        host.stack
            .write(host.now, peer.conn, b"anybody there?")
            .expect("room");
    }
    assert_eq!(frames(&mut host), (0, 20));
    for _ in 0..2 {
        next_timeout(&mut host);
        assert_eq!(frames(&mut host), (0, 20));
    }
    next_timeout(&mut host);
    let (questions, others) = frames(&mut host);
    assert_eq!((questions, others), (1, 20), "asked, and still used");
    // SHLD-9: whoever looks sees that there is trouble, long before the end.
    let info = host.stack.info(peers[0].conn).expect("a connection");
    assert_eq!((info.retries, info.backoff), (3, 3));
    // It is there, and the peers are after all.
    host.feed_frame(&arp_frame(arp::Op::Reply));
    for peer in &peers {
        let mut ack = peer.segment(Flags::ACK);
        ack.ack += 14u32;
        host.send(&ack);
    }
    host.wait(Duration::from_secs(20));
    assert_eq!(frames(&mut host), (0, 0));
    assert_eq!(host.stack.counters().dropped_no_neighbor, 0);
    host.end(&peers.iter().map(|p| p.conn).collect::<Vec<_>>());
}

/// A gateway that does not answer is forgotten and looked for anew, wherever it is then.
#[test]
fn a_gateway_that_moved_is_found() {
    let mut host = host();
    let mut peer = Peer::open(&mut host, 4_000);
    host.wait(Duration::from_secs(10));
    host.stack
        .write(host.now, peer.conn, b"data")
        .expect("room");
    let mut asked = 0;
    for _ in 0..8 {
        let (questions, _) = frames(&mut host);
        asked += questions;
        next_timeout(&mut host);
    }
    assert!(asked >= 3, "{asked} questions");
    host.feed_frame(&arp_frame(arp::Op::Reply));
    next_timeout(&mut host);
    peer.listen(&mut host, true);
    assert_eq!(peer.got, b"data");
    host.end(&[peer.conn]);
}
