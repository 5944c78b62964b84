//! Frames, written out field by field so that they owe nothing to the code they are for.

use std::net::{Ipv4Addr, Ipv6Addr};

fn frame(ethertype: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ethertype.to_be_bytes());
    parts.iter().for_each(|part| frame.extend(*part));
    frame
}

fn header4(dst: Ipv4Addr, proto: u8, fragment: u16, options: usize) -> Vec<u8> {
    let mut header = vec![0x45 + (options / 4) as u8, 0, 0, 60, 0, 1];
    header.extend(fragment.to_be_bytes());
    header.extend([64, proto, 0, 0, 198, 51, 100, 1]);
    header.extend(dst.octets());
    header.resize(20 + options, 1);
    header
}

fn header6(dst: Ipv6Addr, next: u8) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 20, next, 64];
    header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99]);
    header.extend(dst.octets());
    header
}

/// Ports, the first fields of TCP and UDP, and what may follow.
fn ports(from: u16, to: u16) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    bytes.resize(20, 0);
    bytes
}

/// A packet to a port, from port 80 turned round.
pub(super) fn ip4(dst: Ipv4Addr, proto: u8, port: u16) -> Vec<u8> {
    frame(
        0x0800,
        &[&header4(dst, proto, 0x4000, 0), &ports(49_152, port)],
    )
}

pub(super) fn with_options(dst: Ipv4Addr, port: u16) -> Vec<u8> {
    frame(0x0800, &[&header4(dst, 6, 0, 40), &ports(49_152, port)])
}

/// A TCP packet's second part; where it has payload a port of 80 would stand.
pub(super) fn later_fragment(dst: Ipv4Addr) -> Vec<u8> {
    later_fragment_of(6, dst)
}

pub(super) fn later_fragment_of(proto: u8, dst: Ipv4Addr) -> Vec<u8> {
    frame(0x0800, &[&header4(dst, proto, 185, 0), &ports(80, 80)])
}

pub(super) fn ip6(dst: Ipv6Addr, next: u8, port: u16) -> Vec<u8> {
    frame(0x86dd, &[&header6(dst, next), &ports(49_152, port)])
}

pub(super) fn tagged(packet: &[u8]) -> Vec<u8> {
    let (addresses, rest) = packet.split_at(12);
    [addresses, &[0x81, 0, 0, 5], rest].concat()
}

pub(super) fn arp(op: u16, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4];
    packet.extend(op.to_be_bytes());
    packet.extend([2, 0, 0, 0, 0, 2]);
    packet.extend(sender.octets());
    packet.extend([0; 6]);
    packet.extend(target.octets());
    frame(0x0806, &[&packet])
}

/// A solicitation (135) or an advertisement (136), without options.
pub(super) fn neighbor(kind: u8, dst: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let message = [&[kind, 0, 0, 0, 0, 0, 0, 0], &target.octets()[..]].concat();
    frame(0x86dd, &[&header6(dst, 58), &message])
}

/// An ICMP message that quotes, as errors do, a segment from `port`, with options in its header.
pub(super) fn icmp_error(dst: Ipv4Addr, kind: u8, port: u16) -> Vec<u8> {
    icmp_error_of(6, dst, kind, port)
}

/// The same of any protocol with ports.
pub(super) fn icmp_error_of(proto: u8, dst: Ipv4Addr, kind: u8, port: u16) -> Vec<u8> {
    let quoted = header4(Ipv4Addr::new(198, 51, 100, 1), proto, 0, 8);
    let parts = [&[kind, 0, 0, 0, 0, 0, 0, 0], &quoted[..], &ports(port, 443)].concat();
    frame(0x0800, &[&header4(dst, 1, 0, 0), &parts])
}

pub(super) fn icmp_error_v6(dst: Ipv6Addr, kind: u8, port: u16) -> Vec<u8> {
    icmp_error_v6_of(6, dst, kind, port)
}

pub(super) fn icmp_error_v6_of(next: u8, dst: Ipv6Addr, kind: u8, port: u16) -> Vec<u8> {
    let quoted = header6(Ipv6Addr::LOCALHOST, next);
    let parts = [&[kind, 0, 0, 0, 0, 0, 0, 0], &quoted[..], &ports(port, 443)].concat();
    frame(0x86dd, &[&header6(dst, 58), &parts])
}
