//! The filter before `H_diff`: which keys differ from the ring. It says yes to all of them, and to at most about one in
//! ten thousand others. Two kinds, both hashed by murmur3 under a seed: remainders in cells, which is faster and mostly
//! exact, and a blocked Bloom filter, which is the paper's. `benches/filters.rs` compares them with others.

mod bloom;
mod cells;
pub(crate) mod murmur;

use bloom::Bloom;
pub(crate) use cells::Cells;

use crate::ring::BATCH;

#[cfg(test)]
mod tests;

/// Which kind of filter stands before `H_diff`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FilterKind {
    /// Cells of 16-bit remainders: 20 to 37 bits a key, exact from some 400,000 keys on.
    #[default]
    Cells,
    /// A blocked Bloom filter of 24 bits a key, with 1e-4 false positives.
    Bloom,
}

/// The filter over the keys that differ.
pub(crate) enum Filter {
    Cells(Cells),
    Bloom(Bloom),
}

impl Filter {
    /// A filter of these keys, each once.
    pub(crate) fn of(kind: FilterKind, keys: &[u32], seed: u64) -> Filter {
        match kind {
            FilterKind::Cells => Filter::Cells(Cells::of(keys, seed)),
            FilterKind::Bloom => Filter::Bloom(Bloom::of(keys, seed)),
        }
    }

    /// Whether `key` may be in; `false` is certain.
    #[inline]
    pub(crate) fn may_hold(&self, key: u32) -> bool {
        match self {
            Filter::Cells(cells) => cells.has(cells.place(key)),
            Filter::Bloom(bloom) => bloom.may_hold(key),
        }
    }

    /// [`may_hold`](Filter::may_hold) of at most 64 keys, a bit each. In passes without branches on what is found, so
    /// that the cache misses of the batch overlap.
    #[inline]
    pub(crate) fn ask(&self, keys: &[u32]) -> u64 {
        match self {
            Filter::Cells(cells) => {
                let mut places = [(0, 0, 0); BATCH];
                for (place, &key) in places.iter_mut().zip(keys) {
                    *place = cells.place(key);
                }
                bits(places[..keys.len()].iter().map(|&place| cells.has(place)))
            }
            Filter::Bloom(bloom) => bits(keys.iter().map(|&key| bloom.may_hold(key))),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Filter::Cells(cells) => cells.bytes(),
            Filter::Bloom(bloom) => bloom.bytes(),
        }
    }
}

#[inline]
fn bits(answers: impl Iterator<Item = bool>) -> u64 {
    answers
        .enumerate()
        .fold(0, |bits, (i, yes)| bits | u64::from(yes) << i)
}
