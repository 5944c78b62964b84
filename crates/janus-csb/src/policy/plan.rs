//! The planner: from the points there are to points by which every shard has the share it should have, with few changes
//! and few keys that change hands. It decides which points move, not whether anything should: that is the policies'.
//!
//! It works as one pays debts: whoever has most too much gives to those who have too little. A boundary between the two
//! slides, when there is one; else an arc is given away whole, or cut. So no key moves that need not, and the number of
//! points grows only where nothing else helps.

use crate::ring::{Ring, RingError};
use crate::shard::ShardId;

use super::circle::{Circle, Moved, moved};
use super::heat::{Density, Heat};

#[cfg(test)]
mod tests;

/// Part of the circle, or of the load, that each shard has; 0 for a shard that has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares(Box<[f64; 256]>);

impl Default for Shares {
    fn default() -> Shares {
        Shares(Box::new([0.0; 256]))
    }
}

impl Shares {
    /// Returns the part that the ring gives each shard, by load where one was measured, else by the length of its arcs.
    pub fn of(ring: &Ring, heat: Option<&Heat>) -> Shares {
        Shares::on_ring(ring, &Density::of(heat))
    }

    pub(super) fn on_ring(ring: &Ring, density: &Density) -> Shares {
        Shares::on(&Circle::new(ring.points(), density.clone()))
    }

    /// Goes this part of the way to `other`.
    pub(super) fn approach(&mut self, other: &Shares, part: f64) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0.iter()) {
            *mine += (theirs - *mine) * part;
        }
    }

    /// Returns how much more, or less, each shard has than in `other`.
    pub(super) fn minus(&self, other: &Shares) -> Shares {
        let mut change = self.clone();
        for (mine, theirs) in change.0.iter_mut().zip(other.0.iter()) {
            *mine -= theirs;
        }
        change
    }

    /// As changes: whether one undoes the other more than it goes on with it.
    pub(super) fn goes_against(&self, other: &Shares) -> bool {
        let both = self.0.iter().zip(other.0.iter());
        both.map(|(mine, theirs)| mine * theirs).sum::<f64>() < 0.0
    }

    fn on(circle: &Circle) -> Shares {
        let mut shares = Shares::default();
        for arc in circle.arcs() {
            shares[arc.owner] += arc.load;
        }
        shares
    }
}

impl core::ops::Index<ShardId> for Shares {
    type Output = f64;

    fn index(&self, shard: ShardId) -> &f64 {
        &self.0[shard.index()]
    }
}

impl core::ops::IndexMut<ShardId> for Shares {
    fn index_mut(&mut self, shard: ShardId) -> &mut f64 {
        &mut self.0[shard.index()]
    }
}

/// One thing that is done to a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A point of this shard goes elsewhere; nearly always the end of its arc slides.
    Move {
        /// Shard that owns the point.
        shard: ShardId,
        /// Old position.
        from: u32,
        /// New position.
        to: u32,
    },
    /// A point stays where it is and belongs to another shard.
    Give {
        /// Position of the point.
        at: u32,
        /// Old owner.
        from: ShardId,
        /// New owner.
        to: ShardId,
    },
    /// A point more.
    Add {
        /// Position of the point.
        at: u32,
        /// Owner of the point.
        shard: ShardId,
    },
    /// A point less.
    Remove {
        /// Position of the point.
        at: u32,
        /// Owner of the point.
        shard: ShardId,
    },
}

/// Loads that differ by less are equal: a few keys of an even circle. Without it the arc that is exactly what a shard has too
/// much, as after weights that were exchanged, is found too large by a rounding error, and not to be divided.
const GRAIN: f64 = 1e-9;

/// Bounds of a plan.
/// Exhaustive: all four belong together, in a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// How far a share may be from what it should be, as a part of it.
    pub tolerance: f64,
    /// Steps, each of which changes one point or two.
    pub steps: usize,
    /// Part of the load that may change hands.
    pub moved: f64,
    /// Points a shard may have before arcs are no longer cut for it.
    pub points: usize,
}

