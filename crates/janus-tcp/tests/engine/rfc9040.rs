//! What one connection leaves to the next to the same peer (RFC 9040), and that nothing else is left: a connection in
//! memory that many others have used before behaves, to the last bit of every packet, as in memory that nobody used.

use core::time::Duration;

use crate::support::{Craft, Host, PEER, Peer, Seen, bytes_at};
use janus_tcp::{Config, ConnId, Error, Info, SocketOptions, SynCookies};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;
use std::net::Ipv4Addr;

/// A path on which what is remembered makes a difference.
const FAR: Duration = Duration::from_millis(400);
const NEAR: Duration = Duration::from_micros(300);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);

fn info(host: &Host, peer: &Peer) -> Info {
    host.stack.info(peer.conn).expect("a connection")
}

fn syn_from(at: Ipv4Addr, port: u16) -> Craft {
    let mut syn = Craft::syn((at, port));
    syn.seq = SeqNum(u32::MAX - 500);
    syn
}

/// A handshake that takes a round trip.
fn open(host: &mut Host, syn: &Craft, rtt: Duration) -> Peer {
    let answer = host.ask(syn).remove(0);
    host.wait(rtt);
    acknowledge(host, syn, &answer)
}

/// The end of a handshake.
fn acknowledge(host: &mut Host, syn: &Craft, answer: &Seen) -> Peer {
    let mut peer = Peer {
        at: syn.src,
        conn: ConnId {
            index: u32::MAX,
            generation: 0,
        },
        snd: syn.seq + 1u32,
        rcv: answer.end(),
        irs: answer.header.seq,
        window: syn.window,
        clock: syn.options.timestamps.map(|(value, _)| value),
        sent: 0,
        read: 0,
        got: Vec::new(),
    };
    host.send(&peer.segment(Flags::ACK));
    peer.conn = host.stack.accept(host.listener).expect("it is open").0;
    peer
}

/// A segment and its acknowledgement a round trip later.
fn round(host: &mut Host, peer: &mut Peer, rtt: Duration) {
    let text = bytes_at(0, 100);
    host.stack
        .write(host.now, peer.conn, &text)
        .expect("there is room");
    let sent = host.collect();
    host.wait(rtt);
    peer.take(&sent);
    host.ask(&peer.segment(Flags::ACK));
}

/// A segment that is lost until the timeout repeats it.
fn lose_one(host: &mut Host, peer: &mut Peer) {
    let text = bytes_at(0, 100);
    host.stack
        .write(host.now, peer.conn, &text)
        .expect("there is room");
    host.collect();
    for _ in 0..4 {
        host.now = host.stack.next_deadline().expect("a timer").max(host.now);
        host.stack.advance(host.now);
        peer.listen(host, true);
    }
}

/// The peer ends, then we, and all is acknowledged a round trip later: or the other way round, and a TIME-WAIT is left.
fn end_well(host: &mut Host, mut peer: Peer, ours_first: bool, rtt: Duration) {
    if !ours_first {
        host.ask(&peer.segment(Flags::FIN | Flags::ACK));
        peer.snd += 1;
    }
    host.stack.close(host.now, peer.conn);
    let fin = host.collect();
    host.wait(rtt);
    peer.take(&fin);
    let flags = if ours_first {
        Flags::FIN | Flags::ACK
    } else {
        Flags::ACK
    };
    host.ask(&peer.segment(flags));
    assert_eq!(host.stack.connections(), 0);
}

/// One more round trip in what is known (RFC 6298 section 2.3).
fn sampled(srtt_us: u32, rttvar_us: u32, rtt: Duration) -> (u32, u32) {
    let rtt_us = rtt.as_micros() as u32;
    let off = srtt_us.abs_diff(rtt_us);
    (
        srtt_us - srtt_us / 8 + rtt_us / 8,
        rttvar_us - rttvar_us / 4 + off / 4,
    )
}

fn is_about(info: &Info, (srtt_us, rttvar_us): (u32, u32)) -> bool {
    let near = |a: u32, b: u32| a.abs_diff(b) <= 8;
    near(info.srtt_us, srtt_us) && near(info.rttvar_us, rttvar_us)
}

