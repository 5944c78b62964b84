//! Where a frame belongs, by its port. Pieces of a packet follow the first, which has the ports.

use std::net::{IpAddr, SocketAddr};

use janus_wire::proto::{TCP, UDP};
use janus_wire::tcp::Flags;
use janus_wire::{Class, FlowKey};

use crate::ports::{Owner, Port, Ports, Slot};

/// Pieces whose packets' beginnings are remembered.
const PIECES: usize = 64;

/// Where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// And which of its cores, if it has as many: of a connection always the same.
    Member(Slot, u8),
    /// Likewise, and from there it may come back, as another's of the group that has the port.
    Returns(Slot, u8),
    Keeper,
    /// Each resolves link addresses for itself.
    Everybody,
    /// To the keeper, who answers that the port is closed.
    Closed,
    /// The port is kept for who claims it next.
    Kept,
    Nowhere,
}

/// A packet in pieces: between whom, and which.
type Whole = (IpAddr, IpAddr, u32, u8);

/// Remembers where packets in pieces go.
pub(crate) struct Pieces {
    known: [Option<(Whole, To)>; PIECES],
    next: usize,
}

impl To {
    /// The member that it goes to, if it does.
    pub(crate) fn slot(self) -> Option<Slot> {
        match self {
            To::Member(slot, _) | To::Returns(slot, _) => Some(slot),
            _ => None,
        }
    }
}

impl Pieces {
    pub(crate) fn new() -> Pieces {
        Pieces {
            known: [None; PIECES],
            next: 0,
        }
    }

    fn of(&self, whole: Whole) -> Option<To> {
        let known = self.known.iter().flatten().find(|(it, _)| *it == whole);
        known.map(|(_, to)| *to)
    }

    /// A member is gone: another will have its place, and is not to get the rest of its packets.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let known = self.known.iter_mut();
        known
            .filter(|it| it.is_some_and(|(_, to)| to.slot() == Some(slot)))
            .for_each(|it| *it = None);
    }

    fn remember(&mut self, whole: Whole, to: To) {
        self.known[self.next] = Some((whole, to));
        self.next = (self.next + 1) % PIECES;
    }
}

fn by_port(ports: &Ports, port: Port, opens: bool, core: u8) -> To {
    match ports.owner(port) {
        Owner::Member(slot) => To::Member(slot, core),
        Owner::Keeper => To::Keeper,
        Owner::Kept if opens => To::Kept,
        Owner::Kept | Owner::Nobody | Owner::Group => To::Closed,
    }
}

/// Of UDP.
fn by_socket(ports: &Ports, number: u16, opens: bool, core: u8) -> To {
    by_port(ports, Port { udp: true, number }, opens, core)
}

fn by_flow(ports: &Ports, flow: &FlowKey, opens: bool, core: u8) -> To {
    let (udp, number) = (false, flow.local_port());
    let port = Port { udp, number };
    if ports.owner(port) != Owner::Group {
        return by_port(ports, port, opens, core);
    }
    if opens && !ports.groups.is_heard(number) && ports.is_kept(port) {
        return To::Kept;
    }
    (ports.groups.way(flow)).map_or(To::Closed, |slot| To::Returns(slot, core))
}

/// Of what speaks about a flow, or is a part of what belongs to it: a member could not send it back.
fn about(ports: &Ports, flow: &FlowKey) -> To {
    match by_flow(ports, flow, false, 0) {
        To::Returns(slot, core) => To::Member(slot, core),
        to => to,
    }
}

/// Whether a segment asks for a connection.
pub(crate) fn opens(flags: Flags) -> bool {
    flags.contains(Flags::SYN) && !flags.contains(Flags::ACK)
}

/// A number that both ways of a flow share.
pub(crate) fn core_of(flow: &FlowKey) -> u8 {
    let ports = flow.local_port() ^ flow.peer_port();
    (ports ^ ports >> 8) as u8
}

/// The message's kind, right behind an IPv6 header; options in between are nothing that neighbours send.
fn is_answer_of_neighbour(bytes: &[u8], l3_offset: usize) -> bool {
    const ADVERTISEMENT: u8 = 136;
    const ROUTER: u8 = 134;
    const REDIRECT: u8 = 137;
    let kind = bytes.get(l3_offset + 40);
    kind.is_some_and(|kind| [ADVERTISEMENT, ROUTER, REDIRECT].contains(kind))
}

/// An answer (RFC 826): whoever asked has use for it.
fn is_answer_of_arp(bytes: &[u8]) -> bool {
    bytes.get(20..22) == Some(&[0, 2])
}

