//! The flow table: from the hash of a connection's addresses to the index of its record.
//!
//! Groups of twelve one-byte tags and twelve indices fill one cache line each, so that a probe costs one miss
//! and can be prefetched for a whole batch. The table grows by linear hashing inside a reserved virtual range:
//! an insert splits at most one group, nothing is ever moved as a whole, and no insert waits for a doubling.
//! What an index means, and whether a tag's match is a true one, is the caller's business.

use janus_mem::{Growth, MemError, Slab, equal_bytes};

/// Entries a group holds.
const WAYS: usize = 12;
/// Average entries per group above which the next group is split. Groups not yet split hold up to twice as
/// many, so half of the ways keeps overflow rare at every moment of a round.
const TARGET_LOAD: usize = 6;
const NO_OVERFLOW: u32 = 0;
/// The table starts with this many groups.
const FIRST_GROUPS: u32 = 64;
/// A chain longer than this would need thousands of flows with equal hashes; the insert is refused.
const MAX_CHAIN: usize = 64;

#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
struct Group {
    /// 0 = empty.
    tags: [u8; WAYS],
    indices: [u32; WAYS],
    /// Index + 1 of the next group of this bucket in `overflow`.
    overflow: u32,
}

const _: () = assert!(size_of::<Group>() == 64);

impl Group {
    /// The ways whose tag equals `tag`.
    #[inline(always)]
    fn matches(&self, tag: u8) -> Ways {
        let [first @ .., a, b, c, d] = self.tags;
        let last = u32::from_le_bytes([a, b, c, d]);
        let words = [u64::from_le_bytes(first), u64::from(last)];
        Ways(equal_bytes(words, tag) & ALL_WAYS)
    }

    #[inline(always)]
    fn way_of(&self, tag: u8, index: u32) -> Option<usize> {
        self.matches(tag).find(|&way| self.indices[way] == index)
    }

    #[inline]
    fn put(&mut self, tag: u8, index: u32) -> bool {
        let Some(way) = self.matches(0).next() else {
            return false;
        };
        self.tags[way] = tag;
        self.indices[way] = index;
        true
    }
}

/// A bit for each way.
const ALL_WAYS: u32 = (1 << WAYS) - 1;

/// Some of a group's ways: a bit for each.
#[derive(Clone, Copy)]
struct Ways(u32);

impl Iterator for Ways {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let way = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(way as usize)
    }
}

#[inline]
fn tag_of(hash: u64) -> u8 {
    // The top bits; bucket numbers come from the bottom. Zero means empty.
    ((hash >> 56) as u8).max(1)
}

/// The table.
pub(crate) struct FlowTable {
    groups: Slab<Group>,
    overflow: Slab<Group>,
    /// Buckets below `split` have been split in this round and use one more bit of the hash.
    level_mask: u64,
    split: u32,
    len: usize,
}

/// The table (or a bucket's chain) is at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFull;

impl FlowTable {
    /// A table for at most `max` entries.
    pub(crate) fn new(max: u32, growth: &Growth) -> Result<FlowTable, MemError> {
        let max_groups = (max / TARGET_LOAD as u32)
            .max(FIRST_GROUPS)
            .saturating_mul(2);
        let mut groups = Slab::new(max_groups, growth)?;
        for _ in 0..FIRST_GROUPS {
            let _fits = groups.alloc();
        }
        Ok(FlowTable {
            groups,
            overflow: Slab::new(max_groups, growth)?,
            level_mask: u64::from(FIRST_GROUPS) - 1,
            split: 0,
            len: 0,
        })
    }

    /// Entries held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory committed.
    pub(crate) fn committed_bytes(&self) -> usize {
        self.groups.committed_bytes() + self.overflow.committed_bytes()
    }

    #[inline]
    fn bucket(&self, hash: u64) -> u32 {
        let low = (hash & self.level_mask) as u32;
        if low < self.split {
            (hash & (self.level_mask << 1 | 1)) as u32
        } else {
            low
        }
    }

