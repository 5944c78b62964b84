//! Connections held against what else a core does (figure 7 of the Janus paper): with none to 200 million open and idle, the short
//! connections that it serves beside them (`conn_per_s`, of the server's time, in turns with a server that holds none), and a sweep in
//! which each of those held is spoken to once (`touch_all_s` with the far end's time, `touch_all_server_s` without it). `rss_bytes` is the
//! process less what the load keeps. A number for which the machine has no memory is `skipped`, with its reason.
//!
//! In `rest` no task waits for a connection that is held, in `combined` one does. Arguments name placements and numbers of
//! connections (`rest 40m`). Opening 10 million takes about 10 s; `idle_memory` has the parts of the memory, and
//! `accept_rate` more windows, IPv6 and HTTP.

mod support;

use std::time::Duration;

use support::far::ECHO_LEN;
use support::far::plan::Mode;
use support::plot::{Elsewhere, Line, Plot};
use support::report::{Report, Value};
use support::side::{Cell, Rounds, Serving, Side, relation};
use support::{Scale, memory};

/// Short connections, or requests, in progress at a time.
const WINDOW: u32 = 256;
/// Opened connections of which the time is taken together.
const OPENED: u32 = 1_000_000;
/// Of packet buffers and tables without a connection.
const FIXED_BYTES: u64 = 1 << 30;
/// Left to the rest of the machine.
const SPARE_BYTES: u64 = 1 << 30;
/// Nanoseconds of opening a connection and speaking to it, with the far end's.
const EACH_NS: u64 = 1_300;

fn main() {
    let scale = Scale::get();
    let counts: &[u32] = scale.pick(
        &[10_000],
        &[1_000_000, 10_000_000],
        &[1_000_000, 10_000_000, 40_000_000, 100_000_000, 200_000_000],
    );
    let counts = Scale::named_or(counts);
    let (runs, run_ms) = scale.pick((1, 20), (5, 100), (7, 2_000));
    let rounds = Rounds {
        runs,
        time: Duration::from_millis(run_ms),
    };
    let mut wanted = Serving::wanted();
    wanted.retain(|serving| matches!(serving, Serving::Rest | Serving::Task));
    let mut report = Report::new("concurrency");
    let there = memory::available_bytes();
    let (mut seconds, mut bytes) = (0, 0);
    for serving in &wanted {
        for held in counts.iter().filter(|held| fits(*serving, **held, there)) {
            let runs = 4 * (runs as u64 * run_ms).div_ceil(1_000);
            seconds += u64::from(*held) * EACH_NS / 1_000_000_000 + runs;
            bytes = needed(*serving, *held).max(bytes);
        }
    }
    report.needs(seconds, bytes);
    for serving in wanted {
        let mut bare = Side::start(cell(serving, 0));
        none(&mut report, &mut bare, rounds);
        for held in &counts {
            report.progress(&format!("{} with {held} held", serving.placement()));
            holding(&mut report, &mut bare, *held, rounds);
        }
        bare.stop();
    }
    draw(&report);
    report.finish();
}

fn cell(serving: Serving, held: u32) -> Cell {
    Cell {
        serving,
        six: false,
        held,
        ends_first: false,
        timestamps: true,
        answer: ECHO_LEN as u32,
    }
}

/// Returns the bytes that a process takes which holds so many: what `idle_memory` finds, and the load's four for each.
fn needed(serving: Serving, held: u32) -> u64 {
    let each = if serving == Serving::Rest { 88 } else { 152 };
    FIXED_BYTES + u64::from(held) * each
}

fn fits(serving: Serving, held: u32, there: u64) -> bool {
    needed(serving, held) + SPARE_BYTES <= there
}

fn none(report: &mut Report, bare: &mut Side, rounds: Rounds) {
    let all = rounds.take(&mut [&mut *bare], Mode::Short, WINDOW);
    bare.rows(report, "conn", &all[0], &about(0));
    rss(report, bare);
}

/// Measures a server that holds so many beside one that holds none.
fn holding(report: &mut Report, bare: &mut Side, held: u32, rounds: Rounds) {
    let cell = cell(bare.cell.serving, held);
    let params = [&cell.params()[..], &about(held)].concat();
    let there = memory::available_bytes();
    if !fits(cell.serving, held, there) {
        let needed = needed(cell.serving, held);
        let reason = format!("{} MiB are free", there >> 20);
        let params = [&params[..], &[("reason", reason.as_str().into())]].concat();
        return report.row("skipped", needed as f64, "B", &params);
    }
    let mut side = Side::start(cell);
    let opened = side.open(OPENED);
    report.median("open_ns_per_conn", &opened, "ns", &params);
    rss(report, &side);
    let all = rounds.take(&mut [bare, &mut side], Mode::Short, WINDOW);
    side.rows(report, "conn", &all[1], &about(held));
    relation(report, "held_over_none", [&all[1], &all[0]], &params);
    let (reading, answered) = side.touch_all(WINDOW.min(held / 2));
    let params = [&params[..], &[("answered", answered.into())]].concat();
    report.row("touch_all_s", reading.wall_ns / 1e9, "s", &params);
    report.row("touch_all_server_s", reading.server_ns / 1e9, "s", &params);
    let unanswered = u64::from(held) - answered;
    report.row("unanswered", unanswered as f64, "count", &params);
    report.row("bad_answers_in_all", side.bad() as f64, "count", &params);
    side.stop();
}

fn rss(report: &mut Report, side: &Side) {
    let params = [&side.cell.params()[..], &about(side.cell.held)].concat();
    let bytes = memory::resident_bytes().saturating_sub(side.plan.held_bytes());
    report.row("rss_bytes", bytes as f64, "B", &params);
}

fn about(held: u32) -> [(&'static str, Value); 2] {
    [("held", held.into()), ("window", WINDOW.into())]
}

fn draw(report: &Report) {
    let line = |name, placement: &'static str| Line {
        name,
        metric: "conn_per_s",
        with: vec![("placement", placement.into())],
    };
    let plot = Plot {
        file: "concurrency",
        title: "Short connections beside others that are held",
        x: ("held", "connections held"),
        y: "M connections/s of one core",
        unit: 1e6,
        lines: vec![line("at rest", "rest"), line("a task for each", "combined")],
        elsewhere: Some(Elsewhere {
            y: 1.86e6,
            text: "Janus paper: 1.86 M/s with 40 M held, on all cores of another machine",
        }),
    };
    plot.write(report);
}