/// Where a frame goes that is of this class.
pub(crate) fn steer(class: Class, bytes: &[u8], ports: &Ports, pieces: &mut Pieces) -> To {
    if let Some((flow, flags)) = class.segment() {
        return by_flow(ports, &flow, opens(flags), core_of(&flow));
    }
    match class {
        Class::Udp4(udp) => {
            let flow = FlowKey::V4(udp.flow);
            by_socket(ports, flow.local_port(), true, core_of(&flow))
        }
        Class::Udp6(udp) => {
            let flow = FlowKey::V6(udp.flow);
            by_socket(ports, flow.local_port(), true, core_of(&flow))
        }
        Class::Icmp4(icmp) => match (icmp.quoted, icmp.socket) {
            (Some(flow), _) => about(ports, &FlowKey::V4(flow)),
            (None, Some(port)) => by_socket(ports, port, false, 0),
            (None, None) => To::Keeper,
        },
        Class::Icmp6(icmp) => match (icmp.quoted, icmp.socket) {
            (Some(flow), _) => about(ports, &FlowKey::V6(flow)),
            (None, Some(port)) => by_socket(ports, port, false, 0),
            (None, None) if icmp.neighbor && is_answer_of_neighbour(bytes, icmp.l3_offset) => {
                To::Everybody
            }
            (None, None) => To::Keeper,
        },
        Class::Arp if is_answer_of_arp(bytes) => To::Everybody,
        Class::Arp => To::Keeper,
        Class::Fragment4 {
            l3_offset,
            src,
            dst,
            id,
            proto,
        } => {
            let whole = (src.into(), dst.into(), id.into(), proto);
            let ip = &bytes[l3_offset..];
            let first = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff == 0;
            let ports_at = first.then_some(l3_offset + usize::from(ip[0] & 15) * 4);
            of_piece(bytes, ports_at, whole, ports, pieces)
        }
        Class::Fragment6 {
            l3_offset,
            src,
            dst,
            id,
        } => {
            // The fragment header right behind the IPv6 header, as a rule; any other way is nowhere.
            let header = bytes.get(l3_offset + 40..l3_offset + 48);
            let is_there = bytes[l3_offset + 6] == 44;
            let Some(header) = header.filter(|_| is_there) else {
                return To::Nowhere;
            };
            let first = u16::from_be_bytes([header[2], header[3]]) & 0xfff8 == 0;
            let ports_at = first.then_some(l3_offset + 48);
            let whole = (src.into(), dst.into(), id, header[0]);
            of_piece(bytes, ports_at, whole, ports, pieces)
        }
        Class::Tcp4(_) | Class::Tcp6(_) | Class::Other | Class::Malformed(_) => To::Nowhere,
    }
}

fn of_piece(
    bytes: &[u8],
    ports_at: Option<usize>,
    whole: Whole,
    ports: &Ports,
    pieces: &mut Pieces,
) -> To {
    let Some(at) = ports_at else {
        return pieces.of(whole).unwrap_or(To::Nowhere);
    };
    let both = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let (src, dst, _, proto) = whole;
    let to = match (proto, both) {
        (UDP, Some([_, _, high, low])) => {
            by_socket(ports, u16::from_be_bytes([*high, *low]), false, 0)
        }
        (TCP, Some([a, b, c, d])) => {
            let peer = SocketAddr::new(src, u16::from_be_bytes([*a, *b]));
            let local = SocketAddr::new(dst, u16::from_be_bytes([*c, *d]));
            FlowKey::new(peer, local).map_or(To::Nowhere, |flow| about(ports, &flow))
        }
        _ => To::Keeper,
    };
    pieces.remember(whole, to);
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use janus_wire::ethernet::ethertype::IPV4;
    use janus_wire::{Link, classify};

    /// A piece of a datagram for port 53, at eight times this offset.
    fn piece(offset: u16) -> Vec<u8> {
        let more = u16::from(offset == 0) << 13;
        let mut frame = vec![2; 12];
        frame.extend(IPV4.to_be_bytes());
        frame.extend([0x45, 0, 0, 44, 0, 7]);
        frame.extend((more | offset).to_be_bytes());
        frame.extend([64, UDP, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1]);
        frame.extend([0, 9, 0, 53, 0, 48, 0, 0]);
        frame.extend([7; 16]);
        frame
    }

    #[test]
    fn the_rest_of_a_packet_is_not_for_who_has_a_dead_members_place() {
        let (mut ports, mut pieces) = (Ports::new(), Pieces::new());
        let port = Port {
            udp: true,
            number: 53,
        };
        ports.claim(1, port).unwrap();
        let to = |ports: &Ports, pieces: &mut Pieces, offset| {
            let frame = piece(offset);
            steer(classify(&frame, Link::Ethernet), &frame, ports, pieces)
        };
        assert_eq!(to(&ports, &mut pieces, 3), To::Nowhere, "before the first");
        assert_eq!(to(&ports, &mut pieces, 0), To::Member(1, 0));
        assert_eq!(to(&ports, &mut pieces, 3), To::Member(1, 0));
        ports.gone(1, None);
        pieces.forget(1);
        assert_eq!(to(&ports, &mut pieces, 3), To::Nowhere);
    }
}
