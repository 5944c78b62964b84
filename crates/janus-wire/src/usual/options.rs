//! Options of usual segments.

use crate::tcp;

/// Bytes of the timestamps option and the padding before it.
pub(super) const TIMESTAMPS_LEN: usize = 12;
/// Bytes of a SYN's options.
const SYN_LEN: usize = 20;
/// Bytes of those of one without timestamps.
const PLAIN_SYN_LEN: usize = 12;

/// TCP's options in the layouts that nearly all segments have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsualOptions {
    /// None.
    None,
    /// Timestamps: value and echo.
    Timestamps(u32, u32),
    /// Options of a SYN: segment size, "SACK permitted", timestamps, and window scale.
    Syn {
        /// Maximum segment size.
        mss: u16,
        /// Value and echo of the timestamps.
        timestamps: (u32, u32),
        /// Window scale.
        scale: u8,
    },
    /// Options of a SYN without timestamps.
    PlainSyn {
        /// Maximum segment size.
        mss: u16,
        /// Window scale.
        scale: u8,
    },
}

impl UsualOptions {
    /// Bytes they take.
    #[inline(always)]
    pub const fn len(self) -> usize {
        match self {
            UsualOptions::None => 0,
            UsualOptions::Timestamps(..) => TIMESTAMPS_LEN,
            UsualOptions::Syn { .. } => SYN_LEN,
            UsualOptions::PlainSyn { .. } => PLAIN_SYN_LEN,
        }
    }

    /// There are none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        matches!(self, UsualOptions::None)
    }

    /// Writes them at the start of `out`: the sum of their words, and what follows them.
    #[inline(always)]
    pub(super) fn write(self, out: &mut [u8]) -> (u64, &[u8]) {
        match self {
            UsualOptions::None => (0, out),
            UsualOptions::Timestamps(value, echo) => {
                put_words(out, [tcp::options::TIMESTAMPS_WORD, value, echo])
            }
            UsualOptions::Syn {
                mss,
                timestamps: (value, echo),
                scale,
            } => put_words(out, tcp::options::usual_syn(mss, value, echo, scale)),
            UsualOptions::PlainSyn { mss, scale } => {
                put_words(out, tcp::options::plain_syn(mss, scale))
            }
        }
    }
}

/// Writes words in network order at the start of `out`: their sum, and what follows them.
#[inline(always)]
fn put_words<const N: usize>(out: &mut [u8], words: [u32; N]) -> (u64, &[u8]) {
    let (place, rest) = out.split_at_mut(4 * N);
    let (place, _) = place.as_chunks_mut::<4>();
    for (place, word) in place.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    (words.iter().map(|&word| u64::from(word)).sum(), rest)
}
