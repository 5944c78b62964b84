//! Whether a received frame's checksums hold, for devices that vouch for what they have checked and leave the rest to us.
//! What is neither IP, nor TCP or UDP in it, is for others to judge.

use janus_wire::{checksum, ethernet, ipv4, ipv6, proto, udp};

/// Looks at the checksums of an Ethernet frame.
#[cold]
#[inline(never)]
pub(crate) fn is_sound(frame: &[u8]) -> bool {
    let Ok((header, packet)) = ethernet::Header::parse(frame) else {
        return true;
    };
    match header.ethertype {
        ethernet::ethertype::IPV4 => match ipv4::parse(packet) {
            Ok(ip) if !ip.checksum_ok() => false,
            Ok(ip) if ip.is_fragment() => true,
            Ok(ip) if ip.proto == proto::TCP => checksum::tcp_v4(ip.src, ip.dst, ip.payload()) == 0,
            Ok(ip) if ip.proto == proto::UDP => udp::parse(ip.payload())
                .map_or(true, |datagram| datagram.checksum_ok_v4(ip.src, ip.dst)),
            _ => true,
        },
        ethernet::ethertype::IPV6 => match ipv6::parse(packet) {
            Ok(ip) if ip.is_fragment() => true,
            Ok(ip) if ip.proto == proto::TCP => checksum::tcp_v6(ip.src, ip.dst, ip.payload()) == 0,
            Ok(ip) if ip.proto == proto::UDP => udp::parse(ip.payload())
                .map_or(true, |datagram| datagram.checksum_ok_v6(ip.src, ip.dst)),
            _ => true,
        },
        _ => true,
    }
}

/// Whether the checksum of the IPv4 header holds, if there is one: devices that speak of TCP's say nothing of it.
#[inline]
pub(crate) fn has_sound_header(frame: &[u8]) -> bool {
    let Ok((header, packet)) = ethernet::Header::parse(frame) else {
        return true;
    };
    header.ethertype != ethernet::ethertype::IPV4
        || ipv4::parse(packet).map_or(true, |ip| ip.checksum_ok())
}
