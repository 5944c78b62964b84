//! How many requests a second one core serves over open connections used in turn: with few of them everything is in
//! cache, with millions each request meets cold memory. Above `window` connections the client acknowledges each
//! response by a segment of its own, as its next request is far away. `placement=engine` is the TCP engine alone.

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

/// Requests in progress at a time.
const WINDOW: u32 = 256;
const OPEN_LIMIT: Duration = Duration::from_secs(600);

fn main() {
    let scale = Scale::get();
    let conn_counts: &[u32] =
        scale.pick(&[64], &[64, 100_000], &[64, 10_000, 1_000_000, 10_000_000]);
    let (runs, run_ms) = scale.pick((1, 50), (5, 600), (7, 2000));
    let run_time = Duration::from_millis(run_ms);
    let mut report = Report::new("rps");
    for &conns in conn_counts {
        engine(&mut report, conns, runs, run_time);
    }
    report.finish();
}

fn engine(report: &mut Report, conns: u32, runs: usize, run_time: Duration) {
    let plan = Arc::new(Plan::new(1, conns));
    let ends = Ends::default();
    let far = Far::new(ends.clone(), App::Echo, Arc::clone(&plan), 0, conns);
    let config = Config {
        max_connections: conns + 65_536,
        ..Config::default()
    };
    let mut engine =
        Engine::new(far, config, ends.server, 65_536).expect("memory for the benchmark");
    plan.set(Phase {
        mode: Mode::Open,
        window: 1024,
        held: conns,
    });
    let opened = engine.run(OPEN_LIMIT, |_| {
        plan.counts().get(Kind::Ended) >= u64::from(conns)
    });
    assert!(
        opened,
        "connections opened: {:?} {:?}",
        plan.counts(),
        engine.stack.counters()
    );
    plan.set(Phase {
        mode: Mode::Requests,
        window: WINDOW,
        held: conns,
    });
    engine.run(Duration::from_millis(300), |_| false);
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
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
        held: conns,
    });
    let ended = engine.run(Duration::from_secs(5), |_| plan.counts().in_progress() == 0);
    let counts = plan.counts();
    let params = [("conns", conns.into()), ("placement", "engine".into())];
    report.median("req_per_s", &rates, "1/s", &params);
    report.median("server_ns_per_req", &costs, "ns", &params);
    let per_request = |kind| measured.get(kind) as f64 / measured.get(Kind::Ended) as f64;
    report.row(
        "packets_per_req",
        per_request(Kind::FramesIn),
        "count",
        &[("conns", conns.into()), ("dir", "rx".into())],
    );
    report.row(
        "packets_per_req",
        per_request(Kind::FramesOut),
        "count",
        &[("conns", conns.into()), ("dir", "tx".into())],
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
