//! The load generator of the benchmarks is only worth something if it notices wrong answers: a server's frames are
//! spoiled one way at a time, and each way must be counted as what it is.

#[path = "../benches/support/mod.rs"]
mod support;

use janus_tcp::Config;
use janus_wire::{checksum, ipv4, ipv6, proto, tcp};
use std::sync::Arc;
use std::time::Duration;
use support::engine::Engine;
use support::far::packet::{Crafter, Ends, Segment, connection, endpoint};
use support::far::plan::{Counts, Kind, Mode, Phase, Plan};
use support::far::{App, Far};

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

#[test]
fn what_is_crafted_from_templates_is_what_a_parser_reads() {
    let ends = Ends::default();
    let crafter = Crafter::new(&ends);
    let mut out = [0xaa; 256];
    for n in 0..2_000u32 {
        let conn = n.wrapping_mul(7_919) % 15_000_000;
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
