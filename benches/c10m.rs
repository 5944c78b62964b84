//! The C10M problem at one moment (table I of the Janus paper): connections held, new ones a second, bits and packets a second, latency
//! and jitter, of one core that serves over the in-memory wire, beside a second one that has the load. Connections rest; the new ones
//! are short (SYN, request, answer of 2 KiB, FIN both ways), and come at a rate, whether or not others have ended.
//!
//! * Each counter is read every 10 ms for 10 s; the file has all readings (`at_s`, `connections`, `begun`, `ended`, `packets`, `bytes`,
//!   `waited_s`, `stolen`). A `row` is its worst 100 ms, and is met if that meets `aim`: `intervals=calm` are those in which the threads
//!   waited for a processor for less than a fiftieth, and the host took none, `all` are all.
//! * Packets and bytes are those that reached the other end of the wire, both directions together, with their headers. The wire's
//!   copies are in the time of the core that sends.
//! * Latency is from a SYN's due time to the SYN-ACK, at the load of the other four; jitter is how far that is from the median. Rows are of
//!   the worst 100 ms: the median of latency, the 99th percentile of jitter; `latency_us` and `jitter_us` have both quantiles of all.
//!   What was due while the machine ran something else is set aside (`support/witness.rs`).
//!
//! If a core cannot do what the rates ask for, the load is a part of what it can; the rows then say by how much they fall short.
//! `load_share` is the part of the load's time that it worked when more was offered than could be served: well below 1 the server's core
//! holds the rates. An argument names the connections (`10m`).

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use janus::BackendChoice;
use janus_io::wire::{self, WireCounters};
use janus_io::{Backend, Batch};
use janus_mem::{Depot, Frame, Growth};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use support::far::pace::Sample;
use support::far::packet::Ends;
use support::far::plan::{Counts, Kind, Mode, Phase, Plan};
use support::far::{App, Far};
use support::meter::{Span, Threads, WAIT_MAX};
use support::report::{Report, Value, quantile};
use support::served::{Layout, Server};
use support::witness::bare::Bare;
use support::witness::control::{Control, Verdict};
use support::{Scale, memory};

/// What is asked for.
const AIMS: [(&str, f64, &str); 4] = [
    ("connections", 10e6, "count"),
    ("new_per_s", 1e6, "1/s"),
    ("gbit_per_s", 10.0, "Gbit/s"),
    ("packets_per_s", 10e6, "1/s"),
];
const LATENCY_US: f64 = 10.0;
const JITTER_US: f64 = 10.0;
/// New connections a second that meet the rates, with what random distances between them take away within 100 ms.
const RATE: f64 = 1.15e6;
/// Part of what the core can do that is offered at most.
const LOAD_MAX: f64 = 0.8;
const TOO_MANY: f64 = 1e8;
/// Bytes of an answer.
const ANSWER: u32 = 2_048;
/// Short connections in progress at a time, at most.
const WINDOW: u32 = 256;
const EVERY: Duration = Duration::from_millis(10);
const WORST: Duration = Duration::from_millis(100);
/// Samples of latency that a stretch needs for its quantiles.
const SAMPLES_MIN: usize = 1_000;
/// Bytes of a connection at rest, and of the load's part of it; those of samples and packet buffers.
const EACH: u64 = 100;
const FIXED: u64 = 1 << 30;

