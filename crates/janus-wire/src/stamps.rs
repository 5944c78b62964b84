//! Timestamps that a host sends (RFC 7323): a clock of milliseconds from an offset of each connection's own (section 5.4), and, if it is
//! told to, the number of the connection's owner. Then the lowest bits are the owner's number, and the clock ticks as much more coarsely;
//! the peer echoes all of it, and the core that receives the packet can read the owner from it. The number is hidden under bits of the
//! keyed hash that makes the offset, so strangers do not learn which of their connections share an owner. The hash is a pseudo-random
//! function: a stranger sees it for as many connections of its own as it likes. An echo comes from the peer, and can be any value.

use crate::flow::FlowKey;
use crate::siphash::siphash_1_3_flow;

/// Makes timestamps and reads their echoes. All owners of one host have equal keys.
#[derive(Clone, Copy)]
pub struct Stamps {
    keys: (u64, u64),
    /// The bits of the owner's number; 0: none is given.
    mask: u32,
    owner: u8,
    owners: u16,
}

/// Part of a connection's timestamps that stays: its offset from the clock and, in the bits that are not the clock's, its owner. A
/// connection that began here has one of 31 bits: 24 days, more than the clock of a host tells of how long that has been up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampBase(u32);

impl StampBase {
    const BITS: u32 = (1 << 31) - 1;

    /// The number.
    #[inline(always)]
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The base that this number stands for.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns 20 of the offset's bits, for a flow label. None of them can be the owner's.
    #[inline(always)]
    #[must_use]
    pub const fn flow_label(self) -> u32 {
        (self.0 & Self::BITS) >> 11
    }
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

    /// Returns what the connection that has this [`hash`](Self::hash) adds to the clock.
    #[inline(always)]
    #[must_use]
    pub const fn base(&self, hash: u64) -> StampBase {
        let owner = veil(hash) ^ self.owner as u32;
        StampBase((hash as u32 & !self.mask | owner & self.mask) & StampBase::BITS)
    }

    /// Returns what a connection with this [`hash`](Self::hash) adds to the clock whose timestamps another owner has made until
    /// `now_ms`, when it would have sent `last`: its own follow on, and name this owner.
    #[inline]
    #[must_use]
    pub const fn resume(&self, hash: u64, last: u32, now_ms: u32) -> StampBase {
        let owner = (veil(hash) ^ self.owner as u32) & self.mask;
        let ahead = owner.wrapping_sub(last) & self.mask;
        let next = last.wrapping_add(ahead);
        StampBase(next.wrapping_sub(now_ms & !self.mask))
    }

    /// Returns the timestamp at this time.
    #[inline(always)]
    #[must_use]
    pub const fn stamp(&self, base: StampBase, now_ms: u32) -> u32 {
        // The lowest bits of the base meet zeros.
        (now_ms & !self.mask).wrapping_add(base.0)
    }

    /// How long ago, at most, the timestamp was made that is echoed; [`slack_ms`](Self::slack_ms) less at least. One from the
    /// future gives a large number.
    #[inline]
    #[must_use]
    pub const fn age_ms(&self, base: StampBase, now_ms: u32, echo: u32) -> u32 {
        let clock = now_ms.wrapping_add(base.0 & !self.mask);
        clock.wrapping_sub(echo & !self.mask)
    }

    /// Returns the owner that an echo names; `None` where timestamps carry no owner, or where the number belongs to no owner.
    #[inline]
    #[must_use]
    pub fn owner(&self, flow: &FlowKey, echo: u32) -> Option<u8> {
        let owner = (veil(self.hash(flow)) ^ echo) & self.mask;
        (self.mask != 0 && owner < u32::from(self.owners)).then_some(owner as u8)
    }

    /// Returns the keyed hash of a connection. Its lowest 31 bits are the offset, the topmost eight bits hide the owner, and timestamps do
    /// not use the others.
    #[inline]
    #[must_use]
    pub fn hash(&self, flow: &FlowKey) -> u64 {
        siphash_1_3_flow(self.keys, flow)
    }
}

/// Says nothing of the keys.
impl core::fmt::Debug for Stamps {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Stamps({} owner bits)", self.bits())
    }
}

#[inline]
const fn veil(hash: u64) -> u32 {
    (hash >> 56) as u32
}

#[cfg(test)]
mod tests;
