//! IPv6 packets for us that carry no TCP (RFC 4443): pings are answered, neighbour messages go to `nd`, errors to the
//! connection they speak of, everything else has no receiver and its sender may be told.

use std::net::IpAddr;

use janus_wire::icmpv6::{self, Message};
use janus_wire::{Link, ipv6, proto};

use crate::ip::Ip;
use crate::ip::icmp_errors::IcmpError;
use crate::ip::nd::{self, Ends};

impl Ip<'_> {
    /// A packet from where one may come to where we listen, whole, and neither TCP nor UDP. Returns an error
    /// about a segment of ours.
    pub(crate) fn control_packet_v6(&mut self, packet: &[u8]) -> Option<IcmpError> {
        let ip = ipv6::parse(packet).ok()?;
        if ip.proto == proto::ICMPV6 {
            return self.icmpv6_arrives(&ip);
        }
        self.unknown_protocol(packet);
        None
    }

    fn icmpv6_arrives(&mut self, ip: &ipv6::Ipv6<'_>) -> Option<IcmpError> {
        if !icmpv6::checksum_ok(ip.src, ip.dst, ip.payload()) {
            self.env.counters.dropped_checksum += 1;
            return None;
        }
        let Ok(message) = icmpv6::parse(ip.payload()) else {
            self.env.counters.dropped_malformed += 1;
            return None;
        };
        match message {
            _ if message.is_neighbour() => self.neighbor_message(ip, &message),
            // A ping to a group is not answered: the answers of all would meet at whoever was named as its sender.
            Message::EchoRequest {
                ident,
                sequence,
                data,
            } if !ip.dst.is_multicast() && !ip.src.is_unspecified() => {
                // Section 4.2: from the address that was asked, with all that was sent.
                let mut reply = core::mem::take(&mut self.host.answer);
                reply.resize(icmpv6::LEN + data.len(), 0);
                icmpv6::emit_echo_reply(&mut reply, ip.dst, ip.src, ident, sequence, data);
                let ends = (IpAddr::V6(ip.dst), IpAddr::V6(ip.src));
                self.send_datagram(ends, proto::ICMPV6, &reply);
                self.host.answer = reply;
            }
            // An error about a segment of ours is sent to our own address.
            _ if ip.dst.is_multicast() => {}
            _ if self.udp_blamed_v6(&message) => {}
            _ => return IcmpError::from_v6(&message),
        }
        None
    }

    fn neighbor_message(&mut self, ip: &ipv6::Ipv6<'_>, message: &Message<'_>) {
        // The second byte is the code; neighbour messages have none but zero.
        let code = ip.payload().get(1).copied();
        let from_link =
            ip.hop_limit == nd::HOP_LIMIT && self.rules.interface().link == Link::Ethernet;
        if !from_link || code != Some(0) {
            self.env.counters.dropped_malformed += 1;
            return;
        }
        let ends = Ends {
            src: ip.src,
            dst: ip.dst,
        };
        match *message {
            Message::NeighbourSolicitation { target, source } => {
                self.solicited(ends, target, source);
            }
            Message::NeighbourAdvertisement { target, mac, flags } => {
                self.advertised(ends, target, mac, flags);
            }
            _ => {}
        }
    }
}
