//! An IP packet as a router sees it: whom it is for, how long it may be, its congestion mark. Written from the RFCs and
//! not shared with the stack, so that a mistake in the stack's codec cannot hide here.
//! What never lives here: TCP (`segment`), and whether a router does any of this (`link`, `net`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const ICMP_LEN: usize = 8;
const ICMPV4: u8 = 1;
const ICMPV6: u8 = 58;
/// Of a packet so much is sent back in an error: RFC 1812 section 4.3.2.3.
const QUOTE_V4_MAX: usize = 576 - V4_LEN - ICMP_LEN;
/// And RFC 4443 section 2.4 (c).
const QUOTE_V6_MAX: usize = 1_280 - V6_LEN - ICMP_LEN;
/// Routers that report errors have these addresses.
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfffe);

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn is_v6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

/// The address a packet is for.
pub(super) fn destination(packet: &[u8]) -> Option<IpAddr> {
    if is_v6(packet) {
        let octets: [u8; 16] = packet.get(24..V6_LEN)?.try_into().ok()?;
        return Some(IpAddr::from(octets));
    }
    let octets: [u8; 4] = packet.get(16..V4_LEN)?.try_into().ok()?;
    Some(IpAddr::from(octets))
}

/// The Internet checksum (RFC 1071), ready for its field.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)))
        .sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!sum as u16).to_be_bytes()
}

fn fill_header_checksum(packet: &mut [u8]) {
    let header = usize::from(packet[0] & 0xf) * 4;
    packet[10..12].fill(0);
    let sum = checksum(&[&packet[..header]]);
    packet[10..12].copy_from_slice(&sum);
}

/// An IPv6 packet with TCP directly behind its header as the IPv4 packet that would carry the same segment, between no
/// addresses, so that one reader of segments serves both families. `None` when it is not sound.
pub(crate) fn over_v4(packet: &[u8]) -> Option<Vec<u8>> {
    const TCP: u8 = 6;
    let (header, tcp) = packet.split_at_checked(V6_LEN)?;
    if header[6] != TCP || be16(header, 4) != tcp.len() || tcp.len() < 20 {
        return None;
    }
    let len = (tcp.len() as u32).to_be_bytes();
    if checksum(&[&header[8..], &len, &[0, 0, 0, TCP], tcp]) != [0, 0] {
        return None;
    }
    let total = (V4_LEN + tcp.len()) as u16;
    let mut out = vec![0; V4_LEN];
    out[0] = 0x45;
    out[1] = header[0] << 4 | header[1] >> 4;
    out[2..4].copy_from_slice(&total.to_be_bytes());
    out[8] = header[7];
    out[9] = TCP;
    fill_header_checksum(&mut out);
    out.extend_from_slice(tcp);
    out[V4_LEN + 16..V4_LEN + 18].fill(0);
    let sum = checksum(&[&len, &[0, TCP], &out[V4_LEN..]]);
    out[V4_LEN + 16..V4_LEN + 18].copy_from_slice(&sum);
    Some(out)
}

/// Marks a packet of an ECN-capable transport: congestion experienced (RFC 3168 section 5). False for any other.
pub(super) fn mark(packet: &mut [u8]) -> bool {
    if is_v6(packet) {
        let capable = matches!(packet[1] >> 4 & 3, 1 | 2);
        packet[1] |= if capable { 0x30 } else { 0 };
        return capable;
    }
    let capable = matches!(packet[1] & 3, 1 | 2);
    if capable {
        packet[1] |= 3;
        fill_header_checksum(packet);
    }
    capable
}

/// Answer of a router with a smaller link ahead to a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TooBig {
    /// Sends it on in these pieces.
    Pieces(Vec<Vec<u8>>),
    /// Drops it, and sends this back.
    Error(Vec<u8>),
}

/// Returns the router's answer to a packet longer than `mtu`: an IPv4 packet that allows it is fragmented (RFC 791
/// section 3.2), for any other the sender gets an ICMP error.
pub(super) fn too_big(packet: &[u8], mtu: usize) -> TooBig {
    if is_v6(packet) {
        return TooBig::Error(packet_too_big(packet, mtu));
    }
    if packet[6] & 0x40 == 0 {
        return TooBig::Pieces(fragments(packet, mtu));
    }
    TooBig::Error(fragmentation_needed(packet, mtu))
}

/// Cuts an IPv4 packet into fragments of at most `mtu` bytes. Headers with options are cut as if all were copied.
fn fragments(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let header = usize::from(packet[0] & 0xf) * 4;
    let (field, body) = (be16(packet, 6), &packet[header..]);
    let (offset, more) = ((field & 0x1fff) * 8, field & 0x2000);
    let room = (mtu - header) / 8 * 8;
    let pieces = body.chunks(room).enumerate();
    pieces
        .map(|(index, piece)| {
            let at = index * room;
            let last = at + piece.len() == body.len();
            let flags = if last { more } else { 0x2000 };
            let mut out = packet[..header].to_vec();
            out.extend_from_slice(piece);
            let len = (out.len() as u16).to_be_bytes();
            out[2..4].copy_from_slice(&len);
            out[6..8].copy_from_slice(&((flags | ((offset + at) / 8)) as u16).to_be_bytes());
            fill_header_checksum(&mut out);
            out
        })
        .collect()
}