/// Which points there will be, and what becomes of the keys.
#[derive(Clone, Debug)]
pub struct Planned {
    ring: Ring,
    changes: Vec<Change>,
    moved: Vec<Moved>,
    load_moved: f64,
    shares: Shares,
}

impl Planned {
    /// The ring as it will be.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the changes to the ring's points.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the share of each shard under the plan.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The part of the load that changes hands.
    pub fn load_moved(&self) -> f64 {
        self.load_moved
    }

    pub(super) fn moved(&self) -> &[Moved] {
        &self.moved
    }

    pub(super) fn into_parts(self) -> (Ring, Vec<Change>) {
        (self.ring, self.changes)
    }
}

/// A ring with the same shards, about the same points, and shares that are even, or as these weights say, to within a
/// thousandth. For the start, before any flow exists: points placed by a hash leave one of 16 shards with 1.7 times the
/// mean.
pub fn level(ring: &Ring, weights: &[(ShardId, f64)]) -> Ring {
    let mut targets = Targets::default();
    if weights.is_empty() {
        for shard in ring.members().iter() {
            targets.set(shard, 1.0);
        }
    }
    for &(shard, weight) in weights {
        targets.set(shard, weight);
    }
    let bounds = Bounds {
        tolerance: 0.001,
        steps: 16 * 256 + ring.points().len(),
        moved: 1.0,
        points: 256,
    };
    match plan(ring, &targets, None, &bounds) {
        Ok(planned) => planned.into_parts().0,
        Err(_) => ring.clone(),
    }
}

/// The share each shard should have. Shards not named keep what they have, and the others share the rest.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    named: Vec<(ShardId, f64)>,
}

impl Targets {
    /// `shard` should have a share in proportion to this weight; none at all when it is not above zero.
    pub fn set(&mut self, shard: ShardId, weight: f64) {
        let weight = if weight.is_finite() {
            weight.max(0.0)
        } else {
            0.0
        };
        match self.named.iter_mut().find(|(named, _)| *named == shard) {
            Some(entry) => entry.1 = weight,
            None => self.named.push((shard, weight)),
        }
    }

    /// Returns the targets as parts of the whole, given the present shares; `None` when the weights or the present
    /// shares of the named shards add up to 0.
    pub(super) fn shares(&self, have: &Shares) -> Option<Vec<(ShardId, f64)>> {
        let total: f64 = self.named.iter().map(|&(_, weight)| weight).sum();
        let free: f64 = self.named.iter().map(|&(shard, _)| have[shard]).sum();
        (total > 0.0 && free > 0.0).then(|| {
            let part = |&(shard, weight): &(ShardId, f64)| (shard, weight / total * free);
            self.named.iter().map(part).collect()
        })
    }
}

/// Plans. `heat` says where the load is. The error only when the points make no ring, which they do when `ring` is one.
pub fn plan(
    ring: &Ring,
    targets: &Targets,
    heat: Option<&Heat>,
    bounds: &Bounds,
) -> Result<Planned, RingError> {
    plan_by(ring, targets, &Density::of(heat), bounds)
}

pub(super) fn plan_by(
    ring: &Ring,
    targets: &Targets,
    density: &Density,
    bounds: &Bounds,
) -> Result<Planned, RingError> {
    let old: Vec<(u32, ShardId)> = ring.points().collect();
    let mut circle = Circle::new(old.iter().copied(), density.clone());
    if let Some(targets) = targets.shares(&Shares::on(&circle)) {
        Settling::new(&circle, &targets, bounds).run(&mut circle);
    }
    let points: Vec<(u32, ShardId)> = circle
        .arcs()
        .iter()
        .map(|arc| (arc.end, arc.owner))
        .collect();
    let moved = moved(&old, &points);
    let loads = moved
        .iter()
        .map(|part| density.between(part.after, part.end));
    Ok(Planned {
        ring: Ring::from_points(&points)?,
        changes: changes(&old, &points),
        load_moved: loads.sum(),
        moved,
        shares: Shares::on(&circle),
    })
}

