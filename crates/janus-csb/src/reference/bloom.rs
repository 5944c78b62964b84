//! A textbook Bloom filter over murmur3: one array of bits, as many probes as the false-positive rate asks for, from
//! one hash by double hashing. Nothing here is tuned.

use super::Filter;

/// Bits that remember keys.
#[derive(Clone)]
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
        // Reading from a slice of bytes cannot fail.
        let hash =
            murmur3::murmur3_x64_128(&mut &key.to_le_bytes()[..], self.seed).unwrap_or_default();
        let (first, step) = (hash as u64, (hash >> 64) as u64 | 1);
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
