//! Tuples of one key. The Toeplitz hash is linear over the bits of a tuple, so a set of bits that hashes to zero can be
//! flipped in any tuple without its key changing.

use std::net::Ipv4Addr;

use janus_wire::Toeplitz;

use crate::lockstep::peer::SERVER;
use crate::lockstep::rng::Rng;

/// Bits of a tuple that are flipped: the low ones of the address, and of the port.
const ADDRESS_BITS: u32 = 24;
const PORT_BITS: u32 = 14;
/// 10.0.0.0/8, ports from 16,384 on: whatever the low bits are, it is a client's.
const BASE: u64 = (10 << 24) << PORT_BITS;
const PORT_FIRST: u16 = 1 << PORT_BITS;

/// `count` tuples of one key.
pub(super) fn colliding(toeplitz: &Toeplitz, rng: &mut Rng, count: usize) -> Vec<(Ipv4Addr, u16)> {
    let silent = silent_bits(toeplitz);
    let start = BASE | rng.below(1 << (ADDRESS_BITS + PORT_BITS));
    let tuples: Vec<_> = (0..count as u64)
        .map(|which| {
            let flipped = silent
                .iter()
                .enumerate()
                .filter(|(i, _)| which >> i & 1 == 1);
            tuple(flipped.fold(start, |bits, (_, silent)| bits ^ silent))
        })
        .collect();
    let key = |&(address, port)| hash(toeplitz, address, port);
    assert!(tuples.iter().all(|tuple| key(tuple) == key(&tuples[0])));
    tuples
}

fn hash(toeplitz: &Toeplitz, address: Ipv4Addr, port: u16) -> u32 {
    toeplitz.hash_v4(address, Ipv4Addr::from(SERVER.0), port, SERVER.1)
}

fn tuple(bits: u64) -> (Ipv4Addr, u16) {
    let port = PORT_FIRST | (bits & ((1 << PORT_BITS) - 1)) as u16;
    (Ipv4Addr::from_bits((bits >> PORT_BITS) as u32), port)
}

/// Sets of bits that hash to zero, by elimination: 38 bits go into 32, so there are at least six.
fn silent_bits(toeplitz: &Toeplitz) -> Vec<u64> {
    let key = |bits: u64| {
        let (address, port) = tuple(BASE ^ bits);
        hash(toeplitz, address, port)
    };
    let zero = key(0);
    let mut reduced: Vec<(u32, u64)> = Vec::new();
    let mut silent = Vec::new();
    for bit in 0..ADDRESS_BITS + PORT_BITS {
        let (mut sum, mut bits) = (key(1 << bit) ^ zero, 1 << bit);
        for &(other, of) in &reduced {
            if sum ^ other < sum {
                (sum, bits) = (sum ^ other, bits ^ of);
            }
        }
        if sum == 0 {
            silent.push(bits);
        } else {
            reduced.push((sum, bits));
            reduced.sort_unstable_by(|a, b| b.cmp(a));
        }
    }
    silent
}
