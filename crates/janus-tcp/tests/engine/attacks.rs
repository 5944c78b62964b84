//! Attacks on the opening and the identity of connections: floods, forged resets, SYNs and data, sources that cannot
//! be, packets that lie about themselves. Each time: no panic, others unharmed, bounded memory, nothing left behind.

use core::time::Duration;
use std::net::Ipv4Addr;

use crate::support::{Craft, HERE, Host, PEER, PORT, Peer, bytes_at};
use janus_tcp::{Config, State};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

fn stranger(i: u32) -> (Ipv4Addr, u16) {
    let [_, _, a, b] = (i % 60_000).to_be_bytes();
    (Ipv4Addr::new(198, 18, a, b), 1_024 + (i / 60_000) as u16)
}

#[test]
fn a_syn_flood_takes_bounded_records_and_harms_nobody() {
    let mut host = Host::with(Config {
        max_half_open: 100,
        ..Config::default()
    });
    let mut victim = Peer::open(&mut host, 4_000);
    let before = host.stack.memory();
    for i in 0..5_000 {
        host.send(&Craft::syn(stranger(i)));
        assert!(host.stack.half_open() <= 100);
        if i % 64 == 0 {
            host.collect();
        }
        if i % 1_000 == 0 {
            victim.expect_unharmed(&mut host);
        }
    }
    // Those for whom there is no record get a cookie, and nobody is pushed out.
    assert_eq!(host.stack.counters().cookies_sent, 4_900);
    assert_eq!(host.stack.counters().half_open_evicted, 0);
    assert_eq!(host.stack.connections(), 1);
    assert_eq!(host.stack.hot_in_use(), 0);
    assert_eq!(host.stack.memory().half_open, before.half_open);
    // A newcomer gets through.
    let mut late = Peer::open(&mut host, 4_001);
    late.expect_unharmed(&mut host);
    victim.expect_unharmed(&mut host);
    host.end(&[victim.conn, late.conn]);
}

#[test]
fn repeats_of_one_syn_make_one_record() {
    let mut host = Host::plain();
    // The answer itself, and from then on one in each half second, so that they are not worth reflecting.
    for round in 0..4 {
        let answers = (0..1_000).map(|_| host.ask(&Craft::syn((PEER, 4_000))).len());
        assert_eq!(answers.sum::<usize>(), if round == 0 { 2 } else { 1 });
        host.now = host.now + Duration::from_millis(500);
    }
    assert_eq!(host.stack.half_open(), 1);
    host.end(&[]);
}

#[test]
fn resets_for_ports_nobody_listens_on_are_bounded_by_the_reply_queue() {
    let mut host = Host::plain();
    let mut victim = Peer::open(&mut host, 4_000);
    for i in 0..10_000 {
        let mut syn = Craft::syn(stranger(i));
        syn.dst.1 = 1_000 + i as u16;
        host.send(&syn);
    }
    let resets = host.collect();
    assert_eq!(resets.len(), 4_096);
    assert!(resets.iter().all(|s| s.has(Flags::RST | Flags::ACK)));
    assert_eq!(host.stack.counters().resets_out, 4_096);
    assert_eq!(host.stack.counters().dropped_reply_full, 10_000 - 4_096);
    assert_eq!(host.stack.connections(), 1);
    victim.expect_unharmed(&mut host);
    host.end(&[victim.conn]);
}

/// Offsets from the next expected number that lie outside the window of 64 KiB (or, after it has opened, of
/// 256 KiB), and inside of it.
const OUTSIDE: [i32; 6] = [-70_000, -1, 300_000, 1 << 30, i32::MAX, i32::MIN];
const INSIDE: [i32; 4] = [1, 2, 1_000, 60_000];

