//! SipHash of whole words: the pseudo-random function behind every number that strangers see and must not foresee. 2-4 is for
//! what a forger may try as often as the line carries (SYN cookies) and for names; the lighter 1-3 for initial sequence
//! numbers, timestamps, flow labels, source ports and identifications. Tables whose hashes never leave the process use
//! [`crate::TableHash`].

use core::net::{IpAddr, Ipv6Addr};

use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};

/// SipHash-2-4 of whole words.
#[must_use]
pub fn siphash_2_4<const N: usize>(key: (u64, u64), words: [u64; N]) -> u64 {
    siphash::<2, 4, N>(key, words, length(N))
}

/// SipHash-1-3 of whole words.
#[must_use]
pub fn siphash_1_3<const N: usize>(key: (u64, u64), words: [u64; N]) -> u64 {
    siphash::<1, 3, N>(key, words, length(N))
}

/// SipHash-1-3 of a connection: its addresses, then its ports in the four bytes that fit beside the length.
/// Keeps 6528-1, MUST-9.
#[inline]
#[must_use]
pub fn siphash_1_3_flow(key: (u64, u64), flow: &FlowKey) -> u64 {
    match flow {
        FlowKey::V4(flow) => of_v4(key, flow),
        FlowKey::V6(flow) => of_v6(key, flow),
    }
}

#[inline]
fn of_v4(key: (u64, u64), flow: &FlowKeyV4) -> u64 {
    siphash::<1, 3, 1>(key, [flow.addresses()], 12 << 56 | u64::from(flow.ports()))
}

#[inline(never)]
fn of_v6(key: (u64, u64), flow: &FlowKeyV6) -> u64 {
    let ([p0, p1], [l0, l1]) = (halves(flow.peer), halves(flow.local));
    let last = 36 << 56 | u64::from(flow.ports());
    siphash::<1, 3, 4>(key, [p0, p1, l0, l1], last)
}

/// An address as two words of a message; one of IPv4 as IPv6 writes it, which stands for no other.
#[inline]
#[must_use]
pub const fn words_of(addr: IpAddr) -> [u64; 2] {
    match addr {
        IpAddr::V4(addr) => halves(addr.to_ipv6_mapped()),
        IpAddr::V6(addr) => halves(addr),
    }
}

#[inline]
pub(crate) const fn halves(addr: Ipv6Addr) -> [u64; 2] {
    [(addr.to_bits() >> 64) as u64, addr.to_bits() as u64]
}

/// SipHash-2-4 of whole words with an answer of 128 bits.
pub(crate) fn siphash_2_4_128<const N: usize>((k0, k1): (u64, u64), words: [u64; N]) -> u128 {
    let mut v = start((k0, k1));
    v[1] ^= 0xee;
    absorb::<2, N>(&mut v, words, length(N));
    v[2] ^= 0xee;
    let low = squeeze::<4>(&mut v);
    v[1] ^= 0xdd;
    let high = squeeze::<4>(&mut v);
    u128::from(high) << 64 | u128::from(low)
}

/// With `C` rounds for each word and `D` at the end. `last` is the last word: what fits of the message, and its length.
#[inline(always)]
fn siphash<const C: usize, const D: usize, const N: usize>(
    key: (u64, u64),
    words: [u64; N],
    last: u64,
) -> u64 {
    let mut v = start(key);
    absorb::<C, N>(&mut v, words, last);
    v[2] ^= 0xff;
    squeeze::<D>(&mut v)
}

/// The last word of a message that is `words` whole words: its length in bytes, modulo 256, in the top byte.
const fn length(words: usize) -> u64 {
    (words as u64 * 8) << 56
}

#[inline(always)]
const fn start((k0, k1): (u64, u64)) -> [u64; 4] {
    [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]
}

#[inline(always)]
fn absorb<const C: usize, const N: usize>(v: &mut [u64; 4], words: [u64; N], last: u64) {
    for word in words {
        take::<C>(v, word);
    }
    take::<C>(v, last);
}

#[inline(always)]
fn take<const C: usize>(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    rounds::<C>(v);
    v[0] ^= word;
}

#[inline(always)]
fn squeeze<const D: usize>(v: &mut [u64; 4]) -> u64 {
    rounds::<D>(v);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn rounds<const COUNT: usize>(v: &mut [u64; 4]) {
    for _ in 0..COUNT {
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
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    #[allow(
        deprecated,
        reason = "the only SipHash with keys that the standard library has"
    )]
    use std::hash::{Hasher, SipHasher};

    use proptest::prelude::*;

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
        let twelve = 12 << 56 | bytes(8) & 0xffff_ffff;
        assert_eq!(
            siphash::<2, 4, 1>(key, [bytes(0)], twelve),
            0x751e_8fbc_860e_e5fb
        );
        let published = [
            0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
            0x02, 0x93,
        ];
        assert_eq!(siphash_2_4_128(key, []).to_le_bytes(), published);
    }

    proptest! {
        /// The standard library says the same of the same bytes, whole words or not.
        #[test]
        fn agrees_with_the_standard_library(key: (u64, u64), words: [u64; 4], ports: u32) {
            #[allow(deprecated)]
            let mut theirs = SipHasher::new_with_keys(key.0, key.1);
            for word in words {
                theirs.write(&word.to_le_bytes());
            }
            prop_assert_eq!(siphash_2_4(key, words), theirs.finish());
            theirs.write(&ports.to_le_bytes());
            let last = 36 << 56 | u64::from(ports);
            prop_assert_eq!(siphash::<2, 4, 4>(key, words, last), theirs.finish());
        }

        /// Each bit of a connection's four numbers changes about half of the hash.
        #[test]
        fn every_bit_of_a_flow_counts(
            key: (u64, u64), peer: u128, local: u128, ports: (u16, u16), bit in 0..128u32, port_bit in 0..32u32,
        ) {
            let v4 = |peer: u32, local: u32, ports: u32| FlowKey::V4(FlowKeyV4 {
                peer: Ipv4Addr::from_bits(peer),
                local: Ipv4Addr::from_bits(local),
                peer_port: (ports >> 16) as u16,
                local_port: ports as u16,
            });
            let v6 = |peer: u128, local: u128, ports: u32| FlowKey::V6(FlowKeyV6 {
                peer: Ipv6Addr::from_bits(peer),
                local: Ipv6Addr::from_bits(local),
                peer_port: (ports >> 16) as u16,
                local_port: ports as u16,
            });
            let ports = u32::from(ports.0) << 16 | u32::from(ports.1);
            let (p, l, other) = (peer as u32, local as u32, ports ^ 1 << port_bit);
            let pairs = [
                (v4(p, l, ports), v4(p ^ 1 << (bit % 32), l, ports)),
                (v4(p, l, ports), v4(p, l ^ 1 << (bit % 32), ports)),
                (v4(p, l, ports), v4(p, l, other)),
                (v6(peer, local, ports), v6(peer ^ 1 << bit, local, ports)),
                (v6(peer, local, ports), v6(peer, local ^ 1 << bit, ports)),
                (v6(peer, local, ports), v6(peer, local, other)),
            ];
            for (one, another) in pairs {
                let differ = siphash_1_3_flow(key, &one) ^ siphash_1_3_flow(key, &another);
                prop_assert!((4..61).contains(&differ.count_ones()), "{one:?} {another:?}");
            }
        }
    }
}
