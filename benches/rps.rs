//! How many requests a second one core serves over open connections used in turn: with few of them everything is in
//! cache, with millions each request meets cold memory. With more connections than requests at a time the client
//! acknowledges each response by a segment of its own, as its next request is far away. `placement=engine` is the TCP
//! engine alone; `split` has an I/O core beside the shard, and the time of both counts.

mod support;

use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::far::App;
use support::far::plan::{Counts, Kind, Mode, Phase};
use support::meter::Series;
use support::report::Report;
use support::served::{Layout, Server};

/// Requests in progress at a time.
const WINDOW: u32 = 256;
/// Before the first measurement.
const WARM: Duration = Duration::from_millis(300);

fn main() {
    let scale = Scale::get();
    let conn_counts: &[u32] =
        scale.pick(&[64], &[64, 100_000], &[64, 10_000, 1_000_000, 10_000_000]);
    let (runs, run_ms) = scale.pick((1, 50), (5, 600), (7, 2000));
    let run_time = Duration::from_millis(run_ms);
    let mut report = Report::new("rps");
    for &conns in conn_counts {
        served(&mut report, Layout::COMBINED, conns, runs, run_time);
        served(&mut report, Layout::SPLIT, conns, runs, run_time);
        engine(&mut report, conns, runs, run_time);
    }
    report.finish();
}

fn served(report: &mut Report, layout: Layout, conns: u32, runs: usize, run_time: Duration) {
    let server = Server::start(layout, App::Echo, conns);
    server.open(conns);
    server.plan.set(Phase {
        mode: Mode::Requests,
        window: WINDOW,
        held: conns,
    });
    std::thread::sleep(WARM);
    let series = Series::take(&server.plan, layout.threads(), runs, || {
        std::thread::sleep(run_time)
    });
    let unfinished = server.quiesce(conns);
    if !rows(
        report,
        layout.name(),
        conns,
        &series,
        &server.plan.counts(),
        unfinished,
    ) {
        eprintln!("{:?}", server.reports());
    }
    server.stop();
}

fn engine(report: &mut Report, conns: u32, runs: usize, run_time: Duration) {
    let (mut engine, plan) = Engine::start(conns);
    engine.open(&plan, conns);
    plan.set(Phase {
        mode: Mode::Requests,
        window: WINDOW,
        held: conns,
    });
    engine.run(WARM, |_| false);
    let series = Series::take(&plan, 1, runs, || {
        engine.run(run_time, |_| false);
    });
    let unfinished = engine.quiesce(&plan, conns);
    if !rows(report, "engine", conns, &series, &plan.counts(), unfinished) {
        eprintln!("{:?}", engine.stack.counters());
    }
}

/// Reports one layout; false when answers were wrong.
fn rows(
    report: &mut Report,
    placement: &str,
    conns: u32,
    series: &Series,
    counts: &Counts,
    unfinished: u64,
) -> bool {
    let params = [("conns", conns.into()), ("placement", placement.into())];
    report.median("req_per_s", &series.rates, "1/s", &params);
    report.median("server_ns_per_req", &series.costs, "ns", &params);
    let bad = counts.bad() + unfinished;
    report.row("bad_answers", bad as f64, "count", &params);
    let dir = |dir: &'static str| [params[0].clone(), params[1].clone(), ("dir", dir.into())];
    report.row(
        "packets_per_req",
        series.each(Kind::FramesIn),
        "count",
        &dir("rx"),
    );
    report.row(
        "packets_per_req",
        series.each(Kind::FramesOut),
        "count",
        &dir("tx"),
    );
    if bad > 0 {
        eprintln!(
            "wrong answers ({placement}, {conns} connections): {counts:?}, unfinished {unfinished}"
        );
    }
    bad == 0
}
