//! The Toeplitz hash of receive-side scaling, bit for bit what a NIC computes, by one table lookup per input byte; and the
//! keys made of it, by which flows are spread over cores. The hash is linear in its input. So it must never be the only one
//! that protects a table from chosen keys: that is [`crate::TableHash`]. And so neighbouring ports of one address, which
//! differ in a few bits, may have hashes whose top bits hardly differ, under one key of the hash in a hundred or so: those
//! would all be one core's. Hence a key is not the hash itself but what [`mix`] makes of it.

use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};
use core::net::{Ipv4Addr, Ipv6Addr};

/// The key of Microsoft's RSS verification suite, the default of most NICs.
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Bytes of the longest input: two IPv6 addresses and two ports.
const INPUT_MAX: usize = 36;

/// A key, expanded to a table for each input byte. 36 KiB, of which IPv4 uses the first 12.
#[derive(Clone)]
pub struct Toeplitz {
    tables: Box<[[u32; 256]; INPUT_MAX]>,
    key: [u8; 40],
}

impl Toeplitz {
    /// Expands `key`.
    pub fn new(key: &[u8; 40]) -> Self {
        let mut tables: Box<[[u32; 256]; INPUT_MAX]> = vec![[0u32; 256]; INPUT_MAX]
            .into_boxed_slice()
            .try_into()
            .expect("one table for each input byte");
        for (at, table) in tables.iter_mut().enumerate() {
            for (value, entry) in table.iter_mut().enumerate() {
                for bit in 0..8 {
                    if value & 0x80 >> bit != 0 {
                        *entry ^= key_window(key, at * 8 + bit);
                    }
                }
            }
        }
        Self { tables, key: *key }
    }

    /// The key this was made from, to be set in a NIC.
    pub const fn key(&self) -> &[u8; 40] {
        &self.key
    }

    /// Hash of a TCP packet over IPv4 with these fields, in wire direction.
    #[inline]
    pub fn hash_v4(&self, src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> u32 {
        let s = src.octets();
        let d = dst.octets();
        let p = src_port.to_be_bytes();
        let q = dst_port.to_be_bytes();
        self.hash([
            s[0], s[1], s[2], s[3], d[0], d[1], d[2], d[3], p[0], p[1], q[0], q[1],
        ])
    }

    /// Hash of a TCP packet over IPv6 with these fields, in wire direction.
    #[inline]
    pub fn hash_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> u32 {
        let mut input = [0; 36];
        input[..16].copy_from_slice(&src.octets());
        input[16..32].copy_from_slice(&dst.octets());
        input[32..34].copy_from_slice(&src_port.to_be_bytes());
        input[34..].copy_from_slice(&dst_port.to_be_bytes());
        self.hash(input)
    }

    /// Key of a TCP packet over IPv4 with these fields, in wire direction.
    #[inline]
    pub fn key_v4(&self, src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> u32 {
        mix(self.hash_v4(src, dst, src_port, dst_port))
    }

    /// Key of a TCP packet over IPv6 with these fields, in wire direction.
    #[inline]
    pub fn key_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> u32 {
        mix(self.hash_v6(src, dst, src_port, dst_port))
    }

    /// The key of `flow`: that of its packets that arrive.
    #[must_use]
    pub fn key_of(&self, flow: &FlowKey) -> u32 {
        match flow {
            FlowKey::V4(flow) => self.key_of_v4(flow),
            FlowKey::V6(flow) => self.key_of_v6(flow),
        }
    }

    /// The key of a connection: that of its packets that arrive at us.
    #[inline]
    pub fn key_of_v4(&self, flow: &FlowKeyV4) -> u32 {
        self.key_v4(flow.peer, flow.local, flow.peer_port, flow.local_port)
    }

    /// The key of a connection over IPv6: that of its packets that arrive at us.
    #[inline]
    pub fn key_of_v6(&self, flow: &FlowKeyV6) -> u32 {
        self.key_v6(flow.peer, flow.local, flow.peer_port, flow.local_port)
    }

    #[inline(always)]
    fn hash<const N: usize>(&self, input: [u8; N]) -> u32 {
        const { assert!(N <= INPUT_MAX) };
        let mut hash = 0;
        for (at, byte) in input.into_iter().enumerate() {
            hash ^= self.tables[at][usize::from(byte)];
        }
        hash
    }
}

impl core::fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The key stays out of logs: who knows it can aim at a core.
        f.write_str("Toeplitz")
    }
}

/// The flow key of a hash, one for each: every bit of the hash turns about half of the key's top bits, and no longer the
/// same ones whatever the other bits are. Two rounds of multiplying and folding, murmur3's last step. It is no secret, and hides nothing that the hash does not.
#[inline]
#[must_use]
pub const fn mix(hash: u32) -> u32 {
    let folded = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let folded = (folded ^ folded >> 13).wrapping_mul(0xc2b2_ae35);
    folded ^ folded >> 16
}

/// The 32 key bits that begin at `bit`.
fn key_window(key: &[u8; 40], bit: usize) -> u32 {
    let at = bit / 8;
    let five = [key[at], key[at + 1], key[at + 2], key[at + 3], key[at + 4]];
    let wide = five
        .iter()
        .fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    (wide >> (8 - bit % 8)) as u32
}

#[cfg(test)]
mod tests;
