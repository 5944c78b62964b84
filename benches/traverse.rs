//! How long a shard takes to look at all its flows for an update of the balancer, over the engine's real stores: IPv4
//! connections that were opened by a handshake, served one request and are idle since. `see=nothing` is the visit alone,
//! `see=key` adds the Toeplitz hash of each flow, `see=owner` the look-up of its shard, and keeps those of others. The
//! visit is made of slices, as in the loop; the longest is told too. `filter=alone` and `filter=batch` are the balancer's
//! own slices, which report what differs: owners asked for one by one, and 64 together as the runtime does. `sweep` is a pass over
//! connections at rest, for those that have rested for too long, which is one. Time is this thread's: what others take of the machine
//! does not count. Arguments name numbers of connections (`100m`).

mod support;

use janus_csb::{Balancer, DivergenceFilter, FlowBatch, FlowId, Flows, Limits, Ring, ShardId};
use janus_tcp::{Rest, RestLimits, Stack};
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
    for held in Scale::named_or(held_counts) {
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
        sweep(&mut report, &mut engine, held, runs);
    }
    report.finish();
}

/// A pass is due after this time: one connection may rest so long, the others for a day.
const SOON: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// More than lies between two slices of a pass.
const PAUSE: Duration = Duration::from_millis(2);
/// Connections that the sweep looks at in a slice.
const SWEPT: u32 = 2_048;

/// Passes of the sweep over connections at rest, each of which ends one of them.
fn sweep(report: &mut Report, engine: &mut Engine, held: u32, runs: usize) {
    let mut now = engine.clock.turn();
    let mut conns = engine.connections();
    let ended: Vec<_> = conns.by_ref().take(runs).collect();
    let stack = &mut engine.stack;
    for (handler, limit) in [(0, DAY), (1, SOON)] {
        let (first, further) = (Some(limit), Some(limit));
        stack.limit_rests(now, handler, RestLimits { first, further });
    }
    for conn in conns {
        stack.rest(now, conn, Rest::new(0)).expect("it is open");
    }
    let (mut times, mut longest) = (Vec::new(), Vec::new());
    let slices = held.div_ceil(SWEPT) + 1;
    for conn in ended {
        stack.rest(now, conn, Rest::new(1)).expect("it is open");
        now = now + SOON * 2;
        let (mut took, mut most) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..slices {
            let before = thread_time();
            stack.advance(now);
            let slice = thread_time() - before;
            (took, most) = (took + slice, most.max(slice));
            now = now + PAUSE;
        }
        times.push(took.as_secs_f64() * 1e3);
        longest.push(most.as_secs_f64() * 1e6);
    }
    let over = stack.counters().rests_ended;
    assert_eq!(over, runs as u64, "each pass came to an end");
    let params = [("flows", held.into())];
    report.median("sweep_ms", &times, "ms", &params);
    report.median("sweep_slice_us_max", &longest, "us", &params);
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
