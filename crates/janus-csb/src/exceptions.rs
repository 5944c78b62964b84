//! What the published ring does not say: where the flows are that differ from it. Made once for each update, from what
//! all shards reported, and never changed. In the order in which they are asked:
//!
//! 1. the *marks* in the ring's index: in a cell without one no flow differs, and nothing else is asked;
//! 2. the Bloom filter over all differing keys;
//! 3. the exact map, for keys under which flows differ on two or more shards;
//! 4. `H_diff`, for all others.

mod build;
mod diff;
mod filter;

use std::collections::HashMap;

pub(crate) use build::build;
use diff::Diff;
use filter::Filter;

use crate::flow::FlowId;
use crate::shard::{ShardId, ShardSet};

/// Filter, exact map and `H_diff` of one published layout.
pub(crate) struct Exceptions {
    filter: Filter,
    diff: Diff,
    /// Keyed by a hash with a secret of its own: who collides keys on purpose gains no long chains here.
    exact: HashMap<FlowId, ShardId>,
    /// The keys of `exact`, rising: for them `H_diff` has nothing to say.
    contested: Box<[u32]>,
    /// The shards that hold a differing flow.
    holders: ShardSet,
}

impl Exceptions {
    /// The shard that holds the flow, if it may be one that differs from the ring. A hint, as all steering is.
    #[inline]
    pub(crate) fn shard(&self, key: u32, id: impl FnOnce() -> FlowId) -> Option<ShardId> {
        self.may_hold(key).then(|| self.resolve(key, id)).flatten()
    }

    #[inline]
    pub(crate) fn may_hold(&self, key: u32) -> bool {
        self.filter.may_hold(key)
    }

    /// After the filter said yes.
    #[inline]
    pub(crate) fn resolve(&self, key: u32, id: impl FnOnce() -> FlowId) -> Option<ShardId> {
        if !self.contested.is_empty() && self.contested.binary_search(&key).is_ok() {
            return self.exact.get(&id()).copied();
        }
        self.diff.shard(key)
    }

    /// Answers for those of a batch whose bit is set in `marks`, where it has an answer; a bit for each that it had.
    ///
    /// In passes, so that the cache misses of a batch overlap: no question waits for the answer of another.
    pub(crate) fn answer(
        &self,
        keys: &[u32],
        marks: u64,
        id_of: &mut impl FnMut(usize) -> FlowId,
        out: &mut [ShardId],
    ) -> u64 {
        let mut positive = 0;
        let mut rest = marks;
        while rest != 0 {
            let i = rest.trailing_zeros();
            rest &= rest - 1;
            positive |= u64::from(self.filter.may_hold(keys[i as usize])) << i;
        }
        let mut answered = 0;
        while positive != 0 {
            let i = positive.trailing_zeros() as usize;
            positive &= positive - 1;
            if let Some(shard) = self.resolve(keys[i], || id_of(i)) {
                out[i] = shard;
                answered |= 1 << i;
            }
        }
        answered
    }

    /// The shards that hold flows which the ring gives to others.
    pub(crate) fn holders(&self) -> &ShardSet {
        &self.holders
    }

    pub(crate) fn runs(&self) -> usize {
        self.diff.len()
    }

    pub(crate) fn exact_len(&self) -> usize {
        self.exact.len()
    }

    pub(crate) fn filter_bytes(&self) -> usize {
        self.filter.bytes()
    }

    pub(crate) fn diff_bytes(&self) -> usize {
        self.diff.bytes()
    }

    pub(crate) fn exact_bytes(&self) -> usize {
        self.exact.capacity() * (size_of::<(FlowId, ShardId)>() + 1) + size_of_val(&*self.contested)
    }
}
