//! The memory of connections: their records, the hot blocks of those that are busy, and the blocks that hang on these.

use janus_mem::{Frame, Growth, MemError, Pool, Slab};

use crate::cold::Tcb;
use crate::config::Config;
use crate::flows::Flows;
use crate::frto::Doubts;
use crate::hot::Hot;
use crate::pressure::Shortage;
use crate::recovery::Recovery;
use crate::reorder::Reorders;
use crate::segment::Segments;
use crate::send_buffer::Account;
use crate::tuning::Tuning;
use crate::urgent::Urgents;
use crate::wire::Outgoing;

/// The connections of a stack.
pub(crate) struct Store {
    pub(crate) tcbs: Flows<Tcb>,
    pub(crate) hot: Slab<Hot>,
    pub(crate) blocks: Blocks,
}

/// Blocks that hot blocks name, and the packet buffers behind them.
pub(crate) struct Blocks {
    pub(crate) pool: Pool,
    pub(crate) segments: Segments,
    pub(crate) recovery: Slab<Recovery>,
    pub(crate) reorders: Reorders,
    pub(crate) tunings: Slab<Tuning>,
    pub(crate) urgents: Urgents,
    pub(crate) doubts: Doubts,
    /// By hot block, where send buffers are counted as in Linux.
    pub(crate) accounts: Vec<Account>,
    pub(crate) shortage: Shortage,
    /// Segments without payload that a rule has asked for; empty between two loans.
    pub(crate) answers: Vec<Outgoing>,
}

impl Blocks {
    /// Takes the buffer of a frame that was lent to the device.
    #[inline]
    pub(crate) fn came_home(&mut self, frame: Frame) {
        let id = frame.key;
        if self.segments.knows(id) {
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
            hot: Slab::new(config.max_hot, growth)?,
            blocks: Blocks {
                segments: Segments::new(config.max_segments, growth)?,
                recovery: Slab::new(config.max_hot, growth)?,
                reorders: Reorders::new(reordered_max(config, &pool), seed, growth)?,
                tunings: Slab::new(config.max_hot, growth)?,
                urgents: Urgents::new(),
                doubts: Doubts::new(),
                accounts: Vec::new(),
                shortage: Shortage::default(),
                answers: Vec::new(),
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
