//! A change to the newest layout, in the making: points and shards added and removed, listeners entered and struck out.
//! No reader sees it before it is whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ports::PortTable;
use crate::ring::{Ring, RingError};
use crate::shard::ShardId;

#[cfg(test)]
mod tests;

/// A change to the newest layout.
#[derive(Clone, Debug)]
pub struct Draft {
    ring: Arc<Ring>,
    /// The points, once one of them is changed singly.
    points: Option<BTreeMap<u32, ShardId>>,
    ports: Arc<PortTable>,
}

impl Draft {
    pub(crate) fn new(ring: Arc<Ring>, ports: Arc<PortTable>) -> Draft {
        Draft {
            ring,
            points: None,
            ports,
        }
    }

    /// Uses another ring.
    pub fn set_ring(&mut self, ring: Ring) {
        self.ring = Arc::new(ring);
        self.points = None;
    }

    /// The points as they would be now: position and shard, rising.
    pub fn points(&self) -> Vec<(u32, ShardId)> {
        match &self.points {
            Some(points) => points.iter().map(|(&at, &shard)| (at, shard)).collect(),
            None => self.ring.points().collect(),
        }
    }

    /// Adds a point of `shard` at `at`; false, and nothing changed, when there is one.
    pub fn add_point(&mut self, at: u32, shard: ShardId) -> bool {
        let points = self.edit();
        let vacant = !points.contains_key(&at);
        if vacant {
            points.insert(at, shard);
        }
        vacant
    }

    /// Takes the point at `at` away and says whose it was.
    pub fn remove_point(&mut self, at: u32) -> Option<ShardId> {
        self.edit().remove(&at)
    }

    /// Gives the point at `at` to `shard`, with all its keys, and says whose it was; `None`, and nothing changed, when
    /// there is no point.
    pub fn give_point(&mut self, at: u32, shard: ShardId) -> Option<ShardId> {
        let owner = self.edit().get_mut(&at)?;
        Some(std::mem::replace(owner, shard))
    }

    /// Places `count` points of `shard` as [`Ring::weighted`] would, beside what it has. A shard is added to a running
    /// balancer by its first points.
    pub fn add_points(&mut self, shard: ShardId, count: u16, seed: u32) {
        let points = self.edit();
        for point in 0..count {
            let mut attempts =
                (0..=u8::MAX).map(|attempt| Ring::place(shard, point, attempt, seed));
            // Of 2^32 places at most 2^16 are taken: that all 256 are is not to be seen.
            if let Some(at) = attempts.find(|at| !points.contains_key(at)) {
                points.insert(at, shard);
            }
        }
    }

    /// Takes all points of `shard` away, and strikes it out wherever it listens: it gets no new flow. It may go once
    /// [`Balancer::may_go`](crate::Balancer::may_go) says so. How many points it had.
    pub fn remove_shard(&mut self, shard: ShardId) -> usize {
        let points = self.edit();
        let before = points.len();
        points.retain(|_, owner| *owner != shard);
        let removed = before - points.len();
        let listens: Vec<u16> = self
            .ports
            .iter()
            .filter(|(_, set)| set.contains(shard))
            .map(|(port, _)| port)
            .collect();
        for port in listens {
            self.unlisten(port, shard);
        }
        removed
    }

    /// `shard` listens on `port` from this epoch on; says whether that is new.
    pub fn listen(&mut self, port: u16, shard: ShardId) -> bool {
        Arc::make_mut(&mut self.ports).insert(port, shard)
    }

    /// `shard` no longer listens on `port` from this epoch on; says whether it did.
    pub fn unlisten(&mut self, port: u16, shard: ShardId) -> bool {
        Arc::make_mut(&mut self.ports).remove(port, shard)
    }

    /// Returns the table of listening shards by port, with the changes made so far.
    pub fn ports(&self) -> &PortTable {
        &self.ports
    }

    fn edit(&mut self) -> &mut BTreeMap<u32, ShardId> {
        let ring = &self.ring;
        self.points.get_or_insert_with(|| ring.points().collect())
    }

    pub(crate) fn finish(self) -> Result<(Arc<Ring>, Arc<PortTable>), RingError> {
        let ring = match self.points {
            Some(points) => Arc::new(Ring::from_points(&points.into_iter().collect::<Vec<_>>())?),
            None => self.ring,
        };
        Ok((ring, self.ports))
    }
}
