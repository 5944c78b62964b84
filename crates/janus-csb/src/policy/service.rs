//! The policy after PIKA: who serves a connection twice as fast gets twice as many. Weights are the inverse of the median
//! service time of the last 128 connections; a tariff is added for shards that are dearer to reach than their own time
//! says; and a filter halves what a shard gets whose queue passes the high watermark, until it is below the low one.
//!
//! The times must be those of service, without the wait before it. With the wait in them the measure depends on what it
//! decides; the loop's damping holds that too (see `gate.rs`), but finds the balance slowly.

use core::time::Duration;

use crate::shard::{ShardId, ShardSet};

use super::smooth::Smooth;
use super::{Policy, Round, Wish};

#[cfg(test)]
mod tests;

/// Settings of the policy and what it remembers.
#[derive(Clone, Debug)]
pub struct Service {
    /// How far what a shard has may be from what it should have, as a part of it.
    band: f64,
    /// Packets in the queue at which the filter takes hold of a shard, and at which it lets go.
    high: u32,
    low: u32,
    tariffs: Vec<(ShardId, u64)>,
    times: Smooth,
    depths: Smooth,
    filtered: ShardSet,
}

impl Default for Service {
    fn default() -> Service {
        Service::new(0.25, 1024, 128)
    }
}

impl Service {
    /// Part of its weight that a shard keeps while its queue is too deep. A place on a ring is not left by one
    /// connection more or less: without any new ones its queue would run dry and stay so, long after the shard was let
    /// back.
    const FILTERED: f64 = 0.5;
    /// No shard gets less than this part of the mean: a shard without flows cannot show that it has recovered.
    const LEAST: f64 = 1.0 / 16.0;
    const MEMORY: Duration = Duration::from_secs(2);

    /// A share may be off by `band` as a part of what it should be; the filter takes hold of a shard with a queue of
    /// `high` packets and lets go at `low`.
    pub fn new(band: f64, high: u32, low: u32) -> Service {
        Service {
            band: band.max(0.02),
            high,
            low: low.min(high),
            tariffs: Vec::new(),
            times: Smooth::new(Service::MEMORY),
            depths: Smooth::new(Service::MEMORY / 4),
            filtered: ShardSet::EMPTY,
        }
    }

    /// A surcharge on the service time of one shard: that its packets cross to another socket, for instance.
    pub fn tariff(mut self, shard: ShardId, ns: u64) -> Service {
        self.tariffs.push((shard, ns));
        self
    }

    /// Shards that the filter holds because their queues are too deep.
    pub fn filtered(&self) -> &ShardSet {
        &self.filtered
    }

    /// The watermarks: held from the high one, let go at the low one, in between as it was.
    fn filter(&mut self, round: &Round<'_>) {
        for sample in round.shards {
            let depth = self
                .depths
                .add(round.at, sample.shard, f64::from(sample.queue));
            if depth >= f64::from(self.high) {
                self.filtered.insert(sample.shard);
            } else if depth <= f64::from(self.low) {
                self.filtered.remove(sample.shard);
            }
        }
        // When all are too deep, none is worse than the others.
        if round.shards.iter().all(|s| self.filtered.contains(s.shard)) {
            self.filtered = ShardSet::EMPTY;
        }
    }

    /// The inverse of what a connection takes, smoothed. `None` before the shard has served enough.
    fn speed(&mut self, at: Duration, sample: &super::ShardSample) -> Option<f64> {
        let own = |&&(shard, _): &&(ShardId, u64)| shard == sample.shard;
        let tariff: u64 = self.tariffs.iter().filter(own).map(|&(_, ns)| ns).sum();
        let ns = sample.service_ns?.saturating_add(tariff).max(1);
        Some(1.0 / self.times.add(at, sample.shard, ns as f64))
    }
}

impl Policy for Service {
    fn name(&self) -> &'static str {
        "service"
    }

    fn weigh(&mut self, round: &Round<'_>) -> Wish {
        self.filter(round);
        let speeds: Vec<Option<f64>> = round
            .shards
            .iter()
            .map(|sample| self.speed(round.at, sample))
            .collect();
        let known: Vec<f64> = speeds.iter().copied().flatten().collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        if known.is_empty() {
            // No shard has served enough to say anything: all stays.
            return round.as_it_is();
        }
        let weigh = |(sample, &speed): (&super::ShardSample, &Option<f64>)| {
            let filtered = self.filtered.contains(sample.shard);
            let part = if filtered { Service::FILTERED } else { 1.0 };
            let weight = speed.unwrap_or(mean) * part;
            (sample.shard, weight.max(mean * Service::LEAST))
        };
        let weights: Vec<(ShardId, f64)> = round.shards.iter().zip(&speeds).map(weigh).collect();
        Wish {
            strain: round.distance(&weights) / self.band.ln_1p(),
            weights,
            firm: false,
        }
    }
}
