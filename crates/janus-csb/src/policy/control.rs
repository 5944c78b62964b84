//! The control loop, one round at a time: samples go to the policy, its wish through the gate, what passes to the
//! planner, and a plan that pays to whoever carries it out. Shards that are added or leave need no wish: they get their
//! points, or lose them, in steps. Carrying out an update is not done here.

use core::time::Duration;

use crate::ring::Ring;

use super::forecast::{Costs, Forecast, forecast};
use super::gate::{Gate, Pace, Verdict};
use super::heat::{Density, Heat};
use super::plan::{Bounds, Change, Planned, Shares, Targets, plan_by};
use super::sample::{Role, ShardSample};
use super::smooth::Smooth;
use super::{Policy, Round, Wish};

#[cfg(test)]
mod tests;

/// Settings of the loop, whatever the policy.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Time between rounds. The loop itself goes by the time stamps.
    pub interval: Duration,
    /// Patience and hysteresis.
    pub pace: Pace,
    /// How far one update may go.
    pub bounds: Bounds,
    /// Costs of an update.
    pub costs: Costs,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            interval: Duration::from_millis(100),
            pace: Pace::default(),
            bounds: Bounds {
                tolerance: 0.02,
                steps: 512,
                moved: 0.25,
                points: 64,
            },
            costs: Costs::default(),
        }
    }
}

/// Why the ring stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Nothing is wrong.
    Calm,
    /// Something is, but not for long enough to believe it.
    Unconfirmed,
    /// The last update has yet to show what it did.
    Holding,
    /// An update is under way.
    Updating,
    /// An update would cost more than it saves.
    TooDear,
    /// The points there are allow no better.
    NothingToMove,
}

/// Decision of one round.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Nothing.
    Keep(Why),
    /// Begin an update to this ring.
    Change(Box<Plan>),
}

/// An update worth making.
#[derive(Clone, Debug)]
pub struct Plan {
    ring: Ring,
    changes: Vec<Change>,
    forecast: Forecast,
}

impl Plan {
    /// The ring as it should be.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the changes to the ring's points.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the expected effect of the plan.
    pub fn forecast(&self) -> &Forecast {
        &self.forecast
    }
}

/// The last update, as it was expected and as it turned out so far.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Review {
    /// Expected effect.
    pub forecast: Forecast,
    /// How busy the busiest shard is now.
    pub busiest: f64,
    /// The part of the flows that has begun since: the forecast is for all of them.
    pub turned_over: f64,
}

/// Counts of the loop's decisions since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tally {
    /// Rounds of samples.
    pub rounds: u64,
    /// Updates asked for.
    pub changes: u64,
    /// Of those, updates that went back on the one before.
    pub reversals: u64,
    /// Plans that cost more than they would have saved.
    pub too_dear: u64,
    /// Updates that could not be begun.
    pub refused: u64,
}

/// The control loop.
pub struct Control {
    policy: Box<dyn Policy + Send>,
    settings: Settings,
    gate: Gate,
    updating: bool,
    busy: Smooth,
    /// Part of the live flows that each shard was given: follows the ring as flows turn over.
    placed: Option<Shares>,
    /// The part of what an update may move that it does: halved when one is refused.
    part: f64,
    review: Option<Review>,
    tally: Tally,
}

impl Control {
    /// A shard that leaves loses this part of a mean share in an update.
    const LEAVES_BY: f64 = 0.25;
    /// Of a mean share, what an update must move at least to be worth the name.
    const LEAST: f64 = 0.04;
    /// However often updates are refused, this part of one is tried.
    const PART_LEAST: f64 = 1.0 / 64.0;
    /// Plans tried until one diverges few enough flows.
    const TRIES: u32 = 8;
    /// Time constant over which a shard's busy time is averaged.
    const BUSY_MEMORY: Duration = Duration::from_secs(1);

    /// A loop around a policy.
    pub fn new(policy: Box<dyn Policy + Send>, settings: Settings) -> Control {
        Control {
            policy,
            settings,
            gate: Gate::new(settings.pace),
            updating: false,
            busy: Smooth::new(Control::BUSY_MEMORY),
            placed: None,
            part: 1.0,
            review: None,
            tally: Tally::default(),
        }
    }

