//! SYN cookies (RFC 4987) from outside: a flood, honest clients in it, and those who forge.

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, bytes_at};
use janus_tcp::{Config, SynCookies};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

const HALF_OPEN: u32 = 64;

fn host(syn_cookies: SynCookies) -> Host {
    Host::with(Config {
        max_half_open: HALF_OPEN,
        syn_cookies,
        ..Config::default()
    })
}

/// SYNs from as many addresses, of which none ever answers.
fn flood(host: &mut Host, syns: u32) {
    for i in 0..syns {
        let from = std::net::Ipv4Addr::from_bits(0x0b00_0000 + i);
        let mut syn = Craft::syn((from, 1_024 + (i % 60_000) as u16));
        syn.seq = SeqNum(i.wrapping_mul(0x9e37_79b9));
        host.send(&syn);
        if i % 64 == 0 {
            host.collect();
        }
    }
    host.collect();
}

/// A SYN as a Linux client sends it.
fn linux_syn(port: u16, mss: u16, scale: u8) -> Craft {
    let mut syn = Craft::syn((PEER, port));
    syn.seq = SeqNum(u32::from(port) << 16);
    syn.options.mss = Some(mss);
    syn.options.window_scale = Some(scale);
    syn.options.sack_permitted = true;
    syn.options.timestamps = Some((5_000_000, 0));
    syn
}

/// The segment that finishes the handshake.
fn acknowledgement(host: &mut Host, syn: &Craft) -> Craft {
    let answers = host.ask(syn);
    let answer = answers.iter().find(|s| s.to == syn.src).expect("a SYN-ACK");
    assert!(answer.has(Flags::SYN | Flags::ACK));
    let mut ack = Craft::new(syn.src, Flags::ACK);
    (ack.seq, ack.ack) = (syn.seq + 1u32, answer.end());
    ack.options.timestamps = answer.options.timestamps.map(|(ours, _)| (5_000_010, ours));
    ack
}

#[test]
fn honest_clients_connect_in_the_middle_of_a_flood() {
    let mut host = host(SynCookies::Pressure);
    // One was there before, and is half open: it is not pushed out.
    let before = linux_syn(3_000, 1_460, 7);
    let early = acknowledgement(&mut host, &before);
    flood(&mut host, HALF_OPEN * 10);
    assert_eq!(host.stack.half_open(), HALF_OPEN as usize);
    assert_eq!(host.stack.counters().half_open_evicted, 0);
    let mut conns = Vec::new();
    // Without IP's, TCP's and the timestamps' bytes; what the peer offers cannot be more.
    // Between the sizes that a cookie knows, the smaller counts.
    let v6 = crate::support::family::is_v6();
    let (headers, middle, least) = if v6 {
        (72, 1_380, 1_220)
    } else {
        (52, 1_400, 1_200)
    };
    for (port, mss, scale, kept) in [
        (3_001, 1_460, 7, host.stack.interface().mtu - headers),
        (3_002, 1_400, 3, middle - 12),
        (3_003, 1_280, 14, least - 12),
    ] {
        let ack = acknowledgement(&mut host, &linux_syn(port, mss, scale));
        assert!(ack.options.timestamps.is_some());
        flood(&mut host, 100);
        host.send(&ack);
        let (conn, from) = host.stack.accept(host.listener).expect("a connection");
        assert_eq!(from.port(), port);
        let info = host.stack.info(conn).expect("it is there");
        assert_eq!(info.mss, kept, "the segment size");
        // The scale shows in what may be sent: one byte of window more than a segment, if it were not for the scale.
        let mut narrow = ack.clone();
        narrow.window = 4_096 >> scale;
        host.send(&narrow);
        host.stack.write(host.now, conn, &[7; 1_000]).expect("room");
        let sent: usize = host.collect().iter().map(|s| s.payload.len()).sum();
        assert_eq!(sent, if scale == 14 { 0 } else { 1_000 });
        conns.push(conn);
    }
    host.send(&early);
    conns.push(host.stack.accept(host.listener).expect("the early one").0);
    assert_eq!(host.stack.counters().cookies_accepted, 3);
    host.end(&conns);
}

