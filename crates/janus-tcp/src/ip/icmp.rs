//! IP packets for us that carry no TCP: pings are answered, ICMP errors go to the connection they speak of, everything
//! else has no receiver and its sender may be told. Hardware addresses are looked after in `control`.

use std::net::IpAddr;

use janus_wire::{icmpv4, ipv4, proto};

use crate::ip::Ip;
use crate::ip::icmp_errors::IcmpError;
use crate::ip::icmp_out::Report;

impl Ip<'_> {
    /// An IP packet for one of our addresses, whole, and neither TCP nor UDP. Returns an error
    /// about a segment of ours.
    pub(crate) fn control_packet(&mut self, packet: &[u8]) -> Option<IcmpError> {
        if packet.first().is_some_and(|byte| byte >> 4 == 6) {
            return self.control_packet_v6(packet);
        }
        let ip = ipv4::parse(packet).ok()?;
        if ip.proto == proto::ICMP {
            return self.icmpv4_arrives(&ip);
        }
        self.unknown_protocol(packet);
        None
    }

    /// Tells the sender of `packet` that its protocol is unknown here.
    pub(crate) fn unknown_protocol(&mut self, packet: &[u8]) {
        self.env.counters.dropped_protocol += 1;
        self.report(Report::Protocol, packet);
    }

    fn icmpv4_arrives(&mut self, ip: &ipv4::Ipv4<'_>) -> Option<IcmpError> {
        if !icmpv4::checksum_ok(ip.payload()) {
            self.env.counters.dropped_checksum += 1;
            return None;
        }
        let Ok(message) = icmpv4::parse(ip.payload()) else {
            self.env.counters.dropped_malformed += 1;
            return None;
        };
        if let icmpv4::Message::EchoRequest {
            ident,
            sequence,
            data,
        } = message
        {
            // RFC 1122 section 3.2.2.6: from the address that was asked, with all that was sent.
            let mut reply = core::mem::take(&mut self.host.answer);
            reply.resize(icmpv4::LEN + data.len(), 0);
            icmpv4::emit_echo_reply(&mut reply, ident, sequence, data);
            let ends = (IpAddr::V4(ip.dst), IpAddr::V4(ip.src));
            self.send_datagram(ends, proto::ICMP, &reply);
            self.host.answer = reply;
            return None;
        }
        if self.udp_blamed_v4(&message) {
            return None;
        }
        IcmpError::from_v4(&message)
    }
}
