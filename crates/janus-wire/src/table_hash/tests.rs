//! Properties that a table needs of its hash: every bit even, one changed input bit changes half of the output, no collisions
//! among the dense keys that real traffic has.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::HashSet;

fn dense(n: u32) -> FlowKeyV4 {
    // A load generator: few addresses, consecutive ports, one server port.
    FlowKeyV4 {
        peer: Ipv4Addr::from_bits(0xc612_0000 + n / 50_000),
        local: Ipv4Addr::new(192, 0, 2, 1),
        peer_port: (10_000 + n % 50_000) as u16,
        local_port: 80,
    }
}

fn keys() -> [TableHash; 4] {
    [
        TableHash::new(0, 0),
        TableHash::new(1, 2),
        TableHash::new(u64::MAX, 0),
        TableHash::new(0x1234_5678_9abc_def0, 99),
    ]
}

#[test]
fn dense_flows_fill_buckets_evenly_at_both_ends_of_the_hash() {
    const FLOWS: u32 = 400_000;
    const BUCKETS: usize = 4096;
    for hash in keys() {
        for shift in [0, 16, 32, 52] {
            let mut counts = [0u32; BUCKETS];
            for n in 0..FLOWS {
                counts[(hash.v4(&dense(n)) >> shift) as usize % BUCKETS] += 1;
            }
            let mean = f64::from(FLOWS) / BUCKETS as f64;
            let chi: f64 = counts
                .iter()
                .map(|&c| (f64::from(c) - mean).powi(2) / mean)
                .sum();
            // Chi-square with 4095 degrees of freedom: mean 4095, deviation 90. Six deviations.
            assert!(chi < 4095.0 + 6.0 * 90.5, "shift {shift}: {chi}");
        }
    }
}

#[test]
fn dense_flows_do_not_collide() {
    for hash in keys() {
        let seen: HashSet<u64> = (0..200_000).map(|n| hash.v4(&dense(n))).collect();
        assert_eq!(seen.len(), 200_000);
    }
}

#[test]
fn each_input_bit_flips_half_of_the_output() {
    for hash in keys() {
        for bit in 0..96 {
            let mut flips = 0;
            for n in 0..500 {
                let flow = dense(n * 977);
                let mut other = flow;
                match bit {
                    0..32 => other.peer = Ipv4Addr::from_bits(flow.peer.to_bits() ^ 1 << bit),
                    32..64 => {
                        other.local = Ipv4Addr::from_bits(flow.local.to_bits() ^ 1 << (bit - 32))
                    }
                    64..80 => other.peer_port ^= 1 << (bit - 64),
                    _ => other.local_port ^= 1 << (bit - 80),
                }
                flips += (hash.v4(&flow) ^ hash.v4(&other)).count_ones();
            }
            let mean = f64::from(flips) / 500.0;
            assert!(
                (28.0..36.0).contains(&mean),
                "bit {bit} flips {mean} on average"
            );
        }
    }
}

#[test]
fn ipv6_flows_do_not_collide_and_depend_on_every_part() {
    let hash = TableHash::new(3, 4);
    let mut seen = HashSet::new();
    for n in 0..50_000u128 {
        let flow = FlowKeyV6 {
            peer: Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | n),
            local: Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | 1 << 64),
            peer_port: 1000,
            local_port: 80,
        };
        assert!(seen.insert(hash.v6(&flow)));
        assert!(seen.insert(hash.v6(&flow.reversed())));
        assert!(seen.insert(hash.v6(&FlowKeyV6 {
            peer_port: 1001,
            ..flow
        })));
    }
}
