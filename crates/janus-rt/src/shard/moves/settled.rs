//! Flows that have come to this shard of late, by the hashes that its stack files them under, with where from and when. They are kept in generations, each a map that does not grow
//! beyond a bound and goes as a whole: ten million arrivals cost no step that is longer than another.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use janus_csb::{Epoch, ShardId};
use janus_tcp::Moved;

/// Flows in a generation: as many as a map of 16,384 places takes, 400 KB.
const FLOWS_MAX: usize = 14_336;

/// Maps kept for another time: of a drain at full speed what two updates tell of, 13 MB at most.
const SPARES_MAX: usize = 32;

type Flows = HashMap<u64, (ShardId, Moved), BuildHasherDefault<IsHash>>;

/// A hash under a secret of the stack's is one for a map too.
#[derive(Default)]
struct IsHash(u64);

impl Hasher for IsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

struct Generation {
    flows: Flows,
    /// The newest ring that any of their moves was made by.
    newest: Epoch,
}

/// The generations, the newest last.
#[derive(Default)]
pub(super) struct Settled {
    generations: VecDeque<Generation>,
    /// Empty maps for the next generations: memory that is given back and had again is had page by page.
    spares: Vec<Flows>,
}

impl Settled {
    pub(super) fn insert(&mut self, flow: u64, from: ShardId, moved: Moved) {
        let epoch = Epoch::new(moved.epoch);
        if self.generations.back().is_none_or(Generation::is_full) {
            let flows = match self.spares.pop() {
                Some(spare) => spare,
                // The first grows as it must; where there is one more there are many.
                None if self.generations.is_empty() => Flows::default(),
                None => Flows::with_capacity_and_hasher(FLOWS_MAX, BuildHasherDefault::default()),
            };
            let newest = epoch;
            self.generations.push_back(Generation { flows, newest });
        }
        let Some(last) = self.generations.back_mut() else {
            return;
        };
        last.flows.insert(flow, (from, moved));
        if epoch.since(last.newest) > 0 {
            last.newest = epoch;
        }
    }

    /// Where the flow came from last, and when.
    pub(super) fn get(&self, flow: u64) -> Option<(ShardId, Moved)> {
        let newest_first = self.generations.iter().rev();
        let mut found = newest_first.filter_map(|it| it.flows.get(&flow));
        found.next().copied()
    }

    /// Whether the flow has come by a ring that is not older than `told`.
    pub(super) fn came_since(&self, flow: u64, told: Epoch) -> bool {
        let is_late = |epoch: Epoch| told.since(epoch) <= 0;
        let late = self
            .generations
            .iter()
            .rev()
            .filter(|it| is_late(it.newest));
        let mut found = late.filter_map(|it| it.flows.get(&flow));
        let came = found.next();
        came.is_some_and(|(_, moved)| is_late(Epoch::new(moved.epoch)))
    }

    /// Forgets the oldest generation if all of it has come by rings that are older than `told`.
    pub(super) fn forget_one(&mut self, told: Epoch) {
        let oldest = self.generations.front();
        if oldest.is_none_or(|it| told.since(it.newest) <= 0) {
            return;
        }
        let Some(mut gone) = self.generations.pop_front() else {
            return;
        };
        if self.spares.len() < SPARES_MAX && gone.flows.capacity() >= FLOWS_MAX {
            gone.flows.clear();
            self.spares.push(gone.flows);
        }
    }
}

impl Generation {
    fn is_full(&self) -> bool {
        self.flows.len() >= FLOWS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As hashes are: all bits differ.
    fn flow(number: u32) -> u64 {
        (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn at(epoch: u16) -> Moved {
        Moved { epoch, stamp: 7 }
    }

    #[test]
    fn generations_are_bounded_and_go_one_by_one() {
        let mut settled = Settled::default();
        let count = 3 * FLOWS_MAX as u32 + 1;
        for number in 0..count {
            settled.insert(flow(number), ShardId(1), at(4));
        }
        assert_eq!(settled.generations.len(), 4);
        assert!((0..count).all(|number| settled.get(flow(number)).is_some()));
        settled.forget_one(Epoch::new(4));
        assert_eq!(settled.generations.len(), 4, "they have come by this ring");
        for left in (0..4).rev() {
            settled.forget_one(Epoch::new(5));
            assert_eq!(settled.generations.len(), left);
        }
        assert_eq!(settled.get(flow(0)), None);
        assert_eq!(settled.spares.len(), 4);
        assert!(settled.spares.iter().all(Flows::is_empty));
    }

    #[test]
    fn of_two_arrivals_the_later_counts() {
        let mut settled = Settled::default();
        settled.insert(flow(0), ShardId(1), at(4));
        for number in 1..=FLOWS_MAX as u32 {
            settled.insert(flow(number), ShardId(1), at(5));
        }
        settled.insert(flow(0), ShardId(2), at(6));
        assert_eq!(settled.get(flow(0)), Some((ShardId(2), at(6))));
        assert!(settled.came_since(flow(0), Epoch::new(6)));
        assert!(!settled.came_since(flow(0), Epoch::new(7)));
        assert!(settled.came_since(flow(1), Epoch::new(5)));
        assert!(!settled.came_since(flow(1), Epoch::new(6)));
    }
}
