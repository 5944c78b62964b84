//! Table III of the Janus paper in its own form: 16 shards with 16 points each, random 4-tuples, keys from the Toeplitz
//! hash, 32 packets of each stream, a false-positive rate of 1e-4: the rate of lookups, the time of an adjustment, the
//! spread of the load; the paper's algorithm to the letter beside ours. Adjustments traverse real TCP stacks that
//! hold the streams as idle connections, while connections come and go. The micro part (criterion) compares one lookup at
//! a time, a batch, and a binary search. Arguments name numbers of streams (`100m`, 10 GB), of which our adjustments alone are measured.

mod support;

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion};
use janus_csb::policy::level;
use janus_csb::{Balancer, Limits, Phase, Ring, ShardId, Step, walk};
use janus_research::reference::{Bloom, Filter, IoCore, Tables, Update};
use janus_wire::FlowKey;
use support::Scale;
use support::fleet::{Fleet, Hash, PORT, Piece, tuple};
use support::report::{Report, Value};
use support::thread_time::thread_time_us;

const SHARDS: usize = 16;
const POINTS: u16 = 16;
const SEED: u32 = 1;
const PACKETS_PER_STREAM: usize = 32;
/// An I/O core takes this many packets at a time.
const BURST: usize = 64;
/// Records that a shard looks at between two batches.
const SLICE: usize = 1_024;
/// Connections that end, and others that begin, in each round of slices.
const CHURN: usize = 32;
const FALSE_POSITIVES: f64 = 1e-4;

fn main() {
    let scale = Scale::get();
    let streams = scale.pick(
        &[5_000][..],
        &[1_000_000, 4_000_000],
        &[1_000_000, 4_000_000, 10_000_000, 20_000_000],
    );
    let mut report = Report::new("csb");
    let runs = scale.pick(1, 2, 5);
    let named = Scale::named_or(&[]);
    for streams in named.iter().map(|&streams| streams as usize) {
        let even = level(&Ring::uniform(SHARDS, POINTS, SEED), &[]);
        let mut fleet = filled(&even, streams);
        adjustments(&mut report, &mut fleet, &even, streams, runs);
    }
    if !named.is_empty() {
        return report.finish();
    }
    for &streams in streams {
        report.progress(&format!("{streams} streams"));
        table(&mut report, streams, runs);
    }
    if scale != Scale::Smoke {
        micro(&mut report, scale == Scale::Quick);
    }
    report.finish();
}

/// Shards that hold so many streams.
fn filled(even: &Ring, streams: usize) -> Fleet {
    let limits = Limits {
        diverged: streams,
        ..Limits::default()
    };
    let balancer = Balancer::new(even.clone(), limits);
    let mut fleet = Fleet::new(balancer, SHARDS, streams).expect("memory for the streams");
    fleet.open(streams);
    // Of twenty million random tuples a handful are equal, of a hundred million a hundred.
    let (held, equal) = (fleet.held(), 100 + streams / 500_000);
    assert!(held + equal >= streams && held <= streams, "{held} opened");
    fleet
}

/// What it takes to give one point to another shard, and to change the weights of two.
fn adjustments(report: &mut Report, fleet: &mut Fleet, even: &Ring, streams: usize, runs: usize) {
    let mut one_point = Adjusted::default();
    for run in 0..runs {
        let next = one_point_given(fleet.balancer.current().newest().ring(), run);
        one_point.add(adjust(fleet, next));
    }
    one_point.tell(report, streams, "one point");
    let mut weights = Adjusted::default();
    for run in 0..runs {
        weights.add(adjust(fleet, reweighted(even, run)));
    }
    weights.tell(report, streams, "two shards of 16 by half");
}

