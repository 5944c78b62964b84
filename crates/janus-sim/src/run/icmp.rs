//! ICMP errors for the stack: the message a router would send about a segment, with the header and eight bytes of it.

use super::{Runner, Trouble};
use crate::script::IcmpError;
use std::net::{Ipv4Addr, SocketAddr};

const IP_LEN: usize = 20;
const ICMP_LEN: usize = 8;
/// What RFC 792 promises of the quoted datagram's payload.
const QUOTED_LEN: usize = 8;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn ip_header(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: usize) -> [u8; IP_LEN] {
    let mut header = [0; IP_LEN];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    header
}

impl Runner<'_> {
    /// Hands the stack an error about a segment of the current connection.
    pub(super) fn icmp_error(&mut self, line: u32, error: &IcmpError) -> Result<(), Trouble> {
        let flow = self.current.map(|index| &self.flows[index]);
        let Some(flow) = flow else {
            return Err(Trouble::new(
                line,
                "no connection for this message to speak of",
            ));
        };
        let Some(seq) = flow.live_seq(error.seq) else {
            return Err(Trouble::new(
                line,
                "the stack has not sent a SYN yet that this message could count from",
            ));
        };
        let (SocketAddr::V4(local), SocketAddr::V4(remote)) = (flow.local, flow.remote) else {
            return Err(Trouble::new(line, "ICMP errors are made for IPv4 only"));
        };
        let quoted_len = IP_LEN + 20 + usize::from(error.len);
        let mut message = vec![error.kind, error.code, 0, 0, 0, 0, 0, 0];
        message[6..8].copy_from_slice(&error.mtu.to_be_bytes());
        message.extend(ip_header(
            *local.ip(),
            *remote.ip(),
            PROTOCOL_TCP,
            quoted_len,
        ));
        message.extend(local.port().to_be_bytes());
        message.extend(remote.port().to_be_bytes());
        message.extend(seq.to_be_bytes());
        debug_assert_eq!(message.len(), ICMP_LEN + IP_LEN + QUOTED_LEN);
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum);
        let len = IP_LEN + message.len();
        let mut packet = ip_header(*remote.ip(), *local.ip(), PROTOCOL_ICMP, len).to_vec();
        packet.extend(message);
        self.history.call(self.world.micros(), format!("< {error}"));
        if !self.world.deliver_bytes(&packet) {
            return Err(Trouble::new(
                line,
                "the packet does not fit a packet buffer",
            ));
        }
        self.poll_pending()
    }
}