    /// Asks the memory for the line a probe of `hash` will read.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.groups.prefetch(self.bucket(hash));
    }

    /// The first index whose tag agrees: right in all but one of some 50 lookups, so worth a prefetch. `None`: nothing is filed
    /// under `hash`.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        let group = &self.groups[self.bucket(hash)];
        match group.matches(tag_of(hash)).next() {
            Some(way) => Some(group.indices[way]),
            None if group.overflow == NO_OVERFLOW => None,
            None => self.candidate_behind(group.overflow, tag_of(hash)),
        }
    }

    /// Like [`FlowTable::candidate`], in the chain that begins with `next`.
    #[cold]
    fn candidate_behind(&self, mut next: u32, tag: u8) -> Option<u32> {
        while next != NO_OVERFLOW {
            let group = &self.overflow[next - 1];
            if let Some(way) = group.matches(tag).next() {
                return Some(group.indices[way]);
            }
            next = group.overflow;
        }
        None
    }

    /// The index for which `is_it` holds, among those filed under `hash`.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag_of(hash);
        let mut group = &self.groups[self.bucket(hash)];
        loop {
            for way in group.matches(tag) {
                let index = group.indices[way];
                if is_it(index) {
                    return Some(index);
                }
            }
            if group.overflow == NO_OVERFLOW {
                return None;
            }
            group = &self.overflow[group.overflow - 1];
        }
    }

    /// Files `index` under `hash`. `rehash` gives the hash of an index that is in the table already, and `fetch` brings close what it reads.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        index: u32,
        rehash: impl Fn(u32) -> u64,
        fetch: impl Fn(u32),
    ) -> Result<(), TableFull> {
        self.place(self.bucket(hash), tag_of(hash), index)?;
        self.len += 1;
        if self.len > self.groups.len() * TARGET_LOAD {
            self.split_next(rehash, fetch);
        } else {
            // The bucket to split next is known: have its line ready.
            self.groups.prefetch(self.split);
        }
        Ok(())
    }

    /// Takes `index`, filed under `hash`, out. False when it was not there.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, index: u32) -> bool {
        let Some((group, way)) = self.entry(hash, index) else {
            return false;
        };
        group.tags[way] = 0;
        self.len -= 1;
        true
    }

    /// Puts `new` in the place of `old`: a record moved between stores, the flow stays.
    #[inline]
    pub(crate) fn replace(&mut self, hash: u64, old: u32, new: u32) -> bool {
        let Some((group, way)) = self.entry(hash, old) else {
            return false;
        };
        group.indices[way] = new;
        true
    }

    /// Where `index`, filed under `hash`, stands.
    #[inline(always)]
    fn entry(&mut self, hash: u64, index: u32) -> Option<(&mut Group, usize)> {
        let (tag, bucket) = (tag_of(hash), self.bucket(hash));
        let group = &self.groups[bucket];
        match group.way_of(tag, index) {
            Some(way) => Some((&mut self.groups[bucket], way)),
            None => self.entry_behind(group.overflow, tag, index),
        }
    }

    /// Like [`FlowTable::entry`], in the chain that begins with `next`.
    #[cold]
    fn entry_behind(&mut self, mut next: u32, tag: u8, index: u32) -> Option<(&mut Group, usize)> {
        while next != NO_OVERFLOW {
            if let Some(way) = self.overflow[next - 1].way_of(tag, index) {
                return Some((&mut self.overflow[next - 1], way));
            }
            next = self.overflow[next - 1].overflow;
        }
        None
    }

    #[inline(always)]
    fn place(&mut self, bucket: u32, tag: u8, index: u32) -> Result<(), TableFull> {
        match self.groups[bucket].put(tag, index) {
            true => Ok(()),
            false => self.place_behind(bucket, tag, index),
        }
    }

    #[cold]
    fn place_behind(&mut self, bucket: u32, tag: u8, index: u32) -> Result<(), TableFull> {
        let mut next = self.groups[bucket].overflow;
        for _ in 0..MAX_CHAIN {
            if next == NO_OVERFLOW {
                return self.chain(bucket, tag, index);
            }
            if self.overflow[next - 1].put(tag, index) {
                return Ok(());
            }
            next = self.overflow[next - 1].overflow;
        }
        Err(TableFull)
    }

    /// Hangs a fresh overflow group with one entry before the bucket's chain.
    fn chain(&mut self, bucket: u32, tag: u8, index: u32) -> Result<(), TableFull> {
        let fresh = self.overflow.alloc().ok_or(TableFull)?;
        let rest = core::mem::replace(&mut self.groups[bucket].overflow, fresh + 1);
        self.overflow[fresh] = Group {
            overflow: rest,
            ..Group::default()
        };
        self.overflow[fresh].put(tag, index);
        Ok(())
    }

    /// One step of linear hashing: the entries of bucket `split` part by one more bit of their hashes.
    #[inline(never)]
    fn split_next(&mut self, rehash: impl Fn(u32) -> u64, fetch: impl Fn(u32)) {
        let Some(fresh) = self.groups.alloc() else {
            return;
        };
        let bucket = self.split;
        let bit = self.level_mask + 1;
        debug_assert_eq!(u64::from(fresh), u64::from(bucket) + bit);
        let mut group = core::mem::take(&mut self.groups[bucket]);
        // All at once: one after the other each would be waited for.
        let filed = (0..WAYS).filter(|&way| group.tags[way] != 0);
        filed.for_each(|way| fetch(group.indices[way]));
        self.groups[fresh] = Group::default();
        loop {
            for way in (0..WAYS).filter(|&w| group.tags[w] != 0) {
                let index = group.indices[way];
                let home = if rehash(index) & bit == 0 {
                    bucket
                } else {
                    fresh
                };
                // Cannot fail: the chain that is being taken apart is put on the free list before.
                let placed = self.place(home, group.tags[way], index);
                debug_assert!(placed.is_ok());
            }
            if group.overflow == NO_OVERFLOW {
                break;
            }
            let chained = group.overflow - 1;
            group = core::mem::take(&mut self.overflow[chained]);
            self.overflow.free(chained);
        }
        self.split += 1;
        if u64::from(self.split) == bit {
            self.split = 0;
            self.level_mask = self.level_mask << 1 | 1;
        }
    }
}

#[cfg(test)]
mod tests;
