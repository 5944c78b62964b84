//! The client's frames: messages in UDP, IPv4 and Ethernet, ARP probes, and a parser that finds those meant for the client.

use std::net::Ipv4Addr;

use janus_wire::dhcp::{self, CLIENT_PORT, Kind, Op, Repr, SERVER_PORT, option};
use janus_wire::{MacAddr, arp, ethernet, ipv4, proto, udp};

/// Bytes of the longest frame that is written, with all its headers.
const FRAME_MAX: usize = 600;
/// Bytes of the longest message that is accepted, as servers are told: all that fits an Ethernet packet.
const MESSAGE_MAX: u16 = 1472;
/// Parameters requested from servers.
const WANTED: [u8; 8] = [
    option::MASK,
    option::ROUTES,
    option::ROUTERS,
    option::NAME_SERVERS,
    option::MTU,
    option::LEASE,
    option::RENEW,
    option::REBIND,
];
const TTL: u8 = 64;

/// A message to send.
pub(super) struct Outgoing {
    kind: Kind,
    xid: u32,
    secs: u16,
    mac: MacAddr,
    client: Ipv4Addr,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
}

impl Outgoing {
    pub(super) fn new(kind: Kind, xid: u32, secs: u16, mac: MacAddr) -> Outgoing {
        Outgoing {
            kind,
            xid,
            secs,
            mac,
            client: Ipv4Addr::UNSPECIFIED,
            requested: None,
            server: None,
        }
    }

    /// Sets the requested address, which is not ours yet.
    pub(super) fn asks_for(mut self, address: Ipv4Addr) -> Outgoing {
        self.requested = Some(address);
        self
    }

    /// Sets the server identifier.
    pub(super) fn of(mut self, server: Ipv4Addr) -> Outgoing {
        self.server = Some(server);
        self
    }

    /// Sets the source to an address that is ours.
    pub(super) fn from(mut self, address: Ipv4Addr) -> Outgoing {
        self.client = address;
        self
    }

    /// Returns the frame to all hosts.
    pub(super) fn broadcast(&self) -> Vec<u8> {
        self.frame(Ipv4Addr::BROADCAST, MacAddr::BROADCAST)
    }

    /// Returns the frame to one server by way of one neighbor.
    pub(super) fn to(&self, server: Ipv4Addr, via: MacAddr) -> Vec<u8> {
        self.frame(server, via)
    }

    fn message(&self, out: &mut [u8]) -> usize {
        let mut identity = [0; 7];
        identity[0] = 1;
        identity[1..].copy_from_slice(&self.mac.0);
        let requested = self.requested.map(|address| address.octets());
        let server = self.server.map(|address| address.octets());
        let longest = MESSAGE_MAX.to_be_bytes();
        let mut options: Vec<(u8, &[u8])> = vec![(option::CLIENT, &identity)];
        options.extend(
            requested
                .iter()
                .map(|octets| (option::REQUESTED, &octets[..])),
        );
        options.extend(server.iter().map(|octets| (option::SERVER, &octets[..])));
        if ![Kind::Decline, Kind::Release].contains(&self.kind) {
            options.extend([(option::WANTED, &WANTED[..]), (option::LONGEST, &longest)]);
        }
        let repr = Repr {
            op: Op::Request,
            kind: self.kind,
            xid: self.xid,
            secs: self.secs,
            // Until the address is ours, the stack ignores packets to it; the client reads the frame all the same, as it is sent to our
            // link address.
            broadcast: false,
            client: self.client,
            yours: Ipv4Addr::UNSPECIFIED,
            mac: self.mac,
            options: &options,
        };
        dhcp::emit(out, &repr).expect("a message of a few options fits")
    }

    fn frame(&self, dst: Ipv4Addr, via: MacAddr) -> Vec<u8> {
        const IP_AT: usize = ethernet::LEN;
        const UDP_AT: usize = IP_AT + ipv4::LEN;
        let mut bytes = vec![0; FRAME_MAX];
        let len = self.message(&mut bytes[UDP_AT + udp::LEN..]);
        let header = ethernet::Header {
            dst: via,
            src: self.mac,
            ethertype: ethernet::ethertype::IPV4,
        };
        header.emit(&mut bytes);
        let ip = ipv4::Repr {
            src: self.client,
            dst,
            proto: proto::UDP,
            payload_len: (udp::LEN + len) as u16,
            ttl: TTL,
            tos: 0,
            // With DF the packet needs no identification (RFC 6864); every link takes its size.
            id: 0,
            dont_fragment: true,
        };
        ipv4::emit(&mut bytes[IP_AT..], &ip);
        udp::emit(&mut bytes[UDP_AT..], CLIENT_PORT, SERVER_PORT, len);
        bytes.truncate(UDP_AT + udp::LEN + len);
        udp::fill_checksum_v4(&mut bytes[UDP_AT..], ip.src, dst);
        bytes
    }
}

/// Makes an ARP probe: asks who has the address, without claiming it (RFC 5227 section 2.1.1).
pub(super) fn probe(mac: MacAddr, address: Ipv4Addr) -> Vec<u8> {
    ask(mac, Ipv4Addr::UNSPECIFIED, address)
}

/// Makes an ARP announcement of an address that is ours (RFC 5227 section 2.3).
pub(super) fn announcement(mac: MacAddr, address: Ipv4Addr) -> Vec<u8> {
    ask(mac, address, address)
}

fn ask(mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::LEN + arp::LEN];
    let header = ethernet::Header {
        dst: MacAddr::BROADCAST,
        src: mac,
        ethertype: ethernet::ethertype::ARP,
    };
    let at = header.emit(&mut bytes);
    let packet = arp::Packet {
        op: arp::Op::Request,
        sender_mac: mac,
        sender_ip,
        target_mac: MacAddr::ZERO,
        target_ip,
    };
    packet.emit(&mut bytes[at..]);
    bytes
}

/// A frame for the client.
pub(super) enum Heard<'a> {
    Arp(arp::Packet),
    /// A DHCP message, and the neighbor it came from.
    Dhcp(&'a [u8], MacAddr),
}

pub(super) fn read(frame: &[u8], checked: bool) -> Option<Heard<'_>> {
    let (header, packet) = ethernet::Header::parse(frame).ok()?;
    match header.ethertype {
        ethernet::ethertype::ARP => arp::Packet::parse(packet).ok().map(Heard::Arp),
        ethernet::ethertype::IPV4 => {
            let ip = ipv4::parse(packet).ok()?;
            if ip.proto != proto::UDP || ip.is_fragment() || !(checked || ip.checksum_ok()) {
                return None;
            }
            let datagram = udp::parse(ip.payload()).ok()?;
            let for_us = (datagram.src_port, datagram.dst_port) == (SERVER_PORT, CLIENT_PORT);
            let sound = checked || datagram.checksum_ok_v4(ip.src, ip.dst);
            (for_us && sound).then_some(Heard::Dhcp(datagram.payload(), header.src))
        }
        _ => None,
    }
}
