//! The paper's stream balancer, to the letter: six steps, no repair. **For tests and the benchmark, never in the data
//! path**: it loses connections, and what it is for is to show which. The balancer that serves is `janus-csb`;
//! nothing there uses anything here.
//!
//! 1. A new ring `H_now'` is built.
//! 2. I/O cores place SYNs by it and remember their keys, all of them, in `Set_fly` ([`IoCore::steer_syn`]).
//! 3. Every shard adds the keys it holds and `H_now'` gives to another to a Bloom filter ([`Update::pass_one`]).
//! 4. Every shard reports the keys it holds that hit the filter: `Set_diff` ([`Update::pass_two`]).
//! 5. Sorted, and of each run of equal shards only the largest key kept, that is `H_diff` ([`Update::finish`]).
//! 6. The I/O cores swap, and drop from `Set_fly` what the new tables answer right ([`IoCore::swap`], equation 1).
//!
//! Where the paper is silent this module does the simplest thing: steps can be called in any order and at any moment
//! between packets, as threads that only follow the text could.

mod bloom;
mod diff;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use janus_csb::{Ring, ShardId};

pub use bloom::Bloom;
pub use diff::Diff;

/// A set of keys that never denies one it holds, and may affirm others.
pub trait Filter {
    /// Puts a key in.
    fn insert(&mut self, key: u32);
    /// Whether the key may be in the set.
    fn contains(&self, key: u32) -> bool;
    /// Bytes of memory.
    fn bytes(&self) -> usize;
}

/// Result of an update: the ring, and the exceptions to it.
#[derive(Debug)]
pub struct Tables<F> {
    ring: Arc<Ring>,
    filter: F,
    diff: Diff,
}

impl<F: Filter> Tables<F> {
    /// The tables before any update: `filter` must be empty.
    pub fn new(ring: Arc<Ring>, filter: F) -> Tables<F> {
        Tables {
            ring,
            filter,
            diff: Diff::default(),
        }
    }

    /// Where the key's packets go: by `H_diff` if the filter affirms the key, else by the ring.
    #[inline]
    pub fn steer(&self, key: u32) -> ShardId {
        if self.filter.contains(key) {
            self.diff.owner(key).unwrap_or_else(|| self.ring.owner(key))
        } else {
            self.ring.owner(key)
        }
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// `H_diff`.
    pub fn diff(&self) -> &Diff {
        &self.diff
    }

    /// The Bloom filter.
    pub fn filter(&self) -> &F {
        &self.filter
    }
}

/// One I/O core: what it looks up in, and what it remembers of the SYNs it has placed.
#[derive(Debug)]
pub struct IoCore<F> {
    tables: Arc<Tables<F>>,
    /// `H_now'` while an update runs.
    next: Option<Arc<Ring>>,
    fly: HashSet<u32>,
}

impl<F: Filter> IoCore<F> {
    /// An I/O core with these tables, and no update running.
    pub fn new(tables: Arc<Tables<F>>) -> IoCore<F> {
        IoCore {
            tables,
            next: None,
            fly: HashSet::new(),
        }
    }

    /// Hears of an update: from now on SYNs are placed by `next`.
    pub fn begin(&mut self, next: Arc<Ring>) {
        self.next = Some(next);
    }

    /// Where a SYN goes. While an update runs its key is remembered, whatever the rings say of it.
    #[inline]
    pub fn steer_syn(&mut self, key: u32) -> ShardId {
        match &self.next {
            Some(next) => {
                self.fly.insert(key);
                next.owner(key)
            }
            None => self.steer(key),
        }
    }

    /// Where any other packet goes: a key of `Set_fly` by the newest ring, others by the tables.
    #[inline]
    pub fn steer(&self, key: u32) -> ShardId {
        if !self.fly.is_empty() && self.fly.contains(&key) {
            return self.newest().owner(key);
        }
        self.tables.steer(key)
    }

    /// Ends the update. Equation 1: of `Set_fly` remains what the new tables would steer elsewhere than their ring.
    pub fn swap(&mut self, tables: Arc<Tables<F>>) {
        self.tables = tables;
        self.next = None;
        let tables = &self.tables;
        self.fly
            .retain(|&key| tables.steer(key) != tables.ring.owner(key));
        self.fly.shrink_to_fit();
    }

    /// The keys of `Set_fly`, in no order.
    pub fn fly(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.fly.iter().copied()
    }

    /// Counts the connections this core's steering breaks: of the keys that `shard` holds, those whose next packet
    /// goes to another.
    pub fn broken(&self, shard: ShardId, held: impl IntoIterator<Item = u32>) -> usize {
        held.into_iter()
            .filter(|&key| self.steer(key) != shard)
            .count()
    }

    fn newest(&self) -> &Ring {
        self.next.as_ref().unwrap_or(&self.tables.ring)
    }
}

/// An update in the making.
#[derive(Debug)]
pub struct Update<F> {
    next: Arc<Ring>,
    filter: F,
    found: Vec<(u32, ShardId)>,
}

impl<F: Filter> Update<F> {
    /// Step 1. `filter` must be empty and large enough for the keys that move.
    pub fn new(next: Arc<Ring>, filter: F) -> Update<F> {
        Update {
            next,
            filter,
            found: Vec::new(),
        }
    }

    /// Step 3 at one shard: the keys it holds go into the filter where `H_now'` names another shard. How many do.
    pub fn pass_one(&mut self, shard: ShardId, held: impl IntoIterator<Item = u32>) -> usize {
        let mut moved = 0;
        for key in held {
            if self.next.owner(key) != shard {
                self.filter.insert(key);
                moved += 1;
            }
        }
        moved
    }

    /// Step 4 at one shard: the keys it holds that hit the filter are reported. How many do.
    pub fn pass_two(&mut self, shard: ShardId, held: impl IntoIterator<Item = u32>) -> usize {
        let before = self.found.len();
        let hit = held.into_iter().filter(|&key| self.filter.contains(key));
        self.found.extend(hit.map(|key| (key, shard)));
        self.found.len() - before
    }

    /// Step 5: what the I/O cores swap to.
    pub fn finish(self) -> Tables<F> {
        Tables {
            ring: self.next,
            filter: self.filter,
            diff: Diff::new(self.found),
        }
    }
}
