//! TCP options: maximum segment size (RFC 9293), window scale and timestamps (RFC 7323), SACK (RFC 2018), the user
//! timeout (RFC 5482). Reading is tolerant, writing keeps the order and padding that Linux uses, which middleboxes know
//! and packet comparers expect; what Linux does not send stands last.

use core::num::NonZeroU16;

use crate::SeqNum;
use crate::usual::UsualOptions;

/// Most bytes of options that a header holds.
pub const LEN_MAX: usize = 40;
/// Most SACK blocks that fit a header (RFC 2018 section 3); three beside timestamps.
pub const SACK_BLOCKS_MAX: usize = 4;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const USER_TIMEOUT: u8 = 28;
/// First word of a timestamps option that is the only option: two NOPs, kind, length.
pub(crate) const TIMESTAMPS_WORD: u32 = u32::from_be_bytes([NOP, NOP, TIMESTAMPS, 10]);

/// The SACK blocks of one segment, in wire order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(SeqNum, SeqNum); SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// No block.
    pub const NONE: Self = Self {
        blocks: [(SeqNum(0), SeqNum(0)); SACK_BLOCKS_MAX],
        count: 0,
    };

    /// Adds a block `[left, right)`; false when all places are taken.
    #[inline]
    pub fn push(&mut self, left: SeqNum, right: SeqNum) -> bool {
        match self.blocks.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = (left, right);
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// The blocks, first written first.
    #[inline]
    pub fn as_slice(&self) -> &[(SeqNum, SeqNum)] {
        &self.blocks[..usize::from(self.count).min(SACK_BLOCKS_MAX)]
    }

    /// How many blocks there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// There is no block.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// How long the sender keeps a connection alive that gets nowhere (RFC 5482 section 3.3): fifteen bits of seconds or, with
/// the top bit, of minutes. Never zero, which is reserved (section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UserTimeout(NonZeroU16);

impl UserTimeout {
    /// The longest there is: 32,767 minutes.
    pub const LONGEST_SECS: u32 = Self::NUMBER as u32 * 60;
    const MINUTES: u16 = 1 << 15;
    const NUMBER: u16 = Self::MINUTES - 1;

    /// As on the wire. `None`: it is one of the reserved values.
    /// Keeps 5482-9.
    #[inline]
    pub const fn from_bits(bits: u16) -> Option<Self> {
        if bits & Self::NUMBER == 0 {
            return None;
        }
        match NonZeroU16::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// As it goes on the wire.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0.get()
    }

    /// The shortest that is no shorter than `secs`, as far as there is one.
    pub const fn from_secs(secs: u32) -> Self {
        let bits = if secs <= Self::NUMBER as u32 {
            secs as u16
        } else if secs < Self::LONGEST_SECS {
            Self::MINUTES | secs.div_ceil(60) as u16
        } else {
            u16::MAX
        };
        match NonZeroU16::new(bits) {
            Some(bits) => Self(bits),
            None => Self(NonZeroU16::MIN),
        }
    }

    /// Seconds.
    /// Keeps 5482-8.
    pub const fn as_secs(self) -> u32 {
        let number = (self.bits() & Self::NUMBER) as u32;
        if self.bits() & Self::MINUTES == 0 {
            number
        } else {
            number * 60
        }
    }
}

/// The options of one segment, as read or to be written.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale as on the wire; the stack uses 14 for anything above (RFC 7323 section 2.3).
    pub window_scale: Option<u8>,
    /// Timestamp value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// User timeout.
    pub user_timeout: Option<UserTimeout>,
}

/// Options that [`super::emit`] writes: the same record, filled by the sender.
pub type OptionsToSend = Options;

