//! The Internet checksum (RFC 1071), its pseudo headers, and its incremental update (RFC 1624).
//! Only arithmetic: which fields a checksum covers in a header is the header's module's matter.
//!
//! A *partial sum* is a `u32` whose ones'-complement value counts; partial sums of pieces that each start at an even
//! offset may be chained through `initial`.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of a [`chain`] where there is much to sum. Two such chains overlap in the processor, which one long one cannot.
const CHAIN: usize = 128;

/// Adds the big-endian 16-bit words of `data` to a partial sum. An odd last byte counts as the high half of a word, so
/// only the last piece of a chain may have odd length.
#[inline]
pub fn sum(data: &[u8], initial: u32) -> u32 {
    // Ones'-complement addition does not care about byte order (RFC 1071 section 2 B): add wide words as the machine
    // reads them, swap the folded result once at the end.
    let folded = u16::from_be(fold_wide(wide(data)));
    add_partial(initial, u32::from(folded))
}

/// The sum of `data` as the machine reads it, in its words' order of bytes.
#[inline]
fn wide(data: &[u8]) -> u64 {
    let (chains, rest) = data.as_chunks::<CHAIN>();
    let mut wide = match chains {
        [] => 0,
        chains => sum_chains(chains),
    };
    let (quads, rest) = rest.as_chunks::<32>();
    for quad in quads {
        wide = chain(wide, quad);
    }
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        wide = add_carry(wide, u64::from_ne_bytes(*word));
    }
    match tail {
        [] => wide,
        tail => add_carry(wide, last_bytes(tail)),
    }
}

#[inline(never)]
fn sum_chains(chains: &[[u8; CHAIN]]) -> u64 {
    let (pairs, last) = chains.as_chunks::<2>();
    let (mut even, mut odd) = (0, 0);
    for [first, second] in pairs {
        even = chain(even, first);
        odd = chain(odd, second);
    }
    if let [last] = last {
        even = chain(even, last);
    }
    add_carry(even, odd)
}

/// Adds words with the carry handed from each to the next, as the machine's own instruction does it.
#[inline(always)]
pub(crate) fn chain<const N: usize>(mut sum: u64, bytes: &[u8; N]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let mut carry = false;
    for word in words {
        (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
    }
    add_carry(sum, u64::from(carry))
}

/// The last zero to seven bytes as one word, zero-filled. Fixed-size steps: a copy of variable length would cost more
/// than the whole sum of a header.
#[inline(always)]
fn last_bytes(tail: &[u8]) -> u64 {
    let mut word = 0u64;
    let mut rest = tail;
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        word = u64::from(u32::from_ne_bytes(*four));
        rest = after;
    }
    // Any even position in the word will do: the sum is over 16-bit lanes.
    if let Some((two, after)) = rest.split_first_chunk::<2>() {
        word += u64::from(u16::from_ne_bytes(*two)) << 32;
        rest = after;
    }
    if let [one] = rest {
        word += u64::from(u16::from_ne_bytes([*one, 0])) << 48;
    }
    word
}

#[inline(always)]
const fn add_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

#[inline(always)]
const fn fold_wide(wide: u64) -> u16 {
    fold(add_partial(wide as u32, (wide >> 32) as u32))
}

/// Adds two partial sums with end-around carry.
#[inline(always)]
pub const fn add_partial(a: u32, b: u32) -> u32 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u32
}

/// Folds a partial sum to 16 bits; not complemented. [`finish`] gives the value for a header field.
#[inline(always)]
pub const fn fold(partial: u32) -> u16 {
    let (sum, carry) = (partial as u16).overflowing_add((partial >> 16) as u16);
    sum + carry as u16
}

/// Folds and complements: what goes into the checksum field, and 0 when the summed bytes included a valid one.
#[inline(always)]
pub const fn finish(partial: u32) -> u16 {
    !fold(partial)
}

