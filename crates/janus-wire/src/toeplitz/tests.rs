//! The published verification suite (Microsoft, "Verifying the RSS hash calculation") and the definition.

use super::*;
use proptest::prelude::*;

/// The definition: for each set input bit, exclusive-or the key window that begins there.
fn by_definition(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut hash = 0;
    for bit in 0..input.len() * 8 {
        if input[bit / 8] & 0x80 >> (bit % 8) != 0 {
            for k in 0..32 {
                let at = bit + k;
                hash ^= u32::from(key[at / 8] >> (7 - at % 8) & 1) << (31 - k);
            }
        }
    }
    hash
}

#[test]
fn verification_suite_for_ipv4_with_ports() {
    let hash = Toeplitz::new(&MICROSOFT_KEY);
    // destination, port, source, port, hash
    for (dst, dst_port, src, src_port, expected) in [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x51cc_c178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xc626_b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0x5c2b_394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0xafc7_327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x10e8_28a2),
    ] {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        assert_eq!(hash.hash_v4(src, dst, src_port, dst_port), expected);
        let flow = FlowKeyV4 {
            peer: src,
            local: dst,
            peer_port: src_port,
            local_port: dst_port,
        };
        assert_eq!(hash.key_of_v4(&flow), mix(expected));
    }
}

#[test]
fn verification_suite_for_ipv6_with_ports() {
    let hash = Toeplitz::new(&MICROSOFT_KEY);
    for (dst, dst_port, src, src_port, expected) in [
        (
            "3ffe:2501:200:3::1",
            1766,
            "3ffe:2501:200:1fff::7",
            2794,
            0x4020_7d3d,
        ),
        (
            "ff02::1",
            4739,
            "3ffe:501:8::260:97ff:fe40:efab",
            14230,
            0xdde5_1bbf,
        ),
        (
            "fe80::200:f8ff:fe21:67cf",
            38024,
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            0x02d1_feef,
        ),
    ] {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        assert_eq!(hash.hash_v6(src, dst, src_port, dst_port), expected);
        let flow = FlowKeyV6 {
            peer: src,
            local: dst,
            peer_port: src_port,
            local_port: dst_port,
        };
        assert_eq!(hash.key_of_v6(&flow), mix(expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn tables_equal_the_definition(key in proptest::array::uniform32(any::<u8>()), tail: [u8; 8], input in proptest::array::uniform32(any::<u8>()), ports: [u8; 4]) {
        let mut whole = [0; 40];
        whole[..32].copy_from_slice(&key);
        whole[32..].copy_from_slice(&tail);
        let hash = Toeplitz::new(&whole);
        let mut bytes = [0; 36];
        bytes[..32].copy_from_slice(&input);
        bytes[32..].copy_from_slice(&ports);
        prop_assert_eq!(hash.hash(bytes), by_definition(&whole, &bytes));
        let short: [u8; 12] = bytes[..12].try_into().unwrap();
        prop_assert_eq!(hash.hash(short), by_definition(&whole, &short));
        prop_assert_eq!(hash.key(), &whole);
    }
}

/// As many keys as hashes; and any one bit of the hash turns each of the key's top ten bits, which choose the cell of a ring,
/// about every other time.
#[test]
fn a_key_is_one_hash_and_all_of_it() {
    let hashes: Vec<u32> = (0..1 << 16)
        .map(|n: u32| n.wrapping_mul(0x9e37_79b1))
        .collect();
    let mut keys: Vec<u32> = hashes.iter().map(|&hash| mix(hash)).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), hashes.len());
    for bit in 0..32 {
        let turned = |top: u32| {
            let differ = |&&hash: &&u32| (mix(hash) ^ mix(hash ^ 1 << bit)) >> top & 1 == 1;
            hashes.iter().filter(differ).count() as f64 / hashes.len() as f64
        };
        for top in 22..32 {
            let share = turned(top);
            assert!((0.4..0.6).contains(&share), "{bit} turns {top}: {share}");
        }
    }
}
