//! `H_diff`: for the keys that differ from the ring, the shard that holds their flows. Sorted keys, and of each run of
//! one shard only the largest, as on a ring: a key belongs to the first entry at or after it. For a key that does not
//! differ the answer means nothing; the filter asks first.

use crate::shard::ShardId;

#[cfg(test)]
mod tests;

/// The runs, found through a radix index on the top bits.
pub(crate) struct Diff {
    /// Rising; the last key of each run.
    last: Box<[u32]>,
    /// Shard of each run, or [`CONTESTED`]; one more entry, [`CONTESTED`], for keys after the last run.
    whose: Box<[u16]>,
    /// Where in `last` a cell begins; one more at the end.
    index: Box<[u32]>,
    shift: u32,
}

/// In the place of a shard: flows of the key differ on several.
const CONTESTED: u16 = 1 << 8;

/// Bounds of the index: 4 KiB, which leaves few runs alone in their cells, and 4 MiB for a million runs.
const INDEX_BITS: core::ops::RangeInclusive<u32> = 10..=20;

/// Owner of the flows of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// One shard holds them all.
    Shard(ShardId),
    /// Several shards hold them, or none is known: the exact map decides.
    Contested,
}

/// Takes the differing keys in rising order and keeps the runs.
#[derive(Default)]
pub(crate) struct Runs {
    last: Vec<u32>,
    whose: Vec<u16>,
}

impl Runs {
    /// The next key; above the one before.
    #[inline]
    pub(crate) fn push(&mut self, key: u32, whose: Whose) {
        debug_assert!(self.last.last().is_none_or(|&last| last < key));
        let whose = match whose {
            Whose::Shard(shard) => u16::from(shard.0),
            Whose::Contested => CONTESTED,
        };
        match self.last.last_mut() {
            Some(last) if self.whose.last() == Some(&whose) => *last = key,
            _ => {
                self.last.push(key);
                self.whose.push(whose);
            }
        }
    }

    pub(crate) fn finish(mut self) -> Diff {
        let bits = index_bits(self.last.len());
        let shift = u32::BITS - bits;
        let mut index = vec![0; (1 << bits) + 1].into_boxed_slice();
        for &key in &self.last {
            index[(key >> shift) as usize + 1] += 1;
        }
        let mut sum = 0;
        for first in &mut index {
            sum += *first;
            *first = sum;
        }
        self.whose.push(CONTESTED);
        Diff {
            last: self.last.into_boxed_slice(),
            whose: self.whose.into_boxed_slice(),
            index,
            shift,
        }
    }
}

/// As many top bits of a key choose the cell of the index when there are so many runs: about one run to a cell.
fn index_bits(runs: usize) -> u32 {
    let bits = runs.next_power_of_two().trailing_zeros();
    bits.clamp(*INDEX_BITS.start(), *INDEX_BITS.end())
}

impl Diff {
    /// The bytes that so many runs take.
    pub(crate) fn bytes_for(runs: usize) -> usize {
        let index = (1 << index_bits(runs)) + 1;
        index * size_of::<u32>() + runs * size_of::<u32>() + (runs + 1) * size_of::<u16>()
    }

    /// Returns the shard that holds the flows of `key`. Meaningful only for a key that differs from the ring.
    #[inline]
    pub(crate) fn whose(&self, key: u32) -> Whose {
        let cell = (key >> self.shift) as usize;
        let (from, to) = (self.index[cell] as usize, self.index[cell + 1] as usize);
        let run = from + self.last[from..to].partition_point(|&last| last < key);
        match self.whose[run] {
            CONTESTED => Whose::Contested,
            shard => Whose::Shard(ShardId(shard as u8)),
        }
    }

    /// How many runs there are.
    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.last) + size_of_val(&*self.whose) + size_of_val(&*self.index)
    }
}
