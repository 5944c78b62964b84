//! The filters of other people's crates behind [`KeySet`], asked key by key, which is all they offer.

use std::hash::{BuildHasher, Hasher};

use super::murmur::mix_64;
use super::{KeySet, TARGET};

fn one_by_one(keys: &[u32], mut has: impl FnMut(u32) -> bool) -> u64 {
    keys.iter()
        .enumerate()
        .fold(0, |found, (i, &key)| found | u64::from(has(key)) << i)
}

/// `bloomfilter` as it comes: SipHash, bits all over the memory.
pub struct Bloomfilter(bloomfilter::Bloom<u32>);

impl KeySet for Bloomfilter {
    const NAME: &'static str = "bloomfilter 3";

    fn build(keys: &[u32], seed: u64) -> Self {
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        let mut filter =
            bloomfilter::Bloom::new_for_fp_rate_with_seed(keys.len().max(1), TARGET, &secret)
                .expect("a size and a rate within bounds");
        keys.iter().for_each(|key| filter.set(key));
        Self(filter)
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        one_by_one(keys, |key| self.0.check(&key))
    }

    fn bytes(&self) -> usize {
        self.0.as_slice().len()
    }
}

/// `fastbloom` as it comes: SipHash-1-3.
pub struct FastbloomSip(fastbloom::BloomFilter);

impl KeySet for FastbloomSip {
    const NAME: &'static str = "fastbloom 0.17, SipHash";

    fn build(keys: &[u32], seed: u64) -> Self {
        let filter = fastbloom::BloomFilter::with_false_pos(TARGET).seed(&u128::from(seed));
        Self(filter.items(keys.iter()))
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        one_by_one(keys, |key| self.0.contains(&key))
    }

    fn bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

/// murmur3's finalizer as a hasher of one `u32`.
#[derive(Clone)]
pub struct Finalizer(u64);

impl BuildHasher for Finalizer {
    type Hasher = Finalizer;

    #[inline(always)]
    fn build_hasher(&self) -> Finalizer {
        self.clone()
    }
}

impl Hasher for Finalizer {
    #[inline(always)]
    fn finish(&self) -> u64 {
        mix_64(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.0 = mix_64(self.0 ^ u64::from(byte)));
    }

    #[inline(always)]
    fn write_u32(&mut self, key: u32) {
        self.0 ^= u64::from(key);
    }
}

/// `fastbloom` with murmur3's finalizer for a hash: what it can do at best.
pub struct FastbloomMurmur(fastbloom::BloomFilter<Finalizer>);

impl KeySet for FastbloomMurmur {
    const NAME: &'static str = "fastbloom 0.17, murmur3";

    fn build(keys: &[u32], seed: u64) -> Self {
        let filter = fastbloom::BloomFilter::with_false_pos(TARGET).hasher(Finalizer(seed));
        Self(filter.items(keys.iter()))
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        one_by_one(keys, |key| self.0.contains(&key))
    }

    fn bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

/// `xorf`'s binary fuse filter with 16-bit fingerprints (false positives: 1.5e-5). It can be built only as a whole.
pub struct Fuse {
    filter: xorf::BinaryFuse16,
    seed: u64,
}

impl KeySet for Fuse {
    const NAME: &'static str = "xorf binary fuse 16";

    fn build(keys: &[u32], seed: u64) -> Self {
        let mut hashes: Vec<u64> = keys
            .iter()
            .map(|&key| mix_64(u64::from(key) ^ seed))
            .collect();
        // Equal keys, of two flows, would make the construction fail.
        hashes.sort_unstable();
        hashes.dedup();
        let filter = xorf::BinaryFuse16::try_from(&hashes).expect("hashes without duplicates");
        Self { filter, seed }
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        use xorf::Filter;
        one_by_one(keys, |key| {
            self.filter.contains(&mix_64(u64::from(key) ^ self.seed))
        })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.filter.fingerprints)
    }
}
