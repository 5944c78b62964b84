//! Large TCP packets, such as a device hands up that puts segments together, cut into ones that fit a buffer. A script may
//! send such a packet, and a kernel takes it as it is.

use std::net::IpAddr;

use janus_wire::tcp::{self, Flags};
use janus_wire::{checksum, ipv4, ipv6, proto};

/// Where a TCP header holds its sequence number and its flags.
const SEQ: std::ops::Range<usize> = 4..8;
const FLAGS_AT: usize = 13;

/// Cuts a TCP packet into parts of about the same size, none longer than `most`. `None` if it is no whole data segment
/// with sound checksums, or its headers leave no room.
pub(crate) fn cut(packet: &[u8], most: usize) -> Option<Vec<Vec<u8>>> {
    let (ip_len, from, to) = addresses(packet)?;
    let segment = &packet[ip_len..];
    let (header, _, payload) = tcp::parse(segment).ok()?;
    let whole = sum(from, to, segment) == 0;
    if !whole || header.flags.contains(Flags::SYN) || header.flags.contains(Flags::RST) {
        return None;
    }
    let headers_len = ip_len + header.header_len;
    let room = most.checked_sub(headers_len).filter(|room| *room > 0)?;
    let parts = payload.len().div_ceil(room);
    let each = payload.len().div_ceil(parts.max(1)).max(1);
    let cut = (0..parts).map(|index| {
        let at = index * each;
        let mut part = packet[..headers_len].to_vec();
        part.extend_from_slice(&payload[at..payload.len().min(at + each)]);
        let segment = &mut part[ip_len..];
        segment[SEQ].copy_from_slice(&(header.seq.0.wrapping_add(at as u32)).to_be_bytes());
        // Flags about the end belong to the last part, those that count once to the first.
        if index + 1 < parts {
            segment[FLAGS_AT] &= !(Flags::FIN.0 | Flags::PSH.0);
        }
        if index > 0 {
            segment[FLAGS_AT] &= !Flags::CWR.0;
        }
        finish(&mut part, ip_len, from, to);
        part
    });
    Some(cut.collect())
}

/// The length of the header before TCP, and the addresses in it, if TCP comes at once and nothing is missing.
fn addresses(packet: &[u8]) -> Option<(usize, IpAddr, IpAddr)> {
    if let Ok(ip) = ipv4::parse(packet) {
        let whole = !ip.is_fragment() && ip.checksum_ok() && ip.total_len() == packet.len();
        (whole && ip.proto == proto::TCP).then(|| (ip.header_len(), ip.src.into(), ip.dst.into()))
    } else {
        let ip = ipv6::parse(packet).ok()?;
        let plain = ip.payload().len() + ipv6::LEN == packet.len();
        (plain && ip.proto == proto::TCP).then(|| (ipv6::LEN, ip.src.into(), ip.dst.into()))
    }
}

/// The sum over a segment: its checksum where that is zero, and 0 where that is right.
fn sum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => checksum::tcp_v4(from, to, segment),
        (IpAddr::V6(from), IpAddr::V6(to)) => checksum::tcp_v6(from, to, segment),
        _ => unreachable!("both are of one header"),
    }
}

/// Lengths and checksums of a part.
fn finish(part: &mut [u8], ip_len: usize, from: IpAddr, to: IpAddr) {
    let len = part.len() as u16;
    let (ip, segment) = part.split_at_mut(ip_len);
    if from.is_ipv4() {
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        ip[10..12].fill(0);
        let sum = checksum::ipv4_header(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        ip[4..6].copy_from_slice(&(len - ip_len as u16).to_be_bytes());
    }
    segment[16..18].fill(0);
    let sum = sum(from, to, segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests;
