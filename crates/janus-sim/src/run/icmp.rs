//! ICMP messages: for the stack, as a router or the peer would send them about a segment, with its header and eight bytes
//! of it; and from the stack, held against what the script expects. Bytes are put together and read here, not by the
//! codecs under test.

use super::flow::Flow;
use super::{GRACE_MICROS, Runner, Trouble};
use crate::script::{Event, IcmpMessage, Quoted, When, seconds, write_icmp_names};
use std::fmt;
use std::net::IpAddr;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ICMPV6: u8 = 58;
const ICMP_LEN: usize = 8;
const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;

/// The Internet checksum (RFC 1071), continuing from `initial`.
fn checksum(bytes: &[u8], initial: u32) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum::<u32>() + initial;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the sum of the pseudo-header that an ICMPv6 checksum covers (RFC 8200 section 8.1); 0 over IPv4.
fn pseudo_header(source: IpAddr, destination: IpAddr, len: usize) -> u32 {
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) else {
        return 0;
    };
    let words = source.segments().into_iter().chain(destination.segments());
    words.map(u32::from).sum::<u32>() + len as u32 + u32::from(PROTOCOL_ICMPV6)
}

/// An IP header for `len` bytes behind it; both addresses are of one family.
fn ip_header(
    source: IpAddr,
    destination: IpAddr,
    (protocol, tos, ttl): (u8, u8, u8),
    len: usize,
) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, tos, 0, 0, 0, 0, 0, 0, ttl, protocol, 0, 0];
            header[2..4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum(&header, 0);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (source, destination) => {
            let word = 6u32 << 28 | u32::from(tos) << 20;
            let mut header = word.to_be_bytes().to_vec();
            header.extend((len as u16).to_be_bytes());
            header.extend([protocol, ttl]);
            for address in [source, destination] {
                match address {
                    IpAddr::V4(address) => header.extend(address.to_ipv6_mapped().octets()),
                    IpAddr::V6(address) => header.extend(address.octets()),
                }
            }
            header
        }
    }
}

/// An ICMP message that the stack has sent.
#[derive(Clone, Debug)]
pub(super) struct SentIcmp {
    /// Microseconds since the start.
    pub(super) at: u64,
    pub(super) v6: bool,
    kind: u8,
    code: u8,
    sound: bool,
    /// Bytes after type, code and checksum.
    rest: Vec<u8>,
}

impl SentIcmp {
    /// Reads one, if the packet is one.
    pub(super) fn read(at: u64, packet: &[u8]) -> Option<SentIcmp> {
        let (v6, header_len, protocol) = match packet.first()? >> 4 {
            4 => (false, usize::from(packet[0] & 15) * 4, *packet.get(9)?),
            6 => (true, 40, *packet.get(6)?),
            _ => return None,
        };
        let message = packet.get(header_len..).filter(|m| m.len() >= ICMP_LEN)?;
        let initial = match protocol {
            PROTOCOL_ICMP if !v6 => 0,
            PROTOCOL_ICMPV6 if v6 => {
                let words = packet[8..40]
                    .chunks(2)
                    .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
                words.sum::<u32>() + message.len() as u32 + u32::from(PROTOCOL_ICMPV6)
            }
            _ => return None,
        };
        Some(SentIcmp {
            at,
            v6,
            kind: message[0],
            code: message[1],
            sound: checksum(message, initial) == 0,
            rest: message[4..].to_vec(),
        })
    }

    fn mtu(&self) -> u32 {
        let word = [self.rest[0], self.rest[1], self.rest[2], self.rest[3]];
        u32::from_be_bytes(word) & if self.v6 { u32::MAX } else { 0xffff }
    }

    fn id(&self) -> u16 {
        u16::from_be_bytes([self.rest[0], self.rest[1]])
    }

    /// In what it is not the one expected.
    fn differences(&self, expected: &IcmpMessage) -> Vec<String> {
        let mut found = Vec::new();
        let mut field = |name: &str, expected: u64, actual: u64| {
            if expected != actual {
                found.push(format!("{name}: expected {expected}, actual {actual}"));
            }
        };
        field("ICMP type", expected.kind.into(), self.kind.into());
        field("ICMP code", expected.code.into(), self.code.into());
        if let Some(mtu) = expected.mtu {
            field("MTU", mtu.into(), self.mtu().into());
        }
        if let Some(id) = expected.id {
            field("identifier", id.into(), self.id().into());
        }
        if !self.sound {
            found.push("the ICMP checksum is wrong".into());
        }
        found
    }
}

impl fmt::Display for SentIcmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_icmp_names(f, self.v6, self.kind, self.code)
    }
}

