//! Sorting a million keys at a time: by the digits, lowest first. Entries of one key keep their order.

use crate::shard::ShardId;

/// Key and shard in one word.
pub(super) fn entry(key: u32, shard: ShardId) -> u64 {
    u64::from(key) << 8 | u64::from(shard.0)
}

pub(super) fn key(entry: u64) -> u32 {
    (entry >> 8) as u32
}

pub(super) fn shard(entry: u64) -> ShardId {
    ShardId(entry as u8)
}

/// Bits of a digit: three digits make a key.
const DIGIT: u32 = 11;
const DIGITS: usize = 3;
/// Below this many the standard library is as fast and takes no second buffer.
const FEW: usize = 1 << 12;

/// Sorts entries by their keys.
pub(super) fn sort(mut entries: Vec<u64>) -> Vec<u64> {
    if entries.len() < FEW {
        entries.sort();
        return entries;
    }
    let digit =
        |entry: u64, of: usize| key(entry) as usize >> (of as u32 * DIGIT) & ((1 << DIGIT) - 1);
    let mut counts = vec![[0u32; 1 << DIGIT]; DIGITS];
    for &entry in &entries {
        for (of, counts) in counts.iter_mut().enumerate() {
            counts[digit(entry, of)] += 1;
        }
    }
    let mut other = vec![0; entries.len()];
    for (of, counts) in counts.iter_mut().enumerate() {
        let mut next = 0;
        for count in counts.iter_mut() {
            next += std::mem::replace(count, next);
        }
        for &entry in &entries {
            let place = &mut counts[digit(entry, of)];
            other[*place as usize] = entry;
            *place += 1;
        }
        std::mem::swap(&mut entries, &mut other);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_as_the_standard_library_does() {
        for count in [0, 1, FEW - 1, FEW, 100_000] {
            let mixed = (0..count as u32).map(|i| (i / 2).wrapping_mul(0x9e37_79b1));
            let entries: Vec<u64> = mixed.map(|key| entry(key, ShardId(key as u8))).collect();
            let mut sorted = entries.clone();
            sorted.sort_unstable();
            assert!(sort(entries) == sorted, "{count}");
        }
    }

    #[test]
    fn an_entry_is_its_parts() {
        let whole = entry(u32::MAX, ShardId(255));
        assert_eq!((key(whole), shard(whole)), (u32::MAX, ShardId(255)));
        assert_eq!(
            (key(entry(7, ShardId(0))), shard(entry(7, ShardId(3)))),
            (7, ShardId(3))
        );
    }
}
