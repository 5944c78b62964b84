//! Decides which shard should own how much of the circle, and which points to move for it. Policies give the share each
//! shard should have; hysteresis says when that is worth an update; the planner says which points move, and with what
//! effect.
//!
//! Pure logic: samples with time stamps come in, a decision comes out. Never here: clocks, threads, the update itself.
//!
//! A ring decides only about flows that begin: those which live stay where they are. So a change shows its effect as
//! fast as flows end and begin, and a loop that does not wait for that corrects the same thing twice. That is what most
//! of `gate.rs` is about.
//!
//! ```
//! use core::time::Duration;
//! use janus_csb::policy::{Control, Decision, Queue, Settings, ShardSample, level};
//! use janus_csb::{Ring, ShardId};
//!
//! let mut ring = level(&Ring::uniform(4, 16, 7), &[]); // even shares from the start
//! let mut control = Control::new(Box::new(Queue::default()), Settings::default());
//! for round in 0u32..100 {
//!     // Shard 2 is too slow for what it gets.
//!     let samples = [0, 1, 2, 3].map(|shard| ShardSample {
//!         shard: ShardId(shard),
//!         queue: if shard == 2 { 900 } else { 3 },
//!         busy: if shard == 2 { 1.0 } else { 0.6 },
//!         flows: 10_000,
//!         opened: 500,
//!         ..ShardSample::default()
//!     });
//!     let at = Duration::from_millis(100) * round;
//!     if let Decision::Change(plan) = control.round(at, &ring, &samples, None) {
//!         let forecast = plan.forecast();
//!         assert!(forecast.busiest_after < forecast.busiest_before);
//!         ring = plan.ring().clone(); // the update machine carries it out, and then:
//!         control.finished(at);
//!         return;
//!     }
//! }
//! unreachable!("shard 2 was overloaded for ten seconds");
//! ```

use core::time::Duration;

use crate::shard::ShardId;

mod circle;
mod control;
mod fixed;
mod forecast;
mod gate;
mod heat;
mod plan;
mod queue;
mod sample;
mod scheme;
mod service;
mod smooth;

pub use control::{Control, Decision, Plan, Review, Settings, Tally, Why};
pub use fixed::Fixed;
pub use forecast::{Costs, Forecast};
pub use gate::Pace;
pub use heat::{Heat, HeatBoard, HeatSampler};
pub use plan::{Bounds, Change, Planned, Shares, Targets, level, plan};
pub use queue::Queue;
pub use sample::{Role, ServiceWindow, ShardSample};
pub use scheme::{Candidate, Dealer, Scheme};
pub use service::Service;

/// Says what share each shard should have, going by what the shards say of themselves.
pub trait Policy {
    /// Its name in configuration and statistics.
    fn name(&self) -> &'static str;

    /// Takes in one round of samples. Called for every round, so that means can be kept; what it wishes is asked for
    /// rarely.
    fn weigh(&mut self, round: &Round<'_>) -> Wish;
}

/// Input of a policy: one sample of each shard that serves, and the shares that the ring gives them.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Time of the round, since any fixed moment.
    pub at: Duration,
    /// The shards that serve, each once.
    pub shards: &'a [ShardSample],
    /// Part of the load that the ring gives each shard.
    pub shares: &'a Shares,
}

/// Shares that a policy asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The share of each shard, in any unit.
    pub weights: Vec<(ShardId, f64)>,
    /// How far things are from that, as a part of what the policy tolerates: below 1 nothing need be done.
    pub strain: f64,
    /// The weights are meant as they are: no damping, no asking whether it pays.
    pub firm: bool,
}

impl Round<'_> {
    /// The mean share of those that have one.
    pub fn mean_share(&self) -> f64 {
        let shares = self.shards.iter().map(|sample| self.shares[sample.shard]);
        let (count, sum) = shares
            .filter(|&share| share > 0.0)
            .fold((0u32, 0.0), |(count, sum), share| (count + 1, sum + share));
        if count == 0 {
            1.0
        } else {
            sum / f64::from(count)
        }
    }

    /// How far the shares are from these weights: the largest ratio of the two, as a logarithm. Without end for a shard
    /// that has a share and no weight; one without a share does not count, it is added whatever the distance.
    pub fn distance(&self, weights: &[(ShardId, f64)]) -> f64 {
        let pairs = || {
            let both = weights
                .iter()
                .map(|&(shard, weight)| (self.shares[shard], weight));
            both.filter(|&(share, _)| share > 0.0)
        };
        let sum = |(a, b), (share, weight)| (a + share, b + weight);
        let (shares, total) = pairs().fold((0.0, 0.0), sum);
        let ratios = pairs().map(|(share, weight)| (share / shares) / (weight / total));
        ratios.map(|ratio| ratio.ln().abs()).fold(0.0, f64::max)
    }

    /// The wish that nothing changes.
    pub fn as_it_is(&self) -> Wish {
        let mean = self.mean_share();
        let share = |sample: &ShardSample| match self.shares[sample.shard] {
            0.0 => (sample.shard, mean),
            share => (sample.shard, share),
        };
        Wish {
            weights: self.shards.iter().map(share).collect(),
            strain: 0.0,
            firm: false,
        }
    }
}
