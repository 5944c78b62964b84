//! The load generator compares each byte of answers that come in several segments, as it does with short ones (`load_generator.rs`).

#[path = "../benches/support/mod.rs"]
mod support;

use std::ops::Range;
use std::time::Duration;

use janus_mem::Growth;
use janus_wire::{ipv4, tcp};
use support::engine::Engine;
use support::far::App;
use support::far::packet::Ends;
use support::far::plan::{Counts, Kind, Mode, Phase};

/// On a machine with much else to do.
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of an answer: two full segments and a shorter one.
const LEN: u32 = 4_096;
const ETH: usize = 14;
const IP: usize = 20;
const TCP: usize = 32;

/// Serves short connections while `tamper` is at work; the counts.
fn serve(tamper: Option<fn(&mut [u8])>) -> Counts {
    let (ends, app) = (Ends::default(), App::Sized(LEN));
    let (mut engine, plan) = Engine::start_answering(ends, app, 0, &Growth::Inline);
    engine.tamper = tamper;
    plan.set(Phase {
        mode: Mode::Short,
        window: 8,
        held: 0,
    });
    let over = |_: &Engine| plan.counts().bad() > 0 || plan.counts().get(Kind::Ended) >= 500;
    assert!(engine.run(LIMIT, over));
    if tamper.is_none() {
        assert_eq!(engine.quiesce(&plan, 0), 0);
    }
    plan.counts()
}

/// Changes a byte of a segment of an answer with so many bytes, under a good checksum.
fn spoil(frame: &mut [u8], at: usize, len: Range<usize>) {
    let is_ipv4 = frame[12..14] == [8, 0];
    if is_ipv4 && len.contains(&frame.len().saturating_sub(ETH + IP + TCP)) {
        frame[at] ^= 1;
        let ip = ipv4::parse(&frame[ETH..]).unwrap();
        let (src, dst) = (ip.src, ip.dst);
        let segment = &mut frame[ETH + IP..];
        segment[16..18].fill(0);
        tcp::fill_checksum_v4(segment, src, dst);
    }
}

#[test]
fn honest_answers_come_whole_and_once() {
    let counts = serve(None);
    assert_eq!(counts.bad(), 0, "{counts:?}");
    let all = u64::from(LEN) * counts.get(Kind::Ended);
    assert_eq!(counts.get(Kind::AnswerBytes), all);
}

#[test]
fn a_changed_byte_of_any_segment_is_a_wrong_answer() {
    let in_last: fn(&mut [u8]) = |frame| spoil(frame, frame.len() - 1, 1_100..1_400);
    let in_full: fn(&mut [u8]) = |frame| spoil(frame, frame.len() - 1, 1_400..1_500);
    let in_echo: fn(&mut [u8]) = |frame| spoil(frame, ETH + IP + TCP, 1_400..1_500);
    for tamper in [in_last, in_full, in_echo] {
        let counts = serve(Some(tamper));
        assert!(counts.get(Kind::BadPayload) > 0, "{counts:?}");
    }
}
