use super::*;

fn keys(from: u32, count: u32) -> Vec<u32> {
    // Odd multiplier: all different.
    (from..from + count)
        .map(|i| i.wrapping_mul(0x9e37_79b1))
        .collect()
}

fn wrong(filter: &Cells, strangers: &[u32]) -> Vec<u32> {
    let wrong = strangers.iter().filter(|&&key| filter.may_hold(key));
    wrong.copied().collect()
}

#[test]
fn what_was_put_in_is_found_and_little_else() {
    for count in [1u32, 100, 20_000, 600_000] {
        let members = keys(0, count);
        let filter = Cells::of(&members, 7);
        assert!(members.iter().all(|&key| filter.may_hold(key)));
        let rate = wrong(&filter, &keys(count, 500_000)).len() as f64 / 5e5;
        assert!(rate <= 1.5e-4, "{count} keys: {rate:e}");
        assert!(filter.bytes() <= count as usize * 5 + 20_000);
        if count >= 400_000 {
            assert_eq!(rate, 0.0, "as many cells make the set exact");
        }
    }
}

#[test]
fn a_batch_is_answered_as_its_keys_are() {
    let filter = Cells::of(&keys(0, 5000), 3);
    let asked: Vec<u32> = keys(4000, 2000);
    for some in asked.chunks(61) {
        let bits = filter.ask(some);
        for (i, &key) in some.iter().enumerate() {
            assert_eq!(bits >> i & 1 != 0, filter.may_hold(key));
        }
    }
}

#[test]
fn a_crowded_cell_is_searched_to_its_end() {
    // Keys whose mixed form begins with the same bits.
    let mut crowd: Vec<u32> = (0..4_000_000u32)
        .filter(|&key| mix_32(key) >> 20 == 5)
        .take(300)
        .collect();
    let strangers = crowd.split_off(200);
    let filter = Cells::of(&crowd, 0);
    assert!(crowd.iter().all(|&key| filter.may_hold(key)));
    assert!(wrong(&filter, &strangers).len() < 5);
}

#[test]
fn the_finalizer_is_murmur3s() {
    // murmur3_32 of four bytes is its block step and the finalizer, so the crate of that name has the last word.
    for (key, seed) in [(0u32, 0u32), (1, 7), (0xdead_beef, 1)] {
        let block = key
            .wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593);
        let state = (seed ^ block)
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
        let whole = murmur3::murmur3_32(&mut &key.to_le_bytes()[..], seed).unwrap();
        assert_eq!(mix_32(state ^ 4), whole);
    }
}

#[test]
fn another_seed_is_another_filter() {
    let strangers = keys(10_000, 1_000_000);
    let of = |seed| wrong(&Cells::of(&keys(0, 10_000), seed), &strangers);
    let (one, two) = (of(1), of(2));
    assert!(!one.is_empty() && one != two);
}
