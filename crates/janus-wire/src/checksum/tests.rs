//! The fast sum against the two-line definition, and the laws that its users rely on.

use super::*;
use proptest::prelude::*;

/// RFC 1071 as written: add 16-bit words, fold the carries.
fn by_definition(data: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in data.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[test]
fn example_of_rfc_1071() {
    // Section 3: 0001 f203 f4f5 f6f7 sums to ddf2.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(fold(sum(&bytes, 0)), 0xddf2);
    assert_eq!(finish(sum(&bytes, 0)), !0xddf2);
}

#[test]
fn example_of_rfc_1624() {
    // Section 4: HC = 0xdd2f, m = 0x5555, m' = 0x3285 gives 0x0000 by equation 3.
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn all_ones_do_not_lose_a_carry() {
    for len in [0, 1, 2, 31, 32, 33, 64, 1460, 65_535] {
        let data = vec![0xff; len];
        assert_eq!(fold(sum(&data, 0)), by_definition(&data), "length {len}");
        // Adding all ones is adding zero in ones' complement, except that it turns 0 into its other spelling.
        assert_eq!(
            fold(sum(&data, u32::MAX)) % 0xffff,
            by_definition(&data) % 0xffff
        );
    }
}

proptest! {
    #[test]
    fn equals_the_definition(data in proptest::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(fold(sum(&data, 0)), by_definition(&data));
    }

    #[test]
    fn pieces_chain(data in proptest::collection::vec(any::<u8>(), 0..600), cut in 0usize..300) {
        let cut = (cut * 2).min(data.len() & !1);
        let (a, b) = data.split_at(cut);
        prop_assert_eq!(fold(sum(b, sum(a, 0))), by_definition(&data));
    }

    #[test]
    fn a_segment_with_its_checksum_sums_to_zero(
        src: u32, dst: u32, mut segment in proptest::collection::vec(any::<u8>(), 20..1480),
    ) {
        let (src, dst) = (Ipv4Addr::from_bits(src), Ipv4Addr::from_bits(dst));
        segment[16..18].fill(0);
        let field = tcp_v4(src, dst, &segment);
        segment[16..18].copy_from_slice(&field.to_be_bytes());
        prop_assert_eq!(tcp_v4(src, dst, &segment), 0);
        segment[4] ^= 0x10;
        prop_assert_ne!(tcp_v4(src, dst, &segment), 0);
    }

    #[test]
    fn update_equals_a_full_sum(mut data in proptest::collection::vec(any::<u8>(), 20..64), word in 2usize..10, new: u16, wide: u32) {
        data.truncate(data.len() & !1);
        data[0] = 0x45; // a real header is never all zero, the one case where 0 and 0xffff differ
        data[2..4].fill(0);
        let field = finish(sum(&data, 0));
        let at = word * 2;
        let old = u16::from_be_bytes([data[at], data[at + 1]]);
        data[at..at + 2].copy_from_slice(&new.to_be_bytes());
        let field = update(field, old, new);
        prop_assert_eq!(field, finish(sum(&data, 0)));
        let at = at & !3;
        let at = at.max(4);
        let old = u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        data[at..at + 4].copy_from_slice(&wide.to_be_bytes());
        prop_assert_eq!(update32(field, old, wide), finish(sum(&data, 0)));
    }
}

proptest! {
    #[test]
    fn values_and_short_headers_add_up_as_their_bytes(words: [u32; 5]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        prop_assert_eq!(fold(values(words)), by_definition(&bytes));
        prop_assert_eq!(ipv4_header(&bytes), !by_definition(&bytes));
    }
}
