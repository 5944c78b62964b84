//! The paper's `Set_fly`: flows an I/O core saw open while an update was pending. Until the swap the published ring sends their
//! packets to the old owner, which forwards them; the set sends them straight. A fast path and nothing else: it is
//! capped, any entry may be lost, and the whole set goes when another epoch is published.

use crate::flow::FlowId;
use crate::shard::ShardId;

#[cfg(test)]
mod tests;

/// Entries that a key may be in.
const WAYS: usize = 4;

/// Learned owners, by key.
#[derive(Debug)]
pub(crate) struct PendingOpens {
    /// [`WAYS`] after one another for each set. Made at the start: a core in its loop allocates nothing.
    entries: Box<[Entry]>,
    sets: usize,
    /// Entries of another generation are vacant; so forgetting all takes no time.
    generation: u32,
    len: usize,
    /// Which way of a full set is overwritten next: whoever floods pushes out its like, and only here.
    victim: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: FlowId,
    key: u32,
    generation: u32,
    owner: ShardId,
}

impl PendingOpens {
    /// A set of at most `entries` flows, rounded up to a power of two; 0: it learns nothing.
    pub(crate) fn new(entries: usize) -> PendingOpens {
        let sets = match entries {
            0 => 0,
            _ => entries.div_ceil(WAYS).next_power_of_two(),
        };
        let vacant = Entry {
            id: FlowId(0),
            key: 0,
            generation: 0,
            owner: ShardId(0),
        };
        PendingOpens {
            entries: vec![vacant; sets * WAYS].into_boxed_slice(),
            sets,
            generation: 1,
            len: 0,
            victim: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The owner learned for the flow; its name is asked for only where the key is known.
    #[inline]
    pub(crate) fn get(&self, key: u32, id: impl FnOnce() -> FlowId) -> Option<ShardId> {
        let set = self.set(key);
        let ways = self.entries.get(set..set + WAYS)?;
        if !ways.iter().any(|entry| self.holds(entry, key)) {
            return None;
        }
        let id = id();
        let known = ways
            .iter()
            .find(|entry| self.holds(entry, key) && entry.id == id);
        known.map(|entry| entry.owner)
    }

    pub(crate) fn insert(&mut self, key: u32, id: FlowId, owner: ShardId) {
        if self.sets == 0 {
            return;
        }
        let generation = self.generation;
        let set = self.set(key);
        let ways = &mut self.entries[set..set + WAYS];
        let known =
            |entry: &Entry| entry.generation == generation && entry.key == key && entry.id == id;
        let vacant = |entry: &Entry| entry.generation != generation;
        let way = ways
            .iter()
            .position(known)
            .or_else(|| ways.iter().position(vacant));
        let way = way.unwrap_or_else(|| {
            self.victim = (self.victim + 1) % WAYS;
            self.victim
        });
        self.len += usize::from(vacant(&ways[way]));
        ways[way] = Entry {
            id,
            key,
            generation,
            owner,
        };
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // Once in four billion epochs: what is older than that must not come to life again.
            self.entries
                .iter_mut()
                .for_each(|entry| entry.generation = 0);
            self.generation = 1;
        }
    }

    #[inline]
    fn holds(&self, entry: &Entry, key: u32) -> bool {
        entry.key == key && entry.generation == self.generation
    }

    /// Where the ways of `key` begin. Flows under way are crowded where the ring changes, so the bits are spread.
    #[inline]
    fn set(&self, key: u32) -> usize {
        let hash = u64::from(key.wrapping_mul(0x9e37_79b1));
        ((hash * self.sets as u64) >> 32) as usize * WAYS
    }
}
