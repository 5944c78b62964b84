//! The key sets that `benches/filters.rs` measures do what they say: nothing gets lost, strangers are taken at no more than the
//! rate asked for, and the exact ones take none. murmur3 is checked against the crate of that name.

use filters::blocked::{Line, Sectors, Split, Word};
use filters::crates::{Bloomfilter, FastbloomMurmur, FastbloomSip, Fuse};
use filters::exact::{ExactCells, Lines, SmallCells, Sorted};
use filters::{BURST, KeySet, TARGET, false_positives, murmur};
use janus_research::filters;

/// Distinct keys, `from` on in an order without a pattern.
fn keys(from: u32, count: u32) -> Vec<u32> {
    (from..from + count)
        .map(|i| murmur::mix_32(i ^ 0x0bad_cafe))
        .collect()
}

/// The rate of strangers taken, after looking for each member.
fn rate<S: KeySet>(count: u32) -> f64 {
    let members = keys(0, count);
    let set = S::build(&members, 0x5eed_0001);
    for burst in members.chunks(BURST) {
        assert_eq!(
            set.ask(burst),
            u64::MAX >> (BURST - burst.len()),
            "{} lost a key",
            S::NAME
        );
    }
    false_positives(&set, &keys(count, 400_000))
}

#[test]
fn bloom_filters_keep_the_rate() {
    fn check<S: KeySet>() {
        for count in [1_000, 30_000] {
            // 40 strangers are expected at the target; three times as many are no accident.
            let rate = rate::<S>(count);
            assert!(rate < 3.0 * TARGET, "{}, {count} keys: {rate}", S::NAME);
        }
    }
    check::<Bloomfilter>();
    check::<FastbloomSip>();
    check::<FastbloomMurmur>();
    check::<Line>();
    check::<Sectors>();
    check::<Split>();
    check::<Word>();
    check::<Fuse>();
    check::<SmallCells>();
}

#[test]
fn exact_sets_take_no_stranger() {
    fn check<S: KeySet>() {
        for count in [1, 17, 1_000, 30_000, 700_000] {
            assert_eq!(rate::<S>(count), 0.0, "{}, {count} keys", S::NAME);
        }
    }
    check::<ExactCells>();
    check::<Lines>();
    check::<Sorted>();
}

#[test]
fn many_equal_keys_are_one() {
    let same = vec![77; 1_000];
    for asked in [[77, 78], [78, 77]] {
        let expected = if asked[0] == 77 { 0b01 } else { 0b10 };
        assert_eq!(ExactCells::build(&same, 3).ask(&asked), expected);
        assert_eq!(Lines::build(&same, 3).ask(&asked), expected);
        assert_eq!(Sectors::build(&same, 3).ask(&asked), expected);
    }
}

#[test]
fn murmur3_is_murmur3() {
    for key in keys(0, 1_000) {
        let (low, high) = murmur::hash_128(key, key.rotate_left(7));
        let theirs =
            murmur3::murmur3_x64_128(&mut &key.to_le_bytes()[..], key.rotate_left(7)).unwrap();
        assert_eq!(u128::from(high) << 64 | u128::from(low), theirs);
    }
}
