//! Where frames go on a link with several IPv4 neighbours, of which the last is kept at hand: always to the address that its
//! owner named last.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};

use crate::support::Host;
use janus_mem::Frame;
use janus_tcp::{Config, Interface, IpCidr};
use janus_wire::{Link, MacAddr, arp, ethernet};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

fn neighbour(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, last])
}

fn host() -> Host {
    let interface = Interface {
        link: Link::Ethernet,
        mac: MAC,
        any_local: false,
        addresses: vec![IpCidr::new(OURS, 24)],
        gateway: Some(GATEWAY),
        ..Interface::ip(1_500)
    };
    Host::new(Config::default(), interface, 8_192)
}

/// `ip` tells us its hardware address.
fn says(host: &mut Host, ip: Ipv4Addr, mac: MacAddr) {
    let packet = arp::Packet {
        op: arp::Op::Reply,
        sender_mac: mac,
        sender_ip: ip,
        target_mac: MAC,
        target_ip: OURS,
    };
    let mut bytes = vec![0; ethernet::LEN + arp::LEN];
    let header = ethernet::Header {
        dst: MAC,
        src: mac,
        ethertype: ethernet::ethertype::ARP,
    };
    header.emit(&mut bytes);
    packet.emit(&mut bytes[ethernet::LEN..]);
    host.feed_frame(&bytes);
}

/// The headers of the frames that the stack sends.
fn sent(host: &mut Host) -> Vec<ethernet::Header> {
    let mut out: Vec<Frame> = Vec::new();
    host.stack.transmit(host.now, &mut out, 1_000);
    let header = |frame: &Frame| ethernet::Header::parse(frame.data()).expect("a frame").0;
    let headers = out.iter().map(header).collect();
    host.take_back(out);
    headers
}

/// Opens another connection to `to`; where its SYN goes, if it goes, and how many questions are asked.
fn syn_goes_to(host: &mut Host, to: Ipv4Addr) -> (Option<MacAddr>, usize) {
    let port = 5_000 + host.stack.connections() as u16;
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let to = SocketAddr::from((to, 80));
    host.stack.connect(host.now, any, to).expect("a connection");
    let sent = sent(host);
    let ip = |header: &&ethernet::Header| header.ethertype == ethernet::ethertype::IPV4;
    assert!(sent.iter().all(|header| header.src == MAC));
    let questions = sent.iter().filter(|header| !ip(header)).count();
    (sent.iter().find(ip).map(|header| header.dst), questions)
}

#[test]
fn frames_go_where_their_owner_said_last() {
    let mut host = host();
    for last in [9, 10] {
        assert_eq!(syn_goes_to(&mut host, neighbour(last)), (None, 1));
        says(&mut host, neighbour(last), mac(last));
        assert_eq!(sent(&mut host)[0].dst, mac(last), "it has waited");
    }
    // One after the other, and each twice in a row.
    for last in [9, 9, 10, 10, 9, 10] {
        let went = syn_goes_to(&mut host, neighbour(last));
        assert_eq!(went, (Some(mac(last)), 0));
    }
    // Its card was changed.
    says(&mut host, neighbour(10), mac(77));
    assert_eq!(syn_goes_to(&mut host, neighbour(10)), (Some(mac(77)), 0));
    assert_eq!(syn_goes_to(&mut host, neighbour(9)), (Some(mac(9)), 0));
    // What is far goes to the gateway, and what is near no longer.
    says(&mut host, GATEWAY, mac(1));
    syn_goes_to(&mut host, FAR);
    says(&mut host, GATEWAY, mac(1));
    assert_eq!(syn_goes_to(&mut host, FAR), (Some(mac(1)), 0));
    assert_eq!(syn_goes_to(&mut host, neighbour(9)), (Some(mac(9)), 0));
    assert_eq!(syn_goes_to(&mut host, FAR), (Some(mac(1)), 0));
}

#[test]
fn what_is_at_hand_grows_old_too() {
    let mut host = host();
    syn_goes_to(&mut host, neighbour(9));
    says(&mut host, neighbour(9), mac(9));
    sent(&mut host);
    host.wait(Duration::from_secs(59));
    sent(&mut host);
    assert_eq!(syn_goes_to(&mut host, neighbour(9)), (Some(mac(9)), 0));
    host.wait(Duration::from_secs(2));
    sent(&mut host);
    let mut questions = 0;
    for _ in 0..6 {
        host.wait(Duration::from_secs(2));
        let (went, asked) = syn_goes_to(&mut host, neighbour(9));
        questions += asked;
        if went.is_none() {
            break;
        }
        assert_eq!(went, Some(mac(9)), "used until it is given up");
    }
    assert!(questions >= 3, "{questions} questions");
    assert_eq!(syn_goes_to(&mut host, neighbour(9)).0, None, "given up");
}

/// Where nothing but datagrams goes, too: whoever has moved is found again.
#[test]
fn datagrams_ask_again_for_who_was_not_heard_of() {
    let mut host = host();
    let socket = host.stack.udp_bind(SocketAddr::from((OURS, 53)));
    let socket = socket.expect("a free port");
    let goes_to = |host: &mut Host| {
        let to = SocketAddr::from((neighbour(9), 4_000));
        (host.stack.udp_send(host.now, socket, Some(to), b"there")).expect("room");
        let sent = sent(host);
        let is_ip = |header: &&ethernet::Header| header.ethertype == ethernet::ethertype::IPV4;
        let datagram = sent.iter().find(is_ip).map(|header| header.dst);
        (datagram, sent.len() - usize::from(datagram.is_some()))
    };
    assert_eq!(goes_to(&mut host), (None, 1));
    says(&mut host, neighbour(9), mac(9));
    assert_eq!(sent(&mut host).len(), 1, "it has waited");
    host.wait(Duration::from_secs(59));
    assert_eq!(goes_to(&mut host), (Some(mac(9)), 0));
    host.wait(Duration::from_secs(2));
    assert_eq!(goes_to(&mut host), (Some(mac(9)), 1), "used, and asked for");
    for _ in 0..3 {
        host.wait(Duration::from_secs(2));
        assert_eq!(goes_to(&mut host).1, 1);
    }
    assert_eq!(goes_to(&mut host).0, None, "given up");
    says(&mut host, neighbour(9), mac(77));
    assert_eq!(sent(&mut host)[0].dst, mac(77));
}
