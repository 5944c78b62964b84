//! Epochs number the states of the steering; a tag is what a packet carries of them. No state lives here.

use core::fmt;

const EPOCH_BITS: u32 = 12;
const EPOCH_MASK: u16 = (1 << EPOCH_BITS) - 1;
/// Between the epoch and the hint there are two bits that are not the balancer's.
const HINT: u16 = 1 << (EPOCH_BITS + 2);
/// Above the hint, with which it says that the packet chose; without, that a stub did.
const CLAIM: u16 = HINT << 1;

/// The number of a steering state, 12 bits and wrapping: only the distance between two epochs means anything, and it
/// is right as long as they are less than 2,048 apart. Packets live for a few epochs at most.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Epoch(u16);

impl Epoch {
    /// The epoch with these low 12 bits.
    pub const fn new(number: u16) -> Epoch {
        Epoch(number & EPOCH_MASK)
    }

    /// The number, below 2^12.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The epoch after this one.
    pub const fn next(self) -> Epoch {
        Epoch::new(self.0.wrapping_add(1))
    }

    /// The epoch before this one.
    pub const fn previous(self) -> Epoch {
        Epoch::new(self.0.wrapping_sub(1))
    }

    /// How many epochs after `other` this one is; negative when it came before.
    pub const fn since(self, other: Epoch) -> i32 {
        let apart = (self.0.wrapping_sub(other.0) & EPOCH_MASK) as i32;
        if apart >= 1 << (EPOCH_BITS - 1) {
            apart - (1 << EPOCH_BITS)
        } else {
            apart
        }
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

/// Epoch tag that a packet carries on its way to a shard: the epoch of the decision that sent it there (its *stage*),
/// and whether that decision was only a hint, that is, not made by the ring of that epoch itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tag(u16);

impl Tag {
    /// The bits of a frame's tag that are the balancer's. Those that are left out are for whoever carries the frame.
    pub const MASK: u16 = EPOCH_MASK | HINT | CLAIM;

    /// The tag of a decision of `epoch`.
    pub const fn new(epoch: Epoch, hint: bool) -> Tag {
        Tag(epoch.0 | if hint { HINT } else { 0 })
    }

    /// The tag of a packet that went where the packet itself says, which is no word of the balancer's: a shard that does not
    /// know its flow looks it up, as an I/O core would have done, before anything else.
    pub const fn claim(epoch: Epoch) -> Tag {
        Tag(epoch.0 | HINT | CLAIM)
    }

    /// The tag of a packet that a stub has led to where its flow went (rule 14): where that is not, it is dropped.
    pub const fn redirected(epoch: Epoch) -> Tag {
        Tag(epoch.0 | CLAIM)
    }

    /// The tag as it travels in a frame.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The tag that [`bits`](Tag::bits) gave, whatever has been written beside it. Every value holds a tag.
    pub const fn from_bits(bits: u16) -> Tag {
        Tag(bits & Tag::MASK)
    }

    /// The epoch of the decision.
    pub const fn epoch(self) -> Epoch {
        Epoch::new(self.0)
    }

    /// Whether something other than the ring of the epoch chose the shard.
    pub const fn is_hint(self) -> bool {
        self.0 & HINT != 0
    }

    /// Whether the packet itself chose the shard.
    pub const fn is_claim(self) -> bool {
        self.0 & (HINT | CLAIM) == HINT | CLAIM
    }

    /// Whether a stub has led it.
    pub const fn is_redirected(self) -> bool {
        self.0 & (HINT | CLAIM) == CLAIM
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}{}",
            self.epoch(),
            if self.is_hint() { "?" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_right_across_the_wrap() {
        let last = Epoch::new(EPOCH_MASK);
        assert_eq!(last.next(), Epoch::new(0));
        assert_eq!(Epoch::new(0).previous(), last);
        assert_eq!(Epoch::new(2).since(last), 3);
        assert_eq!(last.since(Epoch::new(2)), -3);
        assert_eq!(last.since(last), 0);
        for number in [0, 1, 2_047, 2_048, EPOCH_MASK] {
            let epoch = Epoch::new(number);
            assert_eq!(epoch.next().since(epoch), 1);
            assert_eq!(epoch.previous().since(epoch), -1);
        }
    }

    #[test]
    fn a_tag_carries_both_parts() {
        for bits in 0..=u16::MAX {
            let tag = Tag::from_bits(bits);
            let made = match (tag.is_claim(), tag.is_redirected()) {
                (true, false) => Tag::claim(tag.epoch()),
                (false, true) => Tag::redirected(tag.epoch()),
                (false, false) => Tag::new(tag.epoch(), tag.is_hint()),
                (true, true) => unreachable!("one or the other"),
            };
            assert_eq!(made.bits(), bits & Tag::MASK);
        }
    }
}
