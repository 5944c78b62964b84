//! Packets that are neither data nor a connection's, and the hardware addresses of neighbours: ARP. Off the fast path.

use std::net::{IpAddr, Ipv4Addr};

use janus_mem::{Frame, HEADROOM};
use janus_wire::{Link, MacAddr, arp, ethernet};

use crate::ip::Ip;
use crate::ip::icmp_errors::IcmpError;

impl Ip<'_> {
    /// A frame that is neither a TCP segment nor a UDP datagram.
    /// Returns the error about a segment of ours that it brings.
    pub(crate) fn control_arrives(&mut self, frame: Frame) -> Option<(IcmpError, Frame)> {
        let packet = match self.rules.interface().link {
            Link::Ip => frame.data(),
            Link::Ethernet => match ethernet::Header::parse(frame.data()) {
                Ok((header, body)) if header.ethertype == ethernet::ethertype::ARP => {
                    let parsed = arp::Packet::parse(body);
                    self.pool.free(frame.buf);
                    match parsed {
                        Ok(packet) => self.arp_arrives(&packet),
                        Err(_) => self.env.counters.dropped_malformed += 1,
                    }
                    return None;
                }
                Ok((_, body)) => body,
                Err(_) => &[],
            },
        };
        match self.control_packet(packet) {
            Some(error) => Some((error, frame)),
            None => {
                self.pool.free(frame.buf);
                None
            }
        }
    }

    /// RFC 826. Every stack of the device learns, one of them answers.
    fn arp_arrives(&mut self, packet: &arp::Packet) {
        let for_us = self.rules.interface().is_ours(packet.target_ip.into())
            && !self.rules.interface().any_local;
        let sender = IpAddr::V4(packet.sender_ip);
        if packet.sender_mac.is_group()
            || sender.is_unspecified()
            || self.rules.interface().is_own(sender)
        {
            self.env.counters.dropped_address += 1;
            return;
        }
        self.neighbor_is(sender, packet.sender_mac, for_us);
        if for_us && self.rules.interface().answers && packet.op == arp::Op::Request {
            let reply = packet.reply(self.rules.interface().mac);
            self.send_arp(&reply, packet.sender_mac);
        }
    }

    /// Asks for a neighbour's hardware address.
    pub(crate) fn ask_for(&mut self, hop: IpAddr) {
        match hop {
            IpAddr::V4(target) => self.send_arp_request(target),
            IpAddr::V6(target) => self.solicit(target),
        }
    }

    fn send_arp_request(&mut self, target: Ipv4Addr) {
        let Some(IpAddr::V4(source)) = self.rules.interface().source_for(target) else {
            return;
        };
        let request = arp::Packet {
            op: arp::Op::Request,
            sender_mac: self.rules.interface().mac,
            sender_ip: source,
            target_mac: MacAddr::ZERO,
            target_ip: target,
        };
        self.send_arp(&request, MacAddr::BROADCAST);
    }

    fn send_arp(&mut self, packet: &arp::Packet, to: MacAddr) {
        let Some(mut buf) = self.reply_buffer() else {
            return;
        };
        let header = ethernet::Header {
            dst: to,
            src: self.rules.interface().mac,
            ethertype: ethernet::ethertype::ARP,
        };
        let bytes = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
        let link = header.emit(bytes);
        let len = link + packet.emit(&mut bytes[link..]);
        self.schedule.replies.push(Frame::new(buf, len as u16));
    }
}