/// State of the settling: each shard's target, its share and its number of points.
struct Settling<'a> {
    bounds: &'a Bounds,
    /// Target share of each shard; `None` for those that are left alone.
    target: [Option<f64>; 256],
    have: Shares,
    points: [usize; 256],
}

/// One thing to do, and how much load it moves.
#[derive(Clone, Copy)]
enum Step {
    SlideDown { arc: usize, load: f64 },
    SlideUp { arc: usize, load: f64 },
    Give { arc: usize, to: ShardId },
    Cut { arc: usize, load: f64, to: ShardId },
}

impl<'a> Settling<'a> {
    fn new(circle: &Circle, targets: &[(ShardId, f64)], bounds: &'a Bounds) -> Settling<'a> {
        let mut target = [None; 256];
        for &(shard, share) in targets {
            target[shard.index()] = Some(share);
        }
        Settling {
            bounds,
            target,
            have: Shares::on(circle),
            points: [0; 256],
        }
    }

    fn run(&mut self, circle: &mut Circle) {
        let mut left = self.bounds.moved;
        for _ in 0..self.bounds.steps {
            self.count(circle);
            let Some((giver, taker)) = self.worst() else {
                return;
            };
            let Some(step) = self.best(circle, giver, taker, left) else {
                return;
            };
            let moved = match step {
                Step::SlideDown { arc, load } => circle.slide_down(arc, load),
                Step::SlideUp { arc, load } => circle.slide_up(arc, load),
                Step::Give { arc, to } => circle.give(arc, to),
                Step::Cut { arc, load, to } => circle.cut(arc, load, to),
            };
            left -= moved;
            // Nothing moves when the keys do not divide more finely: then this is as good as it gets.
            if moved <= 0.0 || left <= 0.0 {
                return;
            }
        }
    }

    fn count(&mut self, circle: &Circle) {
        self.have = Shares::on(circle);
        self.points = [0; 256];
        for arc in circle.arcs() {
            self.points[arc.owner.index()] += 1;
        }
    }

    /// Returns how much a shard has above its target; negative when below. `None` when the shard is left alone.
    fn surplus(&self, shard: ShardId) -> Option<f64> {
        self.target[shard.index()].map(|target| self.have[shard] - target)
    }

    /// How far a shard may be from its target. None at all when it is to have nothing.
    fn slack(&self, shard: ShardId) -> f64 {
        self.target[shard.index()].unwrap_or(0.0) * self.bounds.tolerance
    }

    /// Returns how much a shard can give: one that is near its target may go below it by half of the tolerance, so that
    /// a shard which is added gets its share from many that are each hardly above their target.
    fn spare(&self, shard: ShardId) -> f64 {
        self.surplus(shard).unwrap_or(0.0) + self.slack(shard) / 2.0
    }

    /// Returns how much a shard should get from this giver. Between two that are both near their targets nothing moves;
    /// the arcs of a shard that leaves may exceed the others' lack a little, or there would be no end of crumbs.
    fn lack(&self, shard: ShardId, giver: ShardId) -> f64 {
        let Some(surplus) = self.surplus(shard) else {
            return 0.0;
        };
        let (slack, target) = (self.slack(shard), self.target[shard.index()]);
        if target == Some(0.0) {
            0.0
        } else if self.is_leaving(giver) {
            slack / 2.0 - surplus
        } else if -surplus > slack || self.surplus(giver) > Some(self.slack(giver)) {
            -surplus
        } else {
            0.0
        }
    }

    /// Whether a shard has points and should have none.
    fn is_leaving(&self, shard: ShardId) -> bool {
        self.target[shard.index()] == Some(0.0) && self.points[shard.index()] > 0
    }

    /// Picks the giver and the taker of a cut or a whole arc, while any shard is beyond the tolerance: first a shard
    /// that leaves, then the one most above its target, and when none is, the one that can spare most.
    fn worst(&self) -> Option<(ShardId, ShardId)> {
        let named = || {
            (0..=u8::MAX)
                .map(ShardId)
                .filter(|s| self.target[s.index()].is_some())
        };
        let most = |of: &dyn Fn(ShardId) -> f64, among: &dyn Fn(ShardId) -> bool| {
            named()
                .filter(|&shard| among(shard))
                .max_by(|&a, &b| of(a).total_cmp(&of(b)).then(b.cmp(&a)))
        };
        let surplus = |shard: ShardId| self.surplus(shard).unwrap_or(0.0);
        let stays = |shard: ShardId| self.target[shard.index()] > Some(0.0);
        let lacks = |shard: ShardId| stays(shard) && -surplus(shard) > self.slack(shard);
        let lacking = most(&|shard| -surplus(shard), &lacks);
        let taker = lacking.or_else(|| most(&|shard| -surplus(shard), &stays))?;
        let giver = most(&surplus, &|shard| self.is_leaving(shard))
            .or_else(|| most(&surplus, &|shard| surplus(shard) > self.slack(shard)))
            .or_else(|| most(&|shard| self.spare(shard), &|_| lacking.is_some()))?;
        (giver != taker).then_some((giver, taker))
    }

    /// The step that moves most out of `giver`. A cut counts half, since it makes a point more; who gets a cut or a
    /// whole arc is `taker`, who gets what slides is the neighbour.
    fn best(&self, circle: &Circle, giver: ShardId, taker: ShardId, left: f64) -> Option<Step> {
        let spare = self.spare(giver).min(left);
        let leaving = self.is_leaving(giver);
        let lack = |shard: ShardId| self.lack(shard, giver);
        let mut best: Option<(f64, Step)> = None;
        let mut offer = |worth: f64, step: Step| {
            if worth > 0.0 && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, step));
            }
        };
        let arcs = circle.arcs();
        for (i, arc) in arcs
            .iter()
            .enumerate()
            .filter(|(_, arc)| arc.owner == giver)
        {
            let (before, next) = (circle.before(i), circle.after(i));
            if arc.load <= spare.min(lack(taker)) + GRAIN {
                let step = Step::Give { arc: i, to: taker };
                offer(arc.load * if leaving { 2.0 } else { 0.95 }, step);
                continue;
            }
            let load = spare.min(lack(arcs[next].owner));
            if load < arc.load {
                offer(load, Step::SlideDown { arc: i, load });
            }
            let load = spare.min(lack(arcs[before].owner));
            if load < arc.load {
                offer(load, Step::SlideUp { arc: before, load });
            }
            let load = spare.min(lack(taker));
            if load < arc.load && self.points[taker.index()] < self.bounds.points {
                let step = Step::Cut {
                    arc: i,
                    load,
                    to: taker,
                };
                offer(load / 2.0, step);
            }
        }
        best.map(|(_, step)| step)
    }
}

