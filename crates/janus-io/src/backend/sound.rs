//! Checksums of received frames: verified, for devices that vouch for what they have checked and leave the rest to us; and filled
//! in, where the sender left them to a device without hardware. What is neither IP, nor TCP or UDP in it, is for others to judge.

use janus_wire::{checksum, ethernet, ipv4, ipv6, proto, tcp, udp};

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

/// Fills in the TCP or UDP checksum of an Ethernet frame whose sender has left it to its device (Linux: CHECKSUM_PARTIAL): the
/// field holds the sum of the pseudo header, and nothing else is in it. Every other frame stays as it is.
///
/// One whose checksum is wrong passes for such a frame once in 65,536 times, as often as a sum of 16 bits misses damage anyway.
pub(crate) fn complete(frame: &mut [u8]) {
    let Some((at, value)) = left_out(frame) else {
        return;
    };
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Finds the field of such a checksum and computes its value.
fn left_out(frame: &[u8]) -> Option<(usize, u16)> {
    let (header, packet) = ethernet::Header::parse(frame).ok()?;
    let (protocol, segment, pseudo) = match header.ethertype {
        ethernet::ethertype::IPV4 => {
            let ip = ipv4::parse(packet).ok().filter(|ip| !ip.is_fragment())?;
            let len = ip.payload().len() as u16;
            let pseudo = checksum::pseudo_v4(ip.src, ip.dst, ip.proto, len);
            (ip.proto, ip.payload(), pseudo)
        }
        ethernet::ethertype::IPV6 => {
            let ip = ipv6::parse(packet).ok().filter(|ip| !ip.is_fragment())?;
            let len = ip.payload().len() as u32;
            let pseudo = checksum::pseudo_v6(ip.src, ip.dst, ip.proto, len);
            (ip.proto, ip.payload(), pseudo)
        }
        _ => return None,
    };
    let at = match protocol {
        proto::TCP => tcp::CHECKSUM_AT,
        proto::UDP => udp::CHECKSUM_AT,
        _ => return None,
    };
    let field = segment.get(at..at + 2)?;
    if field != (!checksum::finish(pseudo)).to_be_bytes() {
        return None;
    }
    // The field holds the sum of the pseudo header already.
    let value = match checksum::finish(checksum::sum(segment, 0)) {
        // Zero says "none" (RFC 768).
        0 if protocol == proto::UDP => u16::MAX,
        value => value,
    };
    Some((
        segment.as_ptr() as usize - frame.as_ptr() as usize + at,
        value,
    ))
}

#[cfg(test)]
mod tests;
