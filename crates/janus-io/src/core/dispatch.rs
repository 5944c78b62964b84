//! From a received burst to the shards' rings: steer, sort, hand over, ring the bells. The same code serves a dedicated
//! I/O core and a shard that polls its own queue and keeps what is its own. A full ring is a counted drop, never a wait;
//! before it is full, SYNs give way to what belongs to connections.

use std::sync::Arc;

use janus_csb::ShardId;
use janus_mem::{Frame, Pool};

use crate::batch::BURST;
use crate::core::cause::Cause;
use crate::core::policy::Stage;
use crate::core::steer::{Route, Steerer};
use crate::counter::Counter;
use crate::park::Unparker;
use crate::queue::Batch;
use crate::ring::Producer;

/// Counters of one polling core. Written by that core, read by any thread.
/// Exhaustive: the metrics take it apart, so that no field is forgotten.
#[derive(Debug, Default)]
pub struct IoCounters {
    /// Frames the device gave.
    pub received: Counter,
    /// Frames handed to shards, copies for every shard counted each.
    pub delivered: Counter,
    /// Frames lost because a shard's ring was full.
    pub dropped_full: Counter,
    /// SYNs lost because a shard's ring was nearly full (its last quarter is for the others), or in a shard's own queue because
    /// there were more than it can take.
    pub dropped_syn_room: Counter,
    /// Malformed frames: they were not what their headers claim.
    pub dropped_malformed: Counter,
    /// Frames of a protocol that the stack does not speak.
    pub dropped_unknown: Counter,
    /// Frames from or for an impossible address (martians).
    pub dropped_martian: Counter,
    /// Frames from an address that is not let in.
    pub dropped_denied: Counter,
    /// SYNs beyond what one network may send.
    pub dropped_syn_rate: Counter,
    /// Frames for a shard that this core has no ring to.
    pub dropped_no_shard: Counter,
    /// Copies for every shard that found no buffer.
    pub dropped_no_buffer: Counter,
    /// Frames given to the device.
    pub sent: Counter,
    /// LENT frames handed back to their shards.
    pub completed: Counter,
    /// Times the core slept.
    pub slept: Counter,
}

/// Share of places that SYNs must leave free, one in this many, in a ring and in the inbox of a shard that others hand frames on to. A
/// flood of SYNs is answered as fast as the shard can, so it fills the rest; but a SYN that is lost is retransmitted, and no state depends
/// on it yet.
pub const KEPT_FROM_SYNS: usize = 4;

/// The way to one shard.
pub(crate) struct Lane {
    pub(crate) ring: Producer<Frame>,
    pub(crate) bell: Unparker,
    staged: Batch,
}

impl Lane {
    pub(crate) fn new(ring: Producer<Frame>, bell: Unparker) -> Self {
        Self {
            ring,
            bell,
            staged: Batch::new(),
        }
    }

    /// Places that SYNs leave free.
    fn kept(&self) -> usize {
        self.ring.capacity() / KEPT_FROM_SYNS
    }

    /// The ring is nearly full: what is staged loses the SYNs that would not leave enough. How many.
    #[cold]
    #[inline(never)]
    fn give_way(&mut self, steerer: &Steerer, pool: &mut Pool) -> u64 {
        let places = self.ring.room().saturating_sub(self.kept());
        drop_syns(&mut self.staged, places, steerer, pool)
    }
}

/// Drops the SYNs of a burst that come when so many `places` are taken. How many.
fn drop_syns(burst: &mut Batch, mut places: usize, steerer: &Steerer, pool: &mut Pool) -> u64 {
    let mut all = std::mem::take(burst);
    let before = all.len();
    for frame in all.pull() {
        if places == 0 && steerer.opens(&frame) {
            pool.free(frame.buf);
        } else {
            places = places.saturating_sub(1);
            let refused = burst.push(frame);
            debug_assert!(refused.is_ok(), "it comes from there");
        }
    }
    (before - burst.len()) as u64
}

/// Sorts bursts by shard.
pub(crate) struct Dispatcher {
    pub(crate) steerer: Steerer,
    /// By shard; `None` for the one that keeps its own frames.
    lanes: Vec<Option<Lane>>,
    pub(crate) counters: Arc<IoCounters>,
    stage: Option<Box<Stage>>,
}

impl Dispatcher {
    pub(crate) fn new(mut steerer: Steerer, lanes: Vec<Option<Lane>>) -> Self {
        Self {
            stage: steerer.stage.take(),
            steerer,
            lanes,
            counters: Arc::default(),
        }
    }

    /// Hands a burst over, steered by what was adopted last; frames of the shard without a lane go to `mine`.
    pub(crate) fn dispatch(&mut self, burst: &mut Batch, pool: &mut Pool, mine: &mut Vec<Frame>) {
        if burst.is_empty() {
            return;
        }
        self.counters.received.add(burst.len() as u64);
        let is_open = self.is_open();
        if self.owns_all() {
            return self.keep(is_open, burst, pool, mine);
        }
        let mut routes = [Route::Every; BURST];
        match &mut self.stage {
            Some(stage) if !is_open => route_watched(&self.steerer, stage, burst, &mut routes),
            _ => self.steerer.route_burst(burst, &mut routes),
        }
        let kept = mine.len();
        for (frame, route) in burst.pull().zip(routes) {
            match route {
                Route::Shard(shard) | Route::Socket(shard) => self.put(frame, shard, pool, mine),
                Route::Every => self.put_every(frame, pool, mine),
                Route::Drop(cause) => refuse(&self.counters, frame, cause, pool),
            }
        }
        let delivered = (mine.len() - kept) as u64 + self.flush(pool);
        self.counters.delivered.add(delivered);
    }