#[test]
fn a_blind_reset_must_hit_exactly() {
    let mut host = Host::plain();
    let mut victim = Peer::open(&mut host, 4_000);
    let forged = |victim: &Peer, offset: i32| {
        let mut rst = victim.segment(Flags::RST);
        rst.seq = victim.snd + offset as u32;
        rst
    };
    for offset in OUTSIDE {
        assert!(host.ask(&forged(&victim, offset)).is_empty());
    }
    assert_eq!(host.stack.counters().challenge_acks, 0);
    for offset in INSIDE {
        let answers = host.ask(&forged(&victim, offset));
        assert_eq!(answers.len(), 1, "a challenge");
        assert_eq!(answers[0].header.flags, Flags::ACK);
        assert_eq!(answers[0].header.ack, victim.snd);
        // One is enough for a while.
        assert!(host.ask(&forged(&victim, offset)).is_empty());
        host.wait(Duration::from_millis(500));
    }
    victim.expect_unharmed(&mut host);
    // The peer itself answers a challenge with the exact number.
    host.send(&forged(&victim, 0));
    let state = host.stack.info(victim.conn).map(|info| info.state);
    assert_eq!(state, Ok(State::Closed));
    host.end(&[victim.conn]);
}

/// Where a limit of the whole stack is configured.
#[test]
fn challenges_are_limited_and_their_number_is_nobodys_to_know() {
    let mut host = Host::with(Config {
        invalid_ack_interval: None,
        challenge_acks_per_second: Some(1_000),
        ..Config::default()
    });
    let mut victim = Peer::open(&mut host, 4_000);
    let mut numbers = Vec::new();
    host.now = janus_tcp::Instant::from_millis(10_000);
    for _ in 0..8 {
        let before = host.stack.counters().challenge_acks;
        for _ in 0..1_500 {
            let mut rst = victim.segment(Flags::RST);
            rst.seq = victim.snd + 1u32;
            host.send(&rst);
        }
        let sent = host.collect().len() as u64;
        assert_eq!(sent, host.stack.counters().challenge_acks - before);
        assert!(
            (500..=1_000).contains(&sent),
            "{sent} challenges in a second"
        );
        numbers.push(sent);
        // All are used up; one who asks whether we are alive is answered nevertheless.
        let mut keepalive = victim.segment(Flags::ACK);
        keepalive.seq = victim.snd - 1;
        assert_eq!(host.ask(&keepalive).len(), 1);
        host.wait(Duration::from_secs(1));
    }
    assert!(numbers.iter().any(|&n| n != numbers[0]));
    victim.expect_unharmed(&mut host);
    host.end(&[victim.conn]);
}

/// The limit of a flow must not be another way to learn of a stranger's connection (CVE-2016-5696): whether it was
/// challenged changes nothing for mine.
#[test]
fn a_challenge_to_one_connection_is_not_seen_by_another() {
    for forged in [false, true] {
        let mut host = Host::plain();
        let mut victim = Peer::open(&mut host, 4_000);
        let mine: Vec<Peer> = (0..300).map(|i| Peer::open(&mut host, 5_000 + i)).collect();
        let challenge = |host: &mut Host, of: &Peer| {
            let mut rst = of.segment(Flags::RST);
            rst.seq = of.snd + 1u32;
            host.ask(&rst).len()
        };
        assert!(mine.iter().all(|peer| challenge(&mut host, peer) == 1));
        if forged {
            assert_eq!(challenge(&mut host, &victim), 1);
        }
        assert!(mine.iter().all(|peer| challenge(&mut host, peer) == 0));
        host.wait(Duration::from_millis(500));
        assert!(mine.iter().all(|peer| challenge(&mut host, peer) == 1));
        victim.expect_unharmed(&mut host);
        let mut conns: Vec<_> = mine.iter().map(|peer| peer.conn).collect();
        conns.push(victim.conn);
        host.end(&conns);
    }
}

