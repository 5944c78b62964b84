//! The waker word: everything a wake needs, packed into the 64 bits of a `RawWaker`'s data pointer.
//! Never dereferenced, never holds a count: cloning and dropping a waker are free.
//!
//! ```text
//!  63        52 51                        22 21             0
//! ┌────────────┬────────────────────────────┬────────────────┐
//! │ shard  12  │ arena granule          30  │ generation 22  │
//! └────────────┴────────────────────────────┴────────────────┘
//! ```
//!
//! * **shard**: a number in the process-wide table of live shards, so that several runtimes in one process do not
//!   wake each other's tasks;
//! * **granule**: where the task's slot begins, in units of 32 bytes;
//! * **generation**: how many tasks this slot has held. A word of an earlier one is stale and ignored. A slot whose
//!   generations are used up is retired.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("janus packs a waker into one 64-bit pointer; 32-bit targets are not supported");

/// Bits of the shard number.
pub(crate) const SHARD_BITS: u32 = 12;
/// Bits of the slot's granule.
pub(crate) const GRANULE_BITS: u32 = 30;
/// Bits of the slot's generation.
pub(crate) const GENERATION_BITS: u32 = 22;
/// The last generation a slot may have; after the task that had it, the slot is retired.
pub(crate) const GENERATION_MAX: u32 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(SHARD_BITS + GRANULE_BITS + GENERATION_BITS == 64);

/// A task of this process, at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakeWord(u64);

impl WakeWord {
    #[inline]
    pub(crate) fn new(shard: u16, granule: u32, generation: u32) -> WakeWord {
        debug_assert!(shard < 1 << SHARD_BITS);
        debug_assert!(granule < 1 << GRANULE_BITS);
        debug_assert!(generation <= GENERATION_MAX);
        WakeWord(
            u64::from(shard) << (GRANULE_BITS + GENERATION_BITS)
                | u64::from(granule) << GENERATION_BITS
                | u64::from(generation),
        )
    }

    #[inline]
    pub(crate) fn from_bits(bits: u64) -> WakeWord {
        WakeWord(bits)
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn shard(self) -> u16 {
        (self.0 >> (GRANULE_BITS + GENERATION_BITS)) as u16
    }

    #[inline]
    pub(crate) fn granule(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & ((1 << GRANULE_BITS) - 1)
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        self.0 as u32 & GENERATION_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_at_its_limits() {
        for shard in [0, 1, 4095] {
            for granule in [0, 1, (1 << GRANULE_BITS) - 1] {
                for generation in [0, 1, GENERATION_MAX] {
                    let word = WakeWord::new(shard, granule, generation);
                    assert_eq!(
                        (word.shard(), word.granule(), word.generation()),
                        (shard, granule, generation)
                    );
                    assert_eq!(WakeWord::from_bits(word.bits()), word);
                }
            }
        }
    }
}
