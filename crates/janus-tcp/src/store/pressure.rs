//! How short of packet buffers the stack is. What follows from it is in `conn/timer/pressure.rs`.

use crate::rules::config::Config;
use crate::store::Blocks;
use crate::store::counters::Counters;

/// How short packet buffers and segments are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There are enough.
    #[default]
    None,
    /// Three quarters are in use: nothing grows, and what came out of order makes room.
    High,
    /// Nearly all are in use: only what frees memory goes on.
    Critical,
}

/// The level of [`Pressure`], and what follows from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    pub(crate) level: Pressure,
    /// How many of [`ALL`] are in use.
    used: usize,
    /// Buffers that one connection may have to send from, now.
    pub(crate) share: u32,
}

impl Default for Shortage {
    fn default() -> Shortage {
        Shortage {
            level: Pressure::None,
            used: 0,
            share: u32::MAX,
        }
    }
}

impl Shortage {
    /// No buffer is left for what is received before a reader waits for it.
    pub(crate) fn nothing_to_keep(&self) -> bool {
        self.used >= KEPT
    }

    /// No buffer is left for what is sent.
    pub(crate) fn exhausted(&self) -> bool {
        self.used >= SENT
    }
}

impl Blocks {
    /// Looks at what is in use. Once for each batch: the depot is shared with other threads.
    #[inline]
    pub(crate) fn update_pressure(&mut self, config: &Config, counters: &mut Counters) -> Pressure {
        let (buffers, all) = self.pool.depot().fill();
        let segments = self.segments.len() * ALL / config.max_segments.max(1) as usize;
        let used = (buffers * ALL / all).max(segments);
        let spare = (all * HIGH / ALL).saturating_sub(buffers);
        let level = match used {
            CRITICAL.. => Pressure::Critical,
            HIGH.. => Pressure::High,
            _ => Pressure::None,
        };
        counters.pressure_rises += u64::from(level > self.shortage.level);
        self.shortage = Shortage {
            level,
            used,
            share: (spare as u32).max(SHARE_LEAST),
        };
        level
    }

    /// The connection that has waited longest for a gap to be filled loses what lies beyond it. Returns how many buffers that
    /// were.
    pub(crate) fn prune_oldest(&mut self) -> u32 {
        let (reorders, mut memory) = self.reordering();
        reorders.prune_oldest(&mut memory)
    }
}

/// What is in use is counted in parts of so many.
const ALL: usize = 64;

const HIGH: usize = 48;

const CRITICAL: usize = 60;

/// Where what is received finds none any more: the rest is for answers.
const KEPT: usize = 62;

/// Where they find none either: the rest is for what devices receive and what has no content.
const SENT: usize = 63;

/// Buffers taken from the pool until the next look at the depot.
pub(crate) const LOOK_EVERY: usize = 16;

/// A connection may have as many buffers to send from as are free before it is high. The more are in use, the less that is,
/// so that those who fill theirs leave room for those who come; one alone gets half of them. It is never less than this: two
/// segments are acknowledged at once.
pub(crate) const SHARE_LEAST: u32 = 2;
