//! Forecast of a plan's effect: the load of the busiest shard, the flows left with a shard that the ring no longer
//! names, the size of the tables for them, and whether the update pays.

use core::time::Duration;

use crate::exceptions::bytes_for;
use crate::ring::Ring;

use super::heat::Density;
use super::plan::{Planned, Shares, Targets};
use super::sample::ShardSample;

#[cfg(test)]
mod tests;

/// Costs of an update. The times are of the order that `cargo bench --bench csb` shows and need not be exact: an update
/// that pays only by a hair can be left out without harm.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A held flow that the traversal visits.
    pub visit: Duration,
    /// A flow that is diverged: reported, sorted, put into the tables.
    pub diverge: Duration,
    /// For how long an update should be good: its gain is counted for this time.
    pub horizon: Duration,
    /// Flows that may be diverged by one update: [`Limits::diverged`](crate::Limits::diverged), or less.
    pub diverged_max: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            visit: Duration::from_nanos(5),
            diverge: Duration::from_nanos(100),
            horizon: Duration::from_secs(10),
            diverged_max: 4 << 20,
        }
    }
}

/// The planner's expectations of an update.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct Forecast {
    /// The largest share over what it should be, before: 1 is as it should be.
    pub spread_before: f64,
    /// Like [`spread_before`](Forecast::spread_before), but once flows have turned over.
    pub spread_after: f64,
    /// Busy fraction of the busiest shard now.
    pub busiest_before: f64,
    /// Busy fraction of the busiest shard once flows have turned over.
    pub busiest_after: f64,
    /// The part of the circle that changes hands.
    pub moved: f64,
    /// Live flows that will be with a shard which the ring no longer names, those of earlier updates not counted.
    pub diverged: u64,
    /// Bytes of `H_diff` for them.
    pub diff_bytes: u64,
    /// Bytes of the filter for them.
    pub filter_bytes: u64,
    /// Time that the update takes from the shard it takes most from.
    pub cost: Duration,
    /// Time that the shard with too much saves within the horizon.
    pub gain: Duration,
}

impl Forecast {
    /// Whether the update saves more than it costs.
    pub fn pays(&self) -> bool {
        self.gain > self.cost
    }
}

/// Forecasts the effect of `planned`, given the shards' samples. `placed` is the part of the live flows that each shard
/// was given; the ring says otherwise when it has changed of late.
pub(super) fn forecast(
    ring: &Ring,
    targets: &Targets,
    planned: &Planned,
    density: &Density,
    shards: &[ShardSample],
    placed: &Shares,
    costs: &Costs,
) -> Forecast {
    let before = Shares::on_ring(ring, density);
    let after = planned.shares();
    // Flows lie evenly even where load does not: the hash spreads them, what they send is theirs.
    let lengths = Shares::of(ring, None);
    let length = |after: u32, end: u32| Density::Even.between(after, end);

    let (mut moved, mut lost) = (0.0, Shares::default());
    for part in planned.moved() {
        let part_length = length(part.after, part.end);
        moved += part_length;
        lost[part.from] += part_length;
    }
    // Parts that leave one shard form one run, wherever on the circle they lie, until a part of another shard lies
    // between.
    let parts = planned.moved();
    let runs = 1 + parts
        .windows(2)
        .filter(|pair| pair[0].from != pair[1].from)
        .count();
    let (mut diverged, mut cost) = (0.0, Duration::ZERO);
    for sample in shards {
        // A shard with flows and no keys has diverged ones only, and they stay that.
        let part = lost[sample.shard] / lengths[sample.shard].max(f64::MIN_POSITIVE);
        let of_it = sample.flows as f64 * part;
        diverged += of_it;
        let takes = costs.visit.mul_f64(sample.flows as f64) + costs.diverge.mul_f64(of_it);
        cost = cost.max(takes);
    }

    // Whole flows: what follows is bounds, and a part of a flow takes the room of one.
    let diverged = diverged.ceil() as u64;
    let (filter_bytes, diff_bytes) = bytes_for(diverged as usize, runs.min(diverged as usize));
    let spread = |shares: &Shares| largest_over_target(targets, &before, shares);
    let (spread_before, spread_after) = (spread(&before), spread(after));
    let busy = mean(shards.iter().map(|sample| sample.busy));
    let saved = busy * (spread_before - spread_after).max(0.0);
    Forecast {
        spread_before,
        spread_after,
        busiest_before: busiest(shards, |_| 1.0),
        busiest_after: busiest(shards, |sample| {
            let had = placed[sample.shard];
            if had > 0.0 {
                after[sample.shard] / had
            } else {
                1.0
            }
        }),
        moved,
        diverged,
        diff_bytes: diff_bytes as u64,
        filter_bytes: filter_bytes as u64,
        cost,
        gain: costs.horizon.mul_f64(saved.clamp(0.0, 1e3)),
    }
}

fn largest_over_target(targets: &Targets, have: &Shares, shares: &Shares) -> f64 {
    let wanted = targets.shares(have).unwrap_or_default();
    let over = wanted.iter().filter(|&&(_, share)| share > 0.0);
    over.map(|&(shard, share)| shares[shard] / share)
        .fold(1.0, f64::max)
}

fn busiest(shards: &[ShardSample], times: impl Fn(&ShardSample) -> f64) -> f64 {
    let busy = shards.iter().map(|sample| sample.busy * times(sample));
    busy.fold(0.0, f64::max)
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}