/// A connection over a path of many round trips and one loss; the round trip and its variation as known at its end.
fn learn(host: &mut Host, at: Ipv4Addr, rtt: Duration, ours_first: bool) -> (u32, u32) {
    let mut peer = open(host, &syn_from(at, 4_000), rtt);
    for i in 0..20 {
        round(host, &mut peer, rtt + rtt * (i % 3) / 4);
    }
    lose_one(host, &mut peer);
    let known = info(host, &peer);
    assert_ne!(known.ssthresh, u32::MAX);
    end_well(host, peer, ours_first, rtt);
    // The acknowledgement of our FIN measured once more.
    sampled(known.srtt_us, known.rttvar_us, rtt)
}

#[test]
fn the_next_connection_begins_with_what_was_learned() {
    for ours_first in [false, true] {
        let mut host = Host::plain();
        let known = learn(&mut host, PEER, FAR, ours_first);
        assert_eq!(host.stack.counters().paths_learned, 1);
        let next = open(&mut host, &syn_from(PEER, 4_001), FAR);
        let now = info(&host, &next);
        assert_eq!(host.stack.counters().paths_recalled, 1);
        // The handshake's own round trip is one more sample.
        let expected = sampled(known.0, known.1, FAR);
        assert!(is_about(&now, expected), "{now:?}, not {expected:?}");
        // Of the first connection 100 bytes were in flight at the loss: its threshold is no less than a first window.
        assert_eq!(now.ssthresh, 10 * u32::from(now.mss));
        assert_eq!(now.cwnd, 10 * u32::from(now.mss), "a window is found anew");
        host.end(&[next.conn]);
    }
}

#[test]
fn others_begin_with_nothing_known() {
    let mut host = Host::plain();
    learn(&mut host, PEER, FAR, true);
    let next = open(&mut host, &syn_from(OTHER, 4_001), FAR);
    let now = info(&host, &next);
    let own = FAR.as_micros() as u32;
    assert_eq!((now.srtt_us, now.rttvar_us), (own, own / 2));
    assert_eq!(now.ssthresh, u32::MAX);
    host.end(&[next.conn]);
}

#[test]
fn switched_off_nothing_is_learned() {
    let mut host = Host::with(Config {
        share_path_facts: false,
        ..Config::default()
    });
    learn(&mut host, PEER, FAR, true);
    let next = open(&mut host, &syn_from(PEER, 4_001), FAR);
    let own = FAR.as_micros() as u32;
    let now = info(&host, &next);
    assert_eq!((now.srtt_us, now.rttvar_us), (own, own / 2));
    assert_eq!(now.ssthresh, u32::MAX);
    let counters = host.stack.counters();
    assert_eq!((counters.paths_learned, counters.paths_recalled), (0, 0));
    host.end(&[next.conn]);
}

/// Ten minutes later a path may be another one.
#[test]
fn what_is_old_is_not_believed() {
    let mut host = Host::plain();
    learn(&mut host, PEER, FAR, true);
    host.wait(Duration::from_secs(601));
    let next = open(&mut host, &syn_from(PEER, 4_001), FAR);
    assert_eq!(info(&host, &next).ssthresh, u32::MAX);
    host.end(&[next.conn]);
}

/// Where the timeout is the configured least whatever is remembered, nothing is; and what was remembered before the
/// path became so is forgotten.
#[test]
fn a_near_path_is_not_worth_remembering() {
    let mut host = Host::plain();
    let mut peer = open(&mut host, &syn_from(PEER, 4_000), NEAR);
    for _ in 0..8 {
        round(&mut host, &mut peer, NEAR);
    }
    end_well(&mut host, peer, false, NEAR);
    assert_eq!(host.stack.counters().paths_learned, 0);

    let mut far = open(&mut host, &syn_from(PEER, 4_001), FAR);
    round(&mut host, &mut far, FAR);
    end_well(&mut host, far, false, FAR);
    assert_eq!(host.stack.counters().paths_learned, 1);
    let mut moved = open(&mut host, &syn_from(PEER, 4_002), NEAR);
    assert!(
        info(&host, &moved).srtt_us > 1_000,
        "it begins with what was"
    );
    for _ in 0..200 {
        round(&mut host, &mut moved, NEAR);
    }
    end_well(&mut host, moved, false, NEAR);
    let next = open(&mut host, &syn_from(PEER, 4_003), NEAR);
    let own = NEAR.as_micros() as u32;
    assert_eq!(info(&host, &next).srtt_us, own);
    host.end(&[next.conn]);
}