    /// The policy in use.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> Tally {
        Tally {
            reversals: self.gate.reversals(),
            ..self.tally
        }
    }

    /// How the last update turned out; `None` before the first.
    pub fn review(&self) -> Option<Review> {
        self.review
    }

    /// One round of samples, `at` a time since any fixed moment. `ring` is the newest, `heat` where the load is if that
    /// is known. Shards that are not among the samples are left alone.
    ///
    /// After a [`Decision::Change`] it answers [`Why::Updating`] until [`finished`](Control::finished) or
    /// [`refused`](Control::refused) is called.
    pub fn round(
        &mut self,
        at: Duration,
        ring: &Ring,
        shards: &[ShardSample],
        heat: Option<&Heat>,
    ) -> Decision {
        self.tally.rounds += 1;
        let density = Density::of(heat);
        let shares = Shares::on_ring(ring, &density);
        let shards: Vec<ShardSample> = shards
            .iter()
            .map(|sample| ShardSample {
                busy: self.busy.add(at, sample.shard, sample.busy.clamp(0.0, 1.0)),
                ..*sample
            })
            .collect();
        let serving: Vec<ShardSample> = shards
            .iter()
            .filter(|sample| sample.role == Role::Serving)
            .copied()
            .collect();
        let wish = self.policy.weigh(&Round {
            at,
            shards: &serving,
            shares: &shares,
        });
        let sum = |of: fn(&ShardSample) -> u64| shards.iter().map(of).sum::<u64>();
        let (opened, flows) = (sum(|sample| sample.opened), sum(|sample| sample.flows));
        self.follow(&shares, opened, flows);
        let verdict = self.gate.judge(at, wish.strain, opened, flows);
        if let Some(review) = &mut self.review {
            review.busiest = shards.iter().map(|sample| sample.busy).fold(0.0, f64::max);
            review.turned_over = self.gate.turned_over(flows);
        }
        if self.updating {
            return Decision::Keep(Why::Updating);
        }
        let must = must_change(&shards, &shares, &wish) && self.gate.is_open(at);
        match verdict {
            _ if must => {}
            Verdict::Calm => return Decision::Keep(Why::Calm),
            Verdict::Unconfirmed => return Decision::Keep(Why::Unconfirmed),
            Verdict::Holding => return Decision::Keep(Why::Holding),
            Verdict::Act => {}
        }
        let targets = self.targets(&shards, &shares, &wish, verdict == Verdict::Act);
        let Some((planned, forecast)) = self.plan(ring, &targets, &density, &shards) else {
            self.gate.rest(at);
            return Decision::Keep(Why::NothingToMove);
        };
        let mean = serving.len().max(1) as f64;
        if !(must || wish.firm) && planned.load_moved() * mean < Control::LEAST {
            self.gate.rest(at);
            return Decision::Keep(Why::NothingToMove);
        }
        if !(must || wish.firm || forecast.pays()) {
            self.tally.too_dear += 1;
            self.gate.rest(at);
            return Decision::Keep(Why::TooDear);
        }
        let change = planned.shares().minus(&shares);
        self.gate.acted(at, wish.strain, flows, change);
        self.begin(planned, forecast)
    }

    fn begin(&mut self, planned: Planned, forecast: Forecast) -> Decision {
        self.updating = true;
        self.tally.changes += 1;
        self.review = Some(Review {
            forecast,
            busiest: forecast.busiest_before,
            turned_over: 0.0,
        });
        let (ring, changes) = planned.into_parts();
        Decision::Change(Box::new(Plan {
            ring,
            changes,
            forecast,
        }))
    }

    /// The update that was asked for is over.
    pub fn finished(&mut self, at: Duration) {
        self.updating = false;
        self.part = (self.part * 2.0).min(1.0);
        self.gate.finished(at);
    }

    /// The update that was asked for could not be begun, or was given up. After a while half of it is planned.
    pub fn refused(&mut self, at: Duration) {
        self.updating = false;
        self.part = (self.part / 2.0).max(Control::PART_LEAST);
        self.tally.refused += 1;
        self.gate.rest(at);
    }

    /// Flows that begin are placed by the ring as it is.
    fn follow(&mut self, shares: &Shares, opened: u64, flows: u64) {
        let placed = self.placed.get_or_insert_with(|| shares.clone());
        placed.approach(shares, (opened as f64 / flows.max(1) as f64).min(1.0));
    }

    /// Returns the share that each shard should have after this update: a step towards the wish where there is strain,
    /// its present share where there is none, and for a shard that leaves a piece less.
    fn targets(
        &self,
        shards: &[ShardSample],
        shares: &Shares,
        wish: &Wish,
        strained: bool,
    ) -> Targets {
        let mean = 1.0 / shards.len().max(1) as f64;
        let wished: f64 = wish.weights.iter().map(|&(_, weight)| weight).sum();
        let free: f64 = shards.iter().map(|sample| shares[sample.shard]).sum();
        let all_kept = shards.iter().all(|sample| sample.kept);
        // The targets of shards that are what they are, and of those that share the rest.
        let (mut settled, mut staying) = (Vec::new(), Vec::new());
        for sample in shards {
            let (shard, has) = (sample.shard, shares[sample.shard]);
            if sample.role == Role::Draining {
                let step = mean * Control::LEAVES_BY;
                let rest = has - step;
                settled.push((shard, if rest < step / 2.0 { 0.0 } else { rest }));
                continue;
            }
            let weight = wish.weights.iter().find(|&&(named, _)| named == shard);
            let wants = weight.map_or(has, |&(_, weight)| weight / wished * free);
            let ratio = wants / has;
            let target = if has == 0.0 || wish.firm {
                wants
            } else if strained {
                has * ratio.powf(self.gate.gain())
            } else {
                has
            };
            if sample.kept && !all_kept {
                settled.push((shard, target.min(has)));
            } else {
                staying.push((shard, target));
            }
        }
        // Shards that leave give up a step each, and those whose loops are kept get no more; the others share the rest.
        let rest = free - settled.iter().map(|&(_, target)| target).sum::<f64>();
        let total: f64 = staying.iter().map(|&(_, target)| target).sum();
        let mut targets = Targets::default();
        for (shard, target) in staying {
            targets.set(shard, target / total * rest);
        }
        for (shard, target) in settled {
            targets.set(shard, target);
        }
        targets
    }

    /// The plan and what comes of it; `None` when no point would move. It moves no more than the update machine can
    /// take, and the rest another time.
    fn plan(
        &self,
        ring: &Ring,
        targets: &Targets,
        density: &Density,
        shards: &[ShardSample],
    ) -> Option<(Planned, Forecast)> {
        let costs = &self.settings.costs;
        let mut bounds = self.settings.bounds;
        bounds.moved *= self.part;
        for _ in 0..Control::TRIES {
            let planned = plan_by(ring, targets, density, &bounds).ok()?;
            if planned.moved().is_empty() {
                return None;
            }
            let placed = self.placed.as_ref().unwrap_or(planned.shares());
            let forecast = forecast(ring, targets, &planned, density, shards, placed, costs);
            if forecast.diverged <= costs.diverged_max {
                return Some((planned, forecast));
            }
            let bearable = costs.diverged_max as f64 / forecast.diverged as f64;
            let moved: f64 = bounds.moved.min(planned.load_moved());
            bounds.moved = moved * bearable * 0.95;
        }
        None
    }
}

/// Whether there is a shard to be added, or one that leaves and still has points.
fn must_change(shards: &[ShardSample], shares: &Shares, wish: &Wish) -> bool {
    let stays = shards.iter().any(|sample| sample.role == Role::Serving);
    let leaves =
        |sample: &ShardSample| sample.role == Role::Draining && shares[sample.shard] > 0.0 && stays;
    let is_new = |&(shard, weight): &(_, f64)| weight > 0.0 && shares[shard] == 0.0;
    shards.iter().any(leaves) || wish.weights.iter().any(is_new)
}

/// For a name in a log line.
impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Control({}, {:?})", self.policy.name(), self.tally())
    }
}

/// Writes the forecast's figures in one line, for statistics and logs.
impl core::fmt::Display for Forecast {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "spread {:.3} -> {:.3}, busiest {:.0} % -> {:.0} %, {:.2} % of the circle moves, {} flows diverge, \
             H_diff {} B, filter {} B, costs {:.1?}, saves {:.1?}",
            self.spread_before,
            self.spread_after,
            self.busiest_before * 100.0,
            self.busiest_after * 100.0,
            self.moved * 100.0,
            self.diverged,
            self.diff_bytes,
            self.filter_bytes,
            self.cost,
            self.gain
        )
    }
}
