//! SYN cookies (RFC 4987 section 3.6): when too many handshakes are half done, the SYN-ACK's own sequence number says
//! what the SYN said, under a keyed hash, and nothing is kept. Here is the arithmetic; the segments are in `handshake`.
//!
//! The number's 32 bits are 28 of the hash, one that says in which of two periods it was made, and three that name one
//! of eight segment sizes. The hash covers both ends, the peer's initial number, the period, the size and the options,
//! so one computation judges a number, and a forger's chance is 2⁻²⁸ at each try.
//!
//! Of the options a sequence number has no room for, six bits lie in the lowest bits of the timestamp that the SYN-ACK
//! carries, which the peer's first segment echoes: its window scale, SACK, ECN. So without timestamps a connection made
//! by a cookie has none of these. Such a timestamp is up to [`TICKS_KEPT_BACK`] ticks older than the clock, never newer:
//! the connection's later ones are not older than its first. No round trip is measured from it.
//!
//! Under [`SynCookies::Pressure`](crate::SynCookies::Pressure) a SYN gets a cookie when the stack's half-open records, or those of its listener, are
//! at their bound: no record is pushed out for it. An acknowledgement is judged only while a cookie that some shard sent may
//! still be good, so at other times a stray acknowledgement is not worth even a hash.

#[cfg(test)]
mod tests;

use janus_wire::siphash::{siphash_2_4, words_of};
use janus_wire::{FlowKey, SeqNum};

use crate::rules::config::{Secrets, period};
use crate::store::cold::flag;
use crate::store::half_open::NO_SCALE;
use crate::time::Instant;

/// The sizes of segments that a cookie can name, by family; a SYN's is rounded down. What Ethernet gives, what common
/// tunnels leave of it, what everybody must take, jumbo frames, and for the rest the least the stack works with.
const SIZES_V4: [u16; 8] = [48, 536, 1_200, 1_300, 1_400, 1_440, 1_460, 8_960];
const SIZES_V6: [u16; 8] = [48, 536, 1_220, 1_300, 1_380, 1_420, 1_440, 8_940];
/// Bits of a timestamp that say what the SYN offered.
const TIMESTAMP_BITS: u32 = 6;
/// How much older than the clock a timestamp with options in it can be.
pub(crate) const TICKS_KEPT_BACK: u32 = (1 << TIMESTAMP_BITS) - 1;
const SCALE_MASK: u32 = 0xf;
/// In the place of a window scale, which is 14 at most.
const SCALE_NONE: u32 = 0xf;
const SACK_BIT: u32 = 1 << 4;
const ECN_BIT: u32 = 1 << 5;
/// In the hash in the place of option bits: the connection has no timestamps to carry any.
const NO_OPTIONS: u32 = u32::MAX;

/// Options of a SYN, as far as a cookie keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(super) mss: u16,
    /// The peer's window scale, or [`NO_SCALE`].
    pub(super) peer_scale: u8,
    /// Options both sides agreed on: bits of [`flag`].
    pub(super) flags: u8,
}

impl Offer {
    /// Returns the part of an offer that a cookie can carry.
    pub(crate) fn as_kept(self, key: &FlowKey) -> Offer {
        let sizes = sizes(key);
        let mss = sizes[size_index(sizes, self.mss)];
        if self.flags & flag::TIMESTAMPS != 0 {
            return Offer { mss, ..self };
        }
        Offer {
            mss,
            peer_scale: NO_SCALE,
            flags: 0,
        }
    }

    /// As the timestamp carries it.
    fn bits(self) -> u32 {
        if self.flags & flag::TIMESTAMPS == 0 {
            return NO_OPTIONS;
        }
        let bit = |flag: u8, bit: u32| if self.flags & flag != 0 { bit } else { 0 };
        let scale = if self.peer_scale == NO_SCALE {
            SCALE_NONE
        } else {
            u32::from(self.peer_scale.min(14))
        };
        scale | bit(flag::SACK, SACK_BIT) | bit(flag::ECN, ECN_BIT)
    }

