//! Attacks from the local network: frames for everybody, floods from neighbours that do not exist.

use core::time::Duration;
use std::net::Ipv4Addr;

use crate::support::family::{is_v6, over_both, v6_of};
use crate::support::{Craft, HERE, Host, Peer, ROUTER, own_address};
use janus_mem::Frame;
use janus_tcp::{Config, Interface, IpCidr};
use janus_wire::tcp::Flags;
use janus_wire::{Link, MacAddr, SeqNum, arp, ethernet, icmpv6, ipv6, proto};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// On an Ethernet whose router is known, with a large network beside ours.
fn host() -> Host {
    let mut interface = Interface {
        link: Link::Ethernet,
        mac: MAC,
        gateway: Some(GATEWAY),
        gateway_v6: Some(v6_of(GATEWAY)),
        ..own_address()
    };
    let near = Ipv4Addr::new(198, 18, 0, 2);
    interface.addresses.push(IpCidr::new(near, 15));
    interface.addresses.push(IpCidr::new(v6_of(near), 111));
    let mut host = Host::new(Config::default(), interface, 8_192);
    asks_for_us(&mut host, GATEWAY, ROUTER);
    host.collect();
    host
}

/// A neighbour asks for our address, and says where it is itself.
fn asks_for_us(host: &mut Host, neighbour: Ipv4Addr, mac: MacAddr) {
    let mut frame = vec![0; 128];
    let mut header = ethernet::Header {
        dst: MacAddr::BROADCAST,
        src: mac,
        ethertype: ethernet::ethertype::ARP,
    };
    if !is_v6() {
        let request = arp::Packet {
            op: arp::Op::Request,
            sender_mac: mac,
            sender_ip: neighbour,
            target_mac: MacAddr::ZERO,
            target_ip: HERE,
        };
        let link = header.emit(&mut frame);
        request.emit(&mut frame[link..]);
        frame.truncate(60);
        return host.feed_frame(&frame);
    }
    let (src, target) = (v6_of(neighbour), v6_of(HERE));
    let dst = icmpv6::solicited_node(target);
    header.dst = icmpv6::multicast_mac(dst);
    header.ethertype = ethernet::ethertype::IPV6;
    let link = header.emit(&mut frame);
    let at = link + ipv6::LEN;
    let len = icmpv6::emit_solicitation(&mut frame[at..], src, dst, target, mac);
    let repr = ipv6::Repr {
        src,
        dst,
        proto: proto::ICMPV6,
        payload_len: len as u16,
        hop_limit: 255,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut frame[link..], &repr);
    frame.truncate(at + len);
    host.feed_frame(&frame);
}

/// The frames that the stack sends.
fn frames(host: &mut Host) -> Vec<Vec<u8>> {
    let mut out: Vec<Frame> = Vec::new();
    host.stack.transmit(host.now, &mut out, 100_000);
    let frames = out.iter().map(|frame| frame.data().to_vec()).collect();
    host.take_back(out);
    frames
}

/// Frames that ask everybody for somebody.
fn questions(frames: &[Vec<u8>]) -> usize {
    frames.iter().filter(|frame| frame[0] & 1 == 1).count()
}

#[test]
fn a_segment_in_a_frame_for_everybody_is_dropped() {
    let mut host = host();
    let mut frame = vec![0; ethernet::LEN];
    let header = ethernet::Header {
        dst: MacAddr::BROADCAST,
        src: ROUTER,
        ethertype: ethernet::ethertype::IPV4,
    };
    header.emit(&mut frame);
    frame.extend(Craft::syn((crate::support::PEER, 4_000)).packet());
    host.feed_frame(&frame);
    assert_eq!(host.stack.half_open(), 0);
    assert_eq!(host.stack.counters().dropped_address, 1);
    host.end(&[]);
}

#[test]
fn a_flood_from_neighbours_nobody_has_does_not_make_us_forget_the_router() {
    let mut host = host();
    let mut victim = Peer::open(&mut host, 4_000);
    for i in 0..20_000u32 {
        let source = Ipv4Addr::from_bits(0xc612_1000 + i);
        host.send(&Craft::syn((source, 4_000)));
        if i % 64 == 0 {
            host.collect();
        }
        if i % 1_000 == 0 {
            victim.expect_unharmed(&mut host);
        }
    }
    host.collect();
    victim.expect_unharmed(&mut host);
    host.end(&[victim.conn]);
}

/// Connections go on through the router, which is the configured gateway, and with a neighbour that packets go to: none of
/// their packets waits, and nobody is asked for.
fn thirty_thousand_neighbours() {
    let mut host = host();
    let near = (Ipv4Addr::new(198, 18, 0, 77), MacAddr([2, 0, 0, 0, 7, 7]));
    asks_for_us(&mut host, near.0, near.1);
    frames(&mut host);
    let mut syn = Craft::syn((near.0, 4_000));
    syn.seq = SeqNum(u32::MAX - 500);
    let victims = [
        Peer::open(&mut host, 4_000),
        Peer::open_with(&mut host, &syn),
    ];
    let answered = host.stack.counters().frames_out;
    let mut expected = victims.each_ref().map(|victim| victim.rcv);
    for i in 0..30_000u32 {
        let [_, b, c, d] = i.to_be_bytes();
        let mac = MacAddr([2, 0, 1, b, c, d]);
        asks_for_us(&mut host, Ipv4Addr::from_bits(0xc612_1000 + i), mac);
        if i % 500 != 499 {
            continue;
        }
        let answers = frames(&mut host);
        assert_eq!((answers.len(), questions(&answers)), (500, 0));
        for (victim, expected) in victims.iter().zip(&mut expected) {
            let wrote = host.stack.write(host.now, victim.conn, b"unharmed");
            assert_eq!(wrote, Ok(8));
            let sent = frames(&mut host);
            let to = if victim.at.0 == near.0 {
                near.1
            } else {
                ROUTER
            };
            assert_eq!(sent.len(), 1, "after {i} neighbours");
            assert_eq!(sent[0][..6], to.0, "after {i} neighbours");
            assert!(sent[0].ends_with(b"unharmed"));
            *expected += 8u32;
            let mut ack = victim.segment(Flags::ACK);
            ack.ack = *expected;
            host.send(&ack);
        }
        host.wait(Duration::from_millis(500));
    }
    let counters = host.stack.counters();
    assert_eq!(counters.dropped_no_neighbor, 0);
    assert_eq!(counters.frames_out - answered, 30_000 + 60 * 2);
    let conns = victims.map(|victim| victim.conn);
    host.end(&conns);
}

#[test]
fn a_flood_of_neighbours_that_ask_for_us_pushes_out_nobody_in_use() {
    over_both(thirty_thousand_neighbours);
}

/// Frames that wait for a neighbour are given up in time.
#[test]
fn a_lost_question_for_a_neighbour_is_put_again() {
    let mut host = host();
    let neighbour = Ipv4Addr::new(198, 18, 0, 9);
    let syn = Craft::syn((neighbour, 4_000));
    assert!(host.ask(&syn).is_empty(), "the neighbour is not known");
    let mut questions = 0;
    for _ in 0..5 {
        host.wait(Duration::from_secs(1));
        let before = host.stack.counters().frames_out;
        host.collect();
        questions += host.stack.counters().frames_out - before;
    }
    assert!(questions >= 2, "{questions} questions");
    assert!(host.stack.counters().dropped_no_neighbor > 0);
    host.end(&[]);
}
