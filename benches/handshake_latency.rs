//! How long a handshake takes at an offered rate: from the moment a SYN is due to the SYN-ACK, with the rest of a short
//! connection (request, answer, close) going on as well. Connections come at random distances, whether or not others
//! have ended, so that what waited while the server stood still is counted.
//!
//! The rates are shares of what the server can do just before, with the same far end and more offered than it can take. A machine
//! shared with others becomes slower and faster by a third within seconds, with no gap in any reading of the clock, so each
//! load is offered in short rounds, and what the server can do is measured again after each. A round is *steady* when both
//! agree; of the others, which were at another load than theirs, no row is made but their share (`unsteady_share`).
//!
//! What was due while the machine ran something else is set aside, by the rules of `support/witness.rs`: there are rows for
//! what remains (`undisturbed`), for what was set aside (`disturbed`), and for both (`all`). `disturbed_share` is the part of
//! the time that was set aside, `machine_gap…` what a loop finds that only reads the clock, between the rounds, and
//! `own_gap…` what was found of gaps that are the server's: they are in the figures.
//!
//! Between the rounds the kernel's handshakes over loopback are timed at half of what they can do (`support/connects.rs`).
//! `to_kernel` is a quantile of ours over the median of the kernel's in all of the run.
//!
//! An I/O core gathers more at a time the more there is to do (`batching=adaptive`); beside that it is shown where it gathers 64 always.
//!
//! `cargo bench --bench handshake_latency -- combined 50` runs that placement and load only; several may be named.

mod support;

use std::time::Duration;

use janus::{Batching, Builder};
use support::Scale;
use support::connects::Kernel;
use support::far::App;
use support::far::pace::Sample;
use support::far::plan::{Kind, Mode, Phase};
use support::plot::{Elsewhere, Line, Plot};
use support::report::{Report, Value, quantile, tell};
use support::served::{Layout, Server, begin};
use support::witness::Record;
use support::witness::bare::{Bare, GAPS_NS};
use support::witness::control::{Control, Verdict};

/// Connections in progress at a time, at most: what the rings hold.
const WINDOW: u32 = 256;
/// Percent of what the server can do.
const LOADS: [u32; 5] = [10, 30, 50, 70, 90];
/// Connections a second that no server can take.
const TOO_MANY: f64 = 1e8;
/// What the server can do may differ by this part before a steady round and after it.
const STEADY: f64 = 0.1;
/// Percent of what the kernel can do.
const KERNEL_LOAD: f64 = 50.0;
const QUANTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// How long each thing is done.
#[derive(Clone, Copy)]
struct Times {
    rounds: usize,
    calibrate: Duration,
    run: Duration,
    kernel: Duration,
    bare: Duration,
}

/// A server's placement, and how it batches.
#[derive(Clone, Copy)]
struct Way {
    layout: Layout,
    batching: Batching,
}

const WAYS: [Way; 3] = [
    Way::new(Layout::COMBINED, Batching::Adaptive),
    Way::new(Layout::SPLIT, Batching::Adaptive),
    Way::new(Layout::SPLIT, Batching::Fixed(64)),
];

impl Way {
    const fn new(layout: Layout, batching: Batching) -> Way {
        Way { layout, batching }
    }