/// The rows of the table for so many streams.
fn table(report: &mut Report, streams: usize, runs: usize) {
    let hash = Hash::new();
    let keys: Vec<u32> = (0..streams as u64)
        .map(|n| hash.key(&FlowKey::V4(tuple(n))))
        .collect();
    let hashed = Ring::uniform(SHARDS, POINTS, SEED);
    let even = level(&hashed, &[]);
    spread(report, &hashed, &keys, "hashed");
    spread(report, &even, &keys, "levelled");

    let mut fleet = filled(&even, streams);
    let params = |protocol: &str, state: &str| -> Vec<(&'static str, Value)> {
        vec![
            ("streams", streams.into()),
            ("protocol", protocol.into()),
            ("state", state.into()),
        ]
    };
    let mut paper = IoCore::new(Arc::new(Tables::new(
        Arc::new(even.clone()),
        Bloom::new(1, FALSE_POSITIVES, SEED),
    )));
    let rate = |report: &mut Report, fleet: &Fleet, paper: &IoCore<Bloom>, state: &str| {
        // Alternating, so that what else the machine does hits both.
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            ours.push(rate_of(&keys, |keys, first| look_up(fleet, keys, first)));
            theirs.push(rate_of(&keys, |keys, _| steer(paper, keys)));
        }
        report.median("lookup_mkeys_per_s", &ours, "M/s", &params("janus", state));
        report.median(
            "lookup_mkeys_per_s",
            &theirs,
            "M/s",
            &params("paper", state),
        );
    };
    rate(report, &fleet, &paper, "before any update");

    adjustments(report, &mut fleet, &even, streams, runs);
    exceptions(report, &fleet, streams);
    check(report, &fleet, streams);

    let next = Arc::new(fleet.balancer.current().published().ring().clone());
    let (tables, took) = adjust_paper(&mut fleet, next.clone());
    let params_of_change: [(&str, Value); 3] = [
        ("streams", streams.into()),
        ("protocol", "paper".into()),
        ("change", "two shards of 16 by half".into()),
    ];
    report.row("adjust_ms", took, "ms", &params_of_change);
    report.row(
        "filter_bytes",
        tables.filter().bytes() as f64,
        "B",
        &params_of_change,
    );
    report.row(
        "diff_bytes",
        tables.diff().bytes() as f64,
        "B",
        &params_of_change,
    );
    paper.begin(next);
    paper.swap(Arc::new(tables));
    rate(report, &fleet, &paper, "after an update");
}

/// How evenly the ring spreads the streams.
fn spread(report: &mut Report, ring: &Ring, keys: &[u32], points: &str) {
    let mut load = [0.0; SHARDS];
    keys.iter()
        .for_each(|&key| load[ring.owner(key).index()] += 1.0);
    let mean = keys.len() as f64 / SHARDS as f64;
    let variance = load.iter().map(|l| (l - mean) * (l - mean)).sum::<f64>() / SHARDS as f64;
    let params = [
        ("streams", keys.len().into()),
        ("points", points.into()),
        ("points_of_all", ring.points().len().into()),
    ];
    let max = load.iter().copied().fold(0.0, f64::max);
    report.row("imbalance_max_over_mean", max / mean, "1", &params);
    report.row(
        "spread_percent",
        variance.sqrt() / mean * 100.0,
        "%",
        &params,
    );
}

/// Millions of packets a second of the time that this thread runs.
fn rate_of(keys: &[u32], mut one_burst: impl FnMut(&[u32], usize)) -> f64 {
    let start = thread_time_us();
    for _ in 0..PACKETS_PER_STREAM {
        for (i, burst) in keys.chunks(BURST).enumerate() {
            one_burst(black_box(burst), i * BURST);
        }
    }
    (keys.len() * PACKETS_PER_STREAM) as f64 / (thread_time_us() - start)
}

fn look_up(fleet: &Fleet, keys: &[u32], first: usize) {
    let mut owners = [ShardId(0); BURST];
    let id_of = |i: usize| fleet.hash.id(&FlowKey::V4(tuple((first + i) as u64)));
    let tags = fleet.io.look_up_batch(
        keys,
        &[PORT; BURST][..keys.len()],
        id_of,
        &mut owners[..keys.len()],
    );
    black_box((owners, tags));
}

fn steer(paper: &IoCore<Bloom>, keys: &[u32]) {
    let mut owners = [ShardId(0); BURST];
    keys.iter()
        .zip(&mut owners)
        .for_each(|(&key, owner)| *owner = paper.steer(key));
    black_box(owners);
}

/// The ring on which one point belongs to another shard.
fn one_point_given(ring: &Ring, run: usize) -> Ring {
    let mut points: Vec<(u32, ShardId)> = ring.points().collect();
    let at = run * 37 % points.len();
    points[at].1 = ShardId(((points[at].1.index() + 1) % SHARDS) as u8);
    Ring::from_points(&points).expect("as many points as before")
}

/// The ring on which one shard has half as much again, and another half of what it had.
fn reweighted(ring: &Ring, run: usize) -> Ring {
    let weight = |shard: usize| match (shard + 2 * run) % SHARDS {
        0 => 1.5,
        1 => 0.5,
        _ => 1.0,
    };
    let weights: Vec<(ShardId, f64)> = (0..SHARDS).map(|s| (ShardId(s as u8), weight(s))).collect();
    level(ring, &weights)
}

/// What one adjustment of ours took.
#[derive(Default)]
struct Adjustment {
    /// All work until every I/O core used the new ring, milliseconds.
    ms: f64,
    control_ms: f64,
    slices_us: Vec<f64>,
    diverged: f64,
}

/// Several of them.
#[derive(Default)]
struct Adjusted(Vec<Adjustment>);

