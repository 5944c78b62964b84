//! Packets that lie about themselves or about others: ICMP errors, options, lengths, fragments, noise.

use core::time::Duration;
use std::net::Ipv4Addr;

use janus_wire::tcp::Flags;
use janus_wire::{SeqNum, checksum, ipv4, ipv6, proto};

use super::arena::Arena;
use super::support::family::{is_v6, v6_of};
use super::support::{Craft, HERE, PORT, bytes_at};

const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// An IP packet of the family that counts now.
fn ip_packet(src: Ipv4Addr, proto: u8, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let mut packet = if is_v6() {
        let repr = ipv6::Repr {
            src: v6_of(src),
            dst: v6_of(HERE),
            proto,
            payload_len,
            hop_limit: 60,
            traffic_class: 0,
            flow_label: 0,
        };
        let mut bytes = vec![0; ipv6::LEN];
        ipv6::emit(&mut bytes, &repr);
        bytes
    } else {
        let repr = ipv4::Repr {
            src,
            dst: HERE,
            proto,
            payload_len,
            ttl: 60,
            tos: 0,
            id: 0,
            dont_fragment: false,
        };
        let mut bytes = vec![0; ipv4::LEN];
        ipv4::emit(&mut bytes, &repr);
        bytes
    };
    packet.extend_from_slice(payload);
    packet
}

