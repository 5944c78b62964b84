//! Shards, flows and queues in virtual time, in steps of ten milliseconds. Packets are not sent singly: a flow is a rate,
//! a queue what comes above what its shard serves.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use janus_csb::policy::{
    Control, Decision, Forecast, Policy, ServiceWindow, Settings, ShardSample,
};
use janus_csb::{
    Balancer, DivergenceFilter, FlowId, Flows, Held, Limits, Phase, Ring, ShardEnd, ShardId,
    UpdateReport, Work,
};

const STEP: f64 = 0.01;
/// Packets a second that a shard serves.
const RATE: f64 = 100_000.0;
const QUEUE_MAX: f64 = 4096.0;
const RANKS: usize = 300;
const PORT: u16 = 80;

#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Flows that live at a time.
    pub(crate) flows: usize,
    /// How long one does on average, in seconds.
    pub(crate) lifetime: f64,
    /// How busy the shards are on average.
    pub(crate) busy: f64,
}

/// An update, as it was predicted and as it came out.
pub(crate) struct Update {
    pub(crate) at: f64,
    pub(crate) forecast: Forecast,
    pub(crate) report: UpdateReport,
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Update {
            at,
            forecast,
            report,
        } = self;
        write!(
            f,
            "at {at:.1} s: {forecast}; came out: {} diverge, H_diff {} B, filter {} B",
            report.diverged, report.diff_bytes, report.filter_bytes
        )
    }
}

struct Shard {
    end: ShardEnd,
    table: Table,
    rate: f64,
    /// Packets a second of the flows it holds.
    offered: f64,
    queue: f64,
    window: ServiceWindow,
    opened: u64,
}

/// What a shard holds, by name; the cursor is the last name visited, plus one.
#[derive(Default)]
struct Table(BTreeMap<u64, (Held, f64)>);

impl Flows for Table {
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        let mut next = None;
        for (&name, &(held, _)) in self.0.range(cursor..).take(budget) {
            filter.held(held);
            next = Some(name + 1);
        }
        next.filter(|&next| self.0.range(next..).next().is_some())
    }

    fn take_moved(&mut self, _: &mut DivergenceFilter<'_>) {}

    fn held(&self) -> usize {
        self.0.len()
    }
}

pub(crate) struct World {
    seed: u64,
    random: u64,
    now: f64,
    load: Load,
    /// Packets a second of a flow of each rank.
    zipf: Vec<f64>,
    balancer: Balancer,
    shards: Vec<Shard>,
    /// By the step in which they end.
    ends: BTreeMap<u64, Vec<(u64, usize)>>,
    names: u64,
    control: Control,
    planned: Option<(f64, Forecast)>,
    updates: Vec<Update>,
    refused: usize,
    queues: Vec<f64>,
}