impl Adjusted {
    fn add(&mut self, adjustment: Adjustment) {
        self.0.push(adjustment);
    }

    fn tell(&self, report: &mut Report, streams: usize, change: &str) {
        let params: [(&str, Value); 3] = [
            ("streams", streams.into()),
            ("protocol", "janus".into()),
            ("change", change.into()),
        ];
        let all = |what: fn(&Adjustment) -> f64| -> Vec<f64> { self.0.iter().map(what).collect() };
        report.median("adjust_ms", &all(|a| a.ms), "ms", &params);
        report.median("adjust_control_ms", &all(|a| a.control_ms), "ms", &params);
        report.median("diverged_share", &all(|a| a.diverged), "1", &params);
        let mut slices: Vec<f64> = self
            .0
            .iter()
            .flat_map(|a| a.slices_us.iter().copied())
            .collect();
        slices.sort_by(f64::total_cmp);
        let at = |q: f64| {
            slices
                .get((slices.len() as f64 * q) as usize)
                .or(slices.last())
                .copied()
                .unwrap_or(0.0)
        };
        report.row("slice_us_p50", at(0.5), "us", &params);
        report.row("slice_us_p99", at(0.99), "us", &params);
        report.row("slice_us_p999", at(0.999), "us", &params);
        report.row("slice_us_max", at(1.0), "us", &params);
        // The same slice of each run at its best: what it takes when no timer or neighbour is in its way.
        let longest = self.0.iter().map(|a| a.slices_us.len()).min().unwrap_or(0);
        let best = |at: usize| {
            let runs = self.0.iter().map(|a| a.slices_us[at]);
            runs.fold(f64::INFINITY, f64::min)
        };
        let best = (0..longest).map(best).fold(0.0, f64::max);
        report.row("slice_us_max_undisturbed", best, "us", &params);
    }
}

/// What reading the clock takes.
fn clock_us() -> f64 {
    let read = |_| {
        let begin = thread_time_us();
        thread_time_us() - begin
    };
    (0..1_000).map(read).fold(f64::INFINITY, f64::min)
}

/// An update of ours, with connections that come and go between the slices. Only what the update does is timed, by
/// the time this thread runs.
fn adjust(fleet: &mut Fleet, next: Ring) -> Adjustment {
    let mut took = Adjustment::default();
    let clock = clock_us();
    let begin = thread_time_us();
    fleet
        .balancer
        .begin(|draft| draft.set_ring(next))
        .expect("the last update is over");
    took.control_ms += (thread_time_us() - begin) / 1e3;
    let mut published = false;
    for turn in 0.. {
        assert!(turn < 100_000, "the update does not end");
        let phase = fleet.turn(SLICE, &mut |piece, work| {
            let begin = thread_time_us();
            work();
            let us = (thread_time_us() - begin - clock).max(0.0);
            match piece {
                Piece::Slice => took.slices_us.push(us),
                Piece::Control if !published => took.control_ms += us / 1e3,
                Piece::Io | Piece::Control => {}
            }
        });
        published |= matches!(phase, Phase::Grace(_) | Phase::Idle);
        if phase == Phase::Idle {
            break;
        }
        fleet.churn(CHURN);
    }
    let last = fleet.balancer.last();
    took.ms = took.control_ms + took.slices_us.iter().sum::<f64>() / 1e3;
    took.diverged = last.diverged as f64 / last.held as f64;
    took
}

/// The same adjustment as the paper does it, over the same stacks, one core, nothing else going on.
fn adjust_paper(fleet: &mut Fleet, next: Arc<Ring>) -> (Tables<Bloom>, f64) {
    let hash = fleet.hash.clone();
    let visit = |fleet: &Fleet, see: &mut dyn FnMut(ShardId, u32)| {
        for member in &fleet.members {
            let shard = member.end.id();
            member
                .stack
                .visit_flows(0, usize::MAX, |flow| see(shard, hash.key(flow)));
        }
    };
    // Sized for what will move, as the paper has it; knowing that is not charged.
    let mut moving = 0;
    visit(fleet, &mut |shard, key| {
        moving += usize::from(next.owner(key) != shard)
    });
    let begin = thread_time_us();
    let mut update = Update::new(next, Bloom::new(moving, FALSE_POSITIVES, SEED));
    visit(fleet, &mut |shard, key| {
        _ = update.pass_one(shard, Some(key))
    });
    visit(fleet, &mut |shard, key| {
        _ = update.pass_two(shard, Some(key))
    });
    let tables = update.finish();
    (tables, (thread_time_us() - begin) / 1e3)
}

