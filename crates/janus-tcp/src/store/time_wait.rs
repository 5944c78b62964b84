//! TIME-WAIT (RFC 9293 section 3.6.1) in compact records: enough to acknowledge a repeated FIN and to judge a
//! new SYN, nothing else. A connection whose owner let go while it waits for the peer's FIN (FIN-WAIT-2) is
//! kept here too. Nearly all wait equally long, so one queue ordered by time serves; the others are in `slots`. At the bound the
//! oldest goes.

pub(crate) mod slots;

use core::time::Duration;

use janus_mem::{Growth, MemError};
use janus_wire::{FlowKey, SeqNum, StampBase};
use slots::Slots;

use crate::coded::coded_packed;
use crate::rules::profile::LINGER_MAX;
use crate::store::challenge::Answered;
use crate::store::fifo::{Fifo, Linked, Links};
use crate::store::flows::Flows;
use crate::time::Instant;

// As for half-open records: eight bytes together would not begin right behind the key of twelve.
#[repr(C, packed(4))]
#[derive(Clone, Copy, Default)]
pub(crate) struct TimeWait {
    pub(crate) snd_nxt: SeqNum,
    pub(crate) rcv_nxt: SeqNum,
    pub(crate) ts_recent: u32,
    /// Base of the connection's timestamps.
    pub(crate) stamps: StampBase,
    /// Our advertised window, scaled as on the wire.
    pub(crate) window: u16,
    /// By how much.
    pub(crate) scale: u8,
    pub(crate) timestamps: bool,
    /// The peer's FIN has not come yet.
    pub(crate) fin_wait_2: bool,
    /// It waits for a time of its own, and not as long as TIME-WAIT lasts.
    pub(crate) own_time: bool,
    pub(crate) expires: Instant,
    pub(crate) links: Links,
    /// When segments that fit nothing were last answered.
    pub(crate) answered: Answered,
}

coded_packed!(TimeWait {
    snd_nxt, rcv_nxt, ts_recent, stamps, window, scale, timestamps, fin_wait_2, expires, answered;
    not own_time = false, links = Links::default()
});

impl TimeWait {
    /// Whether it has waited long enough.
    fn is_over(&self, now: Instant) -> bool {
        let expires = self.expires;
        expires <= now
    }

    /// Our window in bytes.
    pub(crate) fn offered(&self) -> u32 {
        u32::from(self.window) << self.scale
    }
}

impl Linked for TimeWait {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The store.
pub(crate) struct TimeWaits {
    store: Flows<TimeWait>,
    queue: Fifo,
    slots: Slots,
}

impl TimeWaits {
    pub(crate) fn new(max: u32, growth: &Growth) -> Result<TimeWaits, MemError> {
        Ok(TimeWaits {
            store: Flows::new(max, growth)?,
            queue: Fifo::EMPTY,
            slots: Slots::EMPTY,
        })
    }

    /// From now on what has been free for longest is taken first, of `spread` at least.
    pub(crate) fn reuse_oldest_first(&mut self, spread: usize) {
        self.store.reuse_oldest_first(spread);
    }

    pub(crate) fn len(&self) -> usize {
        self.store.len()
    }

    pub(crate) fn store(&self) -> &Flows<TimeWait> {
        &self.store
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.store.committed_bytes()
    }

    #[inline]
    pub(crate) fn prefetch(&self, id: u32) {
        self.store.prefetch(id);
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> &TimeWait {
        &self.store[id]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> &mut TimeWait {
        &mut self.store[id]
    }

    #[inline]
    pub(crate) fn key(&self, id: u32) -> FlowKey {
        self.store.key(id)
    }

    #[inline]
    pub(crate) fn is_for(&self, id: u32, key: &FlowKey) -> bool {
        self.store.is_for(id, key)
    }

    /// The record that must go before another can come.
    pub(crate) fn to_evict(&self, now: Instant) -> Option<u32> {
        if !self.store.is_full() {
            return None;
        }
        self.queue.oldest().or_else(|| self.slots.first(now))
    }

    /// A record whose time is up.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u32> {
        let oldest = self.queue.oldest();
        let due = oldest.filter(|&id| self.store[id].is_over(now));
        due.or_else(|| self.slots.due(&self.store, now))
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let oldest = self.queue.oldest().map(|id| self.store[id].expires);
        [oldest, self.slots.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Files a record; without a time of its own, `expires` must not lie before that of an earlier one.
    #[inline]
    pub(crate) fn insert(&mut self, key: &FlowKey, record: TimeWait) -> Option<u32> {
        let id = self.store.alloc(key)?;
        self.store[id] = record;
        if record.own_time {
            self.store[id].expires = slots::whole_second(record.expires);
            self.slots.push(&mut self.store, id);
        } else {
            self.queue.push(&mut self.store, id);
        }
        Some(id)
    }

    /// Keeps a record that was kept elsewhere before: at least until it would have expired there.
    pub(crate) fn adopt(
        &mut self,
        key: &FlowKey,
        record: TimeWait,
        now: Instant,
        whole: Duration,
    ) -> Option<u32> {
        let left = record.expires;
        let own_time = left.saturating_since(now) <= LINGER_MAX;
        let expires = match own_time {
            true => left,
            false => now + whole,
        };
        self.insert(
            key,
            TimeWait {
                own_time,
                expires,
                ..record
            },
        )
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) {
        self.unlink(id);
        self.store.free(id);
    }

    #[inline]
    fn unlink(&mut self, id: u32) {
        if self.store[id].own_time {
            self.slots.unlink(&mut self.store, id);
        } else {
            self.queue.unlink(&mut self.store, id);
        }
    }

    /// The peer's FIN, also a repeated one, begins the wait of TIME-WAIT.
    pub(crate) fn restart(&mut self, id: u32, expires: Instant) {
        self.unlink(id);
        let record = &mut self.store[id];
        (record.expires, record.own_time) = (expires, false);
        self.queue.push(&mut self.store, id);
    }
}
