//! Rate at which connections are opened from one network: a table of leaking buckets of a fixed size. A flood from more networks than the
//! table holds does not get past it by pushing entries out: a network that takes an entry over takes over its debt. A limit can therefore
//! only be too strict, and only for networks that share an entry with the flood, which no outsider can choose. Reads no clock.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use janus_wire::{FlowKeyV4, FlowKeyV6, TableHash};

/// Sets of [`WAYS`] networks that one core watches: 256 KiB.
pub(super) const SYN_SETS: usize = 4096;
/// Networks in a set, which is one cache line.
const WAYS: usize = 4;
const SECOND_NS: u64 = 1_000_000_000;

/// Bound on how fast connections may be opened.
/// Exhaustive: literals with `..SynLimit::new(rate)` are how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynLimit {
    /// SYNs a second from one network.
    pub per_second: u32,
    /// SYNs at once after a silence.
    pub burst: u32,
    /// Bits that the addresses of an IPv4 network share.
    pub prefix_v4: u8,
    /// Bits that the addresses of an IPv6 network share.
    pub prefix_v6: u8,
}

impl SynLimit {
    /// Limits a network of 256 IPv4 addresses or one IPv6 site (RFC 6177) to this many a second, and as many at once.
    #[must_use]
    pub fn new(per_second: u32) -> SynLimit {
        SynLimit {
            per_second,
            burst: per_second,
            prefix_v4: 24,
            prefix_v6: 56,
        }
    }

    /// Returns the limit of one core of several, so that all together allow this much, or a little more.
    pub(super) fn share_of(self, cores: usize) -> SynLimit {
        let cores = cores.clamp(1, u32::MAX as usize) as u32;
        SynLimit {
            per_second: self.per_second.div_ceil(cores),
            burst: self.burst.div_ceil(cores),
            ..self
        }
    }
}

/// A network's bucket.
#[derive(Clone, Copy, Default)]
struct Bucket {
    /// The keyed hash of the network.
    tag: u64,
    /// When it will have leaked empty (the theoretical arrival time of the generic cell rate algorithm).
    empty_at: u64,
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set([Bucket; WAYS]);

const _: () = assert!(size_of::<Set>() == 64);

/// The rates of one core.
pub(super) struct SynRates {
    limit: SynLimit,
    /// Between two SYNs at the limit.
    interval: u64,
    /// How far ahead of its leaking a bucket may be filled.
    depth: u64,
    sets: Box<[Set]>,
    hash: TableHash,
}

impl SynRates {
    /// `sets` is a power of two.
    pub(super) fn new(limit: SynLimit, sets: usize, hash: TableHash) -> SynRates {
        debug_assert!(sets.is_power_of_two());
        // A limit of none at all would never leak: one in about eighteen years is as good.
        let interval = match limit.per_second {
            0 => u64::MAX / 32,
            rate => (SECOND_NS / u64::from(rate)).max(1),
        };
        let others = u64::from(limit.burst.max(1) - 1);
        SynRates {
            limit,
            interval,
            depth: interval.saturating_mul(others),
            sets: vec![Set::default(); sets].into(),
            hash,
        }
    }

    pub(super) fn limit(&self) -> &SynLimit {
        &self.limit
    }

    /// Counts a SYN from this address, unless its network has sent too many.
    #[inline]
    pub(super) fn admits(&mut self, source: IpAddr, now: u64) -> bool {
        let hash = self.network(source);
        let place = (hash >> 32) as usize & (self.sets.len() - 1);
        let ways = &mut self.sets[place].0;
        let own = ways.iter().position(|bucket| bucket.tag == hash);
        // The one that has leaked most, its debt included, is the newcomer's.
        let place = own.unwrap_or_else(|| emptiest(ways));
        let bucket = &mut ways[place];
        bucket.tag = hash;
        let empty_at = bucket.empty_at.max(now);
        if empty_at - now > self.depth {
            return false;
        }
        bucket.empty_at = empty_at.saturating_add(self.interval);
        true
    }

    /// The hash of the network of an address.
    #[inline]
    fn network(&self, source: IpAddr) -> u64 {
        let SynLimit {
            prefix_v4,
            prefix_v6,
            ..
        } = self.limit;
        match source {
            IpAddr::V4(source) => {
                let rest = 32 - u32::from(prefix_v4.min(32));
                let network = source.to_bits() & u32::MAX.checked_shl(rest).unwrap_or(0);
                self.hash.v4(&FlowKeyV4 {
                    peer: network.into(),
                    local: Ipv4Addr::UNSPECIFIED,
                    peer_port: 0,
                    local_port: 0,
                })
            }
            IpAddr::V6(source) => {
                let rest = 128 - u32::from(prefix_v6.min(128));
                let network = source.to_bits() & u128::MAX.checked_shl(rest).unwrap_or(0);
                self.hash.v6(&FlowKeyV6 {
                    peer: network.into(),
                    local: Ipv6Addr::UNSPECIFIED,
                    peer_port: 0,
                    local_port: 0,
                })
            }
        }
    }
}

#[inline]
fn emptiest(ways: &[Bucket; WAYS]) -> usize {
    let mut best = 0;
    for way in 1..WAYS {
        if ways[way].empty_at < ways[best].empty_at {
            best = way;
        }
    }
    best
}

#[cfg(test)]
mod tests;
