//! How many short connections a second one core serves: SYN, request, response, FIN, with none to many idle
//! connections held open meanwhile. `placement=engine` is the TCP engine alone, without runtime and tasks; `split` has
//! an I/O core beside the shard, and the time of both counts. With the argument `engine` only that is measured: on one
//! thread, it can be run under a profiler that counts instructions.

mod support;

use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::far::App;
use support::far::plan::{Counts, Kind, Mode, Phase};
use support::meter::Series;
use support::report::Report;
use support::served::{Layout, Server};

/// Short connections in progress at a time.
const WINDOW: u32 = 256;
/// Before the first measurement.
const WARM: Duration = Duration::from_millis(300);

fn main() {
    let scale = Scale::get();
    let held_counts: &[u32] =
        scale.pick(&[100], &[0, 100_000], &[0, 100_000, 1_000_000, 10_000_000]);
    let (runs, run_ms) = scale.pick((1, 50), (5, 600), (7, 2000));
    let run_time = Duration::from_millis(run_ms);
    let mut report = Report::new("accept_rate");
    let engine_only = std::env::args().any(|arg| arg == "engine");
    for &held in held_counts {
        if !engine_only {
            served(&mut report, Layout::COMBINED, held, runs, run_time);
            served(&mut report, Layout::SPLIT, held, runs, run_time);
        }
        engine(&mut report, held, runs, run_time);
    }
    report.finish();
}

fn served(report: &mut Report, layout: Layout, held: u32, runs: usize, run_time: Duration) {
    let server = Server::start(layout, App::Echo, held);
    server.open(held);
    server.plan.set(Phase {
        mode: Mode::Short,
        window: WINDOW,
        held,
    });
    std::thread::sleep(WARM);
    let series = Series::take(&server.plan, layout.threads(), runs, || {
        std::thread::sleep(run_time)
    });
    let unfinished = server.quiesce(held);
    if !rows(
        report,
        layout.name(),
        held,
        &series,
        &server.plan.counts(),
        unfinished,
    ) {
        eprintln!("{:?}", server.reports());
    }
    server.stop();
}

fn engine(report: &mut Report, held: u32, runs: usize, run_time: Duration) {
    let (mut engine, plan) = Engine::start(held);
    engine.open(&plan, held);
    plan.set(Phase {
        mode: Mode::Short,
        window: WINDOW,
        held,
    });
    engine.run(WARM, |_| false);
    let series = Series::take(&plan, 1, runs, || {
        engine.run(run_time, |_| false);
    });
    let unfinished = engine.quiesce(&plan, held);
    if !rows(report, "engine", held, &series, &plan.counts(), unfinished) {
        eprintln!("{:?}", engine.stack.counters());
    }
}

/// Reports one layout; false when answers were wrong.
fn rows(
    report: &mut Report,
    placement: &str,
    held: u32,
    series: &Series,
    counts: &Counts,
    unfinished: u64,
) -> bool {
    let params = [("held", held.into()), ("placement", placement.into())];
    report.median("conn_per_s", &series.rates, "1/s", &params);
    report.median("server_ns_per_conn", &series.costs, "ns", &params);
    let bad = counts.bad() + unfinished;
    report.row("bad_answers", bad as f64, "count", &params);
    let dir = |dir: &'static str| [params[0].clone(), params[1].clone(), ("dir", dir.into())];
    report.row(
        "packets_per_conn",
        series.each(Kind::FramesIn),
        "count",
        &dir("rx"),
    );
    report.row(
        "packets_per_conn",
        series.each(Kind::FramesOut),
        "count",
        &dir("tx"),
    );
    if bad > 0 {
        eprintln!("wrong answers ({placement}, {held} held): {counts:?}, unfinished {unfinished}");
    }
    bad == 0
}