    fn params(self) -> [(&'static str, Value); 2] {
        let batching = match self.batching {
            Batching::Fixed(size) => Value::from(size as u64),
            _ => "adaptive".into(),
        };
        [
            ("placement", self.layout.name().into()),
            ("batching", batching),
        ]
    }
}

/// One load on one server.
struct Run {
    way: Way,
    load: u32,
    rounds: Vec<Round>,
}

/// A load offered for a while.
struct Round {
    rate: f64,
    /// What the server could do before it and after it.
    before: f64,
    after: f64,
    samples: Vec<Sample>,
    records: Vec<Record>,
}

/// What is known of the machine.
#[derive(Default)]
struct Machine {
    bare: Bare,
    /// The kernel's handshakes, round by round.
    kernel: Vec<(Vec<Sample>, Record)>,
    kernel_rates: Vec<f64>,
}

/// Of the words that the program was given, one that names this must be there, or none of its kind.
fn is_wanted(name: &str, kind: &[String]) -> bool {
    let words: Vec<String> = std::env::args().skip(1).collect();
    words.iter().all(|word| !kind.contains(word)) || words.iter().any(|word| word == name)
}

/// By scale.
fn times() -> Times {
    let times = |rounds, [calibrate, run, kernel, bare]: [u64; 4]| Times {
        rounds,
        calibrate: Duration::from_millis(calibrate),
        run: Duration::from_millis(run),
        kernel: Duration::from_millis(kernel),
        bare: Duration::from_millis(bare),
    };
    Scale::get().pick(
        times(1, [20, 40, 10, 5]),
        times(5, [100, 300, 60, 40]),
        times(15, [200, 600, 200, 100]),
    )
}

fn main() {
    let mut report = Report::new("handshake_latency");
    let (mut machine, mut runs) = (Machine::default(), Vec::new());
    let names = WAYS.map(|way| way.layout.name().to_owned());
    for way in WAYS {
        if is_wanted(way.layout.name(), &names) {
            serve(&mut report, &mut machine, &mut runs, way);
        }
    }
    let kernel_ns = machine.rows(&mut report);
    let rounds = runs.iter().flat_map(|run| &run.rounds);
    let records = rounds.flat_map(|round| &round.records);
    let control = Control::of(records, machine.bare.records());
    for run in runs {
        run.rows(&mut report, &control, kernel_ns);
    }
    draw(&report, kernel_ns);
    report.finish();
}

/// The median against the load, as the paper has it in figure 8, of what was undisturbed. Beyond, queues of the machine's making are all that would be seen.
fn draw(report: &Report, kernel_ns: f64) {
    let named = WAYS
        .iter()
        .zip(["combined", "split", "split, 64 at a time"]);
    let lines = named.map(|(way, name)| Line {
        name,
        metric: "handshake_us",
        with: [
            &way.params()[..],
            &[("q", 50.0.into()), ("intervals", "undisturbed".into())],
        ]
        .concat(),
    });
    let kernel = format!("the kernel over loopback, at {KERNEL_LOAD} %");
    Plot {
        file: "latency",
        title: "Handshakes against the load",
        x: ("load", "percent of what the server can do"),
        y: "us, median",
        unit: 1.0,
        lines: lines.collect(),
        elsewhere: (kernel_ns > 0.0).then_some(Elsewhere {
            y: kernel_ns / 1e3,
            text: &kernel,
        }),
    }
    .write(report);
}

fn serve(report: &mut Report, machine: &mut Machine, runs: &mut Vec<Run>, way: Way) {
    let of = way.params();
    let (times, layout) = (times(), way.layout);
    let configure = move |builder: Builder| builder.batching(way.batching);
    let server = Server::start_with(layout, App::Echo, 0, configure, |stream| {
        begin(&App::Echo, stream);
    });
    if layout.threads() > layout.cores {
        server.watch_shards();
    }
    let mut capacities = Vec::new();
    let names = LOADS.map(|load| load.to_string());
    for load in LOADS {
        if !is_wanted(&load.to_string(), &names) {
            continue;
        }
        let mut rounds = Vec::with_capacity(times.rounds);
        for round in 0..times.rounds {
            tell(|| {
                format!(
                    "{} at {load} %, round {round} of {}",
                    layout.name(),
                    times.rounds
                )
            });
            machine.look(times);
            let before = capacity(&server, times.calibrate);
            let rate = before * f64::from(load) / 100.0;
            let (samples, records) = offer(&server, rate, times.run);
            let after = capacity(&server, times.calibrate);
            capacities.extend([before, after]);
            rounds.push(Round {
                rate,
                before,
                after,
                samples,
                records,
            });
        }
        runs.push(Run { way, load, rounds });
    }
    let unfinished = server.quiesce(0);
    let bad = server.plan.counts().bad() + unfinished;
    report.row("bad_answers", bad as f64, "count", &of);
    report.median("capacity_conn_per_s", &capacities, "1/s", &of);
    server.stop();
}

fn short() -> Phase {
    Phase {
        mode: Mode::Short,
        window: WINDOW,
        held: 0,
    }
}

/// Connections a second when more are offered than the server can take, by the same far end that offers less later.
fn capacity(server: &Server, time: Duration) -> f64 {
    server.plan.set_rate(TOO_MANY, Duration::ZERO);
    server.plan.set(short());
    std::thread::sleep(time / 4);
    let (before, begin) = (server.plan.counts(), std::time::Instant::now());
    std::thread::sleep(time);
    let ended = server.plan.counts().since(&before).get(Kind::Ended);
    let rate = ended as f64 / begin.elapsed().as_secs_f64();
    server.end_pace(0);
    rate
}

/// A phase at this rate: its handshakes, and how the clock went on meanwhile.
fn offer(server: &Server, rate: f64, time: Duration) -> (Vec<Sample>, Vec<Record>) {
    server.plan.set_rate(rate, time);
    server.plan.set(short());
    std::thread::sleep(time);
    server.end_pace(0)
}

impl Machine {
    /// Looks at the processors, and at the kernel, while the server rests.
    fn look(&mut self, times: Times) {
        self.bare.look(times.bare);
        let kernel = Kernel::start();
        let rate = kernel.capacity(times.kernel / 2) * KERNEL_LOAD / 100.0;
        let seed = self.kernel.len() as u64;
        self.kernel.push(kernel.offer(rate, times.kernel, seed));
        self.kernel_rates.push(rate);
    }

