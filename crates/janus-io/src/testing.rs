//! Frames for the tests of this crate. Compiled for tests only.

pub(crate) mod stream;

use std::net::Ipv4Addr;

use janus_csb::{Balancer, Limits, Ring};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::{
    FlowNames, Link, MICROSOFT_KEY, MacAddr, SeqNum, Toeplitz, arp, ethernet, ipv4, proto, tcp,
};

use crate::core::steer::Steerer;

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

pub(crate) fn pool(buffers: u32) -> Pool {
    Depot::new(buffers, &Growth::Inline).unwrap().pool()
}

/// A TCP segment whose sequence number is `mark`, from (`CLIENT`, port) to (`SERVER`, port) or back.
pub(crate) fn segment(
    link: Link,
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
    mark: u32,
    payload: usize,
) -> Vec<u8> {
    let mut bytes = ethernet_header(link, ethernet::ethertype::IPV4);
    let ip_at = bytes.len();
    bytes.resize(ip_at + ipv4::LEN + tcp::LEN + payload, 0xa5);
    let ip = ipv4::Repr {
        src: from.0,
        dst: to.0,
        proto: proto::TCP,
        ..repr(tcp::LEN + payload)
    };
    ipv4::emit(&mut bytes[ip_at..], &ip);
    let header = tcp::Header {
        src_port: from.1,
        dst_port: to.1,
        seq: SeqNum(mark),
        ack: SeqNum(0),
        flags: tcp::Flags::ACK,
        window: 1000,
        urgent: 0,
        header_len: tcp::LEN,
    };
    tcp::emit(
        &mut bytes[ip_at + ipv4::LEN..],
        &header,
        &tcp::options::Options::NONE,
    );
    bytes
}

fn repr(payload_len: usize) -> ipv4::Repr {
    ipv4::Repr {
        src: CLIENT,
        dst: SERVER,
        proto: 0,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
        payload_len: payload_len as u16,
    }
}

fn ethernet_header(link: Link, ethertype: u16) -> Vec<u8> {
    match link {
        Link::Ip => Vec::new(),
        Link::Ethernet => ethernet::Header {
            dst: MacAddr::BROADCAST,
            src: MacAddr([2, 0, 0, 0, 0, 9]),
            ethertype,
        }
        .to_bytes()
        .to_vec(),
    }
}

/// From the client's port to the server's port 80.
pub(crate) fn request(link: Link, port: u16, mark: u32) -> Vec<u8> {
    segment(link, (CLIENT, port), (SERVER, 80), mark, 0)
}

pub(crate) fn arp(op: arp::Op) -> Vec<u8> {
    let mut bytes = ethernet_header(Link::Ethernet, ethernet::ethertype::ARP);
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let packet = arp::Packet {
        op,
        sender_mac: mac,
        sender_ip: CLIENT,
        target_mac: MacAddr::ZERO,
        target_ip: SERVER,
    };
    let at = bytes.len();
    bytes.resize(at + arp::LEN, 0);
    packet.emit(&mut bytes[at..]);
    bytes
}

/// The bytes in a buffer of the pool.
pub(crate) fn frame(pool: &mut Pool, bytes: &[u8]) -> Frame {
    let mut frame = Frame::new(pool.alloc().expect("a buffer"), bytes.len() as u16);
    frame.data_mut().copy_from_slice(bytes);
    frame
}

/// The mark a segment was made with.
pub(crate) fn mark(bytes: &[u8], link: Link) -> u32 {
    let ip = ipv4::parse(&bytes[link.header_len()..]).unwrap();
    tcp::parse(ip.payload()).unwrap().0.seq.0
}

/// A balancer over `shards` shards.
pub(crate) fn balancer(shards: usize) -> Balancer {
    Balancer::new(Ring::uniform(shards, 64, 1), Limits::default())
}

/// A steerer of this balancer.
pub(crate) fn steerer_of(balancer: &mut Balancer, link: Link) -> Steerer {
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    Steerer::new(toeplitz, FlowNames::new([1, 2]), balancer.io_end(), link)
}

/// A steerer over `shards` shards, and the writer of its steering.
pub(crate) fn steerer(shards: usize, link: Link) -> (Balancer, Steerer) {
    let mut balancer = balancer(shards);
    let steerer = steerer_of(&mut balancer, link);
    (balancer, steerer)
}
