//! The filter before `H_diff`: which keys differ from the ring. It says yes to all of them, and to at most about one in
//! ten thousand others. A set that keeps what identifies a key instead of bits that many keys share. The top bits of the mixed
//! key choose a cell; the cell keeps the low 16 bits of each of its keys. With 2^16 cells and more, which some 400,000 keys
//! need, that is the whole key (the mixing is a bijection of 32 bits) and nothing is taken for another; below that a stranger
//! meets an equal remainder in less than one of ten thousand questions. `benches/filters.rs` of `research` compares it with
//! others.

use crate::ring::BATCH;

#[cfg(test)]
mod tests;

/// Cells of consecutive remainders, found through one offset each.
pub(crate) struct Cells {
    offsets: Box<[u32]>,
    /// And [`WIDE`] more, so that a whole vector can be read at any cell.
    rest: Box<[u16]>,
    shift: u32,
    seed: u32,
}

/// Remainders compared at once.
const WIDE: usize = 16;
/// Keys to a cell on average, at most: with 16-bit remainders 6 in 65,536 strangers are taken for one of them.
const LOAD: usize = 6;
/// Bounds of the number of cells: 16 KiB to 64 MiB of offsets.
const BITS: core::ops::RangeInclusive<u32> = 12..=24;

/// As many top bits of a key choose the cell when there are so many keys.
fn cell_bits(keys: usize) -> u32 {
    let bits = keys.div_ceil(LOAD).next_power_of_two().trailing_zeros();
    bits.clamp(*BITS.start(), *BITS.end())
}

impl Cells {
    /// The bytes that a set of so many keys takes.
    pub(crate) fn bytes_for(keys: usize) -> usize {
        ((1 << cell_bits(keys)) + 1) * size_of::<u32>() + (keys + WIDE) * size_of::<u16>()
    }

    /// The set of these keys, each once.
    pub(crate) fn of(keys: &[u32], seed: u64) -> Cells {
        let seed = (seed ^ (seed >> 32)) as u32;
        let bits = cell_bits(keys.len());
        let shift = u32::BITS - bits;
        let cell = |key: u32| (mix_32(key ^ seed) >> shift) as usize;
        let mut offsets = vec![0u32; (1 << bits) + 1].into_boxed_slice();
        keys.iter().for_each(|&key| offsets[cell(key)] += 1);
        let mut sum = 0;
        for offset in &mut offsets {
            sum += *offset;
            *offset = sum;
        }
        let mut rest = vec![0; keys.len() + WIDE].into_boxed_slice();
        for &key in keys {
            let offset = &mut offsets[cell(key)];
            *offset -= 1;
            rest[*offset as usize] = mix_32(key ^ seed) as u16;
        }
        Cells {
            offsets,
            rest,
            shift,
            seed,
        }
    }

    /// Whether `key` may be in; `false` is certain.
    #[inline]
    pub(crate) fn may_hold(&self, key: u32) -> bool {
        self.has(self.place(key))
    }

    /// [`may_hold`](Cells::may_hold) of at most 64 keys, a bit each. In passes without branches on what is found, so
    /// that the cache misses of the batch overlap.
    #[inline]
    pub(crate) fn ask(&self, keys: &[u32]) -> u64 {
        let mut places = [(0, 0, 0); BATCH];
        for (place, &key) in places.iter_mut().zip(keys) {
            *place = self.place(key);
        }
        let answers = places[..keys.len()].iter().map(|&place| self.has(place));
        let answers = answers.enumerate();
        answers.fold(0, |bits, (i, yes)| bits | u64::from(yes) << i)
    }

    /// Where to look for `key`: from, how many, and the remainder.
    #[inline]
    fn place(&self, key: u32) -> (u32, u32, u16) {
        let mixed = mix_32(key ^ self.seed);
        let cell = (mixed >> self.shift) as usize;
        let [from, to] = [self.offsets[cell], self.offsets[cell + 1]];
        (from, to - from, mixed as u16)
    }

    /// Whether it is there. No branch depends on the answer.
    #[inline]
    fn has(&self, (from, len, rest): (u32, u32, u16)) -> bool {
        let (from, len) = (from as usize, len as usize);
        let mut found = any(&self.rest[from..from + WIDE], len, rest);
        let mut done = WIDE;
        while done < len {
            found |= any(
                &self.rest[from + done..from + done + WIDE],
                len - done,
                rest,
            );
            done += WIDE;
        }
        found
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.offsets) + size_of_val(&*self.rest)
    }
}

#[inline]
fn any(wide: &[u16], len: usize, rest: u16) -> bool {
    let len = len.min(WIDE) as u16;
    let hit = wide.iter().zip(0u16..).fold(0, |hit, (&r, i)| {
        let equal = if r == rest { u16::MAX } else { 0 };
        let within = if i < len { u16::MAX } else { 0 };
        hit | (equal & within)
    });
    hit != 0
}

/// The finalizer of murmur3, `fmix32`: a bijection that makes of keys in a row keys all over.
#[inline]
fn mix_32(mut hash: u32) -> u32 {
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