    /// Whether there is one shard only, and this core is it: nothing has to be steered.
    #[inline]
    fn owns_all(&self) -> bool {
        matches!(self.lanes[..], [None])
    }

    /// Keeps what is let in of a burst. The stack reads each frame anyway, and counts what is wrong with it.
    fn keep(&mut self, is_open: bool, burst: &mut Batch, pool: &mut Pool, mine: &mut Vec<Frame>) {
        let (before, tag) = (mine.len(), self.steerer.published_tag().bits());
        match &mut self.stage {
            Some(stage) if !is_open => {
                keep_watched(&self.steerer, stage, &self.counters, burst, pool, mine);
            }
            _ => burst.append_to(mine),
        }
        let kept = &mut mine[before..];
        self.counters.delivered.add(kept.len() as u64);
        for frame in kept {
            frame.key = 0;
            frame.steer(tag);
        }
    }

    /// Drops the SYNs out of a burst that the core has no time for.
    #[cold]
    pub(crate) fn refuse_syns(&mut self, burst: &mut Batch, pool: &mut Pool) {
        let refused = drop_syns(burst, 0, &self.steerer, pool);
        self.counters.received.add(refused);
        self.counters.dropped_syn_room.add(refused);
    }

    /// Adopts newer rules. True where they let everything in.
    #[inline]
    fn is_open(&mut self) -> bool {
        self.stage.as_mut().is_none_or(|stage| {
            stage.refresh();
            stage.is_open()
        })
    }

    #[inline]
    fn put(&mut self, frame: Frame, shard: ShardId, pool: &mut Pool, mine: &mut Vec<Frame>) {
        match self.lanes.get_mut(shard.index()) {
            Some(Some(lane)) => {
                let refused = lane.staged.push(frame);
                debug_assert!(
                    refused.is_ok(),
                    "a lane gets at most one of each frame of a burst"
                );
            }
            Some(None) => mine.push(frame),
            None => {
                self.counters.dropped_no_shard.add(1);
                pool.free(frame.buf);
            }
        }
    }

    #[cold]
    fn put_every(&mut self, frame: Frame, pool: &mut Pool, mine: &mut Vec<Frame>) {
        let last = self.lanes.len().saturating_sub(1);
        for shard in 0..last {
            let Some(buf) = pool.alloc() else {
                self.counters.dropped_no_buffer.add(1);
                continue;
            };
            let mut copy = Frame::new(buf, frame.len);
            copy.data_mut().copy_from_slice(frame.data());
            self.put(copy, ShardId(shard as u8), pool, mine);
        }
        self.put(frame, ShardId(last as u8), pool, mine);
    }

    fn flush(&mut self, pool: &mut Pool) -> u64 {
        let mut delivered = 0;
        for lane in self
            .lanes
            .iter_mut()
            .flatten()
            .filter(|lane| !lane.staged.is_empty())
        {
            if !lane.ring.fits(lane.staged.len() + lane.kept()) {
                let lost = lane.give_way(&self.steerer, pool);
                self.counters.dropped_syn_room.add(lost);
            }
            delivered += lane.ring.push_batch(&mut lane.staged) as u64;
            lane.bell.wake();
            if !lane.staged.is_empty() {
                self.counters.dropped_full.add(lane.staged.len() as u64);
                for frame in lane.staged.pull() {
                    pool.free(frame.buf);
                }
            }
        }
        delivered
    }
}

#[cold]
fn refuse(counters: &IoCounters, frame: Frame, cause: Cause, pool: &mut Pool) {
    match cause {
        Cause::Malformed => &counters.dropped_malformed,
        Cause::Unknown => &counters.dropped_unknown,
        Cause::Martian => &counters.dropped_martian,
        Cause::Denied => &counters.dropped_denied,
        Cause::TooManySyns => &counters.dropped_syn_rate,
    }
    .add(1);
    pool.free(frame.buf);
}

/// Keeps what the rules let in of a burst that is not steered.
#[inline(never)]
fn keep_watched(
    steerer: &Steerer,
    stage: &mut Stage,
    counters: &IoCounters,
    burst: &mut Batch,
    pool: &mut Pool,
    mine: &mut Vec<Frame>,
) {
    let mut gate = stage.burst();
    for frame in burst.pull() {
        // Another member's of a daemon has crossed no device, and may come from an address of ours.
        let refusal = match frame.is_looped() {
            true => None,
            false => steerer.refusal(&mut gate, frame.data()),
        };
        match refusal {
            None => mine.push(frame),
            Some(cause) => refuse(counters, frame, cause, pool),
        }
    }
}

/// On its own, so that a core without rules runs past no code of theirs.
#[inline(never)]
fn route_watched(
    steerer: &Steerer,
    stage: &mut Stage,
    burst: &mut Batch,
    routes: &mut [Route; BURST],
) {
    steerer.route_past(&mut stage.burst(), burst, routes);
}
