//! How many short connections a second one core serves: SYN, request, response, FIN, with none to many idle
//! connections held open meanwhile. `placement=engine` is the TCP engine alone, without runtime and tasks; `split` has
//! an I/O core beside the shard, and the time of both counts. In the rows with `first=server` the server answers and ends
//! in one segment, and keeps a TIME-WAIT record of each connection; in the others the client ends first. With
//! arguments only the placements are measured that they name; `engine`, on one thread, can be run under a profiler that
//! counts instructions.

mod support;

use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::far::App;
use support::far::plan::{Counts, Kind, Mode, Phase};
use support::meter::Series;
use support::report::Report;
use support::served::{Layout, Server, begin_once};

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
    let named: Vec<String> = std::env::args().skip(1).collect();
    let named = |placement: &str| named.iter().any(|arg| arg == placement);
    let all = !["combined", "split", "engine"].into_iter().any(named);
    let wanted = |placement: &str| all || named(placement);
    for &held in held_counts {
        for layout in [Layout::COMBINED, Layout::SPLIT] {
            if wanted(layout.name()) {
                let server = Server::start(layout, App::Echo, held);
                let case = Case {
                    placement: layout.name(),
                    held,
                    first: First::Client,
                };
                served(&mut report, server, case, runs, run_time);
            }
        }
        if wanted("engine") {
            engine(&mut report, held, First::Client, runs, run_time);
        }
    }
    if wanted(Layout::COMBINED.name()) {
        let server = Server::start_with(
            Layout::COMBINED,
            App::Echo,
            0,
            |builder| builder,
            begin_once,
        );
        let case = Case {
            placement: Layout::COMBINED.name(),
            held: 0,
            first: First::Server,
        };
        served(&mut report, server, case, runs, run_time);
    }
    if wanted("engine") {
        engine(&mut report, 0, First::Server, runs, run_time);
    }
    report.finish();
}

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    placement: &'static str,
    held: u32,
    first: First,
}

/// Who ends a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Client,
    Server,
}

fn served(report: &mut Report, server: Server, case: Case, runs: usize, run_time: Duration) {
    let held = case.held;
    server.open(held);
    server.plan.set(Phase {
        mode: Mode::Short,
        window: WINDOW,
        held,
    });
    std::thread::sleep(WARM);
    let series = Series::take(&server.plan, server.layout.threads(), runs, || {
        std::thread::sleep(run_time)
    });
    let unfinished = server.quiesce(held);
    if !rows(report, case, &series, &server.plan.counts(), unfinished) {
        eprintln!("{:?}", server.reports());
    }
    server.stop();
}

fn engine(report: &mut Report, held: u32, first: First, runs: usize, run_time: Duration) {
    let (mut engine, plan) = Engine::start(held);
    engine.ends_first = first == First::Server;
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
    let case = Case {
        placement: "engine",
        held,
        first,
    };
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
        placement, held, ..
    } = case;
    let mut params = vec![("held", held.into()), ("placement", placement.into())];
    if case.first == First::Server {
        params.push(("first", "server".into()));
    }
    report.median("conn_per_s", &series.rates, "1/s", &params);
    report.median("server_ns_per_conn", &series.costs, "ns", &params);
    let bad = counts.bad() + unfinished;
    report.row("bad_answers", bad as f64, "count", &params);
    for (dir, frames) in [("rx", Kind::FramesIn), ("tx", Kind::FramesOut)] {
        let params = [&params[..], &[("dir", dir.into())]].concat();
        report.row("packets_per_conn", series.each(frames), "count", &params);
    }
    if bad > 0 {
        eprintln!("wrong answers ({placement}, {held} held): {counts:?}, unfinished {unfinished}");
    }
    bad == 0
}
