//! Sixteen bytes compared with one, at once: how a table finds its tags.

/// Which bytes of `words` equal `wanted`: bit `i` stands for byte `i`, counted from the lowest of the first word.
#[inline(always)]
pub fn equal_bytes(words: [u64; 2], wanted: u8) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: each x86-64 processor has SSE2, and nothing here touches memory.
    unsafe {
        use core::arch::x86_64::{
            _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8,
        };
        let bytes = _mm_set_epi64x(words[1] as i64, words[0] as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted as i8))) as u32
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    one_by_one(words, wanted)
}

#[cfg(any(test, miri, not(target_arch = "x86_64")))]
fn one_by_one(words: [u64; 2], wanted: u8) -> u32 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let bits = bytes.map(|byte| u32::from(byte == wanted)).enumerate();
    bits.fold(0, |all, (at, bit)| all | bit << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_its_bit() {
        for at in 0..16 {
            let word = |from: u32| match at - from as i32 {
                shift @ 0..8 => 0xa5 << (8 * shift),
                _ => 0,
            };
            let words = [word(0), word(8)];
            assert_eq!(equal_bytes(words, 0xa5), 1 << at);
            assert_eq!(equal_bytes(words, 0), 0xffff ^ 1 << at);
            assert_eq!(equal_bytes(words, 1), 0);
            for byte in 0..=u8::MAX {
                assert_eq!(equal_bytes(words, byte), one_by_one(words, byte));
            }
        }
    }
}