/// A connection that a cookie opened has measured nothing itself; one whose SYN-ACK was repeated takes nothing for
/// granted (RFC 6298 section 5.7).
#[test]
fn what_a_handshake_could_not_measure() {
    let mut host = Host::with(Config {
        syn_cookies: SynCookies::Always,
        ..Config::default()
    });
    let known = learn(&mut host, PEER, FAR, false);
    let next = open(&mut host, &syn_from(PEER, 4_001), FAR);
    let now = info(&host, &next);
    assert!(is_about(&now, known), "{now:?}, not {known:?}");
    host.end(&[next.conn]);

    let mut host = Host::plain();
    learn(&mut host, PEER, FAR, false);
    let syn = syn_from(PEER, 4_001);
    host.ask(&syn);
    let again = loop {
        host.now = host.stack.next_deadline().expect("a timer").max(host.now);
        host.stack.advance(host.now);
        if let Some(again) = host.collect().pop() {
            break again;
        }
    };
    let next = acknowledge(&mut host, &syn, &again);
    let now = info(&host, &next);
    assert_eq!((now.srtt_us, now.rto_us), (0, 3_000_000));
    host.end(&[next.conn]);
}

/// Histories that are tried.
const SEEDS: u64 = 20;

/// A small generator, so that a failing seed can be run again.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

fn any_options(draw: &mut Draw) -> SocketOptions {
    SocketOptions {
        nodelay: draw.one_in(2),
        cork: draw.one_in(3),
        quick_ack: draw.one_in(2),
        keepalive: draw.one_in(2),
        ttl: draw.one_in(2).then_some(9),
        tos: draw.below(64) as u8 * 4,
        max_segment: draw.one_in(2).then_some(700),
        receive_buffer: draw.one_in(2).then_some(9_000),
        ..SocketOptions::default()
    }
}

/// A connection that does whatever comes to mind, and is given up in the middle of it.
fn live_anyhow(host: &mut Host, draw: &mut Draw, port: u16) {
    let from = Ipv4Addr::from_bits(PEER.to_bits() + 16 + draw.below(200) as u32);
    let mut syn = syn_from(from, port);
    syn.options.mss = Some(200 + draw.below(1_300) as u16);
    syn.options.sack_permitted = draw.one_in(2);
    syn.options.timestamps = draw.one_in(2).then_some((7, 0));
    syn.options.window_scale = draw.one_in(2).then_some(draw.below(15) as u8);
    if draw.one_in(3) {
        syn.flags = Flags::SYN | Flags::ECE | Flags::CWR;
    }
    let mut peer = Peer::open_with(host, &syn);
    let options = any_options(draw);
    let _ = host.stack.set_options(host.now, peer.conn, &options);
    for _ in 0..draw.below(20) {
        match draw.below(8) {
            0 => _ = host.ask(&peer.ahead(0, 1 + draw.0 as usize % 600)),
            1 => _ = host.ask(&peer.ahead(1_000, 300)),
            2 => _ = peer.say(host, 150),
            3 => {
                let _ = host.stack.write(host.now, peer.conn, &bytes_at(9, 5_000));
                host.collect();
            }
            4 => _ = peer.listen(host, true),
            5 => host.wait(Duration::from_millis(draw.below(3_000))),
            6 => {
                let mut urgent = peer.ahead(0, 20);
                urgent.flags |= Flags::URG;
                (urgent.urgent, urgent.ecn) = (11, 3);
                host.ask(&urgent);
            }
            _ => {
                peer.window = draw.below(3) as u16 * 4_000;
                host.ask(&peer.segment(Flags::ACK));
            }
        }
    }
    match draw.below(3) {
        0 => host.stack.abort(host.now, peer.conn),
        1 => host.stack.close(host.now, peer.conn),
        _ => {
            host.send(&peer.segment(Flags::RST | Flags::ACK));
            host.stack.close(host.now, peer.conn);
        }
    }
    host.collect();
}