impl Runner<'_> {
    /// Hands the stack a message, about the current connection if it is about any.
    pub(super) fn inbound_icmp(&mut self, line: u32, message: &IcmpMessage) -> Result<(), Trouble> {
        let flow = self.current.map(|index| &self.flows[index]);
        let bytes = match message.quoted {
            Quoted::Raw(len) if usize::from(len) < ICMP_LEN => {
                Err("an ICMP message has eight bytes at least".into())
            }
            Quoted::Raw(len) => Ok(vec![0; usize::from(len) - ICMP_LEN]),
            Quoted::Tcp(..) | Quoted::Udp(_) => match flow {
                Some(flow) => quote(flow, message.quoted),
                None => Err("no connection for this message to speak of".to_owned()),
            },
        };
        let quoted = bytes.map_err(|message| Trouble::new(line, message))?;
        let settings = self.settings();
        let (source, destination) = flow.map_or((settings.remote_ip, settings.local_ip), |flow| {
            (flow.remote.ip(), flow.local.ip())
        });
        let mut icmp = vec![message.kind, message.code, 0, 0];
        let word = u32::from(message.id.unwrap_or(0)) << 16 | message.mtu.unwrap_or(0);
        icmp.extend(word.to_be_bytes());
        icmp.extend(quoted);
        let sum = checksum(&icmp, pseudo_header(source, destination, icmp.len()));
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let protocol = match message.v6 {
            true => PROTOCOL_ICMPV6,
            false => PROTOCOL_ICMP,
        };
        let tos = message.ip.tos.map_or(0, super::compare::tos_byte);
        let ttl = message.ip.ttl.unwrap_or(64);
        let mut packet = ip_header(source, destination, (protocol, tos, ttl), icmp.len());
        packet.extend(icmp);
        let now = self.world.micros();
        self.history.call(now, format!("< {message}"));
        if !self.world.deliver_bytes(&packet) {
            return Err(Trouble::new(
                line,
                "the packet does not fit a packet buffer",
            ));
        }
        self.poll_pending()
    }

    /// Waits for a message the stack must send.
    pub(super) fn outbound_icmp(
        &mut self,
        event: &Event,
        expected: &IcmpMessage,
        (from, to): (u64, u64),
    ) -> Result<(), Trouble> {
        let limit = match event.when {
            When::Any => to,
            _ => to + GRACE_MICROS,
        };
        let sent = loop {
            self.check_sound(event.line)?;
            if let Some(sent) = self.world.pop_icmp() {
                break sent;
            }
            if !self.step(limit)? {
                let now = seconds(self.world.micros());
                let mut trouble = Trouble::new(
                    event.line,
                    format!("the message expected was not sent, until {now}"),
                );
                let due = event.when;
                trouble
                    .details
                    .push(format!("expected: {due} > {expected}"));
                return Err(trouble);
            }
        };
        self.history.call(sent.at, format!("> {sent}"));
        let mut differences = sent.differences(expected);
        differences.extend(self.lateness(event.when, (from, to), sent.at));
        if differences.is_empty() {
            return Ok(());
        }
        let mut trouble = Trouble::new(event.line, "the message sent is not the message expected");
        trouble
            .details
            .push(format!("expected: {} > {expected}", event.when));
        trouble
            .details
            .push(format!("actual:   {} > {sent}", seconds(sent.at)));
        trouble.details.extend(differences);
        Err(trouble)
    }
}

/// The header of what the stack has sent, and eight bytes more (RFC 792).
fn quote(flow: &Flow, quoted: Quoted) -> Result<Vec<u8>, String> {
    if flow.local.is_ipv4() != flow.remote.is_ipv4() {
        return Err("the connection's ends are of two families".into());
    }
    let (protocol, len, tail) = match quoted {
        Quoted::Tcp(seq, len) => {
            let Some(seq) = flow.live_seq(seq) else {
                return Err(
                    "the stack has not sent a SYN yet that this message could count from".into(),
                );
            };
            (PROTOCOL_TCP, TCP_LEN + usize::from(len), seq.to_be_bytes())
        }
        Quoted::Udp(len) => {
            let [high, low] = (UDP_LEN as u16 + len).to_be_bytes();
            (PROTOCOL_UDP, UDP_LEN + usize::from(len), [high, low, 0, 0])
        }
        Quoted::Raw(_) => return Ok(Vec::new()),
    };
    let mut bytes = ip_header(flow.local.ip(), flow.remote.ip(), (protocol, 0, 64), len);
    bytes.extend(flow.local.port().to_be_bytes());
    bytes.extend(flow.remote.port().to_be_bytes());
    bytes.extend(tail);
    Ok(bytes)
}
