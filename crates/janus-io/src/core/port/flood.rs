//! More SYNs than a shard that polls its own queue can take. The device loses what it has no room for, whichever shard it is for; so the
//! shard looks behind the batch it is about to serve, and the frames of connections that it finds there go before the SYNs there, which are
//! dropped: a lost SYN is retransmitted, and no state depends on it yet. (Where other cores poll, they empty the queue as fast as they can,
//! and the SYNs give way in the rings: `dispatch.rs`.)

use janus_mem::{Frame, Pool};

use super::Own;
use crate::batch::BURST;

/// Full batches of SYNs, one after the other, that are no flood yet: all who come back after a pause do so at once, and are
/// served.
const PATIENCE: u32 = 16;
/// One of so many frames of a batch is looked at for what it is: a shard that has much to do always has full batches.
const SAMPLE: usize = 8;
/// Batches it looks behind its own in a turn: more than most devices hold.
const LOOKS: usize = 32;
/// With so many frames for the shard it has enough to do for a turn.
const ENOUGH: usize = BURST + BURST / 2;

/// Turns for which a flood is remembered: where one has been there are more waves of it.
const MEMORY: u32 = 1_024;

/// Whether there is one.
#[derive(Debug, Default)]
pub(super) struct Flood {
    /// Full batches of SYNs one after the other.
    batches: u32,
    /// Turns until it is forgotten.
    remembered: u32,
}

impl Flood {
    /// A batch was taken, which is a full one of SYNs, or not. Whether that has been so for a while.
    #[inline]
    fn persists(&mut self, is_full_of_syns: bool) -> bool {
        self.remembered = self.remembered.saturating_sub(1);
        if !is_full_of_syns {
            self.batches = 0;
            return false;
        }
        self.batches = self.batches.saturating_add(1);
        self.batches > PATIENCE || self.remembered > 0
    }
}

impl Own {
    /// A batch of the queue, of `most` frames at most, and in a flood of SYNs what stands behind it of connections. How many
    /// frames there were in the batch, and how many behind.
    #[inline]
    pub(super) fn receive(
        &mut self,
        most: usize,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
    ) -> (usize, usize) {
        let before = frames.len();
        self.burst.set_limit(most);
        self.queue.rx_burst(pool, &mut self.burst);
        let received = self.burst.len();
        let full_of_syns = self.burst.is_full() && self.is_mostly_syns();
        let is_flood = self.flood.persists(full_of_syns);
        self.dispatcher.dispatch(&mut self.burst, pool, frames);
        let behind = match is_flood {
            true => self.look_behind(before + ENOUGH, pool, frames),
            false => 0,
        };
        (received, behind)
    }

    fn is_mostly_syns(&self) -> bool {
        let steerer = &self.dispatcher.steerer;
        let (mut seen, mut syns) = (0, 0);
        for frame in self.burst.iter().step_by(SAMPLE) {
            seen += 1;
            syns += usize::from(steerer.opens(frame));
        }
        syns > seen / 2
    }

    /// Until there is nothing more, or `frames` are `enough`.
    #[cold]
    fn look_behind(&mut self, enough: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        self.flood.remembered = MEMORY;
        let mut behind = 0;
        for _ in 0..LOOKS {
            if frames.len() > enough {
                break;
            }
            self.burst.set_limit(BURST);
            self.queue.rx_burst(pool, &mut self.burst);
            let (found, is_last) = (self.burst.len(), !self.burst.is_full());
            self.dispatcher.refuse_syns(&mut self.burst, pool);
            self.dispatcher.dispatch(&mut self.burst, pool, frames);
            behind += found;
            if is_last {
                break;
            }
        }
        behind
    }
}