fn main() {
    let scale = Scale::get();
    let held = Scale::named_or(scale.pick(&[10_000], &[1_000_000], &[10_000_000]))[0];
    let time = Duration::from_millis(scale.pick(300, 10_000, 10_000));
    let mut report = Report::new("c10m");
    let needed = u64::from(held) * EACH + FIXED;
    report.needs(u64::from(held) / 500_000 + time.as_secs() + 5, needed);
    if needed > memory::available_bytes() {
        let reason = [("reason", Value::from("memory"))];
        report.row("skipped", needed as f64, "B", &reason);
        return report.finish();
    }
    // While nothing else runs: the load has its processor for itself from its beginning on.
    let mut bare = Bare::default();
    bare.look(time / 50);
    let (near, far) = wire::pair(wire::Config {
        link: janus_wire::Link::Ethernet,
        depth: 8_192,
        ..wire::Config::default()
    })
    .expect("a wire");
    let ends = Ends {
        server_mac: near.caps().mac.expect("a wire of Ethernet"),
        ..Ends::default()
    };
    let wires = [near.counters(), far.counters()].concat();
    let app = App::Sized(ANSWER);
    let before = Threads::all();
    let configure = |builder: janus::Builder| builder.backend(BackendChoice::wire(near));
    let server =
        Server::start_resting_with(ends.clone(), Layout::COMBINED, app.clone(), held, configure);
    server.plan.set_once();
    let load = Load::start(far, Far::new(ends, app, Arc::clone(&server.plan), 0, held));
    let threads = Threads::all().without(&before);
    report.progress(&format!("opening {held} connections"));
    server.open(held);
    let moment = Moment {
        server: &server,
        held,
        time,
        threads,
        wires,
    };
    moment.measure(&mut report, &bare);
    let unfinished = server.quiesce(held);
    report.row("unfinished", unfinished as f64, "count", &[]);
    let bad = server.plan.counts().bad();
    if bad > 0 {
        eprintln!("wrong answers: {:?}", server.plan.counts());
    }
    report.row("bad_answers", bad as f64, "count", &[]);
    load.stop();
    server.stop();
    report.finish();
}

/// The thread at the other end of the wire.
struct Load {
    thread: std::thread::JoinHandle<()>,
    ends: Arc<AtomicBool>,
}

impl Load {
    fn start(end: wire::End, mut far: Far) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let body = move || {
            pin_to_last();
            let depot = Depot::new(65_536, &Growth::Inline).expect("memory");
            let mut pool = depot.pool();
            let mut queue = Box::new(end).open(1).expect("one queue").remove(0);
            let (mut came, mut goes, mut done) = (Batch::new(), Batch::new(), Batch::new());
            while !told.load(Ordering::Relaxed) {
                queue.rx_burst(&mut pool, &mut came);
                far.take(came.iter().map(Frame::data));
                came.pull().for_each(|frame| pool.free(frame.buf));
                far.give(&mut pool, goes.room(), |frame| {
                    let refused = goes.push(frame);
                    debug_assert!(refused.is_ok(), "no more is given than there is room for");
                });
                queue.tx_burst(&mut pool, &mut goes, &mut done);
                done.pull().for_each(|frame| pool.free(frame.buf));
            }
        };
        let thread = std::thread::Builder::new().name("load".into()).spawn(body);
        Self {
            thread: thread.expect("a thread"),
            ends,
        }
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load");
    }
}

/// Keeps this thread on the last processor: a server of one core has the first.
fn pin_to_last() {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    if let Some(last) = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)) {
        let mut one = CpuSet::new();
        one.set(last);
        let _ = sched_setaffinity(None, &one);
    }
}

struct Moment<'a> {
    server: &'a Server,
    held: u32,
    time: Duration,
    /// The server's and the load's.
    threads: Threads,
    wires: Vec<Arc<WireCounters>>,
}

/// All counters at a time.
#[derive(Clone, Copy)]
struct Reading {
    at_s: f64,
    connections: f64,
    counts: Counts,
    packets: f64,
    bytes: f64,
    /// Seconds that threads waited for a processor since the reading before, of all together, and whether the host took one.
    waited_s: f64,
    stolen: bool,
}

