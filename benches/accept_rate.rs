//! How many short connections a second one core serves: SYN, request, response, FIN, with none to many idle
//! connections held open meanwhile. `placement=engine` is the TCP engine alone, without runtime and tasks.

mod support;

use janus_tcp::Config;
use std::sync::Arc;
use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::far::packet::Ends;
use support::far::plan::{Kind, Mode, Phase, Plan};
use support::far::{App, Far};
use support::meter::Meter;
use support::report::Report;

/// Short connections in progress at a time.
const WINDOW: u32 = 256;
/// Connections being opened at a time while the held ones are made.
const OPEN_WINDOW: u32 = 1024;
const OPEN_LIMIT: Duration = Duration::from_secs(600);

fn main() {
    let scale = Scale::get();
    let held_counts: &[u32] =
        scale.pick(&[100], &[0, 100_000], &[0, 100_000, 1_000_000, 10_000_000]);
    let (runs, run_ms) = scale.pick((1, 50), (5, 600), (7, 2000));
    let run_time = Duration::from_millis(run_ms);
    let mut report = Report::new("accept_rate");
    for &held in held_counts {
        engine(&mut report, held, runs, run_time);
    }
    report.finish();
}

fn engine(report: &mut Report, held: u32, runs: usize, run_time: Duration) {
    let plan = Arc::new(Plan::new(1, held));
    let ends = Ends::default();
    let far = Far::new(ends.clone(), App::Echo, Arc::clone(&plan), 0, held);
    let config = Config {
        max_connections: held + 65_536,
        ..Config::default()
    };
    let mut engine =
        Engine::new(far, config, ends.server, 65_536).expect("memory for the benchmark");
    if held > 0 {
        plan.set(Phase {
            mode: Mode::Open,
            window: OPEN_WINDOW,
            held,
        });
        let opened = engine.run(OPEN_LIMIT, |_| {
            plan.counts().get(Kind::Ended) >= u64::from(held)
        });
        assert!(
            opened,
            "held connections opened: {:?} {:?}",
            plan.counts(),
            engine.stack.counters()
        );
    }
    plan.set(Phase {
        mode: Mode::Short,
        window: WINDOW,
        held,
    });
    engine.run(Duration::from_millis(300), |_| false);
    let mut rates = Vec::new();
    let mut costs = Vec::new();
    let first = plan.counts();
    for _ in 0..runs {
        let meter = Meter::start(&plan, 1);
        engine.run(run_time, |_| false);
        let reading = meter.read();
        rates.push(reading.per_core_second());
        costs.push(reading.cost_ns());
    }
    let measured = plan.counts().since(&first);
    plan.set(Phase {
        mode: Mode::Idle,
        window: 0,
        held,
    });
    let ended = engine.run(Duration::from_secs(5), |_| plan.counts().in_progress() == 0);
    let counts = plan.counts();
    let params = [("held", held.into()), ("placement", "engine".into())];
    report.median("conn_per_s", &rates, "1/s", &params);
    report.median("server_ns_per_conn", &costs, "ns", &params);
    let per_conn = |kind| measured.get(kind) as f64 / measured.get(Kind::Ended) as f64;
    report.row(
        "packets_per_conn",
        per_conn(Kind::FramesIn),
        "count",
        &[("held", held.into()), ("dir", "rx".into())],
    );
    report.row(
        "packets_per_conn",
        per_conn(Kind::FramesOut),
        "count",
        &[("held", held.into()), ("dir", "tx".into())],
    );
    let unfinished = if ended { 0 } else { counts.in_progress() };
    report.row(
        "bad_answers",
        (counts.bad() + unfinished) as f64,
        "count",
        &params,
    );
    if counts.bad() + unfinished > 0 {
        eprintln!("wrong: {counts:?}\n{:?}", engine.stack.counters());
    }
}
