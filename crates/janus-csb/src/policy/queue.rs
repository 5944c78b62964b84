//! The policy of the Janus paper: a shard whose receive queue is deep gets less. It knows nothing of why.
//!
//! A queue is short until its shard is nearly overloaded and then grows without end, so depth is compared by its
//! logarithm, above a floor below which it does not matter. What a shard gets is stepped down from what it has: depth
//! says in which direction, not how far.

use core::time::Duration;

use super::smooth::Smooth;
use super::{Policy, Round, Wish};

#[cfg(test)]
mod tests;

/// Settings of the policy and what it remembers.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Packets: queues shorter than this are as good as none. Half a batch.
    floor: f64,
    /// How far, in powers of e, a shard's depth may be above the mean of all.
    band: f64,
    depths: Smooth,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new(32, 0.7)
    }
}

impl Queue {
    /// Of the distance from the mean, in logarithms, the part that a step corrects.
    const GAIN: f64 = 0.4;
    /// The most that a step changes, in powers of e: half or double. Depth says little about how far to go.
    const STEP_MAX: f64 = core::f64::consts::LN_2;
    /// No shard gets less than this part of the mean: who gets no flows cannot show that it is well again.
    const LEAST: f64 = 1.0 / 16.0;
    const MEMORY: Duration = Duration::from_secs(1);

    /// Depths below `floor` packets do not matter; a shard `band` powers of e deeper than the mean is too deep.
    pub fn new(floor: u32, band: f64) -> Queue {
        Queue {
            floor: f64::from(floor.max(1)),
            band: band.max(0.05),
            depths: Smooth::new(Queue::MEMORY),
        }
    }
}

impl Policy for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn weigh(&mut self, round: &Round<'_>) -> Wish {
        let mut pressures = Vec::with_capacity(round.shards.len());
        for sample in round.shards {
            let depth = self
                .depths
                .add(round.at, sample.shard, f64::from(sample.queue));
            pressures.push((depth / self.floor).ln_1p());
        }
        let mean = pressures.iter().sum::<f64>() / pressures.len().max(1) as f64;
        let most = pressures.iter().copied().fold(0.0, f64::max);
        let even = round.mean_share();
        let stepped: Vec<f64> = round
            .shards
            .iter()
            .zip(&pressures)
            .map(|(sample, pressure)| {
                let share = match round.shares[sample.shard] {
                    0.0 => even,
                    share => share,
                };
                let step = Queue::GAIN * (mean - pressure);
                share * step.clamp(-Queue::STEP_MAX, Queue::STEP_MAX).exp()
            })
            .collect();
        // In parts of the mean, so that the least of it means the same however far others went.
        let unit = stepped.iter().sum::<f64>() / stepped.len().max(1) as f64;
        let shards = round.shards.iter().map(|sample| sample.shard);
        let least = |share: &f64| (share / unit).max(Queue::LEAST);
        Wish {
            weights: shards.zip(stepped.iter().map(least)).collect(),
            strain: (most - mean) / self.band,
            firm: false,
        }
    }
}
