//! The last packets of a network, for the file that a failing run leaves behind.

use janus_io::trace::{Flow, Writer};
use janus_tcp::Instant;
use janus_wire::Link;
use std::collections::VecDeque;
use std::io;

/// Packets kept; older ones are forgotten.
const PACKETS_MAX: usize = 20_000;

#[derive(Clone, Copy)]
enum Where {
    Sent(usize),
    Arrived(usize),
    Lost,
}

#[derive(Default)]
pub(super) struct Capture {
    packets: VecDeque<(Instant, Where, Vec<u8>)>,
}

impl Capture {
    fn push(&mut self, at: Instant, place: Where, bytes: &[u8]) {
        if self.packets.len() == PACKETS_MAX {
            self.packets.pop_front();
        }
        self.packets.push_back((at, place, bytes.to_vec()));
    }

    pub(super) fn sent(&mut self, at: Instant, host: usize, bytes: &[u8]) {
        self.push(at, Where::Sent(host), bytes);
    }

    pub(super) fn arrived(&mut self, at: Instant, host: usize, bytes: &[u8]) {
        self.push(at, Where::Arrived(host), bytes);
    }

    pub(super) fn lost(&mut self, at: Instant, bytes: &[u8]) {
        self.push(at, Where::Lost, bytes);
    }

    /// `hosts` names the hosts in their order.
    pub(super) fn pcapng(&self, hosts: &[String]) -> Vec<u8> {
        self.write(hosts).unwrap_or_default()
    }

    fn write(&self, hosts: &[String]) -> io::Result<Vec<u8>> {
        let mut writer = Writer::new(Vec::new())?;
        let mut interfaces = Vec::new();
        for host in hosts {
            interfaces.push(writer.interface(Link::Ip, host)?);
        }
        let lost = writer.interface(Link::Ip, "lost")?;
        for (at, place, bytes) in &self.packets {
            let (interface, flow) = match *place {
                Where::Sent(host) => (interfaces[host], Flow::Sent),
                Where::Arrived(host) => (interfaces[host], Flow::Received),
                Where::Lost => (lost, Flow::Sent),
            };
            writer.frame(interface, at.as_nanos(), flow, bytes)?;
        }
        Ok(writer.into_inner())
    }
}
