//! A core with many connections at rest is drained while requests go on: how long that takes, what share of the core's time moving has, and
//! what the requests see of it. Two cores hold the connections and load themselves, each by a far end of its own inside its turns; after the
//! drain one of them serves alone, so `load` is half of what one can do. Absolute times are those of a machine whose other processes want
//! the two processors too. Arguments name numbers of connections (`10m`).

mod support;

use std::time::{Duration, Instant};

use janus::Placement;
use support::Scale;
use support::far::App;
use support::far::pace::Sample;
use support::far::packet::Ends;
use support::far::plan::{Kind, Mode, Phase};
use support::report::{Report, Value, quantile};
use support::served::{Layout, Server};

const LAYOUT: Layout = Layout {
    cores: 2,
    placement: Placement::Combined,
};
/// The core that is drained.
const CORE: usize = 0;
/// Requests in progress where it is measured what the cores can do.
const WINDOW: u32 = 256;
/// Longest time that a drain may take.
const DRAIN_MAX: Duration = Duration::from_secs(120);
const HAND_IN: Duration = Duration::from_secs(10);
const QUANTILES: [f64; 3] = [50.0, 99.0, 99.9];

fn main() {
    let counts: &[u32] = Scale::get().pick(&[2_000], &[200_000], &[1_000_000]);
    let calm = Duration::from_millis(Scale::get().pick(50, 1_000, 2_000));
    let mut report = Report::new("drain");
    for held in Scale::named_or(counts) {
        drain(&mut report, held, calm);
    }
    report.finish();
}

fn drain(report: &mut Report, held: u32, calm: Duration) {
    let ends = Ends::default();
    let room = |builder: janus::Builder| builder.max_connections(held + (1 << 16));
    let server = Server::start_resting_with(ends, LAYOUT, App::Echo, held, room);
    server.open(held);
    server.quiesce(held);
    let capacity = capacity(&server, held, calm);
    let load = capacity / 4.0;
    begin(&server, held, load, calm);
    std::thread::sleep(calm);
    let before = rest(&server, held);
    let here = server.reports()[CORE].connections;

    begin(&server, held, load, Duration::from_secs(10));
    std::thread::sleep(calm / 8);
    let balance = server.handle().balance();
    let (was, from) = (balance.report(), Instant::now());
    let from_ns = server.plan.origin.elapsed().as_nanos() as u64;
    balance.drain(CORE).expect("the other core serves");
    while server.reports()[CORE].connections > 0 {
        assert!(from.elapsed() < DRAIN_MAX, "{:?}", balance.report());
    }
    let took = from.elapsed();
    let until_ns = server.plan.origin.elapsed().as_nanos() as u64;
    let now = balance.report();
    let mut during = rest(&server, held);
    during.retain(|sample| (from_ns..until_ns).contains(&sample.due_ns));

    let params = [
        ("held", Value::from(held)),
        ("cores", 2u32.into()),
        ("load_per_s", load.into()),
    ];
    let seconds = took.as_secs_f64();
    let moved = (now.moved - was.moved) as f64;
    let moving_ns = (now.moving_ns - was.moving_ns) as f64;
    report.row("capacity_req_per_s", capacity, "1/s", &params);
    report.row("on_the_core", here as f64, "count", &params);
    report.row("drain_s", seconds, "s", &params);
    report.row("moved_per_s", moved / seconds, "1/s", &params);
    report.row("moved", moved, "count", &params);
    report.row("move_ns", moving_ns / moved, "ns", &params);
    report.row("duty", moving_ns / 1e9 / seconds, "ratio", &params);
    let updates = now.updates - was.updates;
    report.row("updates", updates as f64, "count", &params);
    for (when, samples) in [("before", before), ("during", during)] {
        let mut took: Vec<u64> = samples.iter().map(|sample| sample.took_ns).collect();
        took.sort_unstable();
        for q in QUANTILES {
            let of = [
                ("when", when.into()),
                ("q", q.into()),
                ("samples", took.len().into()),
            ];
            let params = [&params[..], &of].concat();
            report.row("request_us", quantile(&took, q) / 1e3, "us", &params);
        }
    }
    let reports = server.reports();
    let full: u64 = reports.iter().map(|it| it.forwards.dropped_full).sum();
    let over: u64 = reports.iter().map(|it| it.forwards.dropped_over).sum();
    let lost: u64 = reports.iter().map(|it| it.forwards.moves_lost).sum();
    report.row("frames_without_room", full as f64, "count", &params);
    report.row("frames_too_late", over as f64, "count", &params);
    report.row("moves_lost", lost as f64, "count", &params);
    let unfinished = server.quiesce(held);
    let bad = server.plan.counts().bad();
    report.row("bad_answers", bad as f64, "count", &params);
    report.row("unanswered", unfinished as f64, "count", &params);
    if bad + unfinished > 0 {
        eprintln!("{:?} {reports:?} {now:?}", server.plan.counts());
    }
    server.stop();
}

/// Requests a second that both cores answer together, as many at a time as keep them busy.
fn capacity(server: &Server, held: u32, time: Duration) -> f64 {
    server.plan.set_rate(0.0, Duration::ZERO);
    server.plan.set(requests(held));
    std::thread::sleep(time / 4);
    let (before, begin) = (server.plan.counts(), Instant::now());
    std::thread::sleep(time);
    let ended = server.plan.counts().since(&before).get(Kind::Ended);
    let rate = ended as f64 / begin.elapsed().as_secs_f64();
    server.quiesce(held);
    rate
}

fn requests(held: u32) -> Phase {
    Phase {
        mode: Mode::Requests,
        window: WINDOW,
        held,
    }
}

/// From now on requests come at this rate, for about so long.
fn begin(server: &Server, held: u32, rate: f64, time: Duration) {
    server.plan.set_rate(rate, time);
    server.plan.set(requests(held));
}

/// Ends that. Returns what was measured.
fn rest(server: &Server, held: u32) -> Vec<Sample> {
    server.plan.set_rate(0.0, Duration::ZERO);
    server.quiesce(held);
    server.plan.take_samples(HAND_IN).0
}
