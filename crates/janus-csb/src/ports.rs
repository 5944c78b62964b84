//! Which shards listen on which local port. The table only answers that question; sockets live elsewhere.
//!
//! Nearly always every shard listens (one copy of `main` runs on each), and then a port needs no look at its set: a
//! bit says so.

use crate::shard::{ShardId, ShardSet};

#[cfg(test)]
mod tests;

/// Local port → the shards that listen on it.
#[derive(Clone)]
pub struct PortTable {
    /// Sorted by port; at most 65,536 entries by the type of the key.
    sets: Vec<(u16, ShardSet)>,
    /// One bit for each port that is in `sets`: most packets are answered by this alone.
    listed: Box<[u64; 1024]>,
}

impl PortTable {
    /// Returns a table without listeners.
    pub fn new() -> PortTable {
        PortTable {
            sets: Vec::new(),
            listed: Box::new([0; 1024]),
        }
    }

    /// `shard` listens on `port` from now on; says whether that is new.
    pub fn insert(&mut self, port: u16, shard: ShardId) -> bool {
        let at = match self.sets.binary_search_by_key(&port, |entry| entry.0) {
            Ok(at) => at,
            Err(at) => {
                self.sets.insert(at, (port, ShardSet::EMPTY));
                self.listed[usize::from(port / 64)] |= 1 << (port % 64);
                at
            }
        };
        self.sets[at].1.insert(shard)
    }

    /// `shard` no longer listens on `port`; says whether it did.
    pub fn remove(&mut self, port: u16, shard: ShardId) -> bool {
        let Ok(at) = self.sets.binary_search_by_key(&port, |entry| entry.0) else {
            return false;
        };
        let was = self.sets[at].1.remove(shard);
        if self.sets[at].1.is_empty() {
            self.sets.remove(at);
            self.listed[usize::from(port / 64)] &= !(1 << (port % 64));
        }
        was
    }

    /// Returns the shards that listen on `port`; `None` when no shard does.
    #[inline]
    pub fn get(&self, port: u16) -> Option<&ShardSet> {
        if self.listed[usize::from(port / 64)] & (1 << (port % 64)) == 0 {
            return None;
        }
        let at = self
            .sets
            .binary_search_by_key(&port, |entry| entry.0)
            .ok()?;
        Some(&self.sets[at].1)
    }

    /// All ports on which somebody listens, with their shards, in rising order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u16, &ShardSet)> {
        self.sets.iter().map(|(port, set)| (*port, set))
    }
}

impl Default for PortTable {
    fn default() -> PortTable {
        PortTable::new()
    }
}

impl core::fmt::Debug for PortTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