impl Options {
    /// No option.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        timestamps: None,
        sack_permitted: false,
        sack: SackBlocks::NONE,
        user_timeout: None,
    };

    /// Only timestamps, what nearly every segment of an established connection carries.
    #[inline]
    pub const fn timestamps(value: u32, echo: u32) -> Self {
        Self {
            timestamps: Some((value, echo)),
            ..Self::NONE
        }
    }

    /// Returns these options in one of the layouts that nearly all segments have, if they fit one.
    #[inline(always)]
    pub const fn usual(&self) -> Option<UsualOptions> {
        if !self.sack.is_empty() || self.user_timeout.is_some() {
            return None;
        }
        match (self.mss, self.window_scale, self.timestamps) {
            (None, None, timestamps) if !self.sack_permitted => Some(match timestamps {
                Some((value, echo)) => UsualOptions::Timestamps(value, echo),
                None => UsualOptions::None,
            }),
            (Some(mss), Some(scale), Some(timestamps)) if self.sack_permitted => {
                Some(UsualOptions::Syn {
                    mss,
                    timestamps,
                    scale,
                })
            }
            (Some(mss), Some(scale), None) if self.sack_permitted => {
                Some(UsualOptions::PlainSyn { mss, scale })
            }
            _ => None,
        }
    }

    /// The words that are written when there is nothing but timestamps.
    #[inline]
    pub(super) const fn only_timestamps(&self) -> Option<[u32; 3]> {
        match self {
            Self {
                mss: None,
                window_scale: None,
                timestamps: Some((value, echo)),
                sack_permitted: false,
                user_timeout: None,
                sack,
            } if sack.is_empty() => Some([TIMESTAMPS_WORD, *value, *echo]),
            _ => None,
        }
    }

    /// Bytes that [`Options::emit`] writes, a multiple of four.
    #[inline]
    pub const fn emitted_len(&self) -> usize {
        let base = self.len_without_sack();
        base + sack_len(self.sack_fitting(base))
    }

    #[inline(always)]
    const fn len_without_sack(&self) -> usize {
        // "SACK permitted" takes the place of the two NOPs before timestamps.
        let sack_permitted_alone = self.sack_permitted && self.timestamps.is_none();
        self.mss.is_some() as usize * 4
            + self.timestamps.is_some() as usize * 12
            + sack_permitted_alone as usize * 4
            + self.window_scale.is_some() as usize * 4
            + self.user_timeout.is_some() as usize * 4
    }

    /// How many of the blocks fit behind `used` bytes.
    #[inline(always)]
    const fn sack_fitting(&self, used: usize) -> usize {
        let room = (LEN_MAX - used).saturating_sub(4) / 8;
        if self.sack.len() < room {
            self.sack.len()
        } else {
            room
        }
    }

    /// Writes the options at the start of `out` and returns their length. SACK blocks that do not fit are left out.
    ///
    /// # Panics
    /// When `out` is shorter than [`Options::emitted_len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self.only_timestamps() {
            Some([_, value, echo]) => {
                out[..12].copy_from_slice(&timestamps_bytes(NOP, NOP, (value, echo)));
                12
            }
            None => self.emit_any(out),
        }
    }

    /// Keeps MUST-69.
    fn emit_any(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[MSS, 4, high, low]);
        }
        match (self.timestamps, self.sack_permitted) {
            (Some(ts), true) => put(&timestamps_bytes(SACK_PERMITTED, 2, ts)),
            (Some(ts), false) => put(&timestamps_bytes(NOP, NOP, ts)),
            (None, true) => put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (None, false) => {}
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        let blocks = &self.sack.as_slice()[..self.sack_fitting(self.len_without_sack())];
        if !blocks.is_empty() {
            put(&[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for (left, right) in blocks {
                put(&left.0.to_be_bytes());
                put(&right.0.to_be_bytes());
            }
        }
        if let Some(timeout) = self.user_timeout {
            let [high, low] = timeout.bits().to_be_bytes();
            put(&[USER_TIMEOUT, 4, high, low]);
        }
        at
    }
}

/// The words of a SYN that [`Options::emit`] writes where all of them are there, as [`parse_usual_syn`] reads them.
#[inline(always)]
pub(crate) const fn usual_syn(mss: u16, value: u32, echo: u32, scale: u8) -> [u32; 5] {
    let size = u32::from_be_bytes([MSS, 4, 0, 0]) | mss as u32;
    let stamps = u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMPS, 10]);
    let scale = u32::from_be_bytes([NOP, WINDOW_SCALE, 3, scale]);
    [size, stamps, value, echo, scale]
}

/// "SACK permitted" on its own, and a window scale of 0, each with its padding before it.
const SACK_PERMITTED_WORD: u32 = u32::from_be_bytes([NOP, NOP, SACK_PERMITTED, 2]);
const SCALE_WORD: u32 = u32::from_be_bytes([NOP, WINDOW_SCALE, 3, 0]);

/// Like [`usual_syn`], without timestamps.
#[inline(always)]
pub(crate) const fn plain_syn(mss: u16, scale: u8) -> [u32; 3] {
    let size = u32::from_be_bytes([MSS, 4, 0, 0]) | mss as u32;
    [size, SACK_PERMITTED_WORD, SCALE_WORD | scale as u32]
}

#[inline(always)]
const fn sack_len(blocks: usize) -> usize {
    if blocks == 0 { 0 } else { 4 + 8 * blocks }
}

#[inline(always)]
fn timestamps_bytes(first: u8, second: u8, (value, echo): (u32, u32)) -> [u8; 12] {
    let (v, e) = (value.to_be_bytes(), echo.to_be_bytes());
    [
        first, second, TIMESTAMPS, 10, v[0], v[1], v[2], v[3], e[0], e[1], e[2], e[3],
    ]
}

