use proptest::prelude::*;

use super::*;

fn measured(seen: &[(u32, u32)]) -> Density {
    let mut heat = Heat::new();
    for bucket in 0..BUCKETS {
        heat.counts[bucket] = 64;
    }
    for &(key, more) in seen {
        heat.counts[(key >> 20) as usize] += more;
    }
    Density::of(Some(&heat))
}

#[test]
fn too_few_samples_count_as_none() {
    let mut heat = Heat::new();
    for n in 0..ENOUGH - 1 {
        heat.record((n as u32) << 8);
    }
    assert!(matches!(Density::of(Some(&heat)), Density::Even));
    heat.record(7);
    assert!(matches!(Density::of(Some(&heat)), Density::Measured(_)));
    heat.age();
    assert!(
        matches!(Density::of(Some(&heat)), Density::Even),
        "what is past fades"
    );
}

#[test]
fn two_cores_see_more_than_one() {
    let (mut one, mut other) = (Heat::new(), Heat::new());
    one.record(0x1234_5678);
    other.record(0x1234_0000);
    other.record(u32::MAX);
    one.merge(&other);
    assert_eq!(one.counts[0x123], 2);
    assert_eq!(one.counts[BUCKETS - 1], 1);
}

proptest! {
    /// Arcs that make up the circle have all the load, and the key after some load is where that load ends.
    #[test]
    fn load_is_found_where_it_lies(
        after: u32, end: u32, other: u32,
        seen in prop::collection::vec((any::<u32>(), 1u32..100_000), 0..20),
    ) {
        prop_assume!(after != end && end != other && after != other);
        for density in [Density::Even, measured(&seen)] {
            let whole = density.between(after, end) + density.between(end, after);
            prop_assert!((whole - 1.0).abs() < 1e-9, "{whole}");
            prop_assert!((density.between(after, after) - 1.0).abs() < 1e-12);
            let load = density.between(after, end);
            let found = density.key_after(after, load);
            let error = density.between(after, found) - load;
            let error = error.abs().min((error - 1.0).abs()).min((error + 1.0).abs());
            prop_assert!(error < 1e-6, "{after:#x} to {end:#x}: {found:#x}, off by {error}");
        }
    }
}

/// Whatever the bursts: every 64th packet, and what is taken is gone.
#[test]
fn a_sampler_takes_one_packet_in_sixty_four() {
    let board = std::sync::Arc::new(HeatBoard::new());
    let sampler = HeatSampler::new(board.clone());
    let mut heat = Heat::new();
    let (mut at, mut sampled) = (0u32, Vec::new());
    for round in 0..4_000u32 {
        let count = [1, 64, 7, 0, 63, 33][(round % 6) as usize];
        if let Some(due) = sampler.due(count) {
            assert!(due < count);
            sampled.push(at + due as u32);
            sampler.sample((at + due as u32) << 20);
        }
        at += count as u32;
    }
    assert!(
        sampled
            .iter()
            .enumerate()
            .all(|(i, at)| *at == 64 * i as u32 + 63)
    );
    assert_eq!(sampled.len() as u32, at / 64);
    let sum = |heat: &Heat| {
        heat.counts
            .iter()
            .map(|&count| count as usize)
            .sum::<usize>()
    };
    heat.take(&board);
    assert_eq!(sum(&heat), sampled.len());
    heat.take(&board);
    assert_eq!(sum(&heat), sampled.len());
    assert!(heat.counts[(sampled[0] & 0xfff) as usize] > 0);
}
