//! The policy of the Janus paper: a shard whose receive queue is deep gets less. It knows nothing of why.
//!
//! A queue is short until its shard is nearly overloaded and then grows without end, so depth is compared by its
//! logarithm, above a floor below which it does not matter; and depth says who has too much, not how much. That is taken
//! from how busy the shards are: who has too much goes down to the mean, and what it gives goes to where there is room.

use core::time::Duration;

use super::smooth::Smooth;
use super::{Policy, Round, ShardSample, Wish};

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
    /// Part of its share that an overloaded shard keeps, at least and at most. One that is overloaded does not look
    /// busier than one that is just full: it takes a second step. And where no shard seems busy, as when all poll, a
    /// step must still be one.
    const KEEPS: (f64, f64) = (0.5, 0.9);
    /// Room that every shard is taken to have: when all are full somebody must get what one gives.
    const ROOM_LEAST: f64 = 0.02;
    /// No shard gets less than this part of the mean: a shard without flows cannot show that it has recovered.
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
        let busy = round.shards.iter().map(|sample| sample.busy).sum::<f64>()
            / pressures.len().max(1) as f64;
        let has = |sample: &ShardSample| match round.shares[sample.shard] {
            0.0 => even,
            share => share,
        };
        // The share that each keeps, and its room for the share that others give.
        let (mut weights, mut rooms) = (Vec::new(), Vec::new());
        let mut given = 0.0;
        for (sample, &pressure) in round.shards.iter().zip(&pressures) {
            let share = has(sample);
            let deep = pressure - mean >= self.band;
            let (least, most) = Queue::KEEPS;
            let keeps = if deep {
                (busy / sample.busy).clamp(least, most)
            } else {
                1.0
            };
            let kept = share.min((share * keeps).max(even * Queue::LEAST));
            given += share - kept;
            weights.push((sample.shard, kept));
            let room = (1.0 - sample.busy).max(Queue::ROOM_LEAST);
            rooms.push(if deep { 0.0 } else { share * room });
        }
        let all: f64 = rooms.iter().sum();
        for ((_, weight), room) in weights.iter_mut().zip(rooms) {
            *weight += if all > 0.0 { given * room / all } else { 0.0 };
        }
        Wish {
            weights,
            strain: (most - mean) / self.band,
            firm: false,
        }
    }
}
