//! A blocked Bloom filter: a key's bits lie in one cache line, one in each of its eight words, so that a question costs
//! one miss whatever the answer. Keys are hashed with the finalizer of murmur3 (64 bit) under a seed.

use super::murmur::mix_64 as mix;

/// One cache line; eight bits of a key, one in each word.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Block([u64; WORDS]);

const WORDS: usize = 8;
/// Bits for each key. Measured: 1e-4 of the keys that are not in are taken for such (`tests.rs`).
const BITS_PER_KEY: usize = 24;

/// Odd constants that spread one hash over the eight words.
const SALTS: [u32; WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// A set of keys with about one false positive in ten thousand questions, and no false negative.
pub(crate) struct Bloom {
    blocks: Box<[Block]>,
    seed: u64,
}

impl Bloom {
    /// A filter of these keys.
    pub(crate) fn of(keys: &[u32], seed: u64) -> Bloom {
        let bits = size_of::<Block>() * 8;
        // The block is chosen by 32 bits of the hash.
        let count = (keys.len() * BITS_PER_KEY).div_ceil(bits).clamp(1, 1 << 31);
        let mut bloom = Bloom {
            blocks: vec![Block([0; WORDS]); count].into_boxed_slice(),
            seed,
        };
        keys.iter().for_each(|&key| bloom.insert(key));
        bloom
    }

    fn insert(&mut self, key: u32) {
        let hash = mix(u64::from(key) ^ self.seed);
        let block = &mut self.blocks[place(hash, self.blocks.len())];
        for (word, salt) in block.0.iter_mut().zip(SALTS) {
            *word |= bit(hash, salt);
        }
    }

    /// Whether `key` may be in; `false` is certain.
    #[inline]
    pub(crate) fn may_hold(&self, key: u32) -> bool {
        let hash = mix(u64::from(key) ^ self.seed);
        let block = &self.blocks[place(hash, self.blocks.len())];
        let missing = block.0.iter().zip(SALTS).fold(0, |missing, (word, salt)| {
            missing | (bit(hash, salt) & !word)
        });
        missing == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }
}

/// Upper half of the hash: the block.
#[inline]
fn place(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// Lower half: the bit within a word.
#[inline]
fn bit(hash: u64, salt: u32) -> u64 {
    1 << ((hash as u32).wrapping_mul(salt) >> 26)
}