/// A SYN answered by a cookie is repeated when there is room for a record again; the peer acknowledges the cookie.
#[test]
fn a_cookie_is_good_although_its_syn_was_repeated() {
    let mut host = host(SynCookies::Pressure);
    flood(&mut host, HALF_OPEN * 2);
    let syn = linux_syn(3_000, 1_460, 7);
    let mut ack = acknowledgement(&mut host, &syn);
    // The first of the flood gives up, and its place is the repeated SYN's.
    let first = std::net::Ipv4Addr::from_bits(0x0b00_0000);
    let mut reset = Craft::new((first, 1_024), Flags::RST);
    reset.seq = SeqNum(1);
    host.send(&reset);
    let room = HALF_OPEN as usize - 1;
    assert_eq!(host.stack.half_open(), room);
    let repeated = host.ask(&syn);
    assert_eq!(host.stack.half_open(), room + 1);
    assert!(repeated[0].end() != ack.ack, "another number");
    // What forges a cookie is reset, and the record stays.
    let mut forged = ack.clone();
    forged.ack = ack.ack + 1u32;
    assert!(host.ask(&forged)[0].has(Flags::RST));
    assert_eq!(host.stack.half_open(), room + 1);
    ack.payload = bytes_at(0, 10);
    let answers = host.ask(&ack);
    assert!(answers.iter().all(|answer| !answer.has(Flags::RST)));
    assert_eq!(host.stack.half_open(), room);
    let (conn, _) = host.stack.accept(host.listener).expect("a connection");
    let mut got = [0; 10];
    assert_eq!(host.stack.read(host.now, conn, &mut got), Ok(10));
    assert_eq!(got, bytes_at(0, 10)[..]);
    host.end(&[conn]);
}

#[test]
fn without_timestamps_a_cookie_keeps_the_segment_size_only() {
    let mut host = host(SynCookies::Always);
    let mut syn = Craft::syn((PEER, 3_000));
    syn.options.mss = Some(1_440);
    syn.options.sack_permitted = true;
    let answers = host.ask(&syn);
    // What cannot be remembered must not be agreed to.
    assert_eq!(answers[0].options.window_scale, None);
    assert!(!answers[0].options.sack_permitted);
    let mut peer = Peer::open_with(&mut host, &syn);
    assert_eq!(host.stack.info(peer.conn).map(|info| info.mss), Ok(1_440));
    peer.expect_unharmed(&mut host);
    assert_eq!(host.stack.half_open(), 0);
    host.end(&[peer.conn]);
}

#[test]
fn data_and_fin_on_the_acknowledgement_are_taken() {
    let mut host = host(SynCookies::Always);
    let mut ack = acknowledgement(&mut host, &linux_syn(3_000, 1_460, 7));
    ack.payload = bytes_at(0, 100);
    ack.flags |= Flags::FIN;
    host.send(&ack);
    let (conn, _) = host.stack.accept(host.listener).expect("a connection");
    let mut into = [0; 200];
    assert_eq!(host.stack.read(host.now, conn, &mut into), Ok(100));
    assert_eq!(into[..100], bytes_at(0, 100));
    assert_eq!(host.stack.read(host.now, conn, &mut into), Ok(0));
    host.end(&[conn]);
}

#[test]
fn forged_acknowledgements_open_nothing() {
    let mut host = host(SynCookies::Pressure);
    flood(&mut host, HALF_OPEN + 1);
    for i in 0..5_000u32 {
        let mut ack = Craft::new((PEER, 2_000 + (i % 1_000) as u16), Flags::ACK);
        (ack.seq, ack.ack) = (SeqNum(i), SeqNum(i.wrapping_mul(0x9e37_79b9)));
        let answers = host.ask(&ack);
        assert!(answers.len() == 1 && answers[0].header.flags == Flags::RST);
    }
    assert_eq!(host.stack.counters().cookies_bad, 5_000);
    assert_eq!(host.stack.connections(), 0);
    host.end(&[]);
}

