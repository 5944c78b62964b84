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
use support::served::{BODY, Layout, Server};

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
    let engine_only = std::env::args().any(|arg| arg == "engine");
    for &conns in conn_counts {
        if !engine_only {
            all_served(&mut report, conns, runs, run_time);
        }
        engine(&mut report, conns, runs, run_time);
    }
    report.finish();
}

/// Every layout of the whole runtime.
fn all_served(report: &mut Report, conns: u32, runs: usize, run_time: Duration) {
    served(report, Layout::COMBINED, App::Echo, conns, runs, run_time);
    served(
        report,
        Layout::COMBINED,
        App::http(BODY),
        conns,
        runs,
        run_time,
    );
    served(report, Layout::SPLIT, App::Echo, conns, runs, run_time);
}

/// One case: what is reported with every figure.
#[derive(Clone, Copy)]
struct Case {
    placement: &'static str,
    app: &'static str,
    conns: u32,
}

fn served(
    report: &mut Report,
    layout: Layout,
    app: App,
    conns: u32,
    runs: usize,
    run_time: Duration,
) {
    let case = Case {
        placement: layout.name(),
        app: app.name(),
        conns,
    };
    let server = Server::start(layout, app, conns);
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
    if !rows(report, case, &series, &server.plan.counts(), unfinished) {
        eprintln!("{:?}", server.reports());
    }
    server.stop();
}

fn engine(report: &mut Report, conns: u32, runs: usize, run_time: Duration) {
    let case = Case {
        placement: "engine",
        app: "echo",
        conns,
    };
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
    if !rows(report, case, &series, &plan.counts(), unfinished) {
        eprintln!("{:?}", engine.stack.counters());
    }
}

/// Reports one case; false when answers were wrong.
fn rows(
    report: &mut Report,
    case: Case,
    series: &Series,
    counts: &Counts,
    unfinished: u64,
) -> bool {
    let Case {
        placement,
        app,
        conns,
    } = case;
    let params = [
        ("conns", conns.into()),
        ("placement", placement.into()),
        ("app", app.into()),
    ];
    report.median("req_per_s", &series.rates, "1/s", &params);
    report.median("server_ns_per_req", &series.costs, "ns", &params);
    let bad = counts.bad() + unfinished;
    report.row("bad_answers", bad as f64, "count", &params);
    for (dir, kind) in [("rx", Kind::FramesIn), ("tx", Kind::FramesOut)] {
        let mut params = params.to_vec();
        params.push(("dir", dir.into()));
        report.row("packets_per_req", series.each(kind), "count", &params);
    }
    if bad > 0 {
        eprintln!(
            "wrong answers ({placement}, {app}, {conns} connections): {counts:?}, unfinished {unfinished}"
        );
    }
    bad == 0
}
