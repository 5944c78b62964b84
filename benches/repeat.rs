//! What it is worth that a connection gets the memory of one that has just ended (TCB, hot block, records, descriptors),
//! still in cache, rather than the memory that has rested longest. The server once held many connections, so there is
//! much memory to choose from; then the same clients come again and again, each for one request. Two engines side by
//! side, one with `warm_reuse` and one without, measured in turns. `instructions_per_conn` is asked of valgrind, where
//! it is installed, in runs of their own (`repeat callgrind on`).

mod support;

use std::sync::Arc;
use std::time::Duration;

use janus_tcp::Config;
use support::engine::Engine;
use support::far::plan::{Kind, Mode, Phase, Plan};
use support::far::{App, Far, packet::Ends};
use support::meter::Series;
use support::report::Report;
use support::{Scale, valgrind};

/// Short connections in progress at a time.
const WINDOW: u32 = 256;
/// Before the first measurement.
const WARM: Duration = Duration::from_millis(200);
/// Connections of a run under valgrind: the difference of the two is counted, so that the start is not.
const COUNTED: [u64; 2] = [2_000, 42_000];
/// How a run under valgrind says how many there were.
const ENDED: &str = "ended: ";

/// One of the two sides.
struct Side {
    name: &'static str,
    engine: Engine,
    plan: Arc<Plan>,
    series: Series,
}

fn main() {
    if let Some(at) = std::env::args().position(|arg| arg == "callgrind") {
        return under_valgrind(at);
    }
    let scale = Scale::get();
    let once: &[u32] = scale.pick(&[100], &[10_000, 300_000], &[10_000, 1_000_000]);
    let (rounds, run_ms) = scale.pick((1, 30), (9, 300), (15, 1_000));
    let mut report = Report::new("repeat");
    for &once in once {
        compare(&mut report, once, rounds, Duration::from_millis(run_ms));
    }
    if scale != Scale::Smoke {
        instructions(&mut report);
    }
    report.finish();
}

fn side(name: &'static str, warm_reuse: bool, once: u32) -> Side {
    let plan = Arc::new(Plan::new(1, once));
    let ends = Ends::default();
    let far = Far::new(ends.clone(), App::Echo, Arc::clone(&plan), 0, once);
    let config = Config {
        max_connections: once + 65_536,
        warm_reuse,
        ..Config::default()
    };
    let mut engine = Engine::new(far, config, &ends, 65_536).expect("memory");
    // So many connections at a time there were once.
    engine.open(&plan, once);
    plan.set(Phase {
        mode: Mode::Close,
        window: WINDOW,
        held: once,
    });
    engine.run(Duration::from_secs(600), |engine| {
        engine.stack.connections() == 0
    });
    plan.set(Phase {
        mode: Mode::Short,
        window: WINDOW,
        held: 0,
    });
    engine.run(WARM, |_| false);
    Side {
        name,
        engine,
        plan,
        series: Series::default(),
    }
}

fn compare(report: &mut Report, once: u32, rounds: usize, run_time: Duration) {
    let mut sides = [side("on", true, once), side("off", false, once)];
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut costs = [0.0; 2];
        for at in order {
            let Side {
                engine,
                plan,
                series,
                ..
            } = &mut sides[at];
            let taken = Series::take(plan, 1, 1, || {
                engine.run(run_time, |_| false);
            });
            costs[at] = taken.costs[0];
            series.rates.extend(taken.rates);
            series.costs.extend(taken.costs);
        }
        ratios.push(costs[1] / costs[0]);
    }
    for mut side in sides {
        let unfinished = side.engine.quiesce(&side.plan, 0);
        let params = [("reuse", side.name.into()), ("once_held", once.into())];
        report.median("conn_per_s", &side.series.rates, "1/s", &params);
        report.median("server_ns_per_conn", &side.series.costs, "ns", &params);
        let bad = side.plan.counts().bad() + unfinished;
        report.row("bad_answers", bad as f64, "count", &params);
        let memory = side.engine.stack.memory();
        report.row("tcb_bytes", memory.tcb as f64, "B", &params);
    }
    report.median(
        "off_over_on",
        &ratios,
        "ratio",
        &[("once_held", once.into())],
    );
}

/// Serves so many connections and ends; what valgrind counts.
fn under_valgrind(at: usize) {
    let argument = |n: usize| std::env::args().nth(at + n).unwrap_or_default();
    let connections: u64 = argument(2).parse().expect("a number of connections");
    let mut side = side("counted", argument(1) == "on", 5_000);
    let before = side.plan.counts().get(Kind::Ended);
    let plan = Arc::clone(&side.plan);
    side.engine.run(Duration::from_secs(600), |_| {
        plan.counts().get(Kind::Ended) - before >= connections
    });
    // Those before count too: how many warmed it up was a matter of time.
    println!("{ENDED}{}", plan.counts().get(Kind::Ended));
}

/// Instructions of one more connection: the generator's, about a seventh, are among them on both sides.
fn instructions(report: &mut Report) {
    for reuse in ["on", "off"] {
        let counted = COUNTED.map(|connections| counted(reuse, connections));
        let [Some(few), Some(many)] = counted else {
            eprintln!("no instructions are counted: valgrind is not there");
            return;
        };
        let each = (many.0 - few.0) as f64 / (many.1 - few.1) as f64;
        report.row(
            "instructions_per_conn",
            each,
            "count",
            &[("reuse", reuse.into())],
        );
    }
}

/// Instructions of a run with so many connections, and the connections there really were.
fn counted(reuse: &str, connections: u64) -> Option<(u64, u64)> {
    let arguments = ["callgrind".into(), reuse.into(), connections.to_string()];
    let (instructions, said) = valgrind::instructions(&arguments)?;
    let ended = said.lines().find_map(|line| line.strip_prefix(ENDED));
    Some((instructions, ended?.parse().ok()?))
}
