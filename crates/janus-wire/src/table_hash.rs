//! The keyed hash behind every flow table: a few multiplications, a secret per start. Steering uses
//! [`crate::Toeplitz`]; cookies and initial sequence numbers need a cryptographic hash and do not come here.

use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};

/// A keyed 64-bit hash of flow keys by folded multiplication. Without the key an attacker cannot choose tuples that
/// collide; it is not meant to hide its key from one who can read hash values, so those never leave the process.
#[derive(Clone, Copy)]
pub struct TableHash {
    k0: u64,
    k1: u64,
    k2: u64,
}

impl TableHash {
    /// Makes the hash of two secret words.
    pub const fn new(k0: u64, k1: u64) -> Self {
        // Odd multiples of irrational fractions keep weak keys (zero above all) from weakening the mixing.
        let a = k0 ^ 0x9e37_79b9_7f4a_7c15;
        let b = k1 ^ 0xd1b5_4a32_d192_ed03;
        Self {
            k0: a,
            k1: b,
            k2: fold(a.rotate_left(32), b) | 1,
        }
    }

    /// Hash of an IPv4 connection.
    #[inline(always)]
    pub const fn v4(&self, flow: &FlowKeyV4) -> u64 {
        self.mix(flow.addresses(), flow.ports())
    }

    /// Hash of an IPv6 connection.
    #[inline(always)]
    pub const fn v6(&self, flow: &FlowKeyV6) -> u64 {
        let (p, l) = (flow.peer.to_bits(), flow.local.to_bits());
        let peer = fold(p as u64 ^ self.k1, (p >> 64) as u64 ^ self.k0);
        let local = fold(l as u64 ^ self.k2, (l >> 64) as u64 ^ self.k1);
        self.mix(peer ^ local.rotate_left(29), flow.ports())
    }

    /// Hash of a connection of either family.
    #[inline(always)]
    pub const fn flow(&self, flow: &FlowKey) -> u64 {
        match flow {
            FlowKey::V4(key) => self.v4(key),
            FlowKey::V6(key) => self.v6(key),
        }
    }

    #[inline(always)]
    const fn mix(&self, addresses: u64, ports: u32) -> u64 {
        let first = fold(addresses ^ self.k0, ports as u64 ^ self.k1);
        // A second round: the product is zero when one factor is, and the table uses single bits of the result.
        fold(first ^ addresses ^ self.k1, self.k2 ^ ports as u64)
    }
}

impl core::fmt::Debug for TableHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TableHash")
    }
}

#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