/// Checksum over an IPv4 header with its options: the field's value when the field is zero, 0 when the field is valid.
#[inline]
pub fn ipv4_header(header: &[u8]) -> u16 {
    // As nearly all are: without options.
    if let Ok(header) = <&[u8; 20]>::try_from(header) {
        let (words, _) = header.as_chunks::<4>();
        let sum = words
            .iter()
            .fold(0, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
        return !u16::from_be(fold_wide(sum));
    }
    finish(sum(header, 0))
}

/// Partial sum of 32-bit values that stand at even offsets: what [`sum`] says of their bytes, without reading back what has
/// only just been written. Less than 2^32 of them.
#[inline(always)]
pub fn values<const N: usize>(values: [u32; N]) -> u32 {
    let sum = values.iter().fold(0, |sum, &value| sum + u64::from(value));
    u32::from(fold_wide(sum))
}

/// Returns the value of the checksum field where everything else adds up to `sum`, as values.
#[inline(always)]
pub(crate) const fn complete(sum: u64) -> u16 {
    !fold_wide(sum)
}

/// Like [`complete`], of values and of `rest`, which begins at an even offset.
#[inline]
pub(crate) fn complete_with(values: u64, rest: &[u8]) -> u16 {
    // Turned round, a wide word is the sum of its words turned round.
    complete(add_carry(values, u64::from_be(wide(rest))))
}

/// Whether words that add up to `sum`, a checksum among them and not all of them zero, hold: whichever order of bytes they
/// were read in.
#[inline(always)]
pub(crate) const fn is_complete(sum: u64) -> bool {
    // Zero in ones' complement: a multiple of 2^16 - 1.
    sum.is_multiple_of(u16::MAX as u64)
}

/// Like [`is_complete`], but of words read in the machine's byte order and of `rest`, which begins at an even offset.
#[inline(always)]
pub(crate) fn is_complete_with(words: u64, rest: &[u8]) -> bool {
    is_complete(add_carry(words, wide(rest)))
}

/// Partial sum of the IPv4 pseudo header (RFC 9293 section 3.1); `len` counts transport header and payload.
#[inline]
pub const fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, len: u16) -> u32 {
    let (s, d) = (src.to_bits(), dst.to_bits());
    // Six 16-bit values: far from 2^32.
    (s >> 16) + (s & 0xffff) + (d >> 16) + (d & 0xffff) + proto as u32 + len as u32
}

/// Partial sum of the IPv6 pseudo header (RFC 8200 section 8.1).
#[inline]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, proto: u8, len: u32) -> u32 {
    let addresses = sum(&dst.octets(), sum(&src.octets(), 0));
    add_partial(add_partial(addresses, len), u32::from(proto))
}

/// Checksum of a TCP segment over IPv4: the field's value when the field is zero, 0 when the field is valid.
#[inline]
pub fn tcp_v4(src: Ipv4Addr, dst: Ipv4Addr, segment: &[u8]) -> u16 {
    // An IPv4 datagram holds at most 65,535 bytes; a longer slice cannot be valid whatever the sum says.
    finish(sum(
        segment,
        pseudo_v4(src, dst, crate::proto::TCP, segment.len() as u16),
    ))
}

/// Checksum of a TCP segment over IPv6.
#[inline]
pub fn tcp_v6(src: Ipv6Addr, dst: Ipv6Addr, segment: &[u8]) -> u16 {
    finish(sum(
        segment,
        pseudo_v6(src, dst, crate::proto::TCP, segment.len() as u32),
    ))
}

/// The checksum field after one 16-bit word it covers changed from `old` to `new` (RFC 1624 equation 3).
#[inline]
pub const fn update(field: u16, old: u16, new: u16) -> u16 {
    // HC' = ~(~HC + ~m + m'): unlike equation 2 this never yields 0xffff for a sum that is not zero.
    finish((!field) as u32 + (!old) as u32 + new as u32)
}

/// [`update`] for a 32-bit value at an even offset, such as an address or a timestamp.
#[inline]
pub const fn update32(field: u16, old: u32, new: u32) -> u16 {
    let field = update(field, (old >> 16) as u16, (new >> 16) as u16);
    update(field, old as u16, new as u16)
}

#[cfg(test)]
mod tests;