/// Two ends of which each takes the other's acknowledgement for old would answer each other for ever.
#[test]
fn a_storm_of_acknowledgements_ends() {
    let mut host = Host::plain();
    let mut victim = Peer::open(&mut host, 4_000);
    for offset in [-1i32, -2, -1_000, 1 << 30] {
        let mut empty = victim.segment(Flags::ACK);
        empty.seq = victim.snd + offset as u32;
        let answers = (0..100).map(|_| host.ask(&empty).len());
        assert_eq!(answers.sum::<usize>(), 1, "{offset}");
        host.wait(Duration::from_millis(500));
    }
    // Text is answered each time: it cannot be part of such a storm, and its sender waits for it.
    let mut old = victim.segment(Flags::ACK);
    old.seq = victim.snd - 20;
    old.payload = vec![1; 10];
    assert_eq!((0..10).map(|_| host.ask(&old).len()).sum::<usize>(), 10);
    victim.expect_unharmed(&mut host);
    host.end(&[victim.conn]);
}

#[test]
fn a_blind_syn_never_ends_a_connection() {
    let mut host = Host::plain();
    let mut victim = Peer::open(&mut host, 4_000);
    for offset in OUTSIDE.into_iter().chain(INSIDE).chain([0]) {
        let mut syn = Craft::syn(victim.at);
        syn.seq = victim.snd + offset as u32;
        let answers = host.ask(&syn);
        assert!(answers.len() <= 1 && answers.iter().all(|s| s.header.flags == Flags::ACK));
        victim.expect_unharmed(&mut host);
    }
    host.end(&[victim.conn]);
}

#[test]
fn blind_data_needs_the_window_and_a_plausible_acknowledgement() {
    let mut host = Host::plain();
    let mut victim = Peer::open(&mut host, 4_000);
    victim.expect_unharmed(&mut host);
    for offset in OUTSIDE.into_iter().chain(INSIDE).chain([0]) {
        for ack in [
            1u32,
            1_000,
            1 << 30,
            1 << 31,
            0u32.wrapping_sub(300_000 << 3),
        ] {
            let mut forged = victim.segment(Flags::ACK | Flags::PSH);
            forged.seq = victim.snd + offset as u32;
            forged.ack = victim.rcv + ack;
            forged.payload = vec![0xee; 500];
            let answers = host.ask(&forged);
            assert!(answers.len() <= 1 && answers.iter().all(|s| s.header.flags == Flags::ACK));
        }
    }
    // Nor without any acknowledgement.
    let mut forged = victim.segment(Flags::PSH);
    forged.payload = vec![0xee; 500];
    assert!(host.ask(&forged).is_empty());
    victim.expect_unharmed(&mut host);
    host.end(&[victim.conn]);
}

/// Each forged segment touches the edge of the window, as a lucky guess may, and carries a timestamp from the
/// future; if one of them were believed, all that the peer sends would look old.
#[test]
fn a_forged_timestamp_does_not_silence_the_peer() {
    let mut host = Host::plain();
    let mut victim = Peer::open_with_timestamps(&mut host, 4_000);
    victim.expect_unharmed(&mut host);
    let flags = [
        Flags::RST,
        Flags::SYN,
        Flags::ACK,
        Flags::FIN,
        Flags::PSH,
        Flags(0),
    ];
    for flags in flags {
        for (offset, len) in [(0u32, 0), (0, 100), (0u32.wrapping_sub(50), 100)] {
            if flags == Flags::RST && offset == 0 {
                continue;
            }
            let mut forged = victim.segment(flags);
            forged.seq = victim.snd + offset;
            forged.ack = victim.rcv + (1u32 << 30);
            forged.options.timestamps = Some((1_000_000 + (1 << 30), 0));
            forged.payload = vec![0xee; len];
            host.ask(&forged);
            victim.expect_unharmed(&mut host);
        }
    }
    host.end(&[victim.conn]);
}