impl Moment<'_> {
    fn plan(&self) -> &Plan {
        &self.server.plan
    }

    fn short(&self) {
        self.plan().set(Phase {
            mode: Mode::Short,
            window: WINDOW,
            held: self.held,
        });
    }

    fn measure(&self, report: &mut Report, bare: &Bare) {
        self.server.watch_shards();
        report.progress("what the core can do");
        // The best, as nothing but the machine makes it less.
        let capacities = [(); 3].map(|()| self.capacity());
        let (capacity, share) =
            capacities.into_iter().fold(
                (0.0, 0.0),
                |best, now| if now.0 > best.0 { now } else { best },
            );
        report.row("load_share", share, "ratio", &[]);
        report.row("capacity_conn_per_s", capacity, "1/s", &[]);
        let rate = RATE.min(capacity * LOAD_MAX);
        report.row("offered_conn_per_s", rate, "1/s", &[]);
        report.progress(&format!("{rate:.0} connections a second"));
        self.plan().set_rate(rate, self.time);
        self.short();
        let readings = self.read();
        let (samples, records) = self.server.end_pace(self.held);
        let control = Control::of(records.iter(), bare.records());
        let verdict = control.judge(&records, rate / capacity, 7);
        bare.rows(report);
        self.rates(report, &readings);
        latency(report, &samples, &verdict);
        write(report, &readings);
    }

    /// Connections a second when more are offered than the core can take, and the part of its time that the load worked.
    fn capacity(&self) -> (f64, f64) {
        let time = self.time / 20;
        self.plan().set_rate(TOO_MANY, Duration::ZERO);
        self.short();
        std::thread::sleep(time / 4);
        let (before, begin) = (self.plan().counts(), Instant::now());
        std::thread::sleep(time);
        let counts = self.plan().counts().since(&before);
        let seconds = begin.elapsed().as_secs_f64();
        let capacity = counts.get(Kind::Ended) as f64 / seconds;
        // While it looks for packets and for something due the load is not inside.
        let share = counts.get(Kind::InsideNs) as f64 / 1e9 / seconds;
        self.server.end_pace(self.held);
        (capacity, share)
    }

    /// Reads all counters again and again.
    fn read(&self) -> Vec<Reading> {
        let begin = Instant::now();
        let mut readings = Vec::new();
        let mut span = Span::start(Some(&self.threads));
        let mut next = EVERY;
        while begin.elapsed() < self.time {
            let sum = |of: fn(&WireCounters) -> u64| -> f64 {
                self.wires.iter().map(|wire| of(wire) as f64).sum()
            };
            let spent = span.read();
            readings.push(Reading {
                at_s: begin.elapsed().as_secs_f64(),
                counts: self.plan().counts(),
                packets: sum(|wire| wire.sent.get()),
                bytes: sum(|wire| wire.sent_bytes.get()),
                connections: self.server.reports()[0].connections as f64,
                waited_s: spent.waited_ns / 1e9,
                stolen: spent.stolen,
            });
            span = Span::start(Some(&self.threads));
            std::thread::sleep(next.saturating_sub(begin.elapsed()));
            next += EVERY;
        }
        readings
    }

    fn rates(&self, report: &mut Report, readings: &[Reading]) {
        for (name, aim, unit) in AIMS {
            let of = |reading: &Reading| match name {
                "connections" => reading.connections,
                "new_per_s" => reading.counts.get(Kind::Ended) as f64,
                "gbit_per_s" => reading.bytes * 8.0 / 1e9,
                _ => reading.packets,
            };
            let mut stretches = Vec::new();
            for (at, first) in readings.iter().enumerate() {
                let end = first.at_s + WORST.as_secs_f64();
                let Some(last) = readings[at..].iter().find(|it| it.at_s >= end) else {
                    break;
                };
                let within = readings[at..].iter().take_while(|it| it.at_s <= last.at_s);
                let figure = if name == "connections" {
                    within.clone().map(of).fold(f64::INFINITY, f64::min)
                } else {
                    (of(last) - of(first)) / (last.at_s - first.at_s)
                };
                let waited_s: f64 = within.clone().skip(1).map(|it| it.waited_s).sum();
                let too_long = waited_s > WAIT_MAX * (last.at_s - first.at_s);
                let disturbed = too_long || within.skip(1).any(|it| it.stolen);
                stretches.push((figure, disturbed));
            }
            for intervals in ["calm", "all"] {
                let these = stretches
                    .iter()
                    .filter(|(_, disturbed)| intervals == "all" || !disturbed);
                let figures: Vec<f64> = these.map(|(figure, _)| *figure).collect();
                let worst = figures.iter().copied().reduce(f64::min).unwrap_or(f64::NAN);
                row(
                    report,
                    (name, worst, unit),
                    aim,
                    worst >= aim,
                    intervals,
                    figures.len(),
                );
            }
        }
    }
}

