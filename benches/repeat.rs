//! What it is worth that a connection gets what one before it has left: its memory (TCB, hot block, records, descriptors,
//! timer, and in the whole runtime its task's), still in cache, and what was known of the path. On the other side
//! (`reuse=off`) nothing is reused before hundreds of thousands of others have come and gone. The same clients come
//! again and again, each for one request. Two servers side by side, measured in turns: two engines alone, then two whole
//! runtimes. `off_over_on` is what a connection costs without over what it costs with, in time and so, at one clock
//! rate, in cycles. The paper holds its reuse against Linux, which allocates and fills structures for each connection: `kernel_over_on` is what the same
//! short connections take a server of tokio's on the kernel's sockets, over loopback, in the same rounds. `instructions_per_conn` is asked of valgrind, where it is installed, in runs of their own (`repeat
//! callgrind on`).

mod support;

use std::sync::Arc;
use std::time::Duration;

use janus_tcp::Config;
use support::engine::Engine;
use support::far::plan::{Counts, Kind, Mode, Phase, Plan};
use support::far::{App, Far, packet::Ends};
use support::kernel::{Kernel, Load};
use support::meter::Series;
use support::report::{Report, tell};
use support::served::{Layout, Server, begin};
use support::{Scale, valgrind};

/// Short connections in progress at a time.
const WINDOW: u32 = 256;
/// How long a side is given to serve so many.
const PATIENCE: Duration = Duration::from_secs(600);
/// Connections of a run under valgrind: the difference of the two is counted, so that the start is not.
const COUNTED: [u64; 2] = [2_000, 42_000];
/// How a run under valgrind says how many there were.
const ENDED: &str = "ended: ";

const SHORT: Phase = Phase {
    mode: Mode::Short,
    window: WINDOW,
    held: 0,
};

/// Of the kernel's server.
const OF_KERNEL: Load = Load {
    mode: Mode::Short,
    window: WINDOW,
    held: 0,
};

/// A server that can be let work for a while.
trait Side {
    fn start(warm_reuse: bool) -> Self;

    fn plan(&self) -> Arc<Plan>;

    /// Goes on with what the plan says until `done`, at most `limit`.
    fn work(&mut self, limit: Duration, done: impl Fn(&Counts) -> bool);

    /// Begins nothing more, and ends what is in progress.
    fn rest(&mut self);
}

struct Bare {
    engine: Engine,
    plan: Arc<Plan>,
}

impl Side for Bare {
    fn start(warm_reuse: bool) -> Self {
        let plan = Arc::new(Plan::new(1, 0));
        let ends = Ends::default();
        let far = Far::new(ends.clone(), App::Echo, Arc::clone(&plan), 0, 0);
        let engine = Engine::new(far, config(warm_reuse), &ends, 65_536).expect("memory");
        Self { engine, plan }
    }

    fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    fn work(&mut self, limit: Duration, done: impl Fn(&Counts) -> bool) {
        let plan = &self.plan;
        self.engine.run(limit, |_| done(&plan.counts()));
    }

    fn rest(&mut self) {
        self.engine.quiesce(&self.plan, 0);
    }
}

impl Side for Server {
    fn start(warm_reuse: bool) -> Self {
        let tcp = config(warm_reuse);
        let connections = tcp.max_connections;
        let configure = |builder: janus::Builder| builder.tcp(tcp).max_connections(connections);
        let begin = |stream| begin(&App::Echo, stream);
        Self::start_with(Layout::COMBINED, App::Echo, 0, configure, begin)
    }

    fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    fn work(&mut self, limit: Duration, done: impl Fn(&Counts) -> bool) {
        self.wait(limit, done);
    }

    fn rest(&mut self) {
        self.quiesce(0);
    }
}

/// Room for all that rests where nothing is reused.
fn config(warm_reuse: bool) -> Config {
    Config {
        max_connections: 1 << 20,
        warm_reuse,
        ..Config::default()
    }
}

fn main() {
    if let Some(at) = std::env::args().position(|arg| arg == "callgrind") {
        return under_valgrind(at);
    }
    let scale = Scale::get();
    let mut report = Report::new("repeat");
    compare::<Bare>(&mut report, "engine", scale, None);
    let kernel = Kernel::tokio();
    for server in compare::<Server>(&mut report, Layout::COMBINED.name(), scale, Some(&kernel)) {
        server.stop();
    }
    if scale != Scale::Smoke {
        instructions(&mut report);
    }
    report.finish();
}

/// Two servers, and the kernel's if one is to stand beside them.
fn compare<S: Side>(
    report: &mut Report,
    placement: &'static str,
    scale: Scale,
    kernel: Option<&Kernel>,
) -> [S; 2] {
    // Enough that the memory of the cold side has gone round.
    let before: u64 = scale.pick(500, 600_000, 1_500_000);
    let (rounds, run_ms) = scale.pick((1, 30), (9, 300), (25, 1_000));
    let mut sides = [S::start(true), S::start(false)];
    for side in &mut sides {
        serve(side, before);
    }
    let mut series = [Series::default(), Series::default()];
    let (mut ratios, mut kernels, mut to_kernel) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        tell(|| format!("{placement}, round {round} of {rounds}"));
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut costs = [0.0; 2];
        for at in order {
            let run = one_run(&mut sides[at], Duration::from_millis(run_ms));
            costs[at] = run.costs[0];
            series[at].rates.extend(run.rates);
            series[at].costs.extend(run.costs);
        }
        ratios.push(costs[1] / costs[0]);
        if let Some(kernel) = kernel {
            let time = Duration::from_millis(run_ms);
            let cost = kernel.cost(OF_KERNEL, time / 4, time);
            assert_eq!(cost.wrong, 0, "wrong answers");
            kernels.push(cost.server_ns);
            to_kernel.push(cost.server_ns / costs[0]);
        }
    }
    for ((side, series), reuse) in sides.iter().zip(&series).zip(["on", "off"]) {
        let params = [("reuse", reuse.into()), ("placement", placement.into())];
        report.median("conn_per_s", &series.rates, "1/s", &params);
        report.median("server_ns_per_conn", &series.costs, "ns", &params);
        let counts = side.plan().counts();
        let bad = counts.bad() + counts.in_progress();
        report.row("bad_answers", bad as f64, "count", &params);
    }
    let params = [("placement", placement.into())];
    report.median("off_over_on", &ratios, "ratio", &params);
    if kernel.is_some() {
        report.median("kernel_over_on", &to_kernel, "ratio", &params);
        let params = [("reuse", "kernel".into())];
        report.median("server_ns_per_conn", &kernels, "ns", &params);
    }
    sides
}

/// Serves so many connections.
fn serve(side: &mut impl Side, connections: u64) {
    side.plan().set(SHORT);
    side.work(PATIENCE, |counts| counts.get(Kind::Ended) >= connections);
    side.rest();
}

/// One measurement; the other side rests meanwhile.
fn one_run(side: &mut impl Side, time: Duration) -> Series {
    let plan = side.plan();
    plan.set(SHORT);
    let series = Series::take(&plan, 1, 1, || side.work(time, |_| false));
    side.rest();
    series
}

/// Serves so many connections and ends; what valgrind counts.
fn under_valgrind(at: usize) {
    let argument = |n: usize| std::env::args().nth(at + n).unwrap_or_default();
    let connections: u64 = argument(2).parse().expect("a number of connections");
    let mut side = Bare::start(argument(1) == "on");
    serve(&mut side, connections);
    println!("{ENDED}{}", side.plan.counts().get(Kind::Ended));
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