/// Reads the options of a segment. Unknown options are skipped; a length that cannot be true ends the walk and what was
/// read before it stands (RFC 9293 MUST-7: never crash, never loop). Of repeated options the last one counts.
#[inline]
pub fn parse(bytes: &[u8]) -> Options {
    // RFC 7323 appendix A: the layout that nearly every segment has.
    if let Ok(b) = <&[u8; 12]>::try_from(bytes)
        && b[..4] == [NOP, NOP, TIMESTAMPS, 10]
    {
        return Options::timestamps(crate::be32(b, 4), crate::be32(b, 8));
    }
    if bytes.is_empty() {
        Options::NONE
    } else if let Ok(syn) = <&[u8; 12]>::try_from(bytes)
        && let Some(options) = parse_plain_syn(syn)
    {
        options
    } else if let Ok(syn) = <&[u8; 20]>::try_from(bytes)
        && let Some(options) = parse_usual_syn(syn)
    {
        options
    } else {
        parse_any(bytes)
    }
}

/// Value and echo of the timestamps among options that are not those alone.
#[inline]
pub(crate) fn other_timestamps(bytes: &[u8]) -> Option<(u32, u32)> {
    match <&[u8; 20]>::try_from(bytes) {
        Ok(syn) if is_usual_syn(syn) => Some((crate::be32(syn, 8), crate::be32(syn, 12))),
        _ => parse(bytes).timestamps,
    }
}

#[inline(always)]
fn is_usual_syn(b: &[u8; 20]) -> bool {
    b[..2] == [MSS, 4]
        && b[4..8] == [SACK_PERMITTED, 2, TIMESTAMPS, 10]
        && b[16..19] == [NOP, WINDOW_SCALE, 3]
}

/// The options of a SYN as Linux and what is modelled on it orders them: segment size, SACK permitted, timestamps, scale.
#[inline]
fn parse_usual_syn(b: &[u8; 20]) -> Option<Options> {
    is_usual_syn(b).then(|| Options {
        mss: Some(crate::be16(b, 2)),
        sack_permitted: true,
        window_scale: Some(b[19]),
        ..Options::timestamps(crate::be32(b, 8), crate::be32(b, 12))
    })
}

/// The options of a SYN without timestamps: as we order them, or as Windows does, the scale first.
#[inline]
fn parse_plain_syn(b: &[u8; 12]) -> Option<Options> {
    let scale = match (crate::be32(b, 4), crate::be32(b, 8)) {
        (SACK_PERMITTED_WORD, scale) | (scale, SACK_PERMITTED_WORD) => scale,
        _ => return None,
    };
    let is_usual = b[..2] == [MSS, 4] && scale & !0xff == SCALE_WORD;
    is_usual.then(|| Options {
        mss: Some(crate::be16(b, 2)),
        sack_permitted: true,
        window_scale: Some(scale as u8),
        ..Options::NONE
    })
}

/// Keeps MUST-4, MUST-64, MUST-68, MUST-7.
fn parse_any(mut rest: &[u8]) -> Options {
    let mut options = Options::NONE;
    // Each turn takes at least one byte.
    while let Some((&kind, after)) = rest.split_first() {
        match kind {
            END => break,
            NOP => {
                rest = after;
                continue;
            }
            _ => {}
        }
        let Some(&len) = after.first() else { break };
        let Some((option, next)) = rest.split_at_checked(usize::from(len).max(2)) else {
            break;
        };
        if len < 2 {
            break;
        }
        read_one(&mut options, kind, &option[2..]);
        rest = next;
    }
    options
}

/// A known kind with a wrong length is ignored, as an unknown kind is.
/// Keeps MUST-6.
#[inline]
fn read_one(options: &mut Options, kind: u8, body: &[u8]) {
    match (kind, body) {
        (MSS, &[high, low]) => options.mss = Some(u16::from_be_bytes([high, low])),
        (WINDOW_SCALE, &[shift]) => options.window_scale = Some(shift),
        (SACK_PERMITTED, &[]) => options.sack_permitted = true,
        (TIMESTAMPS, body) => {
            if let Ok(b) = <&[u8; 8]>::try_from(body) {
                options.timestamps = Some((crate::be32(b, 0), crate::be32(b, 4)));
            }
        }
        // The reserved values are no values (RFC 5482 section 3.4).
        (USER_TIMEOUT, &[high, low]) => {
            let bits = u16::from_be_bytes([high, low]);
            options.user_timeout = UserTimeout::from_bits(bits).or(options.user_timeout);
        }
        (SACK, body) => {
            let (blocks, odd) = body.as_chunks::<8>();
            if odd.is_empty() {
                options.sack = SackBlocks::NONE;
                for b in blocks {
                    options
                        .sack
                        .push(SeqNum(crate::be32(b, 0)), SeqNum(crate::be32(b, 4)));
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
