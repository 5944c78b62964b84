//! SipHash of a few words. 2-4 is behind SYN cookies, where a forger gets as many tries as the line carries; the
//! lighter 1-3 behind initial sequence numbers.

/// SipHash-2-4 of whole words.
pub(crate) fn siphash_2_4<const N: usize>(key: (u64, u64), words: [u64; N]) -> u64 {
    siphash::<2, 4, N>(key, words)
}

/// SipHash-1-3 of whole words.
pub(crate) fn siphash_1_3<const N: usize>(key: (u64, u64), words: [u64; N]) -> u64 {
    siphash::<1, 3, N>(key, words)
}

/// With `C` rounds for each word and `D` at the end.
#[inline(always)]
fn siphash<const C: usize, const D: usize, const N: usize>(
    (k0, k1): (u64, u64),
    words: [u64; N],
) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The last word of SipHash carries the length in bytes, modulo 256.
    let length = ((N as u64) * 8) << 56;
    for word in words.into_iter().chain([length]) {
        v[3] ^= word;
        for _ in 0..C {
            round(&mut v);
        }
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..D {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the table of the reference implementation: key 00 01 .. 0f, input 00 01 .. of the length named.
    #[test]
    fn gives_the_published_values() {
        let bytes = |from: u8| u64::from_le_bytes(core::array::from_fn(|i| from + i as u8));
        let key = (bytes(0), bytes(8));
        assert_eq!(siphash_2_4(key, []), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash_2_4(key, [bytes(0)]), 0x93f5_f579_9a93_2462);
        let words = [bytes(0), bytes(8)];
        assert_eq!(siphash_2_4(key, words), 0x3f2a_cc7f_57c2_9bdb);
        assert_eq!(siphash_1_3(key, []), 0xabac_0158_050f_c4dc);
    }
}
