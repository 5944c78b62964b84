use super::*;

const DRAWS: usize = 100_000;

fn candidates<const N: usize>(service_us: [u64; N], waiting: [u32; N]) -> [Candidate; N] {
    core::array::from_fn(|at| Candidate {
        shard: ShardId(at as u8),
        service_ns: Some(service_us[at] * 1_000).filter(|ns| *ns > 0),
        waiting: waiting[at],
    })
}

/// Parts of many draws at shard 0 that each shard got.
fn parts<const N: usize>(dealer: &mut Dealer, shards: &[Candidate; N]) -> [f64; N] {
    let mut random = 7u64;
    let mut bits = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
        (random ^ random >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let mut parts = [0.0; N];
    for _ in 0..DRAWS {
        let drawn = dealer.draw(ShardId(0), shards, &mut bits);
        parts[drawn.index()] += 1.0 / DRAWS as f64;
    }
    parts
}

fn near(parts: &[f64], wanted: &[f64]) {
    let all = parts.iter().zip(wanted);
    for (part, wanted) in all {
        assert!((part - wanted).abs() < 0.01, "{parts:?}, not {wanted:?}");
    }
}

#[test]
fn naive_draws_evenly() {
    let shards = candidates([100, 10, 1_000, 0], [0, 90, 0, 0]);
    near(&parts(&mut Dealer::new(Scheme::Naive), &shards), &[0.25; 4]);
}

#[test]
fn unfiltered_draws_by_the_time_and_the_tariff_is_a_factor() {
    let shards = candidates([100, 100, 400], [0, 90, 0]);
    let by_two = parts(&mut Dealer::new(Scheme::Unfiltered2), &shards);
    near(&by_two, &[8.0 / 13.0, 4.0 / 13.0, 1.0 / 13.0]);
    let by_hundred = parts(&mut Dealer::new(Scheme::Unfiltered100), &shards);
    near(&by_hundred, &[0.988, 0.0099, 0.0025]);
    // From a shard that is a hundred times as slow as the others half of the connections go even so.
    let slow = candidates([10_000, 100], [0, 0]);
    near(
        &parts(&mut Dealer::new(Scheme::Unfiltered100), &slow),
        &[0.5, 0.5],
    );
}

#[test]
fn filtered_leaves_those_out_where_many_wait() {
    let mut dealer = Dealer::new(Scheme::Filtered2);
    let calm = [2.0 / 3.0, 1.0 / 3.0];
    near(&parts(&mut dealer, &candidates([50, 50], [0, 15])), &calm);
    let mut alone = |waiting| parts(&mut dealer, &candidates([50, 50], [0, waiting]))[1] == 0.0;
    assert!(alone(16) && alone(5), "held until the low mark");
    assert!(!alone(4));
    // When all are too deep none is left out.
    near(&parts(&mut dealer, &candidates([50, 50], [99, 99])), &calm);
}

#[test]
fn a_tournament_has_the_better_of_two_win() {
    let shards = candidates([300, 100, 400, 500], [0; 4]);
    // With the tariff of two the costs are 300, 200, 800 and 1,000: the best wins whenever it is drawn.
    let parts = parts(&mut Dealer::new(Scheme::Tournament2), &shards);
    near(&parts, &[5.0 / 16.0, 7.0 / 16.0, 3.0 / 16.0, 1.0 / 16.0]);
}

#[test]
fn a_shard_that_has_served_nothing_counts_as_the_mean_and_no_other_means_here() {
    let shards = candidates([100, 0], [0; 2]);
    near(
        &parts(&mut Dealer::new(Scheme::Unfiltered2), &shards),
        &[2.0 / 3.0, 1.0 / 3.0],
    );
    for scheme in Scheme::ALL {
        let here = ShardId(3);
        assert_eq!(Dealer::new(scheme).draw(here, &[], || 1), here);
    }
}