/// What the last update left.
fn exceptions(report: &mut Report, fleet: &Fleet, streams: usize) {
    let last = fleet.balancer.last();
    let params: [(&str, Value); 2] = [("streams", streams.into()), ("protocol", "janus".into())];
    for (metric, bytes) in [
        ("filter_bytes", last.filter_bytes),
        ("diff_bytes", last.diff_bytes),
        ("exact_bytes", last.exact_bytes),
        ("transient_bytes", last.transient_bytes),
    ] {
        report.row(metric, bytes as f64, "B", &params);
    }
    report.row("exact_entries", last.exact as f64, "flows", &params);
    let clean = 1.0 - last.marked_cells as f64 / last.cells as f64;
    report.row("clean_cells_percent", clean * 100.0, "%", &params);
}

/// Every connection of every stack is found, by the walk at the latest.
fn check(report: &mut Report, fleet: &Fleet, streams: usize) {
    let (mut broken, mut forwards, mut all) = (0u64, 0u64, 0u64);
    for member in &fleet.members {
        let holder = member.end.id();
        member.stack.visit_flows(0, usize::MAX, |flow| {
            let key = fleet.hash.key(flow);
            let mut owner = [ShardId(0)];
            let mut tag = fleet
                .io
                .look_up_batch(&[key], &[PORT], |_| fleet.hash.id(flow), &mut owner)
                .get(0);
            let [mut at] = owner;
            while at != holder {
                match walk(fleet.members[at.index()].end.steering(), at, key, PORT, tag) {
                    Step::Forward { to, tag: next } => {
                        (at, tag, forwards) = (to, next, forwards + 1)
                    }
                    Step::Stay | Step::Expired => break,
                }
            }
            (all, broken) = (all + 1, broken + u64::from(at != holder));
        });
    }
    assert_eq!(
        (broken, all),
        (0, fleet.held() as u64),
        "every connection is found"
    );
    let params: [(&str, Value); 2] = [("streams", streams.into()), ("protocol", "janus".into())];
    report.row("lost_connections", broken as f64, "flows", &params);
    report.row(
        "forwards_per_million",
        forwards as f64 / all as f64 * 1e6,
        "1",
        &params,
    );
}

/// The lookup a ring without an index needs.
fn binary_search(points: &[(u32, ShardId)], key: u32) -> ShardId {
    let at = points.partition_point(|&(position, _)| position < key);
    points[if at == points.len() { 0 } else { at }].1
}

fn micro(report: &mut Report, quick: bool) {
    let hash = Hash::new();
    let keys: Vec<u32> = (0..1 << 20)
        .map(|n| hash.key(&FlowKey::V4(tuple(n))))
        .collect();
    let measure = Duration::from_millis(if quick { 400 } else { 3000 });
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(measure / 4)
        .measurement_time(measure)
        .sample_size(if quick { 10 } else { 50 });
    for (shards, points) in [(4, 16), (16, 16), (64, 64)] {
        let ring = Ring::uniform(shards, points, SEED);
        let sorted: Vec<_> = ring.points().collect();
        let mut run = |op: &str, look_up: &mut dyn FnMut(&[u32], &mut [ShardId])| {
            let times = Rc::new(RefCell::new(Vec::new()));
            let name = format!("csb/{op}/{shards}x{points}");
            criterion.bench_function(&name, |bencher| sample(bencher, &keys, look_up, &times));
            let params = [
                ("op", op.into()),
                ("shards", shards.into()),
                ("points", u32::from(points).into()),
            ];
            report.median("lookup_ns", &times.borrow(), "ns", &params);
        };
        run("single", &mut |keys, out| {
            keys.iter()
                .zip(out)
                .for_each(|(&key, owner)| *owner = ring.owner(key));
        });
        run("batch", &mut |keys, out| ring.owners(keys, out));
        run("binary_search", &mut |keys, out| {
            keys.iter()
                .zip(out)
                .for_each(|(&key, owner)| *owner = binary_search(&sorted, key));
        });
    }
}

/// Times bursts over the keys in turn (so that no branch predictor learns them) and keeps ns per key of each sample.
fn sample(
    bencher: &mut Bencher<'_>,
    keys: &[u32],
    look_up: &mut dyn FnMut(&[u32], &mut [ShardId]),
    times: &Rc<RefCell<Vec<f64>>>,
) {
    let mut bursts = keys.chunks_exact(BURST).cycle();
    bencher.iter_custom(|count| {
        let start = Instant::now();
        for burst in bursts.by_ref().take(count as usize) {
            let mut owners = [ShardId(0); BURST];
            look_up(black_box(burst), &mut owners);
            black_box(owners);
        }
        let took = start.elapsed();
        times
            .borrow_mut()
            .push(took.as_nanos() as f64 / (count as f64 * BURST as f64));
        took
    });
}
