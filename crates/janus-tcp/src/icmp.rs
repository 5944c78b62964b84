//! IP packets for us that carry no TCP: pings are answered, ICMP errors go to the connection they speak of, everything
//! else is nobody's and its sender may be told. Hardware addresses are looked after in `control`.

use std::net::IpAddr;

use janus_wire::{FlowKey, checksum, icmpv4, ipv4, proto};

use crate::icmp_errors::IcmpError;
use crate::icmp_out::Report;
use crate::stack::Stack;
use crate::time::Instant;

/// Bytes of a UDP header, and where the checksum stands in it.
pub(crate) const UDP_HEADER: usize = 8;
pub(crate) const UDP_CHECKSUM_AT: usize = 6;

impl Stack {
    /// An IP packet for one of our addresses, whole and no TCP. Gives the flow that an error
    /// speaks of, when that is not here.
    pub(crate) fn control_packet(&mut self, packet: &[u8], now: Instant) -> Option<FlowKey> {
        if packet.first().is_some_and(|byte| byte >> 4 == 6) {
            return self.control_packet_v6(packet, now);
        }
        let ip = ipv4::parse(packet).ok()?;
        match ip.proto {
            proto::ICMP => return self.icmpv4_arrives(&ip, now),
            proto::UDP if udp_is_sound(&ip) => self.is_nobodys(Some(Report::Port), packet, now),
            proto::UDP => self.is_nobodys(None, packet, now),
            _ => self.is_nobodys(Some(Report::Protocol), packet, now),
        }
        None
    }

    /// A packet that nobody here takes; its sender is told by `report`.
    pub(crate) fn is_nobodys(&mut self, report: Option<Report>, packet: &[u8], now: Instant) {
        self.counters.dropped_protocol += 1;
        if let Some(report) = report {
            self.report(report, packet, now);
        }
    }

    fn icmpv4_arrives(&mut self, ip: &ipv4::Ipv4<'_>, now: Instant) -> Option<FlowKey> {
        if !icmpv4::checksum_ok(ip.payload()) {
            self.counters.dropped_checksum += 1;
            return None;
        }
        let message = icmpv4::parse(ip.payload()).ok()?;
        if let icmpv4::Message::EchoRequest {
            ident,
            sequence,
            data,
        } = message
        {
            // RFC 1122 section 3.2.2.6: from the address that was asked, with all that was sent.
            let mut reply = core::mem::take(&mut self.answer);
            reply.resize(icmpv4::LEN + data.len(), 0);
            icmpv4::emit_echo_reply(&mut reply, ident, sequence, data);
            let ends = (IpAddr::V4(ip.dst), IpAddr::V4(ip.src));
            self.send_datagram(ends, proto::ICMP, &reply);
            self.answer = reply;
            return None;
        }
        if self.udp_blamed_v4(&message, now) {
            return None;
        }
        let error = IcmpError::from_v4(&message)?;
        let known = self.icmp_error_arrives(&error, now);
        (!known).then_some(error.key)
    }
}

/// RFC 768: the checksum holds, or was left out.
fn udp_is_sound(ip: &ipv4::Ipv4<'_>) -> bool {
    let datagram = ip.payload();
    if datagram.len() < UDP_HEADER {
        return false;
    }
    let left_out = datagram[UDP_CHECKSUM_AT..UDP_HEADER] == [0, 0];
    left_out || {
        let pseudo = checksum::pseudo_v4(ip.src, ip.dst, proto::UDP, datagram.len() as u16);
        checksum::finish(checksum::sum(datagram, pseudo)) == 0
    }
}
