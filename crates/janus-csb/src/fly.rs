//! `Set_fly`: flows an I/O core saw open while an update was pending. Until the swap the published ring sends their
//! packets to the old owner, which forwards them; the set sends them straight. A fast path and nothing else: it is
//! capped, any entry may be lost, and the whole set goes when another epoch is published.

use crate::flow::FlowId;
use crate::shard::ShardId;

/// Entries that a key may be in.
const WAYS: usize = 4;

/// Learned owners, by key.
pub(crate) struct Fly {
    /// [`WAYS`] after one another for each set. Allocated with the first entry.
    entries: Vec<Entry>,
    sets: usize,
    len: usize,
    /// Which way of a full set is overwritten next: whoever floods pushes out its like, and only here.
    victim: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    id: FlowId,
    key: u32,
    owner: Option<ShardId>,
}

const VACANT: Entry = Entry {
    id: FlowId(0),
    key: 0,
    owner: None,
};

impl Fly {
    /// A set of at most about `entries` flows; 0: it learns nothing.
    pub(crate) fn new(entries: usize) -> Fly {
        Fly {
            entries: Vec::new(),
            sets: if entries == 0 {
                0
            } else {
                (entries / WAYS).max(1).next_power_of_two()
            },
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

    #[inline]
    pub(crate) fn get(&self, key: u32, id: impl FnOnce() -> FlowId) -> Option<ShardId> {
        let set = self.set(key);
        let ways = self.entries.get(set..set + WAYS)?;
        if !ways
            .iter()
            .any(|entry| entry.key == key && entry.owner.is_some())
        {
            return None;
        }
        let id = id();
        ways.iter()
            .find(|entry| entry.key == key && entry.id == id)?
            .owner
    }

    pub(crate) fn insert(&mut self, key: u32, id: FlowId, owner: ShardId) {
        if self.sets == 0 {
            return;
        }
        if self.entries.is_empty() {
            self.entries.resize(self.sets * WAYS, VACANT);
        }
        let set = self.set(key);
        let ways = &mut self.entries[set..set + WAYS];
        let known = ways
            .iter()
            .position(|entry| entry.owner.is_some() && entry.key == key && entry.id == id);
        let way = known.or_else(|| ways.iter().position(|entry| entry.owner.is_none()));
        let way = way.unwrap_or_else(|| {
            self.victim = (self.victim + 1) % WAYS;
            self.victim
        });
        self.len += usize::from(ways[way].owner.is_none());
        ways[way] = Entry {
            id,
            key,
            owner: Some(owner),
        };
    }

    /// Forgets everything, memory included.
    pub(crate) fn clear(&mut self) {
        self.entries = Vec::new();
        self.len = 0;
    }

    /// Where the ways of `key` begin. Flows under way are crowded where the ring changes, so the bits are spread.
    #[inline]
    fn set(&self, key: u32) -> usize {
        let hash = u64::from(key.wrapping_mul(0x9e37_79b1));
        ((hash * self.sets as u64) >> 32) as usize * WAYS
    }
}