/// Everything that can be seen of one connection, from its SYN to its end.
fn watched(host: &mut Host) -> Vec<String> {
    let mut seen = Vec::new();
    let mut syn = syn_from(PEER, 5_000);
    syn.options.timestamps = Some((1_000_000, 0));
    syn.options.sack_permitted = true;
    let mut peer = open(host, &syn, NEAR);
    let note = |host: &mut Host, peer: &mut Peer, seen: &mut Vec<String>| {
        let sent = host.collect();
        peer.take(&sent);
        seen.push(format!("{sent:?} {:?}", host.stack.info(peer.conn)));
        let mut into = [0; 2_000];
        while let Ok(n @ 1..) = host.stack.read(host.now, peer.conn, &mut into) {
            seen.push(format!("{:?}", &into[..n]));
        }
    };
    seen.push(format!("{:?} {:?}", peer.irs, peer.rcv));
    for step in 0..12 {
        match step % 4 {
            0 => host.send(&peer.ahead(0, 400)),
            1 => _ = host.stack.write(host.now, peer.conn, &bytes_at(3, 4_000)),
            2 => host.send(&peer.ahead(900, 200)),
            _ => host.send(&peer.segment(Flags::ACK)),
        }
        if step % 4 == 0 {
            peer.skip(400);
        }
        note(host, &mut peer, &mut seen);
        host.wait(Duration::from_millis(30 * (step % 5)));
        note(host, &mut peer, &mut seen);
    }
    host.stack.close(host.now, peer.conn);
    note(host, &mut peer, &mut seen);
    host.send(&peer.segment(Flags::FIN | Flags::ACK));
    note(host, &mut peer, &mut seen);
    seen
}

#[test]
fn nothing_of_one_connection_is_left_in_another() {
    for warm_reuse in [true, false] {
        for seed in 0..SEEDS {
            let config = Config {
                warm_reuse,
                ..Config::default()
            };
            let mut used = Host::with(config.clone());
            let mut draw = Draw(seed);
            for i in 0..30 {
                live_anyhow(&mut used, &mut draw, 4_000 + i);
            }
            // All of it ends: retransmissions give up, TIME-WAIT is over.
            for _ in 0..50_000 {
                used.collect();
                let Some(next) = used.stack.next_deadline() else {
                    break;
                };
                used.now = used.now.max(next);
                used.stack.advance(used.now);
            }
            let left = (used.stack.connections(), used.stack.in_time_wait());
            assert_eq!(left, (0, 0), "seed {seed}");
            assert_eq!(used.stack.hot_in_use(), 0, "seed {seed}");
            used.wait(Duration::from_secs(1_000));
            let mut fresh = Host::with(config);
            fresh.now = used.now;
            fresh.stack.advance(fresh.now);
            let (of_used, of_fresh) = (watched(&mut used), watched(&mut fresh));
            for (step, pair) in of_used.iter().zip(&of_fresh).enumerate() {
                assert_eq!(
                    pair.0, pair.1,
                    "seed {seed}, warm {warm_reuse}, step {step}"
                );
            }
            assert_eq!(of_used.len(), of_fresh.len());
        }
    }
}

/// The same tuple again: other numbers, and none of the bytes that were left unread.
#[test]
fn the_same_tuple_again_has_numbers_and_bytes_of_its_own() {
    let mut host = Host::plain();
    let mut first = open(&mut host, &syn_from(PEER, 4_000), NEAR);
    host.ask(&first.ahead(0, 500));
    first.skip(500);
    host.send(&first.segment(Flags::RST | Flags::ACK));
    host.stack.close(host.now, first.conn);
    host.wait(Duration::from_millis(10));
    let next = open(&mut host, &syn_from(PEER, 4_000), NEAR);
    assert_eq!(next.conn.index, first.conn.index, "in the same memory");
    assert_ne!(next.conn.generation, first.conn.generation);
    assert!((next.irs - first.irs) > 0, "beyond what was used");
    let mut into = [0; 100];
    let read = host.stack.read(host.now, next.conn, &mut into);
    assert_eq!(read, Err(Error::WouldBlock));
    host.end(&[next.conn]);
}
