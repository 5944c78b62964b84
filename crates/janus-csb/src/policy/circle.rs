//! The circle as the planner sees it: arcs with an owner and a load, and the three things that can be done to one: its
//! end slides, it is given away, it is cut. Nothing here knows who should have how much.

use crate::shard::ShardId;

use super::heat::Density;

#[cfg(test)]
mod tests;

/// The keys after the end of the arc before up to and including `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arc {
    pub(super) end: u32,
    pub(super) owner: ShardId,
    pub(super) load: f64,
}

/// All arcs, sorted by their ends.
#[derive(Clone, Debug)]
pub(super) struct Circle {
    arcs: Vec<Arc>,
    density: Density,
}

impl Circle {
    /// The circle with these points, which are sorted, distinct and not none.
    pub(super) fn new(points: impl Iterator<Item = (u32, ShardId)>, density: Density) -> Circle {
        let mut arcs: Vec<Arc> = points
            .map(|(end, owner)| Arc {
                end,
                owner,
                load: 0.0,
            })
            .collect();
        let mut after = arcs.last().map_or(0, |arc| arc.end);
        for arc in &mut arcs {
            arc.load = density.between(after, arc.end);
            after = arc.end;
        }
        Circle { arcs, density }
    }

    pub(super) fn arcs(&self) -> &[Arc] {
        &self.arcs
    }

    pub(super) fn before(&self, i: usize) -> usize {
        i.checked_sub(1).unwrap_or(self.arcs.len() - 1)
    }

    pub(super) fn after(&self, i: usize) -> usize {
        if i + 1 == self.arcs.len() { 0 } else { i + 1 }
    }

    /// Arc `i` ends earlier by `load`, which goes to the arc after it. What was moved: less when the keys do not divide
    /// so finely, none when nothing would be left of the arc.
    pub(super) fn slide_down(&mut self, i: usize, load: f64) -> f64 {
        let start = self.arcs[self.before(i)].end;
        let keep = self.arcs[i].load - load;
        let Some(end) = self.inside(start, self.arcs[i].end, keep) else {
            return 0.0;
        };
        let next = self.after(i);
        let moved = self.density.between(end, self.arcs[i].end);
        self.arcs[next].load += moved;
        self.arcs[i].load -= moved;
        self.set_end(i, end);
        moved
    }

    /// Arc `i` ends later by `load`, which it takes from the arc after it. What was moved, as with
    /// [`slide_down`](Circle::slide_down).
    pub(super) fn slide_up(&mut self, i: usize, load: f64) -> f64 {
        let next = self.after(i);
        let Some(end) = self.inside(self.arcs[i].end, self.arcs[next].end, load) else {
            return 0.0;
        };
        let moved = self.density.between(self.arcs[i].end, end);
        self.arcs[next].load -= moved;
        self.arcs[i].load += moved;
        self.set_end(i, end);
        moved
    }

    /// Arc `i` has another owner. Neighbours that then belong to the same shard become one.
    pub(super) fn give(&mut self, i: usize, owner: ShardId) -> f64 {
        let moved = self.arcs[i].load;
        self.arcs[i].owner = owner;
        let next = self.after(i);
        if next != i && self.arcs[next].owner == owner {
            self.arcs[next].load += moved;
            self.arcs.remove(i);
            let merged = if next > i { next - 1 } else { next };
            self.merge_before(merged);
        } else {
            self.merge_before(i);
        }
        moved
    }

    /// The first `load` of arc `i` becomes an arc of `owner`. What was moved, as with
    /// [`slide_down`](Circle::slide_down).
    pub(super) fn cut(&mut self, i: usize, load: f64, owner: ShardId) -> f64 {
        let before = self.before(i);
        let Some(end) = self.inside(self.arcs[before].end, self.arcs[i].end, load) else {
            return 0.0;
        };
        let moved = self.density.between(self.arcs[before].end, end);
        self.arcs[i].load -= moved;
        let at = self.arcs.partition_point(|arc| arc.end < end);
        self.arcs.insert(
            at,
            Arc {
                end,
                owner,
                load: moved,
            },
        );
        self.merge_before(at);
        moved
    }

    /// A key strictly between two others, clockwise, with about `load` from the first up to it; `None` when there is
    /// none left on one side.
    fn inside(&self, after: u32, end: u32, load: f64) -> Option<u32> {
        let length = match end.wrapping_sub(after) {
            0 => u32::MAX,
            length => length,
        };
        let reach = self
            .density
            .key_after(after, load.max(0.0))
            .wrapping_sub(after);
        // Just short of the first key the load of the whole circle looks like none.
        (0 < reach && reach < length).then(|| after.wrapping_add(reach))
    }

    /// Gives the arc another end, which lies beyond no other arc's; the arcs stay sorted when it passes zero.
    fn set_end(&mut self, i: usize, end: u32) {
        let mut arc = self.arcs[i];
        arc.end = end;
        self.arcs.remove(i);
        let at = self.arcs.partition_point(|other| other.end < end);
        self.arcs.insert(at, arc);
    }

    /// When the arc before `i` has the same owner, the two become one.
    fn merge_before(&mut self, i: usize) {
        let before = self.before(i);
        if before != i && self.arcs[before].owner == self.arcs[i].owner {
            self.arcs[i].load += self.arcs[before].load;
            self.arcs.remove(before);
        }
    }
}

/// Keys that change hands between two sets of points: the part of the circle after `after` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moved {
    pub(super) after: u32,
    pub(super) end: u32,
    pub(super) from: ShardId,
    pub(super) to: ShardId,
}

/// Returns the parts that change owner from `old` to `new`, clockwise. Both are sorted and not empty. Adjacent parts
/// with the same old and new owner are one.
pub(super) fn moved(old: &[(u32, ShardId)], new: &[(u32, ShardId)]) -> Vec<Moved> {
    let mut ends: Vec<u32> = old.iter().chain(new).map(|&(at, _)| at).collect();
    ends.sort_unstable();
    ends.dedup();
    let owner = |points: &[(u32, ShardId)], key: u32| {
        let at = points.partition_point(|&(at, _)| at < key);
        points.get(at).unwrap_or(&points[0]).1
    };
    let mut found: Vec<Moved> = Vec::new();
    let mut after = *ends.last().unwrap_or(&0);
    for end in ends {
        let (from, to) = (owner(old, end), owner(new, end));
        if from != to {
            match found.last_mut() {
                Some(last) if (last.end, last.from, last.to) == (after, from, to) => last.end = end,
                _ => found.push(Moved {
                    after,
                    end,
                    from,
                    to,
                }),
            }
        }
        after = end;
    }
    found
}
