//! Attacks from the local network: frames for everybody, floods from neighbours that do not exist.

mod support;

use core::time::Duration;
use std::net::Ipv4Addr;

use janus_tcp::{Config, Interface, IpCidr};
use janus_wire::{Link, MacAddr, arp, ethernet};
use support::{Craft, HERE, Host, Peer, ROUTER, own_address};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// On an Ethernet whose router is known, with a large network beside ours.
fn host() -> Host {
    let mut interface = Interface {
        link: Link::Ethernet,
        mac: MAC,
        gateway: Some(GATEWAY),
        ..own_address()
    };
    interface
        .addresses
        .push(IpCidr::new(Ipv4Addr::new(198, 18, 0, 2), 15));
    let mut host = Host::new(Config::default(), interface, 8_192);
    introduce_router(&mut host);
    host
}

fn introduce_router(host: &mut Host) {
    let request = arp::Packet {
        op: arp::Op::Request,
        sender_mac: ROUTER,
        sender_ip: GATEWAY,
        target_mac: MacAddr::ZERO,
        target_ip: HERE,
    };
    let header = ethernet::Header {
        dst: MacAddr::BROADCAST,
        src: ROUTER,
        ethertype: ethernet::ethertype::ARP,
    };
    let mut frame = vec![0; 60];
    let link = header.emit(&mut frame);
    request.emit(&mut frame[link..]);
    host.feed_frame(&frame);
    host.collect();
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
    frame.extend(Craft::syn((support::PEER, 4_000)).packet());
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