/// An ICMP message of any type, about a packet of ours to the peer that begins like this.
fn icmp_about(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend_from_slice(quoted);
    let sum = if is_v6() {
        let (src, dst) = (v6_of(ROUTER), v6_of(HERE));
        let mut pseudo = [&src.octets()[..], &dst.octets()].concat();
        pseudo.extend((message.len() as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, proto::ICMPV6]);
        checksum::finish(checksum::sum(&message, checksum::sum(&pseudo, 0)))
    } else {
        checksum::finish(checksum::sum(&message, 0))
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let proto = if is_v6() { proto::ICMPV6 } else { proto::ICMP };
    ip_packet(ROUTER, proto, &message)
}

/// A packet of ours as a router would quote it, of the witness's connection but with a sequence number that is not.
fn misquoted(arena: &mut Arena) -> Vec<u8> {
    let offset = match arena.below(3) {
        0 => 1 + arena.below(1 << 20),
        1 => (1 + arena.below(1 << 20)).wrapping_neg(),
        _ => 1 << 31,
    };
    let victim = arena.victim();
    let (to, port) = victim.at;
    let mut ours = Craft::new((HERE, PORT), Flags::ACK);
    (ours.dst, ours.seq) = ((to, port), victim.rcv + offset);
    ours.payload = vec![0; 1_300];
    ours.packet()
}

pub(crate) fn forged_icmp(arena: &mut Arena) {
    let before = arena.host.info(arena.victim().conn).mss;
    for i in 0..3_000u32 {
        let mut quoted = misquoted(arena);
        let keep = [8, 20, 28, 48, 68, 576, 1_240][arena.below(7) as usize];
        quoted.truncate(keep);
        let kinds: &[u8] = if is_v6() {
            &[1, 2, 3, 4, 128, 129, 137, 255]
        } else {
            &[0, 3, 4, 5, 8, 11, 12, 13]
        };
        let kind = kinds[arena.below(kinds.len() as u32) as usize];
        let (code, word) = (arena.below(17) as u8, arena.below(3_000));
        let word = if i % 3 == 0 { u32::MAX } else { word };
        arena.fire_packet(&icmp_about(kind, code, word, &quoted));
        if i % 100 == 0 {
            arena.wait(Duration::from_millis(10));
        }
    }
    let after = arena.host.info(arena.victim().conn).mss;
    assert_eq!(after, before, "a forger has changed the segment size");
}

/// The first segment in flight to one of the attacker's connections, as a router would quote it.
pub(crate) fn quoting(arena: &Arena, i: usize) -> Vec<u8> {
    let peer = &arena.mine[i];
    let mut ours = Craft::new((HERE, PORT), Flags::ACK);
    (ours.dst, ours.seq) = (peer.at, peer.rcv);
    ours.payload = vec![7; 500];
    ours.packet()
}

/// That it could not be delivered. `code` is IPv4's; over IPv6 it is "no route" for what is a part of the way, and else
/// "prohibited".
pub(crate) fn unreachable(code: u8, quoted: &[u8]) -> Vec<u8> {
    match is_v6() {
        true => icmp_about(1, u8::from(code > 1), 0, quoted),
        false => icmp_about(3, code, 0, quoted),
    }
}

/// Headers between IP's own and TCP's: a chain for IPv6, options for IPv4. Their lengths are true or lie.
fn chained(arena: &mut Arena, segment: &[u8], src: Ipv4Addr) -> Vec<u8> {
    if !is_v6() {
        let words = 1 + arena.below(10) as usize;
        let mut options: Vec<u8> = (0..4 * words).map(|_| arena.below(256) as u8).collect();
        let kinds = [0, 1, 7, 68, 130, 131, 137, 148];
        options[0] = kinds[arena.below(8) as usize];
        options[1] = arena.below(41) as u8;
        let mut packet = ip_packet(src, proto::TCP, &[&options[..], segment].concat());
        packet[0] = 0x45 + words as u8;
        packet[10..12].fill(0);
        let sum = checksum::ipv4_header(&packet[..ipv4::LEN + options.len()]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        return packet;
    }
    // Hop-by-hop, routing, fragment, destination options, authentication, mobility, none, and one nobody knows.
    const KINDS: [u8; 8] = [0, 43, 44, 60, 51, 135, 59, 253];
    let (mut chain, mut next) = (segment.to_vec(), proto::TCP);
    for _ in 0..1 + arena.below(12) {
        let units = arena.below(4) as usize;
        let mut header = vec![0; 8 * (units + 1)];
        header[0] = next;
        header[1] = if arena.below(4) == 0 {
            arena.below(256) as u8
        } else {
            units as u8
        };
        for byte in &mut header[2..] {
            *byte = if arena.below(2) == 0 {
                0
            } else {
                arena.below(256) as u8
            };
        }
        next = KINDS[arena.below(8) as usize];
        chain = [header, chain].concat();
    }
    ip_packet(src, next, &chain)
}

pub(crate) fn extension_chains(arena: &mut Arena) {
    for i in 0..4_000 {
        let mut craft = Craft::syn(Arena::stranger(i));
        if i % 3 == 0 {
            craft = arena.victim().segment(Flags::RST);
            craft.seq += 1 + arena.below(1 << 30);
        }
        let ip = if is_v6() { ipv6::LEN } else { ipv4::LEN };
        let packet = craft.packet();
        let chained = chained(arena, &packet[ip..], craft.src.0);
        arena.fire_packet(&chained);
        if i % 500 == 0 {
            arena.wait(Duration::from_secs(2));
        }
    }
    arena.wait(Duration::from_secs(100));
    arena.wait(Duration::from_secs(100));
    let noticed = arena.counted(|c| c.dropped_malformed + c.dropped_protocol + c.fragments_in);
    assert!(noticed > 0 || !is_v6());
}

/// Bytes where options should be.
fn bad_options(arena: &mut Arena, i: u32) -> Vec<u8> {
    let fixed: [&[u8]; 18] = [
        &[0; 40],
        &[1; 40],
        &[2; 40],
        &[8; 40],
        &[255; 40],
        &[2, 0, 0, 0],
        &[2, 1, 0, 0],
        &[2, 3, 5, 0],
        &[2, 5, 5, 5, 5, 0, 0, 0],
        &[2, 40, 5, 5],
        &[3, 2, 3, 4],
        &[3, 0, 14, 0],
        &[4, 3, 0, 0],
        &[5, 2, 5, 2],
        &[5, 255, 0, 0],
        &[8, 2, 8, 10],
        &[8, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[1, 1, 1, 8],
    ];
    let repeated = [
        [2, 4, 0, 50].repeat(10),
        [1, 3, 3, 9].repeat(10),
        [4, 2, 4, 2].repeat(10),
        [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2].repeat(3),
        [1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 0, 3].repeat(3),
    ];
    let at = i as usize % (fixed.len() + repeated.len() + 4);
    if let Some(bytes) = fixed.get(at) {
        return bytes.to_vec();
    }
    if let Some(bytes) = repeated.get(at - fixed.len()) {
        return bytes.clone();
    }
    let len = 4 * (1 + arena.below(10));
    (0..len).map(|_| arena.below(256) as u8).collect()
}

pub(crate) fn malformed_options(arena: &mut Arena) {
    // On one's own connections, in every kind of segment, in openings; and with the witness's address.
    arena.open_many(20, |_| {});
    for i in 0..4_000u32 {
        let junk = bad_options(arena, i);
        let who = arena.below(20) as usize;
        let mut craft = match i % 5 {
            0 => Craft::new(Arena::stranger(100 + i), Flags::SYN),
            1 => arena.mine[who].segment(Flags::ACK),
            2 => {
                let data = arena.mine[who].ahead(0, 10);
                arena.mine[who].skip(10);
                data
            }
            3 => arena.mine[who].segment(Flags::SYN | Flags::ACK),
            _ => {
                let mut forged = arena.victim().segment(Flags::ACK);
                forged.ack += 1 + arena.below(1 << 30);
                forged.options.timestamps = None;
                forged
            }
        };
        craft.junk = junk;
        arena.fire(&craft);
        if i % 100 == 0 {
            arena.wait(Duration::from_millis(100));
            for who in 0..20 {
                arena.read_all(who);
            }
        }
    }
}

pub(crate) fn malformed_headers(arena: &mut Arena) {
    let mut syn = Craft::syn(Arena::stranger(1));
    syn.options.timestamps = Some((1, 0));
    let mut data = Craft::new(Arena::stranger(1), Flags::ACK | Flags::PSH);
    data.payload = bytes_at(0, 64);
    for sound in [syn.packet(), data.packet()] {
        for len in 0..sound.len() {
            arena.fire_packet(&sound[..len]);
        }
        for at in 0..sound.len().min(80) {
            for _ in 0..16 {
                let mut lie = sound.clone();
                lie[at] = arena.below(256) as u8;
                arena.fire_packet(&lie);
                let more = arena.below(200) as usize;
                lie.resize(sound.len() + more, 0xaa);
                arena.fire_packet(&lie);
            }
        }
    }
}

/// A piece of a datagram, `at` in units of eight bytes.
fn fragment(src: Ipv4Addr, id: u32, at: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    if is_v6() {
        let mut header = vec![proto::TCP, 0];
        header.extend((at << 3 | u16::from(more)).to_be_bytes());
        header.extend(id.to_be_bytes());
        header.extend_from_slice(payload);
        return ip_packet(src, 44, &header);
    }
    let mut packet = ip_packet(src, proto::TCP, payload);
    packet[4..6].copy_from_slice(&(id as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&(u16::from(more) << 13 | at).to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum::ipv4_header(&packet[..ipv4::LEN]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

pub(crate) fn fragments(arena: &mut Arena) {
    // First pieces of datagrams that never end, from everywhere.
    for i in 0..3_000 {
        arena.fire_packet(&fragment(Arena::stranger(i).0, i, 0, true, &[0xaa; 1_400]));
    }
    // Pieces that overlap, repeat, leave holes, or pass the end there can be.
    for i in 0..3_000 {
        let (at, len) = (arena.below(8_192) as u16, 8 * arena.below(100) as usize);
        let more = arena.below(3) > 0;
        let src = Arena::stranger(i % 5).0;
        let payload = vec![
            i as u8;
            if more {
                len
            } else {
                len + arena.below(8) as usize
            }
        ];
        let at = if i % 2 == 0 { at } else { at % 64 };
        arena.fire_packet(&fragment(src, i % 7, at, more, &payload));
        if i % 500 == 0 {
            arena.wait(Duration::from_secs(10));
        }
    }
    // As if from the witness, about its connection.
    for i in 0..500 {
        let src = arena.victim().at.0;
        arena.fire_packet(&fragment(src, i, (i % 3) as u16, i % 2 == 0, &[0; 24]));
    }
    arena.wait(Duration::from_secs(100));
    arena.wait(Duration::from_secs(100));
}

pub(crate) fn noise(arena: &mut Arena) {
    for i in 0..4_000 {
        let mut craft = Craft::new(Arena::stranger(i), Flags(arena.below(256) as u8));
        craft.dst.1 = if i % 2 == 0 {
            PORT
        } else {
            arena.below(65_536) as u16
        };
        (craft.seq, craft.ack) = (SeqNum(arena.below(u32::MAX)), SeqNum(arena.below(u32::MAX)));
        (craft.window, craft.urgent) = (arena.below(65_536) as u16, arena.below(65_536) as u16);
        craft.payload = bytes_at(i, arena.below(1_200) as usize);
        craft.junk = (0..arena.below(41))
            .map(|_| arena.below(256) as u8)
            .collect();
        let mut packet = craft.packet();
        if i % 4 == 0 {
            let at = arena.below(packet.len() as u32) as usize;
            packet[at] ^= 1 << arena.below(8);
        }
        arena.fire_packet(&packet);
    }
}
