//! Fields that an expression can ask about, read from a frame. Accepts more than a stack would, since a user who looks for trouble wants to
//! see what is broken: lengths and checksums are not checked, only what is there counts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use janus_wire::ethernet::ethertype;
use janus_wire::{Link, proto};

use super::Family;

/// Ethernet's two tags that a frame can have.
const TAGS_MAX: usize = 2;
/// IPv6 extension headers that are looked behind.
const EXTENSIONS_MAX: usize = 8;
/// Reverse ARP, whose packets look like ARP's.
const RARP: u16 = 0x8035;
const SCTP: u8 = 132;
/// IPv6 extension headers (RFC 8200 section 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// A frame as far as it could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) len: usize,
    pub(super) family: Option<Family>,
    /// Source and destination; of ARP, who speaks and who is spoken of.
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    pub(super) protocol: Option<u8>,
    pub(super) ports: Option<(u16, u16)>,
    pub(super) tcp_flags: Option<u8>,
}

impl Seen {
    pub(super) fn new(frame: &[u8], link: Link) -> Seen {
        let mut seen = Seen {
            len: frame.len(),
            ..Seen::default()
        };
        // Missing fields stay unknown.
        let _ = seen.read(frame, link);
        seen
    }

    fn read(&mut self, frame: &[u8], link: Link) -> Option<()> {
        match link {
            Link::Ip => match frame.first()? >> 4 {
                4 => self.ip(frame),
                6 => self.ip6(frame),
                _ => None,
            },
            Link::Ethernet => {
                let mut at = 12;
                for _ in 0..TAGS_MAX {
                    if !matches!(word(frame, at)?, ethertype::VLAN | ethertype::SERVICE_VLAN) {
                        break;
                    }
                    at += 4;
                }
                let packet = frame.get(at + 2..)?;
                match word(frame, at)? {
                    ethertype::IPV4 => self.ip(packet),
                    ethertype::IPV6 => self.ip6(packet),
                    kind @ (ethertype::ARP | RARP) => self.arp(packet, kind),
                    _ => None,
                }
            }
        }
    }

    fn arp(&mut self, packet: &[u8], kind: u16) -> Option<()> {
        self.family = (kind == ethertype::ARP).then_some(Family::Arp);
        self.addresses = Some((v4(packet, 14)?, v4(packet, 24)?));
        Some(())
    }

    fn ip(&mut self, packet: &[u8]) -> Option<()> {
        self.family = Some(Family::Ip);
        let header_len = usize::from(packet.first()? & 0x0f) * 4;
        let protocol = *packet.get(9)?;
        self.protocol = Some(protocol);
        self.addresses = Some((v4(packet, 12)?, v4(packet, 16)?));
        let is_later_fragment = word(packet, 6)? & 0x1fff != 0;
        if is_later_fragment {
            return None;
        }
        self.transport(protocol, packet.get(header_len..)?)
    }

    fn ip6(&mut self, packet: &[u8]) -> Option<()> {
        self.family = Some(Family::Ip6);
        let mut next = *packet.get(6)?;
        self.addresses = Some((v6(packet, 8)?, v6(packet, 24)?));
        let mut at = 40;
        for _ in 0..EXTENSIONS_MAX {
            let len = match next {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                    (usize::from(*packet.get(at + 1)?) + 1) * 8
                }
                FRAGMENT => 8,
                _ => break,
            };
            let is_later_fragment = next == FRAGMENT && word(packet, at + 2)? >> 3 != 0;
            next = *packet.get(at)?;
            at += len;
            if is_later_fragment {
                self.protocol = Some(next);
                return None;
            }
        }
        self.protocol = Some(next);
        self.transport(next, packet.get(at..)?)
    }

    fn transport(&mut self, protocol: u8, segment: &[u8]) -> Option<()> {
        if matches!(protocol, proto::TCP | proto::UDP | SCTP) {
            self.ports = Some((word(segment, 0)?, word(segment, 2)?));
        }
        if protocol == proto::TCP {
            self.tcp_flags = Some(*segment.get(13)?);
        }
        Some(())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*two))
}

fn v4(bytes: &[u8], at: usize) -> Option<IpAddr> {
    let four: &[u8; 4] = bytes.get(at..)?.first_chunk()?;
    Some(Ipv4Addr::from(*four).into())
}

fn v6(bytes: &[u8], at: usize) -> Option<IpAddr> {
    let sixteen: &[u8; 16] = bytes.get(at..)?.first_chunk()?;
    Some(Ipv6Addr::from(*sixteen).into())
}
