//! A textbook Bloom filter over murmur3: one array of bits, as many probes as the false-positive rate asks for, from
//! one hash by double hashing. Nothing here is tuned.

use super::Filter;

/// Bits that remember keys.
#[derive(Clone, Debug)]
pub struct Bloom {
    words: Box<[u64]>,
    probes: u32,
    seed: u32,
}

impl Bloom {
    /// A filter that affirms a foreign key with probability `rate` once it holds `keys` keys.
    ///
    /// # Panics
    /// When `rate` is not between 0 and 1.
    pub fn new(keys: usize, rate: f64, seed: u32) -> Bloom {
        assert!(rate > 0.0 && rate < 1.0, "a rate of {rate} is none");
        let ln2 = core::f64::consts::LN_2;
        let bits_per_key = -rate.ln() / (ln2 * ln2);
        let bits = (keys.max(1) as f64 * bits_per_key).ceil() as usize;
        Bloom {
            words: vec![0; bits.div_ceil(64)].into(),
            probes: (bits_per_key * ln2).round().max(1.0) as u32,
            seed,
        }
    }

    /// The bits of a key, as word and mask.
    #[inline]
    fn places(&self, key: u32) -> impl Iterator<Item = (usize, u64)> + use<> {
        let [first, step] = murmur3_of(key, self.seed);
        let bits = self.words.len() as u64 * 64;
        (0..u64::from(self.probes)).map(move |i| {
            let hash = first.wrapping_add(i.wrapping_mul(step));
            let bit = ((u128::from(hash) * u128::from(bits)) >> 64) as u64;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }
}

impl Filter for Bloom {
    fn insert(&mut self, key: u32) {
        for (word, mask) in self.places(key) {
            self.words[word] |= mask;
        }
    }

    fn contains(&self, key: u32) -> bool {
        self.places(key)
            .all(|(word, mask)| self.words[word] & mask != 0)
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// murmur3 (x64, 128 bits) of a key's four bytes. Written out, because the benchmark asks for twenty million keys an
/// update and a hash that reads from a stream takes most of that time.
#[inline]
fn murmur3_of(key: u32, seed: u32) -> [u64; 2] {
    let mixed = u64::from(key)
        .wrapping_mul(0x87c3_7b91_1142_53d5)
        .rotate_left(31)
        .wrapping_mul(0x4cf5_ad43_2745_937f);
    let length = 4;
    let low = u64::from(seed) ^ mixed ^ length;
    let high = u64::from(seed) ^ length;
    let low = low.wrapping_add(high);
    let high = high.wrapping_add(low);
    let [low, high] = [finish(low), finish(high)];
    let low = low.wrapping_add(high);
    [low, high.wrapping_add(low)]
}

#[inline]
fn finish(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur3_is_murmur3() {
        for (key, seed) in [(0, 0), (1, 0), (0x1234_5678, 7), (u32::MAX, u32::MAX)] {
            let whole = murmur3::murmur3_x64_128(&mut &key.to_le_bytes()[..], seed).unwrap();
            assert_eq!(murmur3_of(key, seed), [whole as u64, (whole >> 64) as u64]);
        }
    }
}
