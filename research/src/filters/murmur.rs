//! murmur3 of a 32-bit key, written out for that one length so that it inlines: the 128-bit form, whose two halves
//! are independent enough for a block and its bits, and the 32-bit finalizer, which is a bijection and therefore
//! spreads keys without losing any.

/// murmur3 x64 128 of the four bytes of `key` (little-endian) under a 32-bit seed.
#[inline(always)]
pub fn hash_128(key: u32, seed: u32) -> (u64, u64) {
    const LENGTH: u64 = 4;
    let tail = u64::from(key)
        .wrapping_mul(0x87c3_7b91_1142_53d5)
        .rotate_left(31)
        .wrapping_mul(0x4cf5_ad43_2745_937f);
    let b = u64::from(seed) ^ LENGTH;
    let a = (u64::from(seed) ^ tail ^ LENGTH).wrapping_add(b);
    let b = b.wrapping_add(a);
    let (a, b) = (mix_64(a), mix_64(b));
    let a = a.wrapping_add(b);
    (a, b.wrapping_add(a))
}

/// The finalizer of the 128-bit form.
#[inline(always)]
pub fn mix_64(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// The finalizer of the 32-bit form.
#[inline(always)]
pub fn mix_32(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}