#[test]
fn a_cookie_expires_and_without_a_flood_is_not_even_looked_at() {
    let mut host = host(SynCookies::Pressure);
    let stray = Craft::new((PEER, 2_000), Flags::ACK);
    assert!(host.ask(&stray)[0].has(Flags::RST));
    assert_eq!(host.stack.counters().cookies_bad, 0);
    flood(&mut host, HALF_OPEN);
    let ack = acknowledgement(&mut host, &linux_syn(3_000, 1_460, 7));
    assert_eq!(host.stack.counters().cookies_sent, 1);
    host.wait(Duration::from_secs(200));
    host.collect();
    assert!(host.ask(&ack)[0].has(Flags::RST));
    // So long after the last cookie nobody computes any more.
    assert_eq!(host.stack.counters().cookies_bad, 0);
    assert_eq!(host.stack.connections(), 0);
    // In another flood it is, and is too old.
    flood(&mut host, HALF_OPEN + 1);
    assert!(
        host.ask(&ack)
            .iter()
            .any(|s| s.to == (PEER, 3_000) && s.has(Flags::RST))
    );
    assert_eq!(host.stack.counters().cookies_bad, 1);
    host.end(&[]);
}

/// While its connection lives a replayed cookie is an old segment; after that, for as long as the cookie is good, it
/// opens a connection again, as with every stack that keeps nothing (RFC 4987 section 3.6).
#[test]
fn a_replay_costs_at_most_what_it_did_the_first_time() {
    let mut host = host(SynCookies::Always);
    let ack = acknowledgement(&mut host, &linux_syn(3_000, 1_460, 7));
    host.send(&ack);
    let (conn, _) = host.stack.accept(host.listener).expect("a connection");
    for _ in 0..10 {
        assert!(host.ask(&ack).is_empty());
    }
    assert_eq!(host.stack.connections(), 1);
    host.stack.abort(host.now, conn);
    host.collect();
    for _ in 0..10 {
        host.send(&ack);
    }
    assert_eq!(host.stack.counters().cookies_accepted, 2);
    let (again, _) = host.stack.accept(host.listener).expect("a connection");
    host.end(&[again]);
}

#[test]
fn a_full_accept_queue_drops_what_the_cookie_opens() {
    let mut host = host(SynCookies::Always);
    let listener = host.stack.listen(
        crate::support::family::socket(std::net::Ipv4Addr::UNSPECIFIED, 81),
        1,
    );
    let listener = listener.expect("a free port");
    let mut acks = Vec::new();
    for port in [3_000, 3_001] {
        let mut syn = linux_syn(port, 1_460, 7);
        syn.dst.1 = 81;
        let mut ack = acknowledgement(&mut host, &syn);
        ack.dst.1 = 81;
        acks.push(ack);
    }
    for ack in &acks {
        assert!(host.ask(ack).is_empty());
    }
    assert_eq!(host.stack.counters().dropped_accept_full, 1);
    let (first, _) = host.stack.accept(listener).expect("a connection");
    // The second says so again, and there is room now.
    host.send(&acks[1]);
    let (second, _) = host.stack.accept(listener).expect("a connection");
    host.stack.unlisten(host.now, listener);
    host.end(&[first, second]);
}

#[test]
fn without_cookies_the_oldest_makes_room() {
    let mut host = host(SynCookies::Never);
    flood(&mut host, HALF_OPEN * 3);
    assert_eq!(host.stack.counters().cookies_sent, 0);
    assert_eq!(
        host.stack.counters().half_open_evicted,
        u64::from(HALF_OPEN) * 2
    );
    let mut peer = Peer::open(&mut host, 3_000);
    peer.expect_unharmed(&mut host);
    host.end(&[peer.conn]);
}