    /// The kernel's rows, and its median in nanoseconds.
    fn rows(&self, report: &mut Report) -> f64 {
        self.bare.rows(report);
        let kernels = self.kernel.iter().map(|(_, record)| record);
        let control = Control::of(kernels, self.bare.records());
        report.median("kernel_rate", &self.kernel_rates, "1/s", &[]);
        let (mut took, mut calm, mut all) = (Vec::new(), 0.0, 0.0);
        for (samples, record) in &self.kernel {
            let verdict = control.judge(std::slice::from_ref(record), KERNEL_LOAD / 100.0, 7);
            calm += verdict.calm_seconds();
            all += verdict.seconds();
            let undisturbed = samples.iter().filter(|s| !verdict.is_disturbed(s.due_ns));
            took.extend(undisturbed.map(|sample| sample.took_ns));
        }
        took.sort_unstable();
        for q in QUANTILES {
            let of = [
                ("q", q.into()),
                ("load", KERNEL_LOAD.into()),
                ("intervals", "undisturbed".into()),
                ("samples", took.len().into()),
            ];
            report.row("kernel_connect_us", quantile(&took, q) / 1e3, "us", &of);
        }
        let of = [("load", KERNEL_LOAD.into()), ("placement", "kernel".into())];
        report.row("disturbed_share", 1.0 - calm / all, "ratio", &of);
        quantile(&took, 50.0)
    }
}

impl Run {
    fn rows(&self, report: &mut Report, control: &Control, kernel_ns: f64) {
        let of = self.params();
        let steady: Vec<&Round> = self.rounds.iter().filter(|r| r.is_steady()).collect();
        let unsteady = 1.0 - steady.len() as f64 / self.rounds.len() as f64;
        report.row("unsteady_share", unsteady, "ratio", &of);
        let verdicts: Vec<Verdict> = steady
            .iter()
            .map(|round| control.judge(&round.records, round.load(), 7))
            .collect();
        let (mut bad, mut calm) = (Vec::new(), Vec::new());
        for (round, verdict) in steady.iter().zip(&verdicts) {
            for sample in &round.samples {
                if verdict.is_disturbed(sample.due_ns) {
                    bad.push(sample.took_ns);
                } else {
                    calm.push(sample.took_ns);
                }
            }
        }
        let rates: Vec<f64> = steady.iter().map(|round| round.rate).collect();
        report.median("offered_conn_per_s", &rates, "1/s", &of);
        let all = [calm.as_slice(), &bad].concat();
        let undisturbed = self.quantiles(report, "undisturbed", calm);
        self.quantiles(report, "disturbed", bad);
        self.quantiles(report, "all", all);
        for (q, took_ns) in QUANTILES.into_iter().zip(undisturbed) {
            let of = [&of[..], &[("q", q.into())]].concat();
            report.row("to_kernel", took_ns / kernel_ns, "ratio", &of);
        }
        own_rows(report, &verdicts, &of);
    }

    fn params(&self) -> Vec<(&'static str, Value)> {
        let load = ("load", self.load.into());
        self.way.params().into_iter().chain([load]).collect()
    }

    fn quantiles(&self, report: &mut Report, intervals: &str, mut took: Vec<u64>) -> [f64; 3] {
        took.sort_unstable();
        QUANTILES.map(|q| {
            let of = [
                ("q", q.into()),
                ("intervals", intervals.into()),
                ("samples", took.len().into()),
            ];
            let of = [&self.params()[..], &of].concat();
            let took_ns = quantile(&took, q);
            report.row("handshake_us", took_ns / 1e3, "us", &of);
            took_ns
        })
    }
}

impl Round {
    /// What was offered, of the least that the server could do around it.
    fn load(&self) -> f64 {
        self.rate / self.before.min(self.after)
    }

    fn is_steady(&self) -> bool {
        (self.after / self.before - 1.0).abs() <= STEADY
    }
}

fn own_rows(report: &mut Report, verdicts: &[Verdict], of: &[(&str, Value)]) {
    let seconds: f64 = verdicts.iter().map(Verdict::seconds).sum();
    let calm: f64 = verdicts.iter().map(Verdict::calm_seconds).sum();
    report.row("disturbed_share", 1.0 - calm / seconds, "ratio", of);
    let own = || verdicts.iter().flat_map(Verdict::own_ns);
    let longest = own().max().unwrap_or(0) as f64 / 1e3;
    report.row("own_gap_us", longest, "us", of);
    for least in GAPS_NS {
        let rate = own().filter(|&ns| ns >= least).count() as f64 / calm;
        let from = [("from_us", (least / 1_000).into())];
        report.row("own_gaps_per_s", rate, "1/s", &[of, &from].concat());
    }
}
