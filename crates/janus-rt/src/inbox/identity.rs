//! Process-wide identity of a shard: a number below 4096 in its wakers, and the inbox for wakes from other threads. Numbers are handed out
//! round robin, so that one is reused as late as possible.

use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};

use janus_tcp::ConnId;

use super::Inbox;
use super::word::{SHARD_BITS, WakeWord};
use crate::lock::Lock;

/// Shards that can be alive at a time in one process.
pub(crate) const SHARDS_MAX: usize = 1 << SHARD_BITS;

/// The live shards. Read by wakes from other threads; written when shards begin and end.
static LIVE: [RwLock<Option<Live>>; SHARDS_MAX] = [const { RwLock::new(None) }; SHARDS_MAX];

struct Live {
    inbox: Arc<Inbox>,
    incarnation: NonZeroU32,
}

static NEXT: Lock<Next> = Lock::new(Next {
    number: 0,
    incarnation: NonZeroU32::MIN,
});

struct Next {
    number: usize,
    incarnation: NonZeroU32,
}

/// Error: all numbers are taken, as the process runs 4096 shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyShards;

impl std::fmt::Display for TooManyShards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "this process already runs {SHARDS_MAX} shards; drop a runtime first"
        )
    }
}

impl std::error::Error for TooManyShards {}

/// A shard's entry in the table of live shards; leaves it when dropped.
pub(crate) struct ShardIdentity {
    number: u16,
    incarnation: NonZeroU32,
}

impl ShardIdentity {
    /// Takes the next free number for the shard that reads `inbox`.
    pub(crate) fn register(inbox: Arc<Inbox>) -> Result<ShardIdentity, TooManyShards> {
        let mut next = NEXT.lock();
        for ahead in 0..SHARDS_MAX {
            let number = (next.number + ahead) % SHARDS_MAX;
            let mut entry = LIVE[number].write().unwrap_or_else(PoisonError::into_inner);
            if entry.is_some() {
                continue;
            }
            let incarnation = next.incarnation;
            *entry = Some(Live { inbox, incarnation });
            next.number = (number + 1) % SHARDS_MAX;
            next.incarnation = incarnation.checked_add(1).unwrap_or(NonZeroU32::MIN);
            return Ok(ShardIdentity {
                number: number as u16,
                incarnation,
            });
        }
        Err(TooManyShards)
    }

    /// Returns the number that this shard's wakers carry.
    #[inline]
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Returns a number that tells apart the shards that had the same number one after another.
    #[inline]
    pub(crate) fn incarnation(&self) -> NonZeroU32 {
        self.incarnation
    }
}

impl Drop for ShardIdentity {
    fn drop(&mut self) {
        let entry = &LIVE[usize::from(self.number)];
        let live = entry.write().unwrap_or_else(PoisonError::into_inner).take();
        // Outside the lock: the last owner of an inbox drops the closures left in it.
        drop(live);
    }
}

/// Delivers a wake to its shard, from any thread. For a shard that has ended it does nothing.
pub(crate) fn deliver(word: WakeWord) {
    let entry = LIVE[usize::from(word.shard())]
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(live) = entry.as_ref() {
        live.inbox.wake(word);
    }
}

/// Returns the inbox of a live shard.
fn inbox_of(number: u16) -> Option<Arc<Inbox>> {
    let entry = LIVE.get(usize::from(number))?;
    let entry = entry.read().unwrap_or_else(PoisonError::into_inner);
    entry.as_ref().map(|live| live.inbox.clone())
}

/// Returns the inbox of this incarnation of the shard, not of a later shard with its number.
pub(super) fn inbox_of_life(number: u16, incarnation: NonZeroU32) -> Option<Arc<Inbox>> {
    let entry = LIVE.get(usize::from(number))?;
    let entry = entry.read().unwrap_or_else(PoisonError::into_inner);
    let live = entry
        .as_ref()
        .filter(|live| live.incarnation == incarnation);
    live.map(|live| live.inbox.clone())
}

/// A shard, process-wide and over time: its number in the table of live shards, and the low half of the count that tells
/// it from earlier ones of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) number: u16,
    pub(crate) life: u16,
}

impl Owner {
    /// Says to this shard, from another thread, that the handle of `conn` is gone. A shard that has ended has closed
    /// everything itself.
    #[cold]
    pub(crate) fn send_close(self, conn: ConnId) {
        if let Some(inbox) = inbox_of(self.number) {
            inbox.close(conn, self.life);
        }
    }

    /// Runs `job` on this shard's thread, or on that of a later one with its number; drops it when there is none, or it has too
    /// much to do.
    pub(crate) fn run(self, job: impl FnOnce() + Send + 'static) {
        if let Some(inbox) = inbox_of(self.number) {
            // A refused job has been dropped, and whatever it holds knows.
            let _ = inbox.run(Box::new(job));
        }
    }
}
