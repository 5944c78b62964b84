//! The far end over IPv6: its packets are IPv4's, translated both ways as between the two protocols (RFC 7915 in small).
//! An IPv4 address stands in the last bits of an IPv6 one; ports, numbers and options stay. What comes is verified before it
//! is translated, so a wrong checksum of the server is still its own.

use super::packet::{Ends, Wrong};
use janus_mem::Frame;
use janus_wire::icmpv6::{self, Advertised, Message};
use janus_wire::{ethernet, ipv4, ipv6, proto, tcp};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What an IPv6 header is longer than an IPv4 one.
const MORE: usize = ipv6::LEN - ipv4::LEN;
/// Bytes of a neighbour advertisement's frame.
pub const ADVERTISEMENT_LEN: usize = ethernet::LEN + ipv6::LEN + icmpv6::NEIGHBOUR_LEN;

/// The IPv6 address that stands for an IPv4 one.
pub fn address(v4: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = v4.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, high, low)
}

/// The IPv4 address that an IPv6 one stands for.
pub fn stands_for(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = Ipv4Addr::from(v6.to_bits() as u32);
    (address(v4) == v6).then_some(v4)
}

/// Makes an IPv4 TCP packet of ours one of IPv6. Its headroom is used.
pub fn to_six(frame: &mut Frame) {
    let off = frame.buf.off() - MORE as u16;
    frame.buf.set_off(off);
    frame.len += MORE as u16;
    let data = frame.data_mut();
    data.copy_within(MORE..MORE + ethernet::LEN, 0);
    data[12..14].copy_from_slice(&ethernet::ethertype::IPV6.to_be_bytes());
    let old = &data[MORE + ethernet::LEN..];
    let v4 = |at: usize| Ipv4Addr::new(old[at], old[at + 1], old[at + 2], old[at + 3]);
    let (src, dst) = (address(v4(12)), address(v4(16)));
    let segment_at = ethernet::LEN + ipv6::LEN;
    let header = ipv6::Repr {
        src,
        dst,
        proto: proto::TCP,
        payload_len: (data.len() - segment_at) as u16,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut data[ethernet::LEN..], &header);
    let segment = &mut data[segment_at..];
    segment[16..18].fill(0);
    tcp::fill_checksum_v6(segment, src, dst);
}

/// Writes into `out` the IPv4 packet for a TCP packet of the server's; answers its length.
pub fn to_four(frame: &[u8], out: &mut [u8]) -> Result<usize, Wrong> {
    let (header, rest) = ethernet::Header::parse(frame).map_err(|_| Wrong::NotOurs)?;
    if header.ethertype != ethernet::ethertype::IPV6 {
        return Err(Wrong::NotOurs);
    }
    let packet = ipv6::parse(rest).map_err(|_| Wrong::NotOurs)?;
    let (Some(src), Some(dst)) = (stands_for(packet.src), stands_for(packet.dst)) else {
        return Err(Wrong::NotOurs);
    };
    let segment = packet.payload();
    if packet.proto != proto::TCP || segment.len() < tcp::LEN {
        return Err(Wrong::NotOurs);
    }
    if janus_wire::checksum::tcp_v6(packet.src, packet.dst, segment) != 0 {
        return Err(Wrong::Checksum);
    }
    let header = ethernet::Header {
        ethertype: ethernet::ethertype::IPV4,
        ..header
    };
    header.emit(out);
    let repr = ipv4::Repr {
        src,
        dst,
        proto: proto::TCP,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
        payload_len: segment.len() as u16,
    };
    ipv4::emit(&mut out[ethernet::LEN..], &repr);
    let at = ethernet::LEN + ipv4::LEN;
    let copy = &mut out[at..at + segment.len()];
    copy.copy_from_slice(segment);
    copy[16..18].fill(0);
    tcp::fill_checksum_v4(copy, src, dst);
    Ok(at + segment.len())
}

/// Writes the answer to a neighbour solicitation; `None` when `frame` is none. Every address of the far side is at one
/// place.
pub fn advertisement(ends: &Ends, frame: &[u8], out: &mut [u8]) -> Option<usize> {
    let (header, rest) = ethernet::Header::parse(frame).ok()?;
    let packet = ipv6::parse(rest).ok()?;
    if packet.proto != proto::ICMPV6 || packet.src.is_unspecified() {
        return None;
    }
    let Ok(Message::NeighbourSolicitation { target, .. }) = icmpv6::parse(packet.payload()) else {
        return None;
    };
    let reply = ethernet::Header {
        dst: header.src,
        src: ends.far_mac,
        ethertype: ethernet::ethertype::IPV6,
    };
    reply.emit(out);
    let repr = ipv6::Repr {
        src: target,
        dst: packet.src,
        proto: proto::ICMPV6,
        payload_len: icmpv6::NEIGHBOUR_LEN as u16,
        hop_limit: 255,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut out[ethernet::LEN..], &repr);
    let flags = Advertised {
        router: true,
        solicited: true,
        r#override: true,
    };
    let message = &mut out[ethernet::LEN + ipv6::LEN..];
    icmpv6::emit_advertisement(message, target, packet.src, target, ends.far_mac, flags);
    Some(ADVERTISEMENT_LEN)
}
