//! What a header may say and what is made of it: checksums, options in every place and shape, IP options, resets with
//! data. RFC 9293 sections 3.1, 3.2, 3.5.3 and 3.9.2.

use crate::support::family::{is_v6, over_both, socket};
use crate::support::{Craft, HERE, Host, PEER, Peer, bytes_at};
use janus_tcp::{Error, State};
use janus_wire::tcp::Flags;
use janus_wire::{SeqNum, ipv4};

/// Fills an IPv4 header's checksum in.
fn fix_ip_checksum(packet: &mut [u8]) {
    let header = usize::from(packet[0] & 0xf) * 4;
    packet[10..12].fill(0);
    let sum = janus_wire::checksum::ipv4_header(&packet[..header]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// MUST-2: the harness verifies the checksum of all that is sent; here are all kinds of segments and lengths.
#[test]
fn all_that_is_sent_carries_its_checksum() {
    let mut host = Host::plain();
    let mut peer = Peer::open_with_timestamps(&mut host, 4_000);
    for len in (0..40).chain([100, 1_399, 1_400, 3_001]) {
        peer.say(&mut host, len.min(1_400));
        peer.expect_stream(&mut host);
        if len > 0 {
            let data = bytes_at(peer.got.len() as u32, len);
            assert_eq!(host.stack.write(host.now, peer.conn, &data), Ok(len));
        }
        peer.listen(&mut host, true);
    }
    assert_eq!(peer.got, bytes_at(0, peer.got.len()));
    let refused = host.ask(&Craft {
        dst: (HERE, 81),
        ..Craft::syn((PEER, 1))
    });
    assert!(refused[0].has(Flags::RST));
    host.end(&[peer.conn]);
}

/// MUST-3: each single bit counts.
#[test]
fn a_segment_with_a_wrong_bit_is_not_taken() {
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let sound = peer.ahead(0, 33).packet();
    let ip = sound.len() - 20 - 33;
    for at in ip..sound.len() {
        for bit in 0..8 {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << bit;
            host.feed(&damaged);
            assert!(host.collect().is_empty(), "byte {at}, bit {bit}");
        }
    }
    let dropped = host.stack.counters().dropped_checksum + host.stack.counters().dropped_malformed;
    assert_eq!(dropped as usize, 8 * (sound.len() - ip));
    assert_eq!(host.stack.info(peer.conn).map(|info| info.unread), Ok(0));
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}

/// MUST-5 and MUST-6: known and unknown options in segments of every kind. RFC 7323 section 2.2: outside a SYN a window
/// scale means nothing; nor does an MSS.
#[test]
fn options_may_come_in_any_segment() {
    let all: [u8; 24] = [
        2, 4, 0, 100, 3, 3, 1, 1, 4, 2, 254, 6, 1, 2, 3, 4, 34, 2, 1, 253, 4, 9, 9, 0,
    ];
    let mut host = Host::plain();
    let mut peer = Peer::open(&mut host, 4_000);
    let with = |mut craft: Craft| {
        craft.junk = all.to_vec();
        craft
    };
    host.send(&with(peer.segment(Flags::ACK)));
    host.send(&with(peer.ahead(0, 100)));
    peer.skip(100);
    peer.expect_unharmed(&mut host);
    let info = host.stack.info(peer.conn).expect("a connection");
    assert_eq!(info.mss, 1_400);
    // The window is scaled by 3, as the SYN said: two full segments fit 360 << 3, not 360 << 1.
    peer.window = 360;
    host.send(&with(peer.segment(Flags::ACK)));
    let written = host.stack.write(host.now, peer.conn, &bytes_at(8, 2_800));
    assert_eq!(written, Ok(2_800));
    let sent = peer.listen(&mut host, true);
    assert_eq!(sent.iter().map(|s| s.payload.len()).sum::<usize>(), 2_800);
    let answers = host.ask(&with(peer.segment(Flags::FIN | Flags::ACK)));
    assert_eq!(answers[0].header.ack, peer.snd + 1u32);
    peer.snd += 1u32;
    host.send(&with(peer.segment(Flags::RST)));
    let state = host.stack.info(peer.conn).map(|info| info.state);
    assert_eq!(state, Ok(State::Closed));
    host.end(&[peer.conn]);
}

/// MUST-64: no option stands at a word's beginning.
#[test]
fn options_need_not_be_aligned() {
    let mut host = Host::plain();
    let mut syn = Craft::new((PEER, 4_000), Flags::SYN);
    syn.junk = vec![
        1, 2, 4, 0x03, 0xe8, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 3, 3, 5, 4, 2,
    ];
    let answers = host.ask(&syn);
    let options = &answers[0].options;
    assert!(matches!(options.timestamps, Some((_, 9))), "{options:?}");
    assert!(options.window_scale.is_some());
    let mut ack = Craft::new((PEER, 4_000), Flags::ACK);
    (ack.seq, ack.ack) = (SeqNum(1), answers[0].end());
    let value = [0, 0, 0, 10];
    ack.junk = [
        [1, 8, 10, value[0]],
        [value[1], value[2], value[3], 0],
        [0, 0, 0, 1],
    ]
    .concat();
    ack.payload = bytes_at(0, 10);
    host.send(&ack);
    let (conn, _) = host.stack.accept(host.listener).expect("a connection");
    let info = host.stack.info(conn).expect("a connection");
    assert_eq!((info.unread, info.mss), (10, 1_000 - 12));
    host.end(&[conn]);
}

/// MUST-65: the MSS option is in SYNs and nowhere else; MUST-14, MAY-3: and it is in all of them.
#[test]
fn the_mss_is_offered_in_syns_only() {
    let mut host = Host::plain();
    let mut seen = Vec::new();
    let syn = Craft::syn((PEER, 4_000));
    seen.extend(host.ask(&syn));
    let mut ack = Craft::new(syn.src, Flags::ACK);
    (ack.seq, ack.ack) = (syn.seq + 1u32, seen[0].end());
    ack.payload = bytes_at(0, 1_400);
    seen.extend(host.ask(&ack));
    let (conn, _) = host.stack.accept(host.listener).expect("a connection");
    host.stack.write(host.now, conn, &[1; 3_000]).expect("room");
    seen.extend(host.collect());
    host.stack.shutdown_write(host.now, conn).expect("open");
    seen.extend(host.collect());
    host.stack.abort(host.now, conn);
    seen.extend(host.collect());
    let (local, remote) = (socket(HERE, 5_000), socket(PEER, 4_001));
    let ours = host.stack.connect(host.now, local, remote);
    seen.extend(host.collect());
    assert_eq!(seen.iter().filter(|s| s.has(Flags::SYN)).count(), 2);
    assert!(seen.iter().any(|s| s.has(Flags::FIN)) && seen.iter().any(|s| s.has(Flags::RST)));
    // MUST-67: what fits into a packet behind both headers.
    let mss = host.stack.interface().mtu - if is_v6() { 60 } else { 40 };
    for s in &seen {
        assert_eq!(s.options.mss, s.has(Flags::SYN).then_some(mss), "{s:?}");
    }
    host.end(&[ours.expect("a connection")]);
}

/// MUST-50: an IP header with options carries a segment as good as another's. A source route is not followed back
/// (RFC 7126 section 4.3 and 4.4), nothing is recorded.
#[test]
fn ip_options_are_passed_over() {
    if is_v6() {
        return;
    }
    let routes: [&[u8]; 5] = [
        &[1, 1, 1, 1],
        // Record route and timestamp, both with room; a loose source route; something unknown.
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[68, 8, 5, 0, 0, 0, 0, 0],
        &[131, 7, 8, 203, 0, 113, 9, 0],
        &[222, 4, 1, 2],
    ];
    let with = |packet: &[u8], options: &[u8]| {
        let (header, rest) = packet.split_at(ipv4::LEN);
        let mut packet = [header, options, rest].concat();
        packet[0] = 0x40 | (5 + options.len() / 4) as u8;
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        fix_ip_checksum(&mut packet);
        packet
    };
    let mut host = Host::plain();
    for (i, options) in routes.into_iter().enumerate() {
        let syn = Craft::syn((PEER, 4_000 + i as u16));
        host.feed(&with(&syn.packet(), options));
        let answers = host.collect();
        assert_eq!(answers[0].to, syn.src, "{options:?}");
        let mut ack = Craft::new(syn.src, Flags::ACK);
        (ack.seq, ack.ack) = (syn.seq + 1u32, answers[0].end());
        ack.payload = bytes_at(0, 20);
        host.feed(&with(&ack.packet(), options));
        let (conn, _) = host.stack.accept(host.listener).expect("a connection");
        let mut into = [0; 30];
        assert_eq!(host.stack.read(host.now, conn, &mut into), Ok(20));
        assert_eq!(into[..20], bytes_at(0, 20));
        host.stack.abort(host.now, conn);
        host.collect();
    }
    host.end(&[]);
}

/// SHLD-2: the data of a reset explains it at most; it is no part of the stream.
#[test]
fn a_reset_may_carry_data() {
    let mut host = Host::plain();
    let peer = Peer::open(&mut host, 4_000);
    let mut rst = peer.ahead(0, 50);
    rst.flags = Flags::RST;
    assert!(host.ask(&rst).is_empty());
    let mut into = [0; 100];
    let read = host.stack.read(host.now, peer.conn, &mut into);
    assert_eq!(read, Err(Error::ConnectionReset));
    host.end(&[peer.conn]);
}

/// MUST-15: what a peer accepts that does not say so.
#[test]
fn a_peer_that_names_no_mss_gets_the_default() {
    over_both(|| {
        let mut host = Host::plain();
        let mut syn = Craft::syn((PEER, 4_000));
        syn.options.mss = None;
        let peer = Peer::open_with(&mut host, &syn);
        let default = if is_v6() { 1_220 } else { 536 };
        let mss = host.stack.info(peer.conn).map(|info| info.mss);
        assert_eq!(mss, Ok(default));
        let data = bytes_at(0, 3_000);
        host.stack.write(host.now, peer.conn, &data).expect("room");
        let sent = host.collect();
        assert_eq!(sent[0].payload.len(), usize::from(default));
        host.stack.abort(host.now, peer.conn);
        host.end(&[]);
    });
}
