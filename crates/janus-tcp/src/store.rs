//! The memory of connections: their records, the hot blocks of those that are busy, and the blocks that hang on these.

pub(crate) mod arrivals;
pub(crate) mod challenge;
pub(crate) mod cold;
pub(crate) mod counters;
pub(crate) mod crowd;
pub(crate) mod env;
pub(crate) mod fifo;
pub(crate) mod flows;
pub(crate) mod half_open;
pub(crate) mod hot;
pub(crate) mod index;
pub(crate) mod keys;
pub(crate) mod listener;
pub(crate) mod moves;
pub(crate) mod outgoing;
pub(crate) mod parcel;
pub(crate) mod paths;
pub(crate) mod pmtu;
pub(crate) mod pressure;
pub(crate) mod queue;
pub(crate) mod records;
pub(crate) mod recovery;
pub(crate) mod reorder;
pub(crate) mod rest;
pub(crate) mod reuse;
pub(crate) mod rto;
pub(crate) mod schedule;
pub(crate) mod segment;
pub(crate) mod sharing;
pub(crate) mod stub;
pub(crate) mod time_wait;
pub(crate) mod tuning;
pub(crate) mod urgent;
pub mod wheel;
pub(crate) mod window;

use janus_mem::{Frame, Growth, MemError, Pool};

use crate::coded::coded;
use crate::rules::config::Config;
use crate::store::cold::Tcb;
use crate::store::flows::Flows;
use crate::store::hot::Hot;
use crate::store::keys::{ConnSlot, HotId, RecoveryId, Slots, TuningId};
use crate::store::pressure::Shortage;
use crate::store::recovery::{Doubts, Recovery};
use crate::store::reorder::{Memory, Reorders};
use crate::store::segment::Segments;
use crate::store::tuning::Tuning;
use crate::store::urgent::Urgents;

/// The connections of a stack.
pub(crate) struct Store {
    pub(crate) tcbs: Flows<Tcb, ConnSlot>,
    pub(crate) hot: Slots<HotId, Hot>,
    pub(crate) blocks: Blocks,
}

/// Blocks that hot blocks name, and the packet buffers behind them.
pub(crate) struct Blocks {
    pub(crate) pool: Pool,
    pub(crate) segments: Segments,
    pub(crate) recovery: Slots<RecoveryId, Recovery>,
    pub(crate) reorders: Reorders,
    pub(crate) tunings: Slots<TuningId, Tuning>,
    pub(crate) urgents: Urgents,
    pub(crate) doubts: Doubts,
    /// By hot block, where send buffers are counted as in Linux.
    pub(crate) accounts: Vec<Account>,
    pub(crate) shortage: Shortage,
}

impl Blocks {
    /// What waits beyond gaps, and the memory that it waits in.
    pub(crate) fn reordering(&mut self) -> (&mut Reorders, Memory<'_>) {
        let memory = Memory {
            segments: &mut self.segments,
            pool: &mut self.pool,
        };
        (&mut self.reorders, memory)
    }

    /// Takes the buffer of a frame that was lent to the device.
    #[inline]
    pub(crate) fn came_home(&mut self, frame: Frame) {
        if let Some(id) = self.segments.named(frame.key) {
            self.segments.came_home(id, frame.buf, &mut self.pool);
        } else {
            self.pool.free(frame.buf);
        }
    }
}

impl Store {
    pub(crate) fn new(
        config: &Config,
        seed: u64,
        pool: Pool,
        growth: &Growth,
    ) -> Result<Store, MemError> {
        Ok(Store {
            tcbs: Flows::new(config.max_connections, growth)?,
            hot: Slots::new(config.max_hot, growth)?,
            blocks: Blocks {
                segments: Segments::new(config.max_segments, growth)?,
                recovery: Slots::new(config.max_hot, growth)?,
                reorders: Reorders::new(reordered_max(config, &pool), seed, growth)?,
                tunings: Slots::new(config.max_hot, growth)?,
                urgents: Urgents::new(),
                doubts: Doubts::new(),
                accounts: Vec::new(),
                shortage: Shortage::default(),
                pool,
            },
        })
    }
}

/// Packet buffers that may wait beyond gaps: of all there are, a quarter at most.
fn reordered_max(config: &Config, pool: &Pool) -> u32 {
    let all = pool.depot().stats().capacity as u32;
    config.max_reordered.min(all / 4).max(1)
}

/// State of a connection that counts as Linux does, beside its hot block.
#[derive(Clone, Copy, Default)]
pub(crate) struct Account {
    /// Budget in bytes, once it has grown; 0 = it has not.
    pub(crate) budget: u32,
    /// How much of the last large segment is filled.
    pub(crate) tail: u32,
}

coded!(Account { budget, tail });
