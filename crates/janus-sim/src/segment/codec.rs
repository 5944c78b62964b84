//! Bytes of an IP packet with TCP inside, from and to [`Segment`]. Strict where the stack must be right (both
//! checksums, lengths) and literal with options, so that a comparison sees exactly what was sent.

use super::{Flags, Segment, TcpOption};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const TCP_LEN: usize = 20;
const OPTIONS_LEN_MAX: usize = 40;
const PROTOCOL_TCP: u8 = 6;
/// The flow label in an IPv6 header's first word.
const FLOW_LABEL: u32 = 0xf_ffff;

/// The largest headers [`encode`] writes.
pub const HEADER_LEN_MAX: usize = IPV6_LEN + TCP_LEN + OPTIONS_LEN_MAX;
/// The most data a segment can carry: what an IPv4 length leaves.
pub const PAYLOAD_MAX: usize = u16::MAX as usize - HEADER_LEN_MAX;

/// Why bytes are not a sound IP packet with a TCP segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Fewer bytes than the headers need.
    Short,
    /// Neither IPv4 nor IPv6.
    Version,
    /// An IP length that the bytes do not have, or trailing bytes.
    Length,
    /// A wrong IPv4 header checksum.
    Ipv4Checksum,
    /// Not TCP, or a fragment.
    NotTcp,
    /// A wrong TCP checksum.
    TcpChecksum,
    /// A data offset out of range.
    DataOffset,
    /// An option whose length is below 2 or leaves the header (RFC 9293 section 3.1).
    OptionLength,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damage::Short => "shorter than its headers",
            Damage::Version => "neither IPv4 nor IPv6",
            Damage::Length => "the IP header's length differs from the packet's",
            Damage::Ipv4Checksum => "wrong IPv4 header checksum",
            Damage::NotTcp => "not an unfragmented TCP segment",
            Damage::TcpChecksum => "wrong TCP checksum",
            Damage::DataOffset => "TCP data offset out of range",
            Damage::OptionLength => "TCP option with a bad length",
        })
    }
}

/// The Internet checksum (RFC 1071) over `bytes`, continuing from `initial`; not inverted.
fn ones_sum(bytes: &[u8], initial: u32) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b)));
    let mut sum = words.fold(initial, |sum, word| sum.wrapping_add(word));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// RFC 9293 section 3.1, RFC 8200 section 8.1: in sum they differ in the addresses only.
