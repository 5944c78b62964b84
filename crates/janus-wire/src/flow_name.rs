//! Names of flows in 128 bits, equal for equal flows wherever they are made: what the balancer tells flows of one key
//! apart by. An IPv4 tuple is its own name; an IPv6 tuple is longer than a name, so it is hashed with a secret key.

use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};
use crate::siphash::{halves, siphash_2_4_128};

/// Makes names. All cores of a runtime must have equal ones.
#[derive(Clone, Copy)]
pub struct FlowNames {
    key: (u64, u64),
}

impl FlowNames {
    /// Names under this secret: whoever does not know it cannot make two IPv6 flows of one name.
    #[must_use]
    pub const fn new([k0, k1]: [u64; 2]) -> Self {
        Self { key: (k0, k1) }
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
        let ([p0, p1], [l0, l1]) = (halves(flow.peer), halves(flow.local));
        siphash_2_4_128(self.key, [p0, p1, l0, l1, u64::from(flow.ports())])
    }
}

/// Says nothing of the secret.
impl core::fmt::Debug for FlowNames {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FlowNames").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

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
