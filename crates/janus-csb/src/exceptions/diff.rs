//! `H_diff`: for the keys that differ from the ring, the shard that holds their flows. Sorted keys, and of each run of
//! one shard only the largest, as on a ring: a key belongs to the first entry at or after it. For a key that does not
//! differ the answer means nothing; the filter asks first.

use crate::shard::ShardId;

/// The runs, found through a radix index on the top bits.
pub(crate) struct Diff {
    /// Rising; the last key of each run.
    last: Box<[u32]>,
    /// The shard of each run, and that of run 0 once more for keys after the last.
    shards: Box<[ShardId]>,
    /// Where in `last` a cell begins; one more at the end.
    index: Box<[u32]>,
    shift: u32,
}

/// Most cells of the index: 2^20, 4 MiB, for as many runs.
const INDEX_BITS_MAX: u32 = 20;

/// Takes the differing keys in rising order and keeps the runs.
#[derive(Default)]
pub(crate) struct Runs {
    last: Vec<u32>,
    shards: Vec<ShardId>,
}

impl Runs {
    /// The next key; not below the one before.
    #[inline]
    pub(crate) fn push(&mut self, key: u32, shard: ShardId) {
        debug_assert!(self.last.last().is_none_or(|&last| last <= key));
        if self.shards.last() == Some(&shard) {
            let at = self.last.len() - 1;
            self.last[at] = key;
        } else {
            self.last.push(key);
            self.shards.push(shard);
        }
    }

    pub(crate) fn finish(mut self) -> Diff {
        let bits = (self.last.len().max(1) as u32 * 2)
            .next_power_of_two()
            .trailing_zeros()
            .clamp(4, INDEX_BITS_MAX);
        let shift = u32::BITS - bits;
        let mut index = vec![0; (1 << bits) + 1];
        for &key in &self.last {
            index[(key >> shift) as usize + 1] += 1;
        }
        for cell in 0..1 << bits {
            index[cell + 1] += index[cell];
        }
        self.shards.extend(self.shards.first().copied());
        Diff {
            last: self.last.into_boxed_slice(),
            shards: self.shards.into_boxed_slice(),
            index: index.into_boxed_slice(),
            shift,
        }
    }
}

impl Diff {
    /// The shard that holds the flows of `key`, if that differs from the ring; `None` when nothing does.
    #[inline]
    pub(crate) fn shard(&self, key: u32) -> Option<ShardId> {
        let cell = (key >> self.shift) as usize;
        let (from, to) = (self.index[cell] as usize, self.index[cell + 1] as usize);
        let run = from + self.last[from..to].partition_point(|&last| last < key);
        self.shards.get(run).copied()
    }

    /// How many runs there are.
    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.last) + size_of_val(&*self.shards) + size_of_val(&*self.index)
    }
}

#[cfg(test)]
mod tests;
