//! `H_diff`: the keys that differ from the ring, sorted and run-compressed. It answers for every key, and is only
//! right for those it was made from; which those are is for the filter to say.

use janus_csb::ShardId;

/// Points like those of a ring: a key belongs to the first at or after it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Diff {
    keys: Box<[u32]>,
    owners: Box<[ShardId]>,
}

impl Diff {
    /// Sorts `Set_diff` and keeps of each run of equal shards only the largest key.
    pub fn new(mut found: Vec<(u32, ShardId)>) -> Diff {
        found.sort_unstable();
        // Backwards, the first of a run is the largest.
        found.reverse();
        found.dedup_by_key(|&mut (_, shard)| shard);
        found.reverse();
        let (keys, owners): (Vec<u32>, Vec<ShardId>) = found.into_iter().unzip();
        Diff {
            keys: keys.into(),
            owners: owners.into(),
        }
    }

    /// Returns the shard that the key belongs to; `None` when nothing differs.
    #[inline]
    pub fn owner(&self, key: u32) -> Option<ShardId> {
        let at = self.keys.partition_point(|&point| point < key);
        self.owners.get(at).or(self.owners.first()).copied()
    }

    /// The points in rising order.
    pub fn points(&self) -> impl ExactSizeIterator<Item = (u32, ShardId)> + '_ {
        self.keys.iter().copied().zip(self.owners.iter().copied())
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.keys) + size_of_val(&*self.owners)
    }
}