/// IPv6's are in `attacks_on_addresses.rs`.
#[test]
fn sources_that_cannot_be_are_not_answered() {
    if crate::support::family::is_v6() {
        return;
    }
    let mut host = Host::plain();
    let sources = [
        HERE,
        Ipv4Addr::new(0, 0, 0, 0),
        Ipv4Addr::new(0, 1, 2, 3),
        Ipv4Addr::new(127, 0, 0, 1),
        Ipv4Addr::new(192, 0, 2, 255),
        Ipv4Addr::new(192, 0, 2, 0),
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(240, 0, 0, 1),
        Ipv4Addr::BROADCAST,
    ];
    let mut dropped = 0;
    for source in sources {
        for port in [PORT, 81] {
            for flags in [Flags::SYN, Flags::ACK, Flags::SYN | Flags::ACK, Flags(0)] {
                // The same ports on both sides: with our own address, LAND.
                let mut craft = Craft::new((source, port), flags);
                craft.dst.1 = port;
                assert!(host.ask(&craft).is_empty(), "{source} is answered");
                dropped += 1;
            }
        }
    }
    for target in [
        Ipv4Addr::new(192, 0, 2, 255),
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
    ] {
        let mut craft = Craft::syn((PEER, 4_000));
        craft.dst.0 = target;
        assert!(host.ask(&craft).is_empty(), "{target} answers");
        dropped += 1;
    }
    assert_eq!(host.stack.counters().dropped_address, dropped);
    assert_eq!(host.stack.half_open(), 0);
    host.end(&[]);
}

/// Where every destination is ours a packet from ourselves cannot be told; it must still do no harm.
#[test]
fn land_does_no_harm_where_all_addresses_are_ours() {
    let mut host = Host::new(Config::default(), janus_tcp::Interface::ip(1_500), 1_024);
    let mut victim = Peer::open(&mut host, 4_000);
    // The worst wire: it brings everything back. What keeps such a loop going is challenges, and a flow
    // gets few.
    let mut packets = vec![Craft::syn((HERE, PORT)).packet()];
    let mut rounds = 0;
    while let Some(packet) = packets.pop() {
        host.feed(&packet);
        for seen in host.collect() {
            let mut back = Craft::new((HERE, PORT), seen.header.flags);
            (back.seq, back.ack) = (seen.header.seq, seen.header.ack);
            back.options = seen.options;
            packets.push(back.packet());
        }
        rounds += 1;
        assert!(rounds < 10, "a loop");
    }
    assert!(host.stack.half_open() <= 1);
    victim.expect_unharmed(&mut host);
    host.end(&[victim.conn]);
}

#[test]
fn packets_that_lie_about_themselves_are_dropped() {
    let mut host = Host::plain();
    let mut victim = Peer::open(&mut host, 4_000);
    let mut syn = Craft::syn((PEER, 5_000));
    syn.options.timestamps = Some((1, 0));
    let sound = syn.packet();
    let mut lies: Vec<Vec<u8>> = (0..sound.len()).map(|n| sound[..n].to_vec()).collect();
    let data = victim.ahead(0, 100).packet();
    lies.extend((0..data.len()).map(|n| data[..n].to_vec()));
    for packet in [&sound, &data] {
        // The IP version and header length, the total length, the data offset; the checksums wrong or made right.
        for at in [0, 2, 3, 9, 32] {
            for value in 0..=255u8 {
                let mut lie = packet.clone();
                lie[at] = value;
                if lie == *packet {
                    continue;
                }
                lies.push(lie.clone());
                fix_checksums(&mut lie);
                // A shorter header with a right checksum is not a lie; it only must do no harm.
                if at != 32 && at != 3 && at != 9 {
                    lies.push(lie);
                } else {
                    host.feed(&lie);
                }
            }
        }
        for at in (0..packet.len()).filter(|at| !(10..12).contains(at)) {
            let mut lie = packet.clone();
            lie[at] ^= 1 << (at % 8);
            lies.push(lie);
        }
    }
    for lie in &lies {
        host.feed(lie);
    }
    host.collect();
    victim.expect_unharmed(&mut host);
    assert_eq!(host.stack.connections(), 1);
    host.end(&[victim.conn]);
}

