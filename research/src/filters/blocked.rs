//! Bloom filters that look at one block of memory per key. The block comes from half of a murmur3 hash by
//! multiply-and-shift, the bits inside from the rest. A smaller block costs fewer instructions and more memory,
//! because the number of keys in a block varies more.

use super::murmur::{hash_128, mix_64};
use super::{BURST, KeySet, TARGET};

/// Bits a key needs so that `miss(load)`, the false positives of a block with that many keys, comes to [`TARGET`] on
/// average over blocks of `width` bits with a Poisson number of keys.
fn bits_per_key(width: f64, miss: impl Fn(f64) -> f64) -> f64 {
    let rate = |bits: f64| {
        let mean = width / bits;
        let (mut weight, mut sum) = ((-mean).exp(), 0.0);
        for load in 1..400 {
            weight *= mean / f64::from(load);
            sum += weight * miss(f64::from(load));
        }
        sum
    };
    let (mut low, mut high) = (8.0, 256.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if rate(middle) > TARGET {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

fn blocks(keys: usize, width: usize, bits: f64) -> usize {
    ((keys as f64 * bits / width as f64).ceil() as usize).max(1)
}

#[inline(always)]
fn pick(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}

/// 512-bit blocks, one cache line; ten bits anywhere in it.
pub struct Line {
    blocks: Box<[[u64; 8]]>,
    seed: u32,
}

impl Line {
    const BITS: usize = 10;

    /// The places of a key's bits: seven nine-bit numbers from one half of the hash, three from what the choice of
    /// the block left of the other.
    #[inline(always)]
    fn place(a: u64, b: u64, i: usize) -> (usize, u64) {
        let at = if i < 7 {
            b >> (9 * i)
        } else {
            (a & 0xffff_ffff) >> (9 * (i - 7))
        };
        ((at >> 6 & 7) as usize, 1 << (at & 63))
    }
}

impl KeySet for Line {
    const NAME: &'static str = "blocked 512, 10 bits";

    fn build(keys: &[u32], seed: u64) -> Line {
        let per_key = bits_per_key(512.0, |load| {
            (1.0 - (1.0 - 1.0 / 512f64).powf(load * Line::BITS as f64)).powi(Line::BITS as i32)
        });
        let mut blocks = vec![[0; 8]; blocks(keys.len(), 512, per_key)].into_boxed_slice();
        let seed = seed as u32;
        for &key in keys {
            let (a, b) = hash_128(key, seed);
            let block = &mut blocks[pick(a, blocks.len())];
            for i in 0..Line::BITS {
                let (word, bit) = Line::place(a, b, i);
                block[word] |= bit;
            }
        }
        Line { blocks, seed }
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        let mut left = [(0u8, 0u64, 0u64); BURST];
        let mut count = 0;
        // The first two bits of all keys, so that the loads overlap; few strangers come further.
        for (i, &key) in keys.iter().enumerate() {
            let (a, b) = hash_128(key, self.seed);
            let block = &self.blocks[pick(a, self.blocks.len())];
            let [(w0, b0), (w1, b1)] = [Line::place(a, b, 0), Line::place(a, b, 1)];
            left[count] = (i as u8, a, b);
            count += usize::from(block[w0] & b0 != 0 && block[w1] & b1 != 0);
        }
        left[..count].iter().fold(0, |found, &(i, a, b)| {
            let block = &self.blocks[pick(a, self.blocks.len())];
            let all = (2..Line::BITS).all(|n| {
                let (word, bit) = Line::place(a, b, n);
                block[word] & bit != 0
            });
            found | u64::from(all) << i
        })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }
}

/// 512-bit blocks of eight words with one bit in each.
pub struct Sectors {
    blocks: Box<[[u64; 8]]>,
    seed: u32,
}

impl KeySet for Sectors {
    const NAME: &'static str = "blocked 8 x 64";

    fn build(keys: &[u32], seed: u64) -> Sectors {
        let per_key = bits_per_key(512.0, |load| (1.0 - (1.0 - 1.0 / 64f64).powf(load)).powi(8));
        let mut blocks = vec![[0; 8]; blocks(keys.len(), 512, per_key)].into_boxed_slice();
        let seed = seed as u32;
        for &key in keys {
            let (a, b) = hash_128(key, seed);
            let block = &mut blocks[pick(a, blocks.len())];
            for (i, word) in block.iter_mut().enumerate() {
                *word |= 1 << (b >> (6 * i) & 63);
            }
        }
        Sectors { blocks, seed }
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        keys.iter().enumerate().fold(0, |found, (i, &key)| {
            let (a, b) = hash_128(key, self.seed);
            let block = &self.blocks[pick(a, self.blocks.len())];
            // Shifted down instead of masked: the lowest bit of the result says whether all were set.
            let all = (0..8).fold(1, |all, n| all & block[n] >> (b >> (6 * n) & 63));
            found | all << i
        })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }
}

/// 256-bit blocks of eight half words with one bit in each, which come from the key by eight odd factors: no more
/// than one 64-bit hash.
pub struct Split {
    blocks: Box<[[u32; 8]]>,
    seed: u64,
}

/// Any odd numbers without a pattern do.
const SALT: [u32; 8] = [
    0x2545_f491,
    0x9e37_79b1,
    0xd1b5_4a33,
    0x8cb9_2ba7,
    0x5851_f42d,
    0xc2b2_ae3d,
    0x1656_67b1,
    0xaf25_1af3,
];

impl Split {
    #[inline(always)]
    fn mask(hash: u32) -> [u32; 8] {
        SALT.map(|salt| 1 << (hash.wrapping_mul(salt) >> 27))
    }
}

impl KeySet for Split {
    const NAME: &'static str = "split block 8 x 32";

    fn build(keys: &[u32], seed: u64) -> Split {
        let per_key = bits_per_key(256.0, |load| (1.0 - (1.0 - 1.0 / 32f64).powf(load)).powi(8));
        let mut blocks = vec![[0; 8]; blocks(keys.len(), 256, per_key)].into_boxed_slice();
        for &key in keys {
            let hash = mix_64(u64::from(key) ^ seed);
            let block = &mut blocks[pick(hash, blocks.len())];
            for (word, bit) in block.iter_mut().zip(Split::mask(hash as u32)) {
                *word |= bit;
            }
        }
        Split { blocks, seed }
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        keys.iter().enumerate().fold(0, |found, (i, &key)| {
            let hash = mix_64(u64::from(key) ^ self.seed);
            let block = &self.blocks[pick(hash, self.blocks.len())];
            let missing = block
                .iter()
                .zip(Split::mask(hash as u32))
                .fold(0, |m, (word, bit)| m | (bit & !word));
            found | u64::from(missing == 0) << i
        })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }
}

/// One 64-bit word per key, five bits in it: one load and one comparison, and twice the memory.
pub struct Word {
    words: Box<[u64]>,
    seed: u64,
}

impl Word {
    const BITS: usize = 5;

    #[inline(always)]
    fn mask(hash: u64) -> u64 {
        (0..Word::BITS).fold(0, |mask, i| mask | 1 << (hash >> (6 * i) & 63))
    }
}

impl KeySet for Word {
    const NAME: &'static str = "register 64, 5 bits";

    fn build(keys: &[u32], seed: u64) -> Word {
        let per_key = bits_per_key(64.0, |load| {
            (1.0 - (1.0 - 1.0 / 64f64).powf(load * Word::BITS as f64)).powi(Word::BITS as i32)
        });
        let mut words = vec![0; blocks(keys.len(), 64, per_key)].into_boxed_slice();
        for &key in keys {
            let hash = mix_64(u64::from(key) ^ seed);
            words[pick(hash, words.len())] |= Word::mask(hash);
        }
        Word { words, seed }
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        keys.iter().enumerate().fold(0, |found, (i, &key)| {
            let hash = mix_64(u64::from(key) ^ self.seed);
            let mask = Word::mask(hash);
            found | u64::from(self.words[pick(hash, self.words.len())] & mask == mask) << i
        })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}
