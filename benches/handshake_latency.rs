//! How long a handshake takes at an offered rate: from the moment a SYN is due to the SYN-ACK, with the rest of a short
//! connection (request, answer, close) going on as well. Connections come at random distances, whether or not others
//! have ended, so that what waited while the server stood still is counted. The rates are shares of what the server can
//! do in the same run. Intervals in which the machine ran something else (measured steal, or a thread that was kept
//! waiting) are shown apart: there is one row for them and one for the others.

mod support;

use std::time::Duration;

use support::Scale;
use support::far::App;
use support::far::pace::Sample;
use support::far::plan::{Kind, Mode, Phase};
use support::report::{Report, quantile};
use support::served::{Layout, Server};
use support::steal::{Interval, Watch, is_disturbed};

/// Connections in progress at a time, at most: what the rings hold.
const WINDOW: u32 = 256;
/// Percent of what the server can do.
const LOADS: [u32; 5] = [10, 30, 50, 70, 90];
/// How long far ends may take to hand in what they measured.
const HAND_IN: Duration = Duration::from_secs(30);
const QUANTILES: [f64; 3] = [50.0, 99.0, 99.9];

fn main() {
    let scale = Scale::get();
    let (calibrate_ms, run_ms) = scale.pick((30, 60), (500, 2_000), (2_000, 10_000));
    let mut report = Report::new("handshake_latency");
    for layout in [Layout::COMBINED, Layout::SPLIT] {
        let server = Server::start(layout, App::Echo, 0);
        let capacity = capacity(&server, Duration::from_millis(calibrate_ms));
        report.row(
            "capacity_conn_per_s",
            capacity,
            "1/s",
            &[("placement", layout.name().into())],
        );
        for load in LOADS {
            let rate = capacity * f64::from(load) / 100.0;
            let (samples, intervals) = offer(&server, rate, Duration::from_millis(run_ms));
            rows(&mut report, layout, load, rate, &samples, &intervals);
        }
        let unfinished = server.quiesce(0);
        let bad = server.plan.counts().bad() + unfinished;
        report.row(
            "bad_answers",
            bad as f64,
            "count",
            &[("placement", layout.name().into())],
        );
        server.stop();
    }
    report.finish();
}

fn short() -> Phase {
    Phase {
        mode: Mode::Short,
        window: WINDOW,
        held: 0,
    }
}

/// Connections a second when each that ends makes room for another.
fn capacity(server: &Server, time: Duration) -> f64 {
    server.plan.set_rate(0.0);
    server.plan.set(short());
    std::thread::sleep(time / 4);
    let (before, begin) = (server.plan.counts(), std::time::Instant::now());
    std::thread::sleep(time);
    let ended = server.plan.counts().since(&before).get(Kind::Ended);
    let rate = ended as f64 / begin.elapsed().as_secs_f64();
    server.quiesce(0);
    rate
}

/// A phase at this rate: its handshakes, and what the machine did meanwhile.
fn offer(server: &Server, rate: f64, time: Duration) -> (Vec<Sample>, Vec<Interval>) {
    server.plan.set_rate(rate);
    let watch = Watch::start(server.plan.origin);
    server.plan.set(short());
    std::thread::sleep(time);
    let intervals = watch.stop();
    server.plan.set_rate(0.0);
    server.quiesce(0);
    (server.plan.take_samples(HAND_IN), intervals)
}

fn rows(
    report: &mut Report,
    layout: Layout,
    load: u32,
    rate: f64,
    samples: &[Sample],
    intervals: &[Interval],
) {
    let disturbed = intervals.iter().filter(|i| i.disturbed).count();
    let share = disturbed as f64 / intervals.len().max(1) as f64;
    let (bad, calm): (Vec<Sample>, Vec<Sample>) = samples
        .iter()
        .partition(|sample| is_disturbed(intervals, sample.due_ns));
    for (name, samples) in [("calm", calm), ("disturbed", bad)] {
        let mut took: Vec<u64> = samples.iter().map(|sample| sample.took_ns).collect();
        took.sort_unstable();
        for q in QUANTILES {
            report.row(
                "handshake_us",
                quantile(&took, q) / 1e3,
                "us",
                &[
                    ("q", q.into()),
                    ("rate", rate.round().into()),
                    ("load", load.into()),
                    ("placement", layout.name().into()),
                    ("intervals", name.into()),
                    ("samples", took.len().into()),
                ],
            );
        }
    }
    report.row(
        "disturbed_share",
        share,
        "ratio",
        &[("load", load.into()), ("placement", layout.name().into())],
    );
}
