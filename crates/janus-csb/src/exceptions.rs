//! Exceptions to the published ring: the shards of the flows that differ from it. Made once for each update, from the
//! reports of all shards, and never changed. In the order in which they are asked:
//!
//! 1. the *marks* in the ring's index: in a cell without one no flow differs, and nothing else is asked;
//! 2. the filter over all differing keys;
//! 3. `H_diff`, which names the shard of a key, or says that flows differ on two or more under it;
//! 4. for those the exact map.

mod build;
mod diff;
mod filter;

use std::collections::HashMap;

pub(crate) use build::build;
use diff::{Diff, Whose};
use filter::Cells;

use crate::flow::FlowId;
use crate::ring::BATCH;
use crate::shard::{ShardId, ShardSet};

/// Filter, exact map and `H_diff` of one published layout.
pub(crate) struct Exceptions {
    filter: Cells,
    diff: Diff,
    /// Keyed by a hash with a secret of its own: who collides keys on purpose gains no long chains here.
    exact: HashMap<FlowId, ShardId>,
    /// The shards that hold a differing flow.
    holders: ShardSet,
}

/// The bytes that the filter of so many keys takes, and `H_diff` of so many runs: for whoever plans an update.
pub(crate) fn bytes_for(keys: usize, runs: usize) -> (usize, usize) {
    (Cells::bytes_for(keys), Diff::bytes_for(runs))
}

impl Exceptions {
    /// The shard that holds the flow, if it may be one that differs from the ring. A hint, as all steering is.
    #[inline]
    pub(crate) fn shard(&self, key: u32, id: impl FnOnce() -> FlowId) -> Option<ShardId> {
        self.may_hold(key).then(|| self.resolve(key, id)).flatten()
    }

    fn may_hold(&self, key: u32) -> bool {
        self.filter.may_hold(key)
    }

    /// After the filter said yes.
    #[inline]
    fn resolve(&self, key: u32, id: impl FnOnce() -> FlowId) -> Option<ShardId> {
        match self.diff.whose(key) {
            Whose::Shard(shard) => Some(shard),
            Whose::Contested => self.exact.get(&id()).copied(),
        }
    }

    /// Answers for those of a batch that `marked` names, where it has an answer; a bit for each that it had.
    #[inline]
    pub(crate) fn answer(
        &self,
        keys: &[u32],
        marked: &[u8],
        id_of: &mut impl FnMut(usize) -> FlowId,
        out: &mut [ShardId],
    ) -> u64 {
        let mut asked = [0; BATCH];
        for (asked, &i) in asked.iter_mut().zip(marked) {
            *asked = keys[usize::from(i)];
        }
        let mut positive = self.filter.ask(&asked[..marked.len()]);
        let mut answered = 0;
        while positive != 0 {
            let i = usize::from(marked[positive.trailing_zeros() as usize]);
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
        self.exact.capacity() * (size_of::<(FlowId, ShardId)>() + 1)
    }
}
