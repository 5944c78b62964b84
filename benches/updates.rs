//! The balancer is updated again and again while connections begin and end as fast as two cores take them, in turns with as long a time without
//! updates. Each core has a far end of its own inside its turns; the control thread shares their processors. After each update new connections are shared out
//! in other proportions, and those under way stay.
//!
//! `conn_per_s` is of slices with updates and without, `rate_ratio` that of a slice with updates to the one before it. `handshake_us` is at half of what the cores
//! can do. `lost` counts connections without an end, `bad_answers` resets and whatever else a client should not see, over all `packets`;
//! `forwarded` counts packets that came to another core than their connection's, and went on to it.

mod support;

use std::time::{Duration, Instant};

use janus::Placement;
use support::Scale;
use support::far::App;
use support::far::plan::{Counts, Kind, Mode, Phase};
use support::report::{Report, quantile};
use support::served::{Layout, Server};

const LAYOUT: Layout = Layout {
    cores: 2,
    placement: Placement::Combined,
};
/// Connections under way.
const WINDOW: u32 = 256;
/// Shares of the cores, in turns.
const WEIGHTS: [[u16; 2]; 4] = [[3, 1], [1, 1], [1, 3], [2, 3]];
/// Time between an update's end and the next.
const PAUSE: Duration = Duration::from_millis(10);
/// An update that takes longer has been forgotten.
const UPDATE_MAX: Duration = Duration::from_secs(5);
const QUANTILES: [f64; 3] = [50.0, 99.0, 99.9];
/// Slices with updates, and as many without, in which handshakes are timed.
const SLICES: usize = 9;

fn main() {
    let scale = Scale::get();
    let (updates, packets) = scale.pick((4, 0), (200, 20_000_000), (1_000, 1_000_000_000));
    let slice = Duration::from_millis(scale.pick(20, 500, 2_000));
    let mut report = Report::new("updates");
    let mut yard = Yard {
        server: Server::start(LAYOUT, App::Echo, 0),
        begun: 0,
    };
    let capacity = at_full_load(&mut report, &mut yard, updates, packets, slice);
    at_half(&mut report, &mut yard, capacity / 2.0, slice);
    sums(&mut report, &yard);
    yard.server.stop();
    report.finish();
}

/// A server under load.
struct Yard {
    server: Server,
    /// Updates so far.
    begun: u64,
}

impl Yard {
    fn short(&self) {
        let (mode, window, held) = (Mode::Short, WINDOW, 0);
        self.server.plan.set(Phase { mode, window, held });
    }

    fn updates(&self) -> u64 {
        self.server.handle().balance().report().updates
    }

    /// A slice of time, with updates or without.
    fn pass(&mut self, slice: Duration, with_updates: bool) {
        let begin = Instant::now();
        while with_updates && begin.elapsed() < slice {
            self.update();
            std::thread::sleep(PAUSE);
        }
        std::thread::sleep(slice.saturating_sub(begin.elapsed()));
    }

    fn update(&mut self) {
        let weights = &WEIGHTS[self.begun as usize % WEIGHTS.len()];
        let balance = self.server.handle().balance();
        balance
            .set_weights(weights)
            .expect("a weight for each core");
        self.begun += 1;
        let begin = Instant::now();
        while self.updates() < self.begun {
            assert!(begin.elapsed() < UPDATE_MAX, "{:?}", balance.report());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn packets(counts: &Counts) -> u64 {
    counts.get(Kind::FramesIn) + counts.get(Kind::FramesOut)
}

/// Until there were as many updates and packets. Returns connections a second without updates.
fn at_full_load(
    report: &mut Report,
    yard: &mut Yard,
    updates: u64,
    wanted: u64,
    slice: Duration,
) -> f64 {
    yard.short();
    std::thread::sleep(slice / 4);
    let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    while yard.updates() < updates || packets(&yard.server.plan.counts()) < wanted {
        let pair = [false, true].map(|with_updates| {
            let (before, begin) = (yard.server.plan.counts(), Instant::now());
            yard.pass(slice, with_updates);
            let ended = yard.server.plan.counts().since(&before).get(Kind::Ended);
            ended as f64 / begin.elapsed().as_secs_f64()
        });
        rates
            .iter_mut()
            .zip(pair)
            .for_each(|(all, it)| all.push(it));
        ratios.push(pair[1] / pair[0]);
    }
    for (with_updates, rates) in [false, true].into_iter().zip(&rates) {
        let params = [("updates", u64::from(with_updates).into())];
        report.median("conn_per_s", rates, "1/s", &params);
    }
    report.median("rate_ratio", &ratios, "ratio", &[]);
    yard.server.quiesce(0);
    rates[0].iter().sum::<f64>() / rates[0].len() as f64
}

/// Handshakes where the cores have time: percentiles of each slice, as the machine takes its processors away for longer than most slices last.
fn at_half(report: &mut Report, yard: &mut Yard, rate: f64, slice: Duration) {
    let mut slices = [(); 2].map(|()| QUANTILES.map(|_| Vec::new()));
    for _ in 0..SLICES {
        for with_updates in [false, true] {
            yard.server.plan.set_rate(rate, slice);
            yard.short();
            yard.pass(slice, with_updates);
            let (samples, _) = yard.server.end_pace(0);
            let mut took: Vec<u64> = samples.iter().map(|sample| sample.took_ns).collect();
            took.sort_unstable();
            let of = &mut slices[usize::from(with_updates)];
            for (all, q) in of.iter_mut().zip(QUANTILES) {
                all.push(quantile(&took, q) / 1e3);
            }
        }
    }
    for (with_updates, slices) in [false, true].into_iter().zip(&slices) {
        for (slices, q) in slices.iter().zip(QUANTILES) {
            let params = [("updates", u64::from(with_updates).into()), ("q", q.into())];
            report.median("handshake_us", slices, "us", &params);
        }
    }
}

/// What came of all of it.
fn sums(report: &mut Report, yard: &Yard) {
    let counts = yard.server.plan.counts();
    let done = yard.server.handle().balance().report();
    let forwarded = yard.server.reports();
    let forwarded: u64 = forwarded.iter().map(|it| it.forwards.forwarded).sum();
    for (name, count) in [
        ("updates", done.updates),
        ("updates_refused", done.refused),
        ("packets", packets(&counts)),
        ("connections", counts.get(Kind::Ended)),
        ("diverged", done.diverged),
        ("forwarded", forwarded),
        ("lost", counts.in_progress()),
        ("bad_answers", counts.bad()),
    ] {
        report.row(name, count as f64, "count", &[]);
    }
    if counts.bad() + counts.in_progress() > 0 {
        eprintln!("{counts:?} {done:?}");
    }
}
