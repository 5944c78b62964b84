//! What a host puts into its TCP timestamps (RFC 7323): a clock of milliseconds from an offset of each connection's own
//! (section 5.4), and, if it is told to, who owns the connection. Then the lowest bits are the owner's number, and the
//! clock ticks as much more coarsely; the peer echoes all of it, and whoever receives the packet can read whose it is.
//! The number is hidden under bits of the keyed hash that makes the offset, so strangers do not learn which of
//! their connections share an owner. An echo is what a peer says, and can be anything.

use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};
use core::net::Ipv6Addr;

/// Makes timestamps and reads their echoes. All owners of one host have equal keys.
#[derive(Clone, Copy)]
pub struct Stamps {
    keys: (u64, u64),
    /// The bits of the owner's number; 0: none is given.
    mask: u32,
    owner: u8,
    owners: u16,
}

impl Stamps {
    /// Timestamps that say nothing of an owner.
    #[must_use]
    pub const fn new(keys: (u64, u64)) -> Self {
        Self {
            keys,
            mask: 0,
            owner: 0,
            owners: 1,
        }
    }

    /// Timestamps of `owner`, one of so many. One alone need not be named.
    #[must_use]
    pub const fn naming(self, owner: u8, owners: u16) -> Self {
        Self {
            keys: self.keys,
            mask: (owners as u32).next_power_of_two() - 1,
            owner,
            owners,
        }
    }

    /// How many bits of a timestamp are not the clock's.
    #[inline]
    #[must_use]
    pub const fn bits(&self) -> u32 {
        self.mask.count_ones()
    }

    /// Milliseconds between two ticks, less one: how much older than it says a timestamp may be taken for.
    #[inline]
    #[must_use]
    pub const fn slack_ms(&self) -> u32 {
        self.mask
    }

    /// The timestamp of a connection at this time.
    #[inline]
    #[must_use]
    pub fn stamp(&self, flow: &FlowKey, now_ms: u32) -> u32 {
        let hash = self.hash(flow);
        let clock = now_ms.wrapping_add(hash as u32);
        clock & !self.mask | (veil(hash) ^ u32::from(self.owner)) & self.mask
    }

    /// How long ago, at most, the timestamp was made that is echoed; [`slack_ms`](Self::slack_ms) less at least. One from the
    /// future gives a large number.
    #[inline]
    #[must_use]
    pub fn age_ms(&self, flow: &FlowKey, now_ms: u32, echo: u32) -> u32 {
        let clock = now_ms.wrapping_add(self.hash(flow) as u32);
        clock.wrapping_sub(echo & !self.mask)
    }

    /// The owner that an echo names; `None` where timestamps name nobody, or a number that nobody has.
    #[inline]
    #[must_use]
    pub fn owner(&self, flow: &FlowKey, echo: u32) -> Option<u8> {
        let owner = (veil(self.hash(flow)) ^ echo) & self.mask;
        (self.mask != 0 && owner < u32::from(self.owners)).then_some(owner as u8)
    }

    /// The keyed hash of a connection whose low half is the offset. Bits 32 to 51 are nobody's, the topmost hide the owner.
    #[inline]
    #[must_use]
    pub fn hash(&self, flow: &FlowKey) -> u64 {
        match flow {
            FlowKey::V4(flow) => self.hash_v4(flow),
            FlowKey::V6(flow) => self.hash_v6(flow),
        }
    }

    #[inline]
    fn hash_v4(&self, flow: &FlowKeyV4) -> u64 {
        let (k0, k1) = self.keys;
        fold(flow.addresses() ^ k0, u64::from(flow.ports()) ^ k1 | 1)
    }

    /// [`hash`](Self::hash) of a connection over IPv6.
    #[inline(never)]
    #[must_use]
    pub fn hash_v6(&self, flow: &FlowKeyV6) -> u64 {
        let (k0, k1) = self.keys;
        let halves = |addr: Ipv6Addr| [(addr.to_bits() >> 64) as u64, addr.to_bits() as u64];
        let ([p0, p1], [l0, l1]) = (halves(flow.peer), halves(flow.local));
        let (peer, local) = (fold(p0 ^ k0, p1 ^ k1), fold(l0 ^ k1, l1 ^ k0));
        fold(
            peer ^ u64::from(flow.ports()) ^ k0,
            local.rotate_left(29) ^ k1,
        )
    }
}

/// Says nothing of the keys.
impl core::fmt::Debug for Stamps {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Stamps({} owner bits)", self.bits())
    }
}

#[inline]
fn veil(hash: u64) -> u32 {
    (hash >> 56) as u32
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests;
