//! A core with many connections at rest is drained while requests go on: how long that takes, what share of the core's time moving has, and
//! what the requests see of it. Two cores hold the connections and load themselves, each by a far end of its own inside its turns; after the
//! drain one of them serves alone, so `load` is half of what one can do. A request without an answer is sent again, as a client's TCP does. The cores and the control thread take their turns on one thread as
//! if each had a processor of its own ([`SideBySide`]): fewer than three processors would measure how they are shared. Arguments name
//! numbers of connections (`10m`: half of them are moved).

mod support;

use std::sync::Arc;
use std::time::Duration;

use janus::Placement;
use janus::balance::BalanceReport;
use janus::lockstep::SideBySide;
use janus::net::TcpListener;
use support::Scale;
use support::far::App;
use support::far::pace::Sample;
use support::far::packet::Ends;
use support::far::plan::{Kind, Mode, Phase, Plan};
use support::report::{Report, Value, quantile};
use support::served::{self, Layout, OPEN_WINDOW};

const LAYOUT: Layout = Layout {
    cores: 2,
    placement: Placement::Combined,
};
/// The core that is drained.
const CORE: usize = 0;
/// Requests in progress where it is measured what the cores can do.
const WINDOW: u32 = 256;
/// Longest time that a drain may take, and what is under way when nothing more begins.
const DRAIN_MAX: Duration = Duration::from_secs(60);
const QUIET_MAX: Duration = Duration::from_secs(5);
const QUANTILES: [f64; 3] = [50.0, 99.0, 99.9];

fn main() {
    let counts: &[u32] = Scale::get().pick(&[2_000], &[200_000], &[1_000_000]);
    let calm = Duration::from_millis(Scale::get().pick(20, 500, 1_000));
    let mut report = Report::new("drain");
    for held in Scale::named_or(counts) {
        drain(&mut report, held, calm);
    }
    report.finish();
}

/// A server at rest and its load.
struct Yard {
    world: SideBySide,
    plan: Arc<Plan>,
    held: u32,
}

impl Yard {
    /// With so many connections open.
    fn new(held: u32) -> Yard {
        let ends = Ends::default();
        let (builder, plan) = served::builder(&ends, LAYOUT, App::Echo, held);
        let builder = builder.max_connections(held + (1 << 16));
        let at = ends.listen_at();
        let serve = move || async move {
            let listener = TcpListener::bind(at).await?;
            served::at_rest(&App::Echo, listener).await
        };
        let world = SideBySide::new(builder, serve);
        plan.shift_by(world.shift());
        let mut yard = Yard { world, plan, held };
        // Both listen.
        yard.pass(Duration::from_millis(10));
        yard.open(1, 1);
        yard.open(held, OPEN_WINDOW);
        yard
    }

    fn open(&mut self, held: u32, window: u32) {
        let mode = Mode::Open;
        self.plan.set(Phase { mode, window, held });
        let plan = &self.plan;
        let opened = |_: &SideBySide| plan.counts().get(Kind::Ended) >= u64::from(held);
        self.world.run_until(opened);
        self.quiesce();
    }

    fn pass(&mut self, time: Duration) {
        let until_ns = self.world.now_ns() + time.as_nanos() as u64;
        self.world.run_until(|world| world.now_ns() >= until_ns);
    }

    /// Requests come from now on: at this rate for about so long, or, at none, as many at a time as keep the cores busy.
    fn begin(&mut self, rate: f64, time: Duration) {
        self.plan.set_rate(rate, time);
        self.set(Mode::Requests, WINDOW);
    }

    fn set(&mut self, mode: Mode, window: u32) {
        let held = self.held;
        self.plan.set(Phase { mode, window, held });
    }

    /// No more come. Returns how many are not answered in the end.
    fn quiesce(&mut self) -> u64 {
        self.plan.set_rate(0.0, Duration::ZERO);
        self.set(Mode::Idle, 0);
        let end_ns = self.world.now_ns() + QUIET_MAX.as_nanos() as u64;
        let plan = &self.plan;
        let left = || plan.counts().in_progress();
        self.world
            .run_until(|world| left() == 0 || world.now_ns() > end_ns);
        left()
    }

    /// Likewise. Returns what was measured.
    fn rest(&mut self) -> (Vec<Sample>, u64) {
        let left = self.quiesce();
        self.pass(Duration::from_millis(1));
        (self.plan.take_samples(Duration::ZERO).0, left)
    }

    /// Requests a second that both cores answer together.
    fn capacity(&mut self, time: Duration) -> f64 {
        self.begin(0.0, Duration::ZERO);
        self.pass(time / 4);
        let (before, from_ns) = (self.plan.counts(), self.world.now_ns());
        self.pass(time);
        let ended = self.plan.counts().since(&before).get(Kind::Ended);
        let took_ns = self.world.now_ns() - from_ns;
        self.quiesce();
        ended as f64 * 1e9 / took_ns as f64
    }

    fn report(&self) -> BalanceReport {
        self.world.handle().balance().report()
    }

    /// Frames lost because a core did not take them in time.
    fn frames_without_room(&self) -> u64 {
        let each = self.world.handle().io_counters().iter();
        each.map(|core| core.dropped_full.get()).sum()
    }
}

fn drain(report: &mut Report, held: u32, calm: Duration) {
    let mut yard = Yard::new(held);
    let capacity = yard.capacity(calm);
    let load = capacity / 4.0;
    yard.begin(load, calm);
    yard.pass(calm);
    let (before, unanswered) = yard.rest();
    assert_eq!(unanswered, 0, "in peace");
    let again_before = yard.plan.counts().get(Kind::Again);
    let here = yard.world.flows(CORE);

    yard.begin(load, Duration::from_secs(10));
    yard.pass(calm / 8);
    let (was, from_ns) = (yard.report(), yard.world.now_ns());
    let full = yard.frames_without_room();
    let due_from_ns = yard.plan.since().now_ns();
    let balance = yard.world.handle().balance();
    balance.drain(CORE).expect("the other core serves");
    let end_ns = from_ns + DRAIN_MAX.as_nanos() as u64;
    yard.world
        .run_until(|world| world.flows(CORE) == 0 || world.now_ns() > end_ns);
    assert_eq!(yard.world.flows(CORE), 0, "{:?}", yard.report());
    let took_ns = yard.world.now_ns() - from_ns;
    let now = yard.report();
    let (mut during, unanswered) = yard.rest();
    during.retain(|it| (due_from_ns..due_from_ns + took_ns).contains(&it.due_ns));

    let params = [
        ("held", Value::from(held)),
        ("cores", 2u32.into()),
        ("load_per_s", load.into()),
    ];
    let seconds = took_ns as f64 / 1e9;
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
    let again = yard.plan.counts().get(Kind::Again) - again_before;
    for (when, again) in [("before", again_before), ("during", again)] {
        let params = [&params[..], &[("when", when.into())]].concat();
        report.row("requests_sent_again", again as f64, "count", &params);
    }
    let full = yard.frames_without_room() - full;
    report.row("frames_without_room", full as f64, "count", &params);
    let each = (0..LAYOUT.cores).map(|core| yard.world.forwards(core));
    let lost: u64 = each.map(|it| it.moves_lost).sum();
    report.row("moves_lost", lost as f64, "count", &params);
    let bad = yard.plan.counts().bad();
    report.row("bad_answers", bad as f64, "count", &params);
    report.row("unanswered", unanswered as f64, "count", &params);
    if bad + unanswered > 0 {
        eprintln!("{:?} {now:?}", yard.plan.counts());
    }
}
