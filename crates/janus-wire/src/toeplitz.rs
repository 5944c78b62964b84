//! The Toeplitz hash of receive-side scaling, bit for bit what a NIC computes, by one table lookup per input byte.
//! It spreads flows over cores. It is linear in its input, so it must never be the only hash that protects a table
//! from chosen keys: that is [`crate::TableHash`].

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

    /// The hash of the packets of `flow` that arrive.
    #[must_use]
    pub fn hash_arriving(&self, flow: &FlowKey) -> u32 {
        match flow {
            FlowKey::V4(flow) => self.hash_arriving_v4(flow),
            FlowKey::V6(flow) => self.hash_arriving_v6(flow),
        }
    }

    /// Hash of the packets of a connection that arrive at us.
    #[inline]
    pub fn hash_arriving_v4(&self, flow: &FlowKeyV4) -> u32 {
        self.hash_v4(flow.peer, flow.local, flow.peer_port, flow.local_port)
    }

    /// Hash of the packets of a connection over IPv6 that arrive at us.
    #[inline]
    pub fn hash_arriving_v6(&self, flow: &FlowKeyV6) -> u32 {
        self.hash_v6(flow.peer, flow.local, flow.peer_port, flow.local_port)
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
