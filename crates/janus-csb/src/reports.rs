//! The way from the shards to the control side: bounded channels of chunks, one for each shard, and a few numbers that
//! a shard leaves for who asks. A shard never waits here: what does not fit stays with it until the next slice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::flow::{Diverged, Gone};
use crate::shard::ShardId;

/// Flows in a chunk; 12 KiB.
pub(crate) const CHUNK: usize = 512;
/// Chunks of a shard that the control side has not taken yet.
const CHUNKS_WAITING: usize = 64;

/// Part of what a traversal found.
pub(crate) struct Chunk {
    /// The traversal it belongs to.
    pub(crate) pass: u64,
    pub(crate) kept: Vec<Diverged>,
    /// Flows that have left the shard, and where they are.
    pub(crate) gone: Vec<Gone>,
    /// The last of its traversal.
    pub(crate) last: bool,
}

/// Counters that a shard publishes for the control side.
#[derive(Debug, Default)]
struct Board {
    held: AtomicU64,
    drained: AtomicU32,
    /// The shard's end is dropped: the control side no longer waits for it.
    gone: AtomicBool,
}

/// Numbers the slices of all shards.
pub(crate) type Stamps = Arc<AtomicU32>;

/// The shard's side.
#[derive(Debug)]
pub(crate) struct Outbox {
    chunks: SyncSender<Chunk>,
    stamps: Stamps,
    board: Arc<Board>,
}

/// The control side.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) shard: ShardId,
    chunks: Receiver<Chunk>,
    board: Arc<Board>,
}

pub(crate) fn channel(shard: ShardId, stamps: Stamps) -> (Outbox, Inbox) {
    let (sender, receiver) = sync_channel(CHUNKS_WAITING);
    let board = Arc::<Board>::default();
    let outbox = Outbox {
        chunks: sender,
        stamps,
        board: board.clone(),
    };
    let inbox = Inbox {
        shard,
        chunks: receiver,
        board,
    };
    (outbox, inbox)
}

impl Outbox {
    /// Gives the chunk away, or back when there is no room.
    pub(crate) fn send(&self, chunk: Chunk) -> Result<(), Chunk> {
        match self.chunks.try_send(chunk) {
            // Without a control side the report has no receiver, and is dropped.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(chunk)) => Err(chunk),
        }
    }

    /// The number of a slice that begins now. A slice that happens after another, in whatever threads, has a later one,
    /// by the order of changes to one atomic.
    pub(crate) fn stamp(&self) -> u32 {
        self.stamps.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn held(&self, flows: usize) {
        self.board.held.store(flows as u64, Ordering::Relaxed);
    }

    pub(crate) fn drained(&self, round: u32) {
        // Release: packets passed on before the end of the round are visible before the writer sees that the round
        // ended.
        self.board.drained.store(round, Ordering::Release);
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.board.gone.store(true, Ordering::Release);
    }
}

impl Inbox {
    pub(crate) fn take(&self) -> Option<Chunk> {
        self.chunks.try_recv().ok()
    }

    pub(crate) fn held(&self) -> usize {
        self.board.held.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn drained(&self) -> u32 {
        self.board.drained.load(Ordering::Acquire)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.board.gone.load(Ordering::Acquire)
    }
}
