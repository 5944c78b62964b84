//! The load generator of the benchmarks is only worth something if it notices wrong answers: a server's frames are
//! spoiled one way at a time, and each way must be counted as what it is. What comes to the server is spoiled too: a
//! server that checks what it must drops it, and what never ends is counted.

#[path = "../benches/support/mod.rs"]
mod support;

use janus_tcp::Config;
use janus_wire::{checksum, ipv4, ipv6, proto, tcp};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::clock::Clock;
use support::engine::Engine;
use support::far::packet::{CONNECTIONS_MAX, Crafter, Ends, Segment, connection, endpoint};
use support::far::plan::{Counts, Kind, Mode, Phase, Plan};
use support::far::{App, Far};
use support::stream::{Dir, Streams, Tamper};

/// On a machine with much else to do.
const LIMIT: Duration = Duration::from_secs(120);
const ETH: usize = 14;
const IP: usize = 20;

fn engine(held: u32) -> (Engine, Arc<Plan>) {
    engine_at(Ends::default(), held)
}

fn engine_at(ends: Ends, held: u32) -> (Engine, Arc<Plan>) {
    let plan = Arc::new(Plan::new(1, held));
    let far = Far::new(ends.clone(), App::Echo, Arc::clone(&plan), 0, held);
    let config = Config {
        max_connections: 10_000,
        ..Config::default()
    };
    let engine = Engine::new(far, config, &ends, 8_192).unwrap();
    (engine, plan)
}

/// Serves short connections while `tamper` is at work; how many answers were wrong as `kind`, and in all.
fn count(kind: Kind, tamper: fn(&mut [u8])) -> (u64, u64) {
    let (mut engine, plan) = engine(0);
    engine.tamper = Some(tamper);
    plan.set(Phase {
        mode: Mode::Short,
        window: 8,
        held: 0,
    });
    engine.run(LIMIT, |_| plan.counts().bad() > 0);
    (plan.counts().get(kind), plan.counts().bad())
}

/// Serves short connections over IPv6, while `tamper` is at work; the counts.
fn count_over_six(tamper: Option<fn(&mut [u8])>) -> Counts {
    count_between(Ends::over_six(), tamper)
}

/// Serves short connections between these ends, all of a window at once, while `tamper` is at work; the counts.
fn count_between(ends: Ends, tamper: Option<fn(&mut [u8])>) -> Counts {
    let (mut engine, plan) = engine_at(ends, 0);
    plan.set_interleaved();
    engine.tamper = tamper;
    plan.set(Phase {
        mode: Mode::Short,
        window: 8,
        held: 0,
    });
    let over = |_: &Engine| plan.counts().bad() > 0 || plan.counts().get(Kind::Ended) >= 500;
    assert!(engine.run(Duration::from_secs(20), over));
    plan.counts()
}

/// Where the TCP header of a frame of IPv6 is, if it is one.
fn segment_of_six(frame: &mut [u8]) -> Option<&mut [u8]> {
    let is_tcp = frame[12..14] == [0x86, 0xdd] && frame[ETH + 6] == proto::TCP;
    is_tcp.then(|| &mut frame[ETH + ipv6::LEN..])
}

fn payload_len(frame: &[u8]) -> usize {
    frame.len().saturating_sub(ETH + IP + 32)
}

fn is_tcp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0]
}

fn is_syn_ack(frame: &[u8]) -> bool {
    is_tcp(frame) && frame[ETH + IP + 13] & 2 != 0
}

fn is_answer(frame: &[u8]) -> bool {
    is_tcp(frame) && !is_syn_ack(frame) && payload_len(frame) > 0
}

fn sum_again(frame: &mut [u8]) {
    let (src, dst) = {
        let ip = ipv4::parse(&frame[ETH..]).unwrap();
        (ip.src, ip.dst)
    };
    let segment = &mut frame[ETH + IP..];
    segment[16..18].fill(0);
    tcp::fill_checksum_v4(segment, src, dst);
}