fn pseudo_header(source: IpAddr, destination: IpAddr, len: usize) -> u32 {
    let addresses = [source, destination]
        .into_iter()
        .fold(0, |sum, addr| match addr {
            IpAddr::V4(addr) => ones_sum(&addr.octets(), sum),
            IpAddr::V6(addr) => ones_sum(&addr.octets(), sum),
        });
    let mut rest = [0; 8];
    rest[..4].copy_from_slice(&(len as u32).to_be_bytes());
    rest[7] = PROTOCOL_TCP;
    ones_sum(&rest, addresses)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn address(bytes: &[u8], at: usize) -> IpAddr {
    Ipv4Addr::from(be32(bytes, at)).into()
}

fn address_v6(bytes: &[u8], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    Ipv6Addr::from(octets).into()
}

/// Reads one whole IP packet. All checksums are verified.
pub fn decode(packet: &[u8]) -> Result<Segment, Damage> {
    match packet.first().map(|byte| byte >> 4) {
        None => Err(Damage::Short),
        Some(4) => decode_v4(packet),
        Some(6) => decode_v6(packet),
        Some(_) => Err(Damage::Version),
    }
}

/// The stack sends no extension headers with a segment.
fn decode_v6(packet: &[u8]) -> Result<Segment, Damage> {
    if packet.len() < IPV6_LEN + TCP_LEN {
        return Err(Damage::Short);
    }
    if usize::from(be16(packet, 4)) != packet.len() - IPV6_LEN {
        return Err(Damage::Length);
    }
    if packet[6] != PROTOCOL_TCP {
        return Err(Damage::NotTcp);
    }
    let mut segment = decode_tcp(
        &packet[IPV6_LEN..],
        address_v6(packet, 8),
        address_v6(packet, 24),
        (be16(packet, 0) >> 4) as u8,
        packet[7],
    )?;
    segment.flow_label = be32(packet, 0) & FLOW_LABEL;
    Ok(segment)
}

fn decode_v4(packet: &[u8]) -> Result<Segment, Damage> {
    if packet.len() < IPV4_LEN {
        return Err(Damage::Short);
    }
    let header_len = usize::from(packet[0] & 0xf) * 4;
    if header_len < IPV4_LEN || packet.len() < header_len + TCP_LEN {
        return Err(Damage::Short);
    }
    if usize::from(be16(packet, 2)) != packet.len() {
        return Err(Damage::Length);
    }
    if ones_sum(&packet[..header_len], 0) != 0xffff {
        return Err(Damage::Ipv4Checksum);
    }
    let fragmented = be16(packet, 6) & 0x3fff != 0;
    if packet[9] != PROTOCOL_TCP || fragmented {
        return Err(Damage::NotTcp);
    }
    decode_tcp(
        &packet[header_len..],
        address(packet, 12),
        address(packet, 16),
        packet[1],
        packet[8],
    )
}

fn decode_tcp(
    tcp: &[u8],
    source: IpAddr,
    destination: IpAddr,
    tos: u8,
    ttl: u8,
) -> Result<Segment, Damage> {
    if ones_sum(tcp, pseudo_header(source, destination, tcp.len())) != 0xffff {
        return Err(Damage::TcpChecksum);
    }
    let data_offset = usize::from(tcp[12] >> 4) * 4;
    if data_offset < TCP_LEN || data_offset > tcp.len() {
        return Err(Damage::DataOffset);
    }
    Ok(Segment {
        source,
        destination,
        tos,
        ttl,
        flow_label: 0,
        source_port: be16(tcp, 0),
        destination_port: be16(tcp, 2),
        seq: be32(tcp, 4),
        ack: be32(tcp, 8),
        flags: Flags(u16::from(tcp[12] & 1) << 8 | u16::from(tcp[13])),
        window: be16(tcp, 14),
        urgent: be16(tcp, 18),
        options: decode_options(&tcp[TCP_LEN..data_offset])?,
        payload: tcp[data_offset..].to_vec(),
    })
}

/// Splits the option bytes. Padding after an end-of-list option is not listed.
fn decode_options(mut bytes: &[u8]) -> Result<Vec<TcpOption>, Damage> {
    let mut options = Vec::new();
    while let Some(&kind) = bytes.first() {
        match kind {
            0 => {
                options.push(TcpOption::Eol);
                break;
            }
            1 => {
                options.push(TcpOption::Nop);
                bytes = &bytes[1..];
            }
            _ => {
                let len = usize::from(*bytes.get(1).ok_or(Damage::OptionLength)?);
                if len < 2 || len > bytes.len() {
                    return Err(Damage::OptionLength);
                }
                options.push(decode_option(kind, &bytes[2..len]));
                bytes = &bytes[len..];
            }
        }
    }
    Ok(options)
}

fn decode_option(kind: u8, data: &[u8]) -> TcpOption {
    match (kind, data.len()) {
        (2, 2) => TcpOption::Mss(be16(data, 0)),
        (3, 1) => TcpOption::WindowScale(data[0]),
        (4, 0) => TcpOption::SackPermitted,
        (5, 8 | 16 | 24 | 32) => TcpOption::Sack(
            data.chunks(8)
                .map(|block| (be32(block, 0), be32(block, 4)))
                .collect(),
        ),
        (8, 8) => TcpOption::Timestamps {
            val: be32(data, 0),
            ecr: be32(data, 4),
        },
        _ => TcpOption::Other {
            kind,
            data: data.to_vec(),
        },
    }
}

fn encode_option(option: &TcpOption, out: &mut Vec<u8>) {
    let mut tlv = |kind: u8, data: &[u8]| {
        out.extend_from_slice(&[kind, data.len() as u8 + 2]);
        out.extend_from_slice(data);
    };
    match option {
        TcpOption::Eol => out.push(0),
        TcpOption::Nop => out.push(1),
        TcpOption::Mss(mss) => tlv(2, &mss.to_be_bytes()),
        TcpOption::WindowScale(shift) => tlv(3, &[*shift]),
        TcpOption::SackPermitted => tlv(4, &[]),
        TcpOption::Sack(blocks) => {
            let edges = blocks.iter().flat_map(|(left, right)| [*left, *right]);
            tlv(5, &edges.flat_map(u32::to_be_bytes).collect::<Vec<u8>>());
        }
        TcpOption::Timestamps { val, ecr } => {
            tlv(8, &[val.to_be_bytes(), ecr.to_be_bytes()].concat())
        }
        TcpOption::Other { kind, data } => tlv(*kind, data),
    }
}

/// Writes the whole IP packet with its checksums; both addresses must be of one family. Options are padded to a word with end-of-list bytes; options
/// beyond 40 bytes or data beyond [`PAYLOAD_MAX`] are a mistake of the caller.
pub fn encode(segment: &Segment) -> Vec<u8> {
    let mut options = Vec::new();
    segment
        .options
        .iter()
        .for_each(|option| encode_option(option, &mut options));
    options.resize(options.len().next_multiple_of(4), 0);
    assert!(
        options.len() <= OPTIONS_LEN_MAX,
        "TCP options take {} of 40 bytes",
        options.len()
    );
    assert!(
        segment.payload.len() <= PAYLOAD_MAX,
        "a payload of {} bytes",
        segment.payload.len()
    );

    let mut tcp = Vec::with_capacity(TCP_LEN + options.len() + segment.payload.len());
    tcp.extend_from_slice(&segment.source_port.to_be_bytes());
    tcp.extend_from_slice(&segment.destination_port.to_be_bytes());
    tcp.extend_from_slice(&segment.seq.to_be_bytes());
    tcp.extend_from_slice(&segment.ack.to_be_bytes());
    tcp.extend_from_slice(&[
        (((TCP_LEN + options.len()) / 4) << 4) as u8 | (segment.flags.0 >> 8) as u8 & 1,
        segment.flags.0 as u8,
    ]);
    tcp.extend_from_slice(&segment.window.to_be_bytes());
    tcp.extend_from_slice(&[0, 0]);
    tcp.extend_from_slice(&segment.urgent.to_be_bytes());
    tcp.extend_from_slice(&options);
    tcp.extend_from_slice(&segment.payload);
    let sum = ones_sum(
        &tcp,
        pseudo_header(segment.source, segment.destination, tcp.len()),
    );
    tcp[16..18].copy_from_slice(&(!sum as u16).to_be_bytes());

    match (segment.source, segment.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => in_v4(segment, &tcp, source, destination),
        (IpAddr::V6(source), IpAddr::V6(destination)) => in_v6(segment, &tcp, source, destination),
        (source, destination) => panic!("from {source} to {destination}: two families"),
    }
}

fn in_v6(segment: &Segment, tcp: &[u8], source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0; IPV6_LEN];
    let word = 6 << 28 | u32::from(segment.tos) << 20 | segment.flow_label & FLOW_LABEL;
    packet[..4].copy_from_slice(&word.to_be_bytes());
    packet[4..6].copy_from_slice(&(tcp.len() as u16).to_be_bytes());
    packet[6] = PROTOCOL_TCP;
    packet[7] = segment.ttl;
    packet[8..24].copy_from_slice(&source.octets());
    packet[24..40].copy_from_slice(&destination.octets());
    packet.extend_from_slice(tcp);
    packet
}

fn in_v4(segment: &Segment, tcp: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0; IPV4_LEN];
    packet[0] = 0x45;
    packet[1] = segment.tos;
    packet[2..4].copy_from_slice(&((IPV4_LEN + tcp.len()) as u16).to_be_bytes());
    packet[6] = 0x40; // Don't Fragment, as hosts that discover the path MTU send.
    packet[8] = segment.ttl;
    packet[9] = PROTOCOL_TCP;
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    let sum = ones_sum(&packet, 0);
    packet[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
    packet.extend_from_slice(tcp);
    packet
}
