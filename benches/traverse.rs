//! How long a shard takes to look at all its flows for an update of the balancer, over the engine's real stores: IPv4
//! connections that were opened by a handshake, served one request and are idle since. `see=nothing` is the visit alone,
//! `see=key` adds the Toeplitz hash of each flow, `see=owner` the look-up of its shard, and keeps those of others. The
//! visit is made of slices, as in the loop; the longest is told too. `filter=alone` and `filter=batch` are the balancer's
//! own slices, which report what differs: owners asked for one by one, and 64 together as the runtime does. Time is this
//! thread's: what others take of the machine does not count.

mod support;

use janus_csb::{Balancer, DivergenceFilter, FlowBatch, FlowId, Flows, Limits, Ring, ShardId};
use janus_tcp::Stack;
use janus_wire::{FlowKey, FlowKeyV4, MICROSOFT_KEY, Toeplitz};
use std::hint::black_box;
use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::report::Report;
use support::thread_time::thread_time;

/// Places looked at in a slice.
const SLICE: usize = 4_096;
const ME: ShardId = ShardId(0);
/// Points of this shard and of another: one flow in sixteen or so is to be reported.
const WEIGHTS: [u16; 2] = [240, 16];

fn main() {
    let scale = Scale::get();
    let held_counts: &[u32] = scale.pick(
        &[1_000],
        &[1_000_000],
        // The far end has tuples for a little more.
        &[1_000_000, 4_000_000, 10_000_000, 15_000_000],
    );
    let runs = scale.pick(1, 5, 9);
    let mut report = Report::new("traverse");
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    let ring = Ring::weighted(&WEIGHTS, 7).expect("points enough");
    for &held in held_counts {
        let (mut engine, plan) = Engine::start(held);
        engine.open(&plan, held);
        engine.quiesce(&plan, held);
        let stack = &engine.stack;
        let hash = |flow: &FlowKey| match flow {
            FlowKey::V4(flow) => toeplitz.key_of_v4(flow),
            FlowKey::V6(flow) => toeplitz.key_of_v6(flow),
        };
        let mut kept: Vec<(u32, u128)> = Vec::with_capacity(held as usize / 8);
        let mut passes = [const { Vec::new() }; 3];
        for _ in 0..runs {
            passes[0].push(pass(stack, held, |flow| {
                black_box(flow.local_port());
            }));
            let mut sum = 0;
            passes[1].push(pass(stack, held, |flow| sum ^= hash(flow)));
            black_box(sum);
            kept.clear();
            passes[2].push(pass(stack, held, |flow| {
                let key = hash(flow);
                if ring.owner(key) != ME {
                    kept.push((key, name(flow)));
                }
            }));
        }
        let mut sifted = [const { Vec::new() }; 2];
        for _ in 0..runs {
            let (alone, batch) = (Alone(stack, &toeplitz), InBatches(stack, &toeplitz));
            sifted[0].push(sift(alone, &ring, held));
            sifted[1].push(sift(batch, &ring, held));
        }
        for (how, times) in ["alone", "batch"].into_iter().zip(&sifted) {
            let params = [("flows", held.into()), ("filter", how.into())];
            report.median("visit_ms", times, "ms", &params);
        }
        let ratios: Vec<f64> = sifted[0]
            .iter()
            .zip(&sifted[1])
            .map(|(a, b)| a / b)
            .collect();
        report.median("alone_over_batch", &ratios, "", &[("flows", held.into())]);
        for (see, passes) in ["nothing", "key", "owner"].into_iter().zip(&passes) {
            let params = [("flows", held.into()), ("see", see.into())];
            let times: Vec<f64> = passes.iter().map(|p| p.0.as_secs_f64() * 1e3).collect();
            report.median("visit_ms", &times, "ms", &params);
            let longest: Vec<f64> = passes.iter().map(|p| p.1.as_secs_f64() * 1e6).collect();
            report.median("slice_us_max", &longest, "us", &params);
        }
        report.row(
            "kept",
            kept.len() as f64,
            "count",
            &[("flows", held.into())],
        );
    }
    report.finish();
}

fn name(flow: &FlowKey) -> u128 {
    match flow {
        FlowKey::V4(flow) => u128::from(flow.addresses()) << 32 | u128::from(flow.ports()),
        FlowKey::V6(_) => unreachable!("the far end speaks IPv4"),
    }
}

/// A shard's flows, shown to the filter one by one.
struct Alone<'a>(&'a Stack, &'a Toeplitz);

impl Flows for Alone<'_> {
    #[inline(never)]
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        self.0.visit_flows(cursor, budget, |flow| {
            let key = self.1.key_of(flow);
            filter.flow(key, flow.local_port(), || FlowId(name(flow)));
        })
    }

    fn take_moved(&mut self, _: &mut DivergenceFilter<'_>) {}

    fn held(&self) -> usize {
        self.0.flows_held()
    }
}

/// The same, 64 together.
struct InBatches<'a>(&'a Stack, &'a Toeplitz);

impl Flows for InBatches<'_> {
    #[inline(never)]
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        let mut batch = FlowBatch::new(FlowKeyV4::NONE);
        let named = |flow: &FlowKeyV4| FlowId(name(&FlowKey::V4(*flow)));
        let next = self.0.visit_flows(cursor, budget, |flow| {
            if let FlowKey::V4(flow) = flow
                && batch.add(self.1.key_of_v4(flow), flow.local_port, *flow)
            {
                filter.flows(&mut batch, named);
            }
        });
        filter.flows(&mut batch, named);
        next
    }

    fn take_moved(&mut self, _: &mut DivergenceFilter<'_>) {}

    fn held(&self) -> usize {
        self.0.flows_held()
    }
}

/// One traversal for an update to `ring`, in milliseconds: the shard's slices, not what the control side does with them.
fn sift(mut flows: impl Flows, ring: &Ring, held: u32) -> f64 {
    let even = Ring::uniform(2, 16, 1);
    let limits = Limits {
        diverged: held as usize,
        ..Limits::default()
    };
    let mut balancer = Balancer::new(even, limits);
    let mut ends = [ME, ShardId(1)].map(|shard| balancer.shard_end(shard));
    let begun = balancer.begin(|draft| draft.set_ring(ring.clone()));
    begun.expect("an update");
    ends[0].refresh();
    let mut took = Duration::ZERO;
    loop {
        let before = thread_time();
        let finished = ends[0].slice(&mut flows, SLICE);
        took += thread_time() - before;
        balancer.poll();
        if finished {
            return took.as_secs_f64() * 1e3;
        }
    }
}

/// One visit: how long it took, and its longest slice.
fn pass(stack: &Stack, held: u32, mut see: impl FnMut(&FlowKey)) -> (Duration, Duration) {
    let (mut cursor, mut longest, mut flows) = (Some(0), Duration::ZERO, 0u32);
    let start = thread_time();
    let mut before = start;
    while let Some(from) = cursor {
        cursor = stack.visit_flows(from, SLICE, |flow| {
            flows += 1;
            see(flow);
        });
        let now = thread_time();
        longest = longest.max(now - before);
        before = now;
    }
    assert_eq!(flows, held, "all that are held, and no others");
    (before - start, longest)
}