#[test]
fn an_honest_server_has_no_wrong_answers_and_keeps_nothing() {
    let (mut engine, plan) = engine(100);
    let limit = LIMIT;
    plan.set(Phase {
        mode: Mode::Open,
        window: 16,
        held: 100,
    });
    assert!(
        engine.run(limit, |_| plan.counts().get(Kind::Ended) >= 100),
        "{:?}",
        plan.counts()
    );
    // The last acknowledgements are still to come.
    assert!(engine.run(limit, |e| e.stack.hot_in_use() == 0));
    assert_eq!(engine.stack.connections(), 100);
    plan.set(Phase {
        mode: Mode::Requests,
        window: 200,
        held: 100,
    });
    assert!(engine.run(limit, |_| plan.counts().get(Kind::Ended) >= 5_000));
    plan.set(Phase {
        mode: Mode::Requests,
        window: 10,
        held: 100,
    });
    assert!(engine.run(limit, |_| plan.counts().get(Kind::Ended) >= 10_000));
    plan.set(Phase {
        mode: Mode::Short,
        window: 32,
        held: 100,
    });
    assert!(engine.run(limit, |_| plan.counts().get(Kind::Ended) >= 15_000));
    plan.set(Phase {
        mode: Mode::Idle,
        window: 0,
        held: 100,
    });
    assert!(
        engine.run(limit, |_| plan.counts().in_progress() == 0),
        "{:?}",
        plan.counts()
    );
    plan.set(Phase {
        mode: Mode::Close,
        window: 50,
        held: 100,
    });
    engine.run(limit, |e| e.stack.connections() == 0);
    assert_eq!(
        (
            engine.stack.connections(),
            engine.stack.half_open(),
            engine.stack.segments_in_use()
        ),
        (0, 0, 0)
    );
    assert_eq!(plan.counts().bad(), 0, "{:?}", plan.counts());
}

#[test]
fn an_honest_server_over_ipv6_has_no_wrong_answers() {
    let counts = count_over_six(None);
    assert_eq!(counts.bad(), 0, "{counts:?}");
}

#[test]
fn without_timestamps_too_only_an_honest_server_has_no_wrong_answers() {
    let counts = count_between(Ends::without_timestamps(), None);
    assert_eq!(counts.bad(), 0, "{counts:?}");
    let counts = count_between(
        Ends::without_timestamps(),
        Some(|frame| {
            if is_tcp(frame) && frame.len() > ETH + IP + tcp::LEN && !is_syn_ack(frame) {
                frame[ETH + IP + 7] ^= 1;
                sum_again(frame);
            }
        }),
    );
    assert!(counts.get(Kind::BadSequence) > 0 && counts.get(Kind::BadSequence) == counts.bad());
}

#[test]
fn a_wrong_checksum_over_ipv6_is_noticed() {
    let counts = count_over_six(Some(|frame| {
        if let Some(segment) = segment_of_six(frame) {
            segment[7] ^= 1;
        }
    }));
    assert!(counts.get(Kind::BadChecksum) > 0 && counts.get(Kind::BadChecksum) == counts.bad());
}

#[test]
fn an_answer_over_ipv6_at_the_wrong_place_in_the_stream_is_noticed() {
    let counts = count_over_six(Some(|frame| {
        let ends = ipv6::parse(&frame[ETH..]).map(|packet| (packet.src, packet.dst));
        if let (Ok((src, dst)), Some(segment)) = (ends, segment_of_six(frame))
            && segment[13] & 2 == 0
            && segment.len() > 32
        {
            segment[7] ^= 1;
            segment[16..18].fill(0);
            tcp::fill_checksum_v6(segment, src, dst);
        }
    }));
    assert!(counts.get(Kind::BadSequence) > 0 && counts.get(Kind::BadSequence) == counts.bad());
}