/// Adds the row of a requirement and, if it is not met, says so.
fn row(
    report: &mut Report,
    (name, worst, unit): (&str, f64, &str),
    aim: f64,
    is_met: bool,
    intervals: &str,
    stretches: usize,
) {
    let met = match (stretches, is_met) {
        (0, _) => "unknown",
        (_, true) => "yes",
        (_, false) => "no",
    };
    let params = [
        ("name", Value::from(name)),
        ("aim", aim.into()),
        ("met", met.into()),
        ("intervals", intervals.into()),
        ("stretches", stretches.into()),
    ];
    report.row("row", worst, unit, &params);
    if !is_met && intervals == "all" {
        report.progress(&format!(
            "not met: {name} is {worst:.2} {unit} at its worst, of {aim}"
        ));
    }
}

fn latency(report: &mut Report, samples: &[Sample], verdict: &Verdict) {
    for intervals in ["calm", "all"] {
        let wanted = |sample: &&Sample| intervals == "all" || !verdict.is_disturbed(sample.due_ns);
        let mut took: Vec<u64> = samples.iter().filter(wanted).map(|s| s.took_ns).collect();
        took.sort_unstable();
        let median = quantile(&took, 50.0);
        let of_median = |took: &u64| took.abs_diff(median as u64);
        let mut off: Vec<u64> = took.iter().map(of_median).collect();
        off.sort_unstable();
        for q in [50.0, 99.0] {
            let params = [("q", q.into()), ("intervals", Value::from(intervals))];
            report.row("latency_us", quantile(&took, q) / 1e3, "us", &params);
            report.row("jitter_us", quantile(&off, q) / 1e3, "us", &params);
        }
        let mut stretches: std::collections::BTreeMap<u64, Vec<u64>> = Default::default();
        for sample in samples.iter().filter(wanted) {
            let stretch = sample.due_ns / WORST.as_nanos() as u64;
            stretches.entry(stretch).or_default().push(sample.took_ns);
        }
        stretches.retain(|_, took| took.len() >= SAMPLES_MIN);
        // No number where there is no stretch.
        let (mut slowest, mut farthest) = (f64::NAN, f64::NAN);
        for took in stretches.values_mut() {
            took.sort_unstable();
            slowest = slowest.max(quantile(took, 50.0) / 1e3);
            let mut off: Vec<u64> = took.iter().map(of_median).collect();
            off.sort_unstable();
            farthest = farthest.max(quantile(&off, 99.0) / 1e3);
        }
        for (name, worst, aim) in [
            ("latency_us", slowest, LATENCY_US),
            ("jitter_us", farthest, JITTER_US),
        ] {
            let is_met = worst <= aim;
            row(
                report,
                (name, worst, "us"),
                aim,
                is_met,
                intervals,
                stretches.len(),
            );
        }
    }
    let share = 1.0 - verdict.calm_seconds() / verdict.seconds();
    report.row("disturbed_share", share, "ratio", &[]);
}

/// Hands all readings to the file.
fn write(report: &mut Report, readings: &[Reading]) {
    let mut series = |name, of: &dyn Fn(&Reading) -> f64| {
        report.series(name, readings.iter().map(of).collect());
    };
    series("at_s", &|it| it.at_s);
    series("connections", &|it| it.connections);
    series("begun", &|it| it.counts.get(Kind::Begun) as f64);
    series("ended", &|it| it.counts.get(Kind::Ended) as f64);
    series("packets", &|it| it.packets);
    series("bytes", &|it| it.bytes);
    series("waited_s", &|it| it.waited_s);
    series("stolen", &|it| f64::from(u8::from(it.stolen)));
}