impl World {
    pub(crate) fn new(ring: Ring, policy: Box<dyn Policy + Send>, load: Load, seed: u64) -> World {
        let count = ring.members().len();
        let mut balancer = Balancer::new(ring, Limits::default());
        let shards = (0..count as u8).map(|shard| Shard {
            end: balancer.shard_end(ShardId(shard)),
            table: Table::default(),
            rate: RATE,
            offered: 0.0,
            queue: 0.0,
            window: ServiceWindow::new(),
            opened: 0,
        });
        let shards: Vec<Shard> = shards.collect();
        let sum: f64 = (1..=RANKS).map(|rank| 1.0 / rank as f64).sum();
        let each = load.busy * RATE * count as f64 / load.flows as f64;
        let zipf = (1..=RANKS).map(|rank| each * RANKS as f64 / sum / rank as f64);
        let mut world = World {
            seed,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now: 0.0,
            load,
            zipf: zipf.collect(),
            balancer,
            shards,
            ends: BTreeMap::new(),
            names: 0,
            control: Control::new(policy, Settings::default()),
            planned: None,
            updates: Vec::new(),
            refused: 0,
            queues: Vec::new(),
        };
        for _ in 0..load.flows {
            world.open();
        }
        world
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        ((self.draw() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn step(&self) -> u64 {
        (self.now / STEP).round() as u64
    }

    /// A flow begins, where the newest ring says.
    fn open(&mut self) {
        let name = self.names;
        self.names += 1;
        let held = Held {
            key: self.draw() as u32,
            port: PORT,
            id: FlowId(u128::from(name)),
        };
        let shard = self
            .balancer
            .current()
            .newest()
            .owner(held.key, PORT)
            .index();
        let rank = self.draw() as usize % RANKS;
        let rate = self.zipf[rank];
        let lives = -self.part().ln() * self.load.lifetime / STEP;
        let ends = self.step() + 1 + lives as u64;
        self.ends.entry(ends).or_default().push((name, shard));
        let shard = &mut self.shards[shard];
        shard.table.0.insert(name, (held, rate));
        shard.offered += rate;
        shard.opened += 1;
    }

    fn end(&mut self, name: u64, shard: usize) {
        // What serving a packet took this connection: not the same for each.
        let spread = 0.5 + self.part();
        let shard = &mut self.shards[shard];
        if let Some((_, rate)) = shard.table.0.remove(&name) {
            shard.offered -= rate;
            shard.window.record((1e9 / shard.rate * spread) as u64);
        }
    }

    pub(crate) fn slow_down(&mut self, shard: ShardId, to: f64) {
        self.shards[shard.index()].rate = RATE * to;
    }

    pub(crate) fn run(&mut self, seconds: f64) {
        let until = self.now + seconds;
        while self.now < until - STEP / 2.0 {
            self.now += STEP;
            let over = self.ends.remove(&self.step()).unwrap_or_default();
            for &(name, shard) in &over {
                self.end(name, shard);
            }
            for _ in 0..over.len() {
                self.open();
            }
            for shard in &mut self.shards {
                let growth = (shard.offered - shard.rate) * STEP;
                let busy = shard.offered / shard.rate;
                let resting = busy / (1.0 - busy).max(1e-3);
                shard.queue = (shard.queue + growth).max(resting).min(QUEUE_MAX);
            }
            let total: f64 = self.shards.iter().map(|shard| shard.queue).sum();
            self.queues.push(total / self.shards.len() as f64);
            self.update();
            if self.step().is_multiple_of(10) {
                self.round();
            }
        }
    }

    /// Everybody does its part of an update that is under way.
    fn update(&mut self) {
        for Shard { end, table, .. } in &mut self.shards {
            end.refresh();
            match end.work() {
                Work::Nothing => {}
                Work::Traverse => _ = end.slice(table, 200),
                Work::Drain(round) => end.drained(round),
            }
        }
        if self.balancer.poll() == Phase::Idle
            && let Some((at, forecast)) = self.planned.take()
        {
            let report = *self.balancer.last();
            self.updates.push(Update {
                at,
                forecast,
                report,
            });
            self.control.finished(Duration::from_secs_f64(self.now));
        }
    }

    fn round(&mut self) {
        let at = Duration::from_secs_f64(self.now);
        let samples: Vec<ShardSample> = self
            .shards
            .iter_mut()
            .map(|shard| {
                shard.end.report_held(shard.table.0.len());
                ShardSample {
                    shard: shard.end.id(),
                    queue: shard.queue as u32,
                    packets: (shard.offered * 0.1) as u64,
                    busy: (shard.offered / shard.rate).min(1.0),
                    service_ns: shard.window.median(),
                    flows: shard.table.0.len() as u64,
                    opened: std::mem::take(&mut shard.opened),
                    ..ShardSample::default()
                }
            })
            .collect();
        let ring = self.balancer.current().newest().ring();
        if let Decision::Change(plan) = self.control.round(at, ring, &samples, None) {
            match self
                .balancer
                .begin(|draft| draft.set_ring(plan.ring().clone()))
            {
                Ok(()) => self.planned = Some((self.now, *plan.forecast())),
                Err(_) => {
                    self.refused += 1;
                    self.control.refused(at);
                }
            }
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn updates(&self) -> &[Update] {
        &self.updates
    }

    pub(crate) fn updates_since(&self, seconds: f64) -> usize {
        self.updates
            .iter()
            .filter(|update| update.at >= seconds)
            .count()
    }

    pub(crate) fn refused(&self) -> usize {
        self.refused
    }

    /// The mean queue over all shards and the last `seconds`.
    pub(crate) fn mean_queue(&self, seconds: f64) -> f64 {
        let last = &self.queues[self.queues.len() - (seconds / STEP) as usize..];
        last.iter().sum::<f64>() / last.len() as f64
    }

    /// How busy the busiest shard is, or would be if it could.
    pub(crate) fn busiest(&self) -> f64 {
        let busy = self.shards.iter().map(|shard| shard.offered / shard.rate);
        busy.fold(0.0, f64::max)
    }
}
