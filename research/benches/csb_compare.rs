//! The balancer beside the other ways to steer packets to shards, all under the same flows, churn and changes: what
//! each breaks, moves, costs and weighs. `tests/csb_rivals.rs` shows that each rival keeps a figure published for it.

use std::hint::black_box;

use janus_csb::ShardId;
use janus_research::report::{Report, Value};
use janus_research::thread_time::thread_time_us;
use janus_research::{Scale, rivals};
use rivals::anchor::Jet;
use rivals::exact::FullTable;
use rivals::maglev::MaglevOnly;
use rivals::ours::Ours;
use rivals::paper::Paper;
use rivals::rss::StaticRss;
use rivals::rsspp::RssPlusPlus;
use rivals::stamp::Stamp;
use rivals::stamped::Stamped;
use rivals::world::{Random, Sizes, Trace, Verdict, World};
use rivals::{BURST, Packet, Rival};

const SHARDS: usize = 16;
/// Of each shard on a ring.
const POINTS: u16 = 64;
/// Peers without timestamps, where there are any.
const PLAIN: f64 = 0.05;

type Make = fn(&Trace) -> Box<dyn Rival>;

/// All that are compared, and the share of peers without timestamps each is shown.
const RIVALS: &[(Make, f64)] = &[
    (
        |trace| Box::new(StaticRss::new(StaticRss::ENTRIES, trace.shards)),
        0.0,
    ),
    (|trace| Box::new(RssPlusPlus::new(trace.shards)), 0.0),
    (|trace| Box::new(RssPlusPlus::pinned(trace.shards)), 0.0),
    (|trace| Box::new(MaglevOnly::new(trace.shards)), 0.0),
    (|trace| Box::new(Jet::new(trace.shards, trace.flows)), 0.0),
    (
        |trace| Box::new(FullTable::new(trace.shards, trace.flows)),
        0.0,
    ),
    (
        |trace| Box::new(Stamp::new(trace.shards, "owner bits in timestamps")),
        0.0,
    ),
    (
        |trace| Box::new(Stamp::new(trace.shards, "owner bits, 5 % without")),
        PLAIN,
    ),
    (|trace| Box::new(Paper::new(trace.shards, POINTS)), 0.0),
    (
        |trace| Box::new(Ours::new(trace.shards, POINTS, trace.flows)),
        0.0,
    ),
    (
        |trace| Box::new(Stamped::new(trace.shards, POINTS, trace.flows)),
        PLAIN,
    ),
];

fn main() {
    let scale = Scale::get();
    let sizes = [
        ("uniform", Sizes::Uniform),
        ("zipf 1.0", Sizes::Zipf(1.0)),
        ("zipf 1.2", Sizes::Zipf(1.2)),
        ("elephants", Sizes::Elephants),
    ];
    let mut report = Report::new("csb_compare");
    for (label, sizes) in sizes {
        let trace = Trace {
            flows: scale.pick(5_000, 100_000, 1_000_000),
            shards: SHARDS,
            updates: scale.pick(10, 16, 16),
            churn: 0.1,
            sizes,
            plain: 0.0,
            seed: 0x6a61_6e75,
        };
        for &(make, plain) in RIVALS {
            let trace = Trace { plain, ..trace };
            let mut rival = make(&trace);
            let mut world = World::new(trace, &mut *rival);
            let verdict = world.run(&mut *rival);
            let ns = look_up_ns(&mut *rival, &world.packets, scale.pick(1, 5, 15));
            tell(&mut report, rival.name(), label, &trace, &verdict, &ns);
            let params: [(&str, Value); 3] = [
                ("rival", rival.name().into()),
                ("sizes", label.into()),
                ("flows", trace.flows.into()),
            ];
            for (metric, value, unit) in rival.notes() {
                report.row(metric, value, unit, &params);
            }
        }
    }
    report.finish();
}

/// Nanoseconds a packet, in bursts over the live flows in no order, once for each run.
fn look_up_ns(rival: &mut dyn Rival, flows: &[Packet], runs: usize) -> Vec<f64> {
    let mut random = Random::new(9);
    let packets: Vec<Packet> = (0..1 << 18)
        .map(|_| flows[random.below(flows.len())])
        .collect();
    let mut owners = [ShardId(0); BURST];
    (0..runs)
        .map(|_| {
            let begin = thread_time_us();
            for burst in packets.chunks(BURST) {
                rival.look_up(black_box(burst), &mut owners[..burst.len()]);
                black_box(&owners);
            }
            (thread_time_us() - begin) * 1e3 / packets.len() as f64
        })
        .collect()
}

fn tell(
    report: &mut Report,
    rival: &str,
    sizes: &str,
    trace: &Trace,
    verdict: &Verdict,
    ns: &[f64],
) {
    let params: [(&str, Value); 3] = [
        ("rival", rival.into()),
        ("sizes", sizes.into()),
        ("flows", trace.flows.into()),
    ];
    let per_million = |count: u64, of: u64| count as f64 / of.max(1) as f64 * 1e6;
    let mut row = |metric: &str, value: f64, unit: &str| report.row(metric, value, unit, &params);
    row("broken_flows", verdict.broken as f64, "flows");
    row(
        "broken_per_million",
        per_million(verdict.broken, verdict.exposed),
        "1",
    );
    row("second_flows", verdict.second_flows as f64, "flows");
    row(
        "forwards_per_million",
        per_million(verdict.forwards, verdict.looked_up),
        "1",
    );
    row(
        "migrated_per_million",
        per_million(verdict.migrated as u64, verdict.exposed),
        "1",
    );
    if verdict.moved_ideal > 0.0 {
        row("moved_over_ideal", verdict.moved / verdict.moved_ideal, "1");
    }
    // The first half is the way from even hashing to an even load.
    let settled = |all: &[f64]| mean(&all[all.len() / 2..]);
    row("max_over_mean_flows", settled(&verdict.by_flows), "1");
    row("max_over_mean_cycles", settled(&verdict.by_cycles), "1");
    row(
        "bits_per_flow",
        verdict.bytes as f64 * 8.0 / trace.flows as f64,
        "bit",
    );
    row("pause_us_p999", quantile(&verdict.pieces_us, 0.999), "us");
    report.median("update_ms", &verdict.update_ms, "ms", &params);
    report.median("lookup_ns", ns, "ns", &params);
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

/// 0 where there was nothing to wait for.
fn quantile(all: &[f64], q: f64) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get(((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}
