//! Names of flows in 128 bits, equal for equal flows wherever they are made: what the balancer tells flows of one key
//! apart by. An IPv4 tuple is its own name; an IPv6 tuple is longer than a name, so it is hashed with a secret key.

use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};

/// Makes names. All cores of a runtime must have equal ones.
#[derive(Clone, Copy)]
pub struct FlowNames {
    key: [u64; 2],
}

impl FlowNames {
    /// Names under this secret: whoever does not know it cannot make two IPv6 flows of one name.
    #[must_use]
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// The name of a flow.
    #[must_use]
    pub fn of(&self, flow: &FlowKey) -> u128 {
        match flow {
            FlowKey::V4(flow) => self.v4(flow),
            FlowKey::V6(flow) => self.v6(flow),
        }
    }

    /// The tuple itself: 96 bits.
    #[inline]
    #[must_use]
    pub const fn v4(&self, flow: &FlowKeyV4) -> u128 {
        (flow.addresses() as u128) << 32 | flow.ports() as u128
    }

    /// The tuple hashed to 128 bits. One of 2^32 hashed names looks like an IPv4 tuple's; that the two be equal is no
    /// likelier than that any two are.
    #[must_use]
    pub fn v6(&self, flow: &FlowKeyV6) -> u128 {
        let (peer, local) = (flow.peer.to_bits(), flow.local.to_bits());
        siphash_2_4_128(
            self.key,
            [
                (peer >> 64) as u64,
                peer as u64,
                (local >> 64) as u64,
                local as u64,
                u64::from(flow.ports()),
            ],
        )
    }
}

/// Says nothing of the secret.
impl core::fmt::Debug for FlowNames {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FlowNames").finish_non_exhaustive()
    }
}

/// SipHash-2-4 of whole words with an answer of 128 bits.
fn siphash_2_4_128<const N: usize>([k0, k1]: [u64; 2], words: [u64; N]) -> u128 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The last word carries the length in bytes, modulo 256.
    let length = ((N as u64) * 8) << 56;
    for word in words.into_iter().chain([length]) {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xee;
    let low = finish(&mut v);
    v[1] ^= 0xdd;
    let high = finish(&mut v);
    u128::from(high) << 64 | u128::from(low)
}

fn finish(v: &mut [u64; 4]) -> u64 {
    for _ in 0..4 {
        round(v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// From the table of the reference implementation: key 00 01 .. 0f, no input.
    #[test]
    fn the_hash_gives_the_published_value() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let published = [
            0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
            0x02, 0x93,
        ];
        assert_eq!(siphash_2_4_128(key, []).to_le_bytes(), published);
    }

    /// Each of the four numbers makes another name, in both families; the ends are not exchangeable.
    #[test]
    fn every_part_of_a_tuple_is_in_its_name() {
        let names = FlowNames::new([7, 8]);
        let addresses = [1, 2].map(Ipv4Addr::from_bits);
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for peer in addresses {
            for local in addresses {
                for (peer_port, local_port) in [(80, 80), (80, 81), (81, 80)] {
                    let flow = FlowKeyV4 {
                        peer,
                        local,
                        peer_port,
                        local_port,
                    };
                    v4.push(names.of(&FlowKey::V4(flow)));
                    let flow = FlowKeyV6 {
                        peer: peer.to_ipv6_mapped(),
                        local: Ipv6Addr::from_bits(u128::from(local.to_bits()) << 64),
                        peer_port,
                        local_port,
                    };
                    v6.push(names.of(&FlowKey::V6(flow)));
                    let other = FlowNames::new([7, 9]);
                    assert_ne!(other.v6(&flow), names.v6(&flow));
                }
            }
        }
        let mut all: Vec<u128> = v4.into_iter().chain(v6).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
