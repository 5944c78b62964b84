//! Sets that keep what identifies a key instead of bits that many keys share. A flow key has 32 bits and murmur3's
//! finalizer is a bijection of them, so a table indexed by the top bits of the mixed key needs to keep only the rest,
//! and is exact where it keeps all of it.

use super::murmur::mix_32;
use super::{BURST, KeySet, TARGET};

/// Cells of consecutive 16-bit remainders, found through one offset per cell. Exact once there are 2^16 cells; before
/// that 16 bits of a longer remainder are kept, and a stranger meets an equal one in load / 2^16 of all cases.
pub struct Cells<const BITS_MIN: u32> {
    offsets: Box<[u32]>,
    /// And [`WIDE`] more, so that a whole vector can be read at any cell.
    rest: Box<[u16]>,
    shift: u32,
    seed: u32,
}

/// Cells as few as the target allows.
pub type SmallCells = Cells<6>;
/// Never fewer cells than an exact set needs.
pub type ExactCells = Cells<16>;

/// Remainders compared at once.
const WIDE: usize = 16;

impl<const BITS_MIN: u32> Cells<BITS_MIN> {
    /// So many keys to a cell at most, on average.
    const LOAD: f64 = TARGET * 65_536.0;

    /// Whether the remainder is among the `len` that begin at `from`. No branch depends on the answer.
    #[inline(always)]
    fn has(&self, from: usize, len: usize, rest: u16) -> bool {
        let mut found = Self::any(&self.rest[from..from + WIDE], len, rest);
        let mut done = WIDE;
        while done < len {
            found |= Self::any(
                &self.rest[from + done..from + done + WIDE],
                len - done,
                rest,
            );
            done += WIDE;
        }
        found
    }

    #[inline(always)]
    fn any(wide: &[u16], len: usize, rest: u16) -> bool {
        let len = len.min(WIDE) as u16;
        let hit = wide.iter().zip(0u16..).fold(0, |hit, (&r, i)| {
            let equal = if r == rest { u16::MAX } else { 0 };
            let within = if i < len { u16::MAX } else { 0 };
            hit | (equal & within)
        });
        hit != 0
    }
}

impl<const BITS_MIN: u32> KeySet for Cells<BITS_MIN> {
    const NAME: &'static str = if BITS_MIN == 16 {
        "cells of u16, exact"
    } else {
        "cells of u16"
    };

    fn build(keys: &[u32], seed: u64) -> Self {
        let seed = seed as u32;
        let cells = (keys.len() as f64 / Self::LOAD).ceil() as usize;
        let bits = cells
            .max(1)
            .next_power_of_two()
            .trailing_zeros()
            .clamp(BITS_MIN, 24);
        let shift = u32::BITS - bits;
        let cell = |key: u32| (mix_32(key ^ seed) >> shift) as usize;
        let mut offsets = vec![0u32; (1 << bits) + 1].into_boxed_slice();
        keys.iter().for_each(|&key| offsets[cell(key)] += 1);
        let mut sum = 0;
        for offset in &mut offsets {
            sum += *offset;
            *offset = sum;
        }
        // With more than 2^16 cells the lower half holds a bit or two of the cell's number as well: no harm.
        let mut rest = vec![0; keys.len() + WIDE].into_boxed_slice();
        for &key in keys {
            let offset = &mut offsets[cell(key)];
            *offset -= 1;
            rest[*offset as usize] = mix_32(key ^ seed) as u16;
        }
        Self {
            offsets,
            rest,
            shift,
            seed,
        }
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        let mut cells = [(0u32, 0u32, 0u16); BURST];
        for (&key, out) in keys.iter().zip(&mut cells) {
            let mixed = mix_32(key ^ self.seed);
            let cell = (mixed >> self.shift) as usize;
            let [from, to] = [self.offsets[cell], self.offsets[cell + 1]];
            *out = (from, to - from, mixed as u16);
        }
        cells[..keys.len()]
            .iter()
            .enumerate()
            .fold(0, |found, (i, &(from, len, rest))| {
                found | u64::from(self.has(from as usize, len as usize, rest)) << i
            })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.offsets) + size_of_val(&*self.rest)
    }
}

/// Cache lines of sixteen whole keys; what does not fit goes to the next line. One load for nearly every key.
pub struct Lines {
    lines: Box<[[u32; 16]]>,
    seed: u32,
}

impl Lines {
    const LOAD: usize = 10;

    #[inline(always)]
    fn home(mixed: u32, count: usize) -> usize {
        ((u64::from(mixed) * count as u64) >> 32) as usize
    }

    /// A value that is in no key's way: its home is a line at the other end of the table.
    fn empty(line: usize, count: usize) -> u32 {
        if line < count / 2 { u32::MAX } else { 0 }
    }
}

impl KeySet for Lines {
    const NAME: &'static str = "lines of u32, exact";

    fn build(keys: &[u32], seed: u64) -> Lines {
        let seed = seed as u32;
        let count = keys.len().div_ceil(Lines::LOAD).next_multiple_of(2).max(64);
        let mut lines: Box<[[u32; 16]]> = (0..count)
            .map(|line| [Lines::empty(line, count); 16])
            .collect();
        for &key in keys {
            let mixed = mix_32(key ^ seed);
            let mut at = Lines::home(mixed, count);
            loop {
                let empty = Lines::empty(at, count);
                if let Some(slot) = lines[at]
                    .iter_mut()
                    .find(|slot| **slot == empty || **slot == mixed)
                {
                    *slot = mixed;
                    break;
                }
                at = (at + 1) % count;
            }
        }
        Lines { lines, seed }
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        let count = self.lines.len();
        keys.iter().enumerate().fold(0, |found, (i, &key)| {
            let mixed = mix_32(key ^ self.seed);
            let mut at = Lines::home(mixed, count);
            let has = loop {
                let line = &self.lines[at];
                let has = line.iter().fold(false, |has, &slot| has | (slot == mixed));
                // Slots fill in order: the last one tells whether keys went on to the next line. Not `||`: whether a
                // key is there is as random as the keys, and this is nearly always true.
                if has | (line[15] == Lines::empty(at, count)) {
                    break has;
                }
                at = (at + 1) % count;
            };
            found | u64::from(has) << i
        })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

/// The keys themselves, sorted, halved until found.
pub struct Sorted(Box<[u32]>);

impl KeySet for Sorted {
    const NAME: &'static str = "sorted keys, exact";

    fn build(keys: &[u32], _: u64) -> Sorted {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        Sorted(keys.into())
    }

    fn ask(&self, keys: &[u32]) -> u64 {
        keys.iter().enumerate().fold(0, |found, (i, key)| {
            found | u64::from(self.0.binary_search(key).is_ok()) << i
        })
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
