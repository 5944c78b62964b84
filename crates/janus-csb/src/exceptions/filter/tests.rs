use super::*;

fn keys(from: u32, count: u32) -> impl Iterator<Item = u32> {
    // Odd multiplier: all different.
    (from..from + count).map(|i| i.wrapping_mul(0x9e37_79b1))
}

#[test]
fn what_was_put_in_is_found_and_little_else() {
    for count in [1u32, 100, 10_000, 1_000_000] {
        let mut filter = Filter::for_keys(count as usize, 7);
        keys(0, count).for_each(|key| filter.insert(key));
        assert!(keys(0, count).all(|key| filter.may_hold(key)));
        let asked = 2_000_000;
        let wrong = keys(count, asked)
            .filter(|&key| filter.may_hold(key))
            .count();
        let rate = wrong as f64 / f64::from(asked);
        assert!(rate <= 1.2e-4, "{count} keys: {rate:e}");
        assert!(filter.bytes() <= count as usize * 3 + 64);
    }
}

#[test]
fn the_hash_is_that_of_murmur3() {
    // The finalizer ends murmur3_x64_128; of the empty input with seed 0 it is 0, and mixing is a bijection.
    assert_eq!(mix(0), 0);
    assert_eq!(mix(1), 0xb456_bcfc_34c2_cb2c);
}

#[test]
fn another_seed_is_another_filter() {
    let count = 10_000;
    let wrong = |seed| -> Vec<u32> {
        let mut filter = Filter::for_keys(count as usize, seed);
        keys(0, count).for_each(|key| filter.insert(key));
        keys(count, 1_000_000)
            .filter(|&key| filter.may_hold(key))
            .collect()
    };
    let (one, two) = (wrong(1), wrong(2));
    assert!(!one.is_empty() && one != two);
}
