//! Names of shards and sets of them. Nothing here knows what a shard does.

use core::fmt;

/// A shard's number within one runtime. The ring's points, the port table and the tags all speak of shards by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct ShardId(pub u8);

impl ShardId {
    /// The number as an index into an array of shards.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// A set of shards, one bit for each possible [`ShardId`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ShardSet([u64; 4]);

impl ShardSet {
    /// The empty set.
    pub const EMPTY: ShardSet = ShardSet([0; 4]);

    /// The shards `0..count`.
    pub fn first_n(count: usize) -> ShardSet {
        (0..=u8::MAX).take(count).map(ShardId).collect()
    }

    /// The set of one shard.
    pub fn one(shard: ShardId) -> ShardSet {
        let mut set = ShardSet::EMPTY;
        set.insert(shard);
        set
    }

    /// Adds a shard; says whether it was new.
    pub fn insert(&mut self, shard: ShardId) -> bool {
        let (word, bit) = place(shard);
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Takes a shard out; says whether it was there.
    pub fn remove(&mut self, shard: ShardId) -> bool {
        let (word, bit) = place(shard);
        let there = self.0[word] & bit != 0;
        self.0[word] &= !bit;
        there
    }

    /// Whether the shard is in the set.
    #[inline]
    pub fn contains(&self, shard: ShardId) -> bool {
        let (word, bit) = place(shard);
        self.0[word] & bit != 0
    }

    /// How many shards are in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Whether every shard of `other` is in this set too.
    pub fn contains_all(&self, other: &ShardSet) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(mine, theirs)| theirs & !mine == 0)
    }

    /// The shards in rising order.
    pub fn iter(&self) -> impl Iterator<Item = ShardId> + '_ {
        (0..=u8::MAX)
            .map(ShardId)
            .filter(|&shard| self.contains(shard))
    }
}

#[inline]
fn place(shard: ShardId) -> (usize, u64) {
    (shard.index() / 64, 1 << (shard.0 % 64))
}

impl FromIterator<ShardId> for ShardSet {
    fn from_iter<I: IntoIterator<Item = ShardId>>(shards: I) -> ShardSet {
        let mut set = ShardSet::EMPTY;
        for shard in shards {
            set.insert(shard);
        }
        set
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|shard| shard.0))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = ShardSet::EMPTY;
        for shard in [0, 63, 64, 255] {
            assert!(set.insert(ShardId(shard)));
            assert!(!set.insert(ShardId(shard)));
        }
        assert_eq!(set.len(), 4);
        assert!(set.contains(ShardId(255)) && !set.contains(ShardId(1)));
        assert!(set.remove(ShardId(63)) && !set.remove(ShardId(63)));
        assert_eq!(
            set.iter().map(|shard| shard.0).collect::<Vec<_>>(),
            [0, 64, 255]
        );
    }

    #[test]
    fn every_shard_fits() {
        let all = ShardSet::first_n(256);
        assert_eq!(all.len(), 256);
        assert!(all.contains_all(&ShardSet::first_n(3)));
        assert!(!ShardSet::first_n(3).contains_all(&all));
    }
}