/// The difference of two sets of points, each sorted, told in as few changes as it can be.
fn changes(old: &[(u32, ShardId)], new: &[(u32, ShardId)]) -> Vec<Change> {
    let find = |points: &[(u32, ShardId)], at: u32| {
        let i = points.binary_search_by_key(&at, |&(at, _)| at).ok()?;
        Some(points[i].1)
    };
    let mut changes = Vec::new();
    let mut gone: Vec<Vec<u32>> = vec![Vec::new(); 256];
    for &(at, from) in old {
        match find(new, at) {
            None => gone[from.index()].push(at),
            Some(to) if to != from => changes.push(Change::Give { at, from, to }),
            Some(_) => {}
        }
    }
    for &(to, shard) in new.iter().filter(|&&(at, _)| find(old, at).is_none()) {
        // The nearest of the shard's points that are no longer there is the one that moved.
        let gone = &mut gone[shard.index()];
        let distance = |at: u32| at.wrapping_sub(to).min(to.wrapping_sub(at));
        let nearest = (0..gone.len()).min_by_key(|&i| distance(gone[i]));
        changes.push(match nearest.map(|i| gone.swap_remove(i)) {
            Some(from) => Change::Move { shard, from, to },
            None => Change::Add { at: to, shard },
        });
    }
    for (shard, gone) in (0..=u8::MAX).map(ShardId).zip(&gone) {
        changes.extend(gone.iter().map(|&at| Change::Remove { at, shard }));
    }
    changes
}