#[test]
fn a_wrong_checksum_is_noticed() {
    let (wrong, all) = count(Kind::BadChecksum, |frame| {
        if is_answer(frame) {
            let last = frame.len() - 1;
            frame[last] ^= 1;
        }
    });
    assert!(wrong > 0 && wrong == all);
}

#[test]
fn a_wrong_payload_is_noticed() {
    let (wrong, all) = count(Kind::BadPayload, |frame| {
        if is_answer(frame) {
            let last = frame.len() - 1;
            frame[last] ^= 1;
            sum_again(frame);
        }
    });
    assert!(wrong > 0 && wrong == all);
}

#[test]
fn an_answer_at_the_wrong_place_in_the_stream_is_noticed() {
    let (wrong, all) = count(Kind::BadSequence, |frame| {
        if is_answer(frame) {
            frame[ETH + IP + 7] ^= 1;
            sum_again(frame);
        }
    });
    assert!(wrong > 0 && wrong == all);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_noticed() {
    let (wrong, all) = count(Kind::BadSequence, |frame| {
        if is_answer(frame) {
            frame[ETH + IP + 11] ^= 3;
            sum_again(frame);
        }
    });
    assert!(wrong > 0 && wrong == all);
}

#[test]
fn a_reset_is_noticed() {
    let (wrong, all) = count(Kind::Reset, |frame| {
        if is_syn_ack(frame) {
            frame[ETH + IP + 13] = 0x14;
            sum_again(frame);
        }
    });
    assert!(wrong > 0 && wrong == all);
}

#[test]
fn an_answer_to_somebody_else_is_noticed() {
    let (wrong, all) = count(Kind::BadSequence, |frame| {
        if is_answer(frame) {
            // The neighbouring client's port.
            frame[ETH + IP + 3] ^= 1;
            sum_again(frame);
        }
    });
    assert!(wrong > 0 && wrong == all);
}

/// Place of the timestamp in a segment without other options.
const STAMP: usize = ETH + IP + 24;

/// Serves short connections to a far end whose requests `tamper` spoils. Returns what the server counted.
fn spoil_requests(tamper: fn(&mut [u8])) -> janus_tcp::Counters {
    let (mut engine, plan) = engine(0);
    engine.clock = Clock::Turns(0);
    engine.tamper_in = Some(tamper);
    plan.set(Phase {
        mode: Mode::Short,
        window: 8,
        held: 0,
    });
    for _ in 0..2_000 {
        engine.turn();
    }
    let counts = plan.counts();
    assert_eq!(
        (counts.get(Kind::Ended), counts.in_progress()),
        (0, 8),
        "{counts:?}"
    );
    *engine.stack.counters()
}

#[test]
fn a_request_with_a_wrong_checksum_is_dropped() {
    let counters = spoil_requests(|frame| {
        if is_answer(frame) {
            frame[ETH + IP + 16] ^= 1;
        }
    });
    assert_eq!(counters.dropped_checksum, 8, "{counters:?}");
}

#[test]
fn a_request_with_an_old_timestamp_is_dropped() {
    let counters = spoil_requests(|frame| {
        if is_answer(frame) {
            older(frame, 1);
        }
    });
    assert_eq!(counters.dropped_paws, 8, "{counters:?}");
}

/// Makes the timestamp of a segment older.
fn older(frame: &mut [u8], by: u32) {
    let stamp = u32::from_be_bytes(frame[STAMP..STAMP + 4].try_into().unwrap());
    frame[STAMP..STAMP + 4].copy_from_slice(&stamp.wrapping_sub(by).to_be_bytes());
    sum_again(frame);
}

#[test]
fn an_echo_of_another_timestamp_is_noticed() {
    let (wrong, all) = count(Kind::BadSequence, |frame| {
        if is_answer(frame) {
            frame[STAMP + 7] ^= 1;
            sum_again(frame);
        }
    });
    assert!(wrong > 0 && wrong == all);
}

/// Moves data over one stream while both ways are spoiled, and lets come what still comes.
fn spoil_stream(dir: Dir, way_in: Tamper, way_out: Tamper) -> Streams {
    let mut streams = Streams::new(1);
    streams.clock = Clock::Turns(0);
    streams.open();
    (streams.tamper_in, streams.tamper_out) = (Some(way_in), Some(way_out));
    for _ in 0..200 {
        streams.turn(dir);
    }
    streams.settle(dir);
    assert!(streams.app.bytes >= 20 * 1_448, "{}", streams.app.bytes);
    streams
}

const IN: Dir = Dir::Rx { lent: false };

fn nothing() -> Tamper {
    Box::new(|_| true)
}

/// Does `deed` to the full segment that comes after so many others.
fn once(after: usize, mut deed: impl FnMut(&mut [u8]) -> bool + 'static) -> Tamper {
    let mut seen = 0;
    Box::new(move |frame| {
        if !is_answer(frame) {
            return true;
        }
        seen += 1;
        seen != after + 1 || deed(frame)
    })
}

#[test]
fn honest_streams_have_no_wrong_answers() {
    for dir in [IN, Dir::Rx { lent: true }, Dir::Tx] {
        for ends in [
            Ends::default(),
            Ends::over_six(),
            Ends::without_timestamps(),
        ] {
            let mut streams = Streams::new_at(ends, 2);
            streams.clock = Clock::Turns(0);
            streams.open();
            for _ in 0..200 {
                streams.turn(dir);
            }
            streams.settle(dir);
            assert!(streams.app.bytes > 50_000);
            assert_eq!(streams.app.wrong, 0);
        }
    }
}

#[test]
fn a_wrong_checksum_in_a_stream_is_a_wrong_answer_either_way() {
    let flip = |frame: &mut [u8]| {
        frame[ETH + IP + 17] ^= 4;
        true
    };
    let streams = spoil_stream(IN, once(20, flip), nothing());
    // The far end sends nothing again: the stream never ends.
    assert_eq!(streams.app.wrong, 1);
    assert_eq!(streams.server.stack.counters().dropped_checksum, 1);
    let streams = spoil_stream(Dir::Tx, nothing(), once(20, flip));
    assert_eq!(streams.app.wrong, 1);
    assert!(streams.server.stack.counters().retransmissions > 0);
}

#[test]
fn an_old_timestamp_in_a_stream_is_a_wrong_answer_either_way() {
    let flip = |frame: &mut [u8]| {
        older(frame, 1_000);
        true
    };
    let streams = spoil_stream(IN, once(20, flip), nothing());
    assert_eq!(streams.app.wrong, 1);
    assert_eq!(streams.server.stack.counters().dropped_paws, 1);
    let streams = spoil_stream(Dir::Tx, nothing(), once(20, flip));
    assert_eq!(streams.app.wrong, 1);
}

/// Place of the first SACK block's edges, if there is one.
fn sack_at(frame: &[u8]) -> Option<usize> {
    if !is_tcp(frame) || is_syn_ack(frame) {
        return None;
    }
    let end = ETH + IP + usize::from(frame[ETH + IP + 12] >> 4) * 4;
    let mut at = ETH + IP + 20;
    while at + 10 <= end {
        match frame[at] {
            5 => return Some(at + 2),
            1 => at += 1,
            _ => at += usize::from(frame[at + 1]).max(2),
        }
    }
    None
}

/// Adds to an edge of the first SACK block: the left one, or the right one.
fn move_edge(frame: &mut [u8], edge: usize, by: u32) {
    if let Some(at) = sack_at(frame) {
        let at = at + 4 * edge;
        let value = u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        frame[at..at + 4].copy_from_slice(&value.wrapping_add(by).to_be_bytes());
        sum_again(frame);
    }
}

#[test]
fn a_wrong_edge_of_the_servers_sack_is_a_wrong_answer() {
    // A gap makes the server SACK, and the stream one that never ends.
    let streams = spoil_stream(IN, once(20, |_| false), nothing());
    assert_eq!(streams.app.wrong, 1);
    for edge in [0, 1] {
        for bit in [0, 3, 11, 20, 31] {
            let spoil: Tamper = Box::new(move |frame| {
                move_edge(frame, edge, 1 << bit);
                true
            });
            let streams = spoil_stream(IN, once(20, |_| false), spoil);
            assert!(streams.app.wrong > 1, "edge {edge}, bit {bit}");
        }
    }
}

/// Moves data from a server, of which two segments are lost, while the edges of the far end's SACKs are moved.
fn spoil_sacks(edge: usize, by: u32) -> Streams {
    let (mut first, mut second) = (once(20, |_| false), once(30, |_| false));
    let lose: Tamper = Box::new(move |frame| first(frame) & second(frame));
    let spoil: Tamper = Box::new(move |frame| {
        move_edge(frame, edge, by);
        true
    });
    spoil_stream(Dir::Tx, spoil, lose)
}

#[test]
fn a_sack_of_what_the_far_end_has_not_got_frees_nothing() {
    let honest = spoil_sacks(0, 0);
    assert_eq!(honest.app.wrong, 0);
    assert!(honest.server.stack.counters().retransmissions >= 2);
    // It says that the second one, and one after it, have come: that is taken for true until the far end seems to have
    // thrown them away.
    let longer = spoil_sacks(1, 2 * 1_448);
    assert_eq!(longer.app.wrong, 0, "{:?}", longer.server.stack.counters());
    assert!(longer.server.stack.counters().sack_reneged > 0);
    // It says that what was never sent has, or what is acknowledged.
    for (edge, by) in [(1, 1 << 30), (0, 1_448u32.wrapping_neg())] {
        let invalid = spoil_sacks(edge, by);
        assert_eq!(
            invalid.app.wrong,
            0,
            "{:?}",
            invalid.server.stack.counters()
        );
        assert!(invalid.server.stack.counters().sack_invalid > 0);
    }
}

#[test]
fn what_a_server_never_sends_again_is_a_wrong_answer() {
    let mut lost = None;
    let mut first = once(20, |_| false);
    let lose: Tamper = Box::new(move |frame| {
        let seq = frame[ETH + IP + 4..ETH + IP + 8].to_vec();
        if !first(frame) {
            lost = Some(seq.clone());
        }
        lost.as_ref() != Some(&seq)
    });
    assert_eq!(spoil_stream(Dir::Tx, nothing(), lose).app.wrong, 1);
}

#[test]
fn every_connection_has_a_tuple_of_its_own() {
    // The first, the last, and some of the rest; beyond the last all comes again.
    let some = (0..3_000_000u32).map(|n| n.wrapping_mul(0x9e37_79b9) % CONNECTIONS_MAX);
    let ends = (0..1_000).chain(CONNECTIONS_MAX - 1_000..CONNECTIONS_MAX);
    let mut nearby = 0;
    for conn in ends.chain(some) {
        let (address, port) = endpoint(conn);
        assert_eq!(connection(address, port), Some(conn));
        let (next, _) = endpoint((conn + 1) % CONNECTIONS_MAX);
        nearby += u32::from(next == address);
    }
    // There are 8,192 addresses.
    assert!(nearby < 3_000, "{nearby} neighbors have one address");
    let (address, _) = endpoint(0);
    assert_eq!(connection(address, 32_767), None);
    let outside = u32::from_be_bytes([198, 20, 0, 0]);
    assert_eq!(connection(outside, 40_000), None);
}

#[test]
fn requests_come_in_another_order_than_the_handshakes() {
    static SEEN: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let (mut engine, plan) = engine(1_000);
    engine.open(&plan, 1_000);
    engine.tamper = Some(|frame| {
        if is_answer(frame) {
            let ip = ipv4::parse(&frame[ETH..]).unwrap();
            let port = u16::from_be_bytes([ip.payload()[2], ip.payload()[3]]);
            let conn = connection(ip.dst.to_bits(), port);
            SEEN.lock().unwrap().extend(conn);
        }
    });
    plan.set(Phase {
        mode: Mode::Requests,
        window: 64,
        held: 1_000,
    });
    engine.run(LIMIT, |_| SEEN.lock().unwrap().len() >= 1_000);
    let mut seen = SEEN.lock().unwrap();
    seen.truncate(1_000);
    let in_turn = seen.windows(2).filter(|pair| pair[1] == pair[0] + 1);
    assert!(in_turn.count() < 10, "{seen:?}");
    // Each is asked once before any is asked again.
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..1_000));
}