/// RFC 792 "fragmentation needed and DF set", with the next link's MTU (RFC 1191 section 4).
fn fragmentation_needed(packet: &[u8], mtu: usize) -> Vec<u8> {
    let quote = &packet[..packet.len().min(QUOTE_V4_MAX)];
    let mut out = vec![0; V4_LEN + ICMP_LEN];
    out[0] = 0x45;
    out[8] = 64;
    out[9] = ICMPV4;
    out[12..16].copy_from_slice(&ROUTER_V4.octets());
    out[16..20].copy_from_slice(&packet[12..16]);
    out[V4_LEN..V4_LEN + 2].copy_from_slice(&[3, 4]);
    out[V4_LEN + 6..V4_LEN + 8].copy_from_slice(&(mtu as u16).to_be_bytes());
    out.extend_from_slice(quote);
    let len = (out.len() as u16).to_be_bytes();
    out[2..4].copy_from_slice(&len);
    fill_header_checksum(&mut out);
    let sum = checksum(&[&out[V4_LEN..]]);
    out[V4_LEN + 2..V4_LEN + 4].copy_from_slice(&sum);
    out
}

/// RFC 4443 section 3.2.
fn packet_too_big(packet: &[u8], mtu: usize) -> Vec<u8> {
    let quote = &packet[..packet.len().min(QUOTE_V6_MAX)];
    let len = ICMP_LEN + quote.len();
    let mut out = vec![0; V6_LEN + ICMP_LEN];
    out[0] = 0x60;
    out[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    out[6] = ICMPV6;
    out[7] = 64;
    out[8..24].copy_from_slice(&ROUTER_V6.octets());
    out[24..40].copy_from_slice(&packet[8..24]);
    out[V6_LEN] = 2;
    out[V6_LEN + 4..V6_LEN + 8].copy_from_slice(&(mtu as u32).to_be_bytes());
    out.extend_from_slice(quote);
    let pseudo = [0, 0, (len >> 8) as u8, len as u8, 0, 0, 0, ICMPV6];
    let sum = checksum(&[&out[8..40], &pseudo, &out[V6_LEN..]]);
    out[V6_LEN + 2..V6_LEN + 4].copy_from_slice(&sum);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(len: usize, dont_fragment: bool) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..len).map(|at| at as u8).collect();
        packet[..V4_LEN].fill(0);
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[6] = if dont_fragment { 0x40 } else { 0 };
        packet[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        fill_header_checksum(&mut packet);
        packet
    }

    fn sound(packet: &[u8]) -> bool {
        checksum(&[&packet[..V4_LEN]]) == [0, 0] && be16(packet, 2) == packet.len()
    }

    #[test]
    fn fragments_are_sound_and_make_up_the_packet() {
        let packet = v4(1_500, false);
        let TooBig::Pieces(pieces) = too_big(&packet, 576) else {
            panic!("it may be cut");
        };
        let mut body = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            assert!(piece.len() <= 576 && sound(piece));
            assert_eq!((be16(piece, 6) & 0x1fff) * 8, body.len());
            assert_eq!(be16(piece, 6) & 0x2000 != 0, index + 1 < pieces.len());
            body.extend_from_slice(&piece[V4_LEN..]);
        }
        assert!(pieces.len() == 3 && body == packet[V4_LEN..]);
    }

    #[test]
    fn a_sender_that_forbids_cutting_is_told_the_mtu() {
        let packet = v4(1_500, true);
        let TooBig::Error(error) = too_big(&packet, 1_280) else {
            panic!("it may not be cut");
        };
        let message = janus_wire::icmpv4::parse(&error[V4_LEN..]);
        let Ok(janus_wire::icmpv4::Message::Unreachable { code, mtu, quote }) = message else {
            panic!("{message:?}");
        };
        assert_eq!((code, mtu), (4, 1_280));
        assert_eq!(quote.src, Ipv4Addr::new(192, 0, 2, 1));
        assert!(sound(&error) && checksum(&[&error[V4_LEN..]]) == [0, 0]);
        assert_eq!(destination(&error), Some("192.0.2.1".parse().expect("one")));
    }

    #[test]
    fn only_capable_transports_are_marked() {
        let mut packet = v4(60, true);
        assert!(!mark(&mut packet) && packet[1] == 0);
        packet[1] = 2;
        fill_header_checksum(&mut packet);
        assert!(mark(&mut packet) && packet[1] == 3 && sound(&packet));
    }
}
