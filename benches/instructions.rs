//! Instructions that the engine takes for a short connection (handshake, 64 bytes each way, FIN both ways), an echo request, and a
//! segment of a stream in and out, with the application's calls and without the far end: counted by valgrind, where it is installed,
//! under a time that goes on by the same step each turn. The same source and compiler give the same figures to the instruction.
//!
//! `instructions.tsv` has the figures of the last change that meant to change them. `JANUS_GUARD=1` fails when one has risen by more
//! than five in a hundred; `JANUS_WRITE=1` writes the file anew.

mod support;

use support::Scale;
use support::clock::Clock;
use support::engine::Engine;
use support::far::plan::{Kind, Mode, Phase};
use support::report::Report;
use support::stream::{Dir, PAYLOAD, Streams};
use support::valgrind;

const WORK: [&str; 4] = ["short", "echo", "bulk_in", "bulk_out"];
/// Units of a run: the difference of the two is counted, so that the start is not.
const COUNTED: [u64; 2] = [2_000, 12_000];
/// Connections and requests at a time.
const WINDOW: u32 = 64;
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.tsv");
/// What is taken for noise of another compiler or C library.
const RISE_MAX: f64 = 1.05;
/// How a run says how many units there were.
const DONE: &str = "done: ";

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "callgrind");
    if arguments.next().is_some() {
        let work = arguments.next().expect("which work");
        let units = arguments.next().and_then(|text| text.parse().ok());
        let done = run(&work, units.expect("a number of units"));
        println!("{DONE}{done}");
        return;
    }
    let mut report = Report::new("instructions");
    let mut figures = Vec::new();
    for work in WORK {
        if Scale::get() == Scale::Smoke {
            assert!(run(work, 100) >= 100);
            continue;
        }
        let [Some(few), Some(many)] = COUNTED.map(|units| counted(work, units)) else {
            eprintln!("no instructions are counted: valgrind is not there");
            return;
        };
        let each = (many.0 - few.0) as f64 / (many.1 - few.1) as f64;
        report.row("instructions", each, "count", &[("work", work.into())]);
        figures.push((work, each));
    }
    report.finish();
    if set("JANUS_WRITE") {
        let lines = figures
            .iter()
            .map(|(work, each)| format!("{work}\t{each:.0}\n"));
        std::fs::write(RECORD, lines.collect::<String>()).expect("the record is written");
    }
    if set("JANUS_GUARD") {
        guard(&figures);
    }
}

fn set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "1")
}

/// Fails when a figure has risen.
fn guard(figures: &[(&str, f64)]) {
    let record = std::fs::read_to_string(RECORD).expect("the record");
    let recorded = |work: &str| -> f64 {
        let mut lines = record.lines().filter_map(|line| line.split_once('\t'));
        let (_, figure) = lines
            .find(|(name, _)| *name == work)
            .expect("a line for each");
        figure.parse().expect("a number")
    };
    for &(work, each) in figures {
        let before = recorded(work);
        assert!(
            each <= before * RISE_MAX,
            "{work} takes {each:.0} instructions, {before:.0} before: mend it, or say why and write the record with JANUS_WRITE=1"
        );
    }
}

/// Instructions of a run with so many units, and the units there really were.
fn counted(work: &str, units: u64) -> Option<(u64, u64)> {
    let arguments = ["callgrind".into(), work.into(), units.to_string()];
    let (instructions, said) = valgrind::instructions_of_turns(&arguments)?;
    let done = said.lines().find_map(|line| line.strip_prefix(DONE));
    Some((instructions, done?.parse().ok()?))
}

/// Does so much and a little more; how much it was.
fn run(work: &str, units: u64) -> u64 {
    match work {
        "short" => exchange(Mode::Short, units),
        "echo" => exchange(Mode::Requests, units),
        "bulk_in" => stream(Dir::Rx { lent: false }, units),
        "bulk_out" => stream(Dir::Tx, units),
        other => panic!("no work is named {other}"),
    }
}

fn exchange(mode: Mode, units: u64) -> u64 {
    let held = if mode == Mode::Requests { WINDOW } else { 0 };
    let (mut engine, plan) = Engine::start(held);
    engine.clock = Clock::Turns(0);
    engine.open(&plan, held);
    let opened = plan.counts();
    plan.set(Phase {
        mode,
        window: WINDOW,
        held,
    });
    let done = || plan.counts().since(&opened).get(Kind::Ended);
    while done() < units {
        engine.turn();
    }
    assert_eq!(plan.counts().bad(), 0, "{:?}", plan.counts());
    done()
}

fn stream(dir: Dir, segments: u64) -> u64 {
    let mut streams = Streams::new(1);
    streams.clock = Clock::Turns(0);
    streams.open();
    while streams.app.bytes < segments * PAYLOAD as u64 {
        streams.turn(dir);
    }
    assert_eq!(streams.app.wrong, 0);
    streams.app.bytes / PAYLOAD as u64
}