#[test]
fn what_is_crafted_from_templates_is_what_a_parser_reads() {
    let ends = Ends::default();
    let crafter = Crafter::new(&ends);
    let mut out = [0xaa; 256];
    for n in 0..2_000u32 {
        let conn = n.wrapping_mul(7_919_999) % CONNECTIONS_MAX;
        let flags = tcp::Flags((n % 64) as u8);
        let (seq, ack) = (n.wrapping_mul(0x9e37_79b1), !n.wrapping_mul(0x85eb_ca6b));
        let segment = Segment {
            conn,
            seq,
            ack,
            flags,
            ts_val: seq ^ ack,
            ts_echo: u32::MAX - n,
        };
        let syn = n % 5 == 0;
        let payload = if syn {
            &[][..]
        } else {
            &[0x5c; 70][..n as usize % 70]
        };
        let len = if syn {
            crafter.syn(&mut out, &segment)
        } else {
            crafter.segment(&mut out, &segment, payload)
        };
        let ip = ipv4::parse(&out[ETH..len]).unwrap();
        assert!(ip.checksum_ok());
        assert_eq!(checksum::tcp_v4(ip.src, ip.dst, ip.payload()), 0);
        let (header, options, data) = tcp::parse(ip.payload()).unwrap();
        let options = tcp::options::parse(options);
        assert_eq!(
            (header.seq.0, header.ack.0, header.flags),
            (seq, ack, flags)
        );
        assert_eq!(options.timestamps, Some((segment.ts_val, segment.ts_echo)));
        assert_eq!((options.mss.is_some(), options.sack_permitted), (syn, syn));
        assert_eq!(data, payload);
        assert_eq!(connection(ip.src.to_bits(), header.src_port), Some(conn));
        assert_eq!(endpoint(conn), (ip.src.to_bits(), header.src_port));
    }
}

/// A server that stood still for longer than its timers allow sends answers again whose acknowledgements wait for it.
#[test]
fn a_connection_whose_first_answer_came_twice_is_opened_once() {
    // More than those of which the far end keeps everything.
    const HELD: u32 = 70_000;
    let (mut engine, plan) = Engine::start(HELD);
    let ended = || plan.counts().get(Kind::Ended);
    let phase = |mode| Phase {
        mode,
        window: 256,
        held: HELD,
    };
    plan.set_interleaved();
    engine.clock = Clock::Turns(0);
    plan.set(phase(Mode::Open));
    assert!(engine.run(LIMIT, |_| ended() > 1_000));
    engine.clock = Clock::Turns(1 << 17);
    let all = u64::from(HELD);
    assert!(engine.run(LIMIT, |_| ended() >= all && plan.held_begun() == HELD));
    engine.run(Duration::from_millis(100), |_| false);
    assert!(ended() > all, "no answer came twice");
    plan.set(phase(Mode::Requests));
    assert!(engine.run(LIMIT, |_| ended() > 2 * all + 1_000));
    assert_eq!(plan.counts().bad(), 0);
}
