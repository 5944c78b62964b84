//! Sets of 32-bit flow keys that might stand before `H_diff`: Bloom filters of three kinds of our own, those of two
//! crates, a binary fuse filter, and sets that are exact. All are built once from the diverged keys of an update and
//! then only asked, a burst at a time. What they cost is measured by `benches/filters.rs`.

pub mod blocked;
pub mod crates;
pub mod exact;
pub mod murmur;

/// Keys asked together: an I/O core's burst, and the bits of an answer.
pub const BURST: usize = 64;
/// False positives among keys that are not in the set.
pub const TARGET: f64 = 1e-4;

/// A set of keys, perhaps with false positives, never with false negatives.
pub trait KeySet {
    /// What the tables call it.
    const NAME: &'static str;

    fn build(keys: &[u32], seed: u64) -> Self;

    /// Bit `i` is set when `keys[i]` may be in the set; at most [`BURST`] keys.
    fn ask(&self, keys: &[u32]) -> u64;

    fn bytes(&self) -> usize;
}

/// How many in a million of `strangers` the set takes for its own.
pub fn false_positives<S: KeySet>(set: &S, strangers: &[u32]) -> f64 {
    let taken: u32 = strangers
        .chunks(BURST)
        .map(|keys| set.ask(keys).count_ones())
        .sum();
    f64::from(taken) / strangers.len() as f64
}