    /// The inverse of [`Offer::bits`], from the timestamp that came back.
    fn from_echo(mss: u16, echo: Option<u32>) -> Offer {
        let Some(echo) = echo else {
            return Offer {
                mss,
                peer_scale: NO_SCALE,
                flags: 0,
            };
        };
        let bit = |bit: u32, flag: u8| if echo & bit != 0 { flag } else { 0 };
        let scale = echo & SCALE_MASK;
        Offer {
            mss,
            peer_scale: if scale == SCALE_NONE {
                NO_SCALE
            } else {
                scale as u8
            },
            flags: flag::TIMESTAMPS | bit(SACK_BIT, flag::SACK) | bit(ECN_BIT, flag::ECN),
        }
    }

    /// A timestamp not newer than `clock` with the offer in its low bits, above the `owner_bits` lowest, which stay.
    pub(crate) fn timestamp(self, clock: u32, owner_bits: u32) -> u32 {
        let place = TICKS_KEPT_BACK << owner_bits;
        let coded = clock & !place | (self.bits() & TICKS_KEPT_BACK) << owner_bits;
        if coded & place > clock & place {
            coded.wrapping_sub((TICKS_KEPT_BACK + 1) << owner_bits)
        } else {
            coded
        }
    }
}

/// The cookie for a SYN: the initial sequence number of the SYN-ACK. `offer` is what [`Offer::as_kept`] gave.
pub(crate) fn make(
    secrets: &Secrets,
    key: &FlowKey,
    irs: SeqNum,
    offer: Offer,
    now: Instant,
) -> SeqNum {
    let size = size_index(sizes(key), offer.mss) as u32;
    number(secrets, key, irs, (size, offer.bits()), period(now))
}

/// Returns the offer of the SYN that `cookie` was made for; `None` if it was not made here, or too long ago. `echo` is the
/// timestamp that came back.
pub(crate) fn judge(
    secrets: &Secrets,
    key: &FlowKey,
    irs: SeqNum,
    cookie: SeqNum,
    echo: Option<u32>,
    now: Instant,
) -> Option<Offer> {
    let size = cookie.0 & 7;
    let this = period(now);
    // The bit that tells apart this period and the one before.
    let age = (this ^ (cookie.0 >> 3)) & 1;
    let made = this.checked_sub(age)?;
    let echo = echo.map(|echo| echo >> secrets.stamps().bits());
    let offer = Offer::from_echo(sizes(key)[size as usize], echo);
    // The scale of an offer is read tolerantly, so the bits are hashed as they came.
    let bits = echo.map_or(NO_OPTIONS, |echo| echo & TICKS_KEPT_BACK);
    (number(secrets, key, irs, (size, bits), made) == cookie).then_some(offer)
}

fn number(
    secrets: &Secrets,
    key: &FlowKey,
    irs: SeqNum,
    (size, bits): (u32, u32),
    period: u32,
) -> SeqNum {
    let [a, b, c, d, e] = words(key);
    let said = u64::from(irs.0) << 32 | u64::from(size);
    let when = u64::from(period) << 32 | u64::from(bits);
    let hash = siphash_2_4(secrets.cookie_key(), [a, b, c, d, e, said, when]);
    SeqNum((hash as u32) << 4 | (period & 1) << 3 | size)
}

/// Both ends.
fn words(key: &FlowKey) -> [u64; 5] {
    let ([p0, p1], [l0, l1]) = (words_of(key.peer()), words_of(key.local()));
    let ports = u64::from(key.peer_port()) << 16 | u64::from(key.local_port());
    [p0, p1, l0, l1, ports]
}

fn sizes(key: &FlowKey) -> &'static [u16; 8] {
    match key {
        FlowKey::V4(_) => &SIZES_V4,
        FlowKey::V6(_) => &SIZES_V6,
    }
}

/// The largest size in the table that is not larger than `mss`.
fn size_index(sizes: &[u16; 8], mss: u16) -> usize {
    sizes.partition_point(|&size| size <= mss).saturating_sub(1)
}