/// Each bit of a TCP header and payload is under the checksum.
fn fix_checksums(packet: &mut [u8]) {
    let header = usize::from(packet[0] & 0xf) * 4;
    if !(20..packet.len()).contains(&header) {
        return;
    }
    packet[10..12].fill(0);
    let sum = janus_wire::checksum::ipv4_header(&packet[..header]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]])).min(packet.len());
    if total >= header + 20 {
        janus_wire::tcp::fill_checksum_v4(&mut packet[header..total], PEER, HERE);
    }
}

#[test]
fn malformed_options_are_survived_and_the_good_ones_used() {
    let junk: [&[u8]; 14] = [
        &[0; 4],
        &[1; 24],
        &[2, 0, 5, 5],
        &[2, 1, 5, 5],
        &[2, 255, 5, 5],
        &[2, 3, 5, 0],
        &[3, 2, 14, 0],
        &[3, 4, 14, 0],
        &[8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[5, 3, 0, 0],
        &[5, 40, 0, 0, 0, 0, 0, 0],
        &[253, 253, 253, 253],
        &[254, 0, 254, 0],
        &[1, 1, 1, 8],
    ];
    let mut host = Host::plain();
    let mut conns = Vec::new();
    for (i, junk) in junk.into_iter().enumerate() {
        let mut syn = Craft::syn((PEER, 4_000 + i as u16));
        syn.junk = junk.to_vec();
        let mut peer = Peer::open_with(&mut host, &syn);
        let mss = host.stack.info(peer.conn).map(|info| info.mss);
        assert_eq!(mss, Ok(1_400), "{junk:?}");
        let mut data = peer.ahead(0, 10);
        data.junk = junk.to_vec();
        host.send(&data);
        peer.skip(10);
        peer.expect_unharmed(&mut host);
        conns.push(peer.conn);
    }
    host.end(&conns);
}

#[test]
fn a_full_table_turns_newcomers_away_and_keeps_the_rest() {
    let mut host = Host::with(Config {
        max_connections: 4,
        max_half_open: 8,
        max_time_wait: 1,
        max_hot: 4,
        ..Config::default()
    });
    let mut peers: Vec<Peer> = (0..4).map(|i| Peer::open(&mut host, 4_000 + i)).collect();
    for i in 0..50 {
        assert!(Peer::try_open(&mut host, &Craft::syn((PEER, 5_000 + i))).is_none());
    }
    assert!(host.stack.counters().dropped_table_full >= 50);
    assert_eq!(host.stack.connections(), 4);
    for peer in &mut peers {
        peer.expect_unharmed(&mut host);
    }
    // One goes, one may come.
    host.stack.abort(host.now, peers[0].conn);
    host.collect();
    peers[0] = Peer::open(&mut host, 6_000);
    for peer in &mut peers {
        peer.expect_unharmed(&mut host);
    }
    host.end(&peers.iter().map(|p| p.conn).collect::<Vec<_>>());
}

#[test]
fn a_half_open_record_outlives_no_listener() {
    let mut host = Host::plain();
    let syn = Craft::syn((PEER, 4_000));
    let answers = host.ask(&syn);
    host.stack.unlisten(host.now, host.listener);
    let other = crate::support::family::socket(HERE, 81);
    host.listener = host.stack.listen(other, 16).expect("a free port");
    let mut ack = Craft::new(syn.src, Flags::ACK);
    (ack.seq, ack.ack) = (SeqNum(1), answers[0].end());
    ack.payload = bytes_at(0, 10);
    let answers = host.ask(&ack);
    assert!(answers.len() == 1 && answers[0].has(Flags::RST));
    assert_eq!((host.stack.half_open(), host.stack.connections()), (0, 0));
    host.end(&[]);
}
