//! A thousand updates under churn: how many connections each protocol breaks, the paper's to the letter and ours.

use janus_research::report::{Report, Value};
use janus_research::{Scale, rivals};
use rivals::Rival;
use rivals::ours::Ours;
use rivals::paper::Paper;
use rivals::world::{Sizes, Trace, Verdict, World};

const SHARDS: usize = 16;
/// Of each shard on a ring.
const POINTS: u16 = 16;

fn main() {
    let mut report = Report::new("csb_updates");
    let (flows, updates) = Scale::get().pick((2_000, 10), (10_000, 1_000), (100_000, 1_000));
    thousand(&mut report, flows, updates);
    report.finish();
}

/// A thousand updates under churn, with traffic between their steps: the same for both.
fn thousand(report: &mut Report, flows: usize, updates: usize) {
    let trace = Trace {
        flows,
        shards: SHARDS,
        updates,
        churn: 0.05,
        sizes: Sizes::Elephants,
        plain: 0.0,
        seed: 11,
    };
    let mut ours = Ours::new(SHARDS, POINTS, flows);
    let mut paper = Paper::new(SHARDS, POINTS);
    let mut run = |protocol: &str, rival: &mut dyn Rival| {
        let verdict = World::new(trace, rival).run(rival);
        tell(report, protocol, &trace, &verdict);
        verdict.broken + verdict.second_flows
    };
    assert_eq!(run("janus", &mut ours), 0, "ours breaks nothing");
    run("paper", &mut paper);
}

fn tell(report: &mut Report, protocol: &str, trace: &Trace, verdict: &Verdict) {
    let params: [(&str, Value); 3] = [
        ("protocol", protocol.into()),
        ("flows", trace.flows.into()),
        ("updates", trace.updates.into()),
    ];
    report.row("broken_flows", verdict.broken as f64, "flows", &params);
    report.row(
        "second_flows",
        verdict.second_flows as f64,
        "flows",
        &params,
    );
    let forwards = verdict.forwards as f64 / verdict.looked_up as f64 * 1e6;
    report.row("forwards_per_million", forwards, "1", &params);
}
