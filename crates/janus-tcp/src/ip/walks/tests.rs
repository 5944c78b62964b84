//! Every number comes, late, and only where it belongs; other destinations show nothing of it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const NOW: Instant = Instant::ZERO;
const US: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn walks(seed: u64) -> Walks {
    Walks::new((seed, !seed))
}

fn to(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xc612_0000 + number).into()
}

#[test]
fn a_walk_passes_every_number_before_one_comes_again() {
    for seed in 0..4 {
        for bits in [14, 16] {
            let walk = walks(seed).walk(US, to(1), 80, NOW);
            let numbers = (0..1 << bits).map(|step| walk.number(step) % (1 << bits));
            let all: BTreeSet<u32> = numbers.collect();
            assert_eq!(all.len(), 1 << bits);
        }
    }
}

/// One number after the other, a thousandth of the destinations at it: none comes again within a quarter of all.
#[test]
fn a_number_comes_back_late() {
    let mut walks = walks(5);
    let numbers: Vec<u32> = (0..40_000)
        .map(|_| walks.next(US, to(1), 0, NOW) % (1 << 16))
        .collect();
    let few = (1 << 16) / MOST as usize;
    for window in numbers.windows(few).step_by(1_000) {
        let all: BTreeSet<_> = window.iter().collect();
        assert_eq!(all.len(), few);
    }
}

/// What an observer gets is the same whatever others get, unless they have one counter; how many those are is
/// as it should be.
#[test]
fn what_others_get_moves_one_destination_in_a_thousand() {
    let numbers = |others: &[u32]| -> Vec<u32> {
        let mut walks = walks(6);
        let mut seen = Vec::new();
        for _ in 0..20 {
            for &other in others {
                walks.next(US, to(other), 0, NOW);
            }
            seen.push(walks.next(US, to(0), 0, NOW));
        }
        seen
    };
    let alone = numbers(&[]);
    let moved = (1..=4_096).filter(|&other| numbers(&[other]) != alone);
    let moved: Vec<u32> = moved.collect();
    assert!((1..=12).contains(&moved.len()), "{moved:?}");
    // Not even those can be counted: the steps of one and of two others overlap.
    let stride = walks(6).walk(US, to(0), 0, NOW).stride;
    let steps = |others: &[u32]| -> BTreeSet<u32> {
        let seen = numbers(others);
        let step = |two: &[u32]| {
            let apart = two[1].wrapping_sub(two[0]);
            (1..100)
                .find(|&n| stride.wrapping_mul(n) == apart)
                .expect("a few strides")
        };
        seen.windows(2).map(step).collect()
    };
    let (one, two) = (steps(&moved[..1]), steps(&[moved[0], moved[0]]));
    assert!(one.intersection(&two).count() > 0, "{one:?} {two:?}");
}

/// Who sees all of one destination's numbers knows nothing of another's: under different keys, the second's distance from the
/// first's is any.
#[test]
fn one_destinations_numbers_say_nothing_of_anothers() {
    let others: [(IpAddr, u16); 3] = [
        (to(2), 80),
        (to(1), 81),
        (Ipv6Addr::from_bits(u128::from(0xc612_0001_u32)).into(), 80),
    ];
    for (other, port) in others {
        let mut apart = BTreeSet::new();
        for seed in 0..256 {
            let mut walks = walks(seed);
            let one = walks.next(US, to(1), 80, NOW) % (1 << 14);
            let another = walks.next(US, other, port, NOW) % (1 << 14);
            apart.insert(one.wrapping_sub(another) % (1 << 14));
        }
        // Two of 256 numbers of 14 bits are equal twice on average.
        assert!(apart.len() > 240, "{} distances", apart.len());
    }
}

#[test]
fn a_stack_made_anew_does_not_begin_where_the_old_one_did() {
    let at = |ms| walks(8).next(US, to(1), 80, Instant::from_millis(ms));
    assert_ne!(at(1_000) % (1 << 14), at(2_000) % (1 << 14));
}
