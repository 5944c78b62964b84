//! Half-open records: a SYN that was answered, and no more than what the answer and its repeats need.
//!
//! The SYN-ACK's waiting time depends only on how often it was sent, so the records of one try stand in one
//! queue ordered by time, and no timer is needed. At the bound the oldest record makes room: a SYN flood costs
//! memory up to the bound and never more.

use janus_mem::{Growth, MemError};
use janus_wire::tcp::UserTimeout;
use janus_wire::{FlowKey, SeqNum, StampBase};

use crate::coded::coded_packed;
use crate::store::challenge::Answered;
use crate::store::fifo::{Fifo, Linked, Links};
use crate::store::flows::Flows;
use crate::store::listener::{ListenerId, MAX_LISTENERS};
use crate::time::Instant;

/// How often a SYN-ACK is sent before the record is given up (about 63 s with a first wait of one second).
pub(crate) const MAX_TRIES: usize = 6;

// Eight bytes together would not begin right behind the key of twelve, and four be lost.
#[repr(C, packed(4))]
#[derive(Clone, Copy, Default)]
pub(crate) struct HalfOpen {
    /// The peer's initial sequence number and ours.
    pub(crate) irs: SeqNum,
    pub(crate) iss: SeqNum,
    pub(crate) ts_recent: u32,
    pub(crate) sent_at: Instant,
    pub(crate) links: Links,
    /// Base of the connection's timestamps.
    pub(crate) stamps: StampBase,
    /// Number of the listener.
    pub(crate) listener: u16,
    /// Largest payload the peer accepts.
    pub(crate) mss: u16,
    /// The peer's window scale; `NO_SCALE` when it sent none.
    pub(crate) peer_scale: u8,
    /// Ours, as the SYN-ACK offers it.
    pub(crate) own_scale: u8,
    /// Options both SYNs agreed on, as bits of [`crate::store::cold::flag`]: the connection begins with them.
    pub(crate) flags: u8,
    pub(crate) tries: u8,
    /// User timeout in the peer's SYN (RFC 5482); `None` when it had none.
    pub(crate) user_timeout: Option<UserTimeout>,
    /// The peer has acknowledged, and its first data is waited for.
    pub(crate) acked: bool,
    /// When segments that fit nothing were last answered.
    pub(crate) answered: Answered,
}

coded_packed!(HalfOpen {
    irs, iss, ts_recent, sent_at, stamps, mss, peer_scale, own_scale, flags, tries, user_timeout, acked, answered;
    not links = Links::default(), listener = 0
});

pub(crate) const NO_SCALE: u8 = 0xff;

impl HalfOpen {
    /// A record for a connection that this listener is to have.
    #[inline(always)]
    pub(crate) fn of(listener: ListenerId) -> HalfOpen {
        const { assert!(MAX_LISTENERS <= 1 << 16) };
        HalfOpen {
            listener: listener.0 as u16,
            ..HalfOpen::default()
        }
    }

    #[inline(always)]
    pub(crate) fn listener(&self) -> ListenerId {
        ListenerId(self.listener.into())
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Linked for HalfOpen {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The store.
pub(crate) struct HalfOpens {
    store: Flows<HalfOpen>,
    queues: [Fifo; MAX_TRIES],
}

impl HalfOpens {
    pub(crate) fn new(max: u32, growth: &Growth) -> Result<HalfOpens, MemError> {
        Ok(HalfOpens {
            store: Flows::new(max, growth)?,
            queues: [Fifo::EMPTY; MAX_TRIES],
        })
    }

    /// From now on what has been free for longest is taken first, of `spread` at least.
    pub(crate) fn reuse_oldest_first(&mut self, spread: usize) {
        self.store.reuse_oldest_first(spread);
    }

    pub(crate) fn len(&self) -> usize {
        self.store.len()
    }

    pub(crate) fn store(&self) -> &Flows<HalfOpen> {
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
    pub(crate) fn get_mut(&mut self, id: u32) -> &mut HalfOpen {
        &mut self.store[id]
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> &HalfOpen {
        &self.store[id]
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
    pub(crate) fn to_evict(&self) -> Option<u32> {
        if !self.store.is_full() {
            return None;
        }
        self.queues.iter().rev().find_map(Fifo::oldest)
    }

    /// Keeps a record whose SYN-ACK is sent for the first time: its `tries` are 1.
    #[inline]
    pub(crate) fn insert(&mut self, key: &FlowKey, record: HalfOpen) -> Option<u32> {
        debug_assert_eq!(record.tries, 1);
        let id = self.store.alloc(key)?;
        self.store[id] = record;
        self.queues[0].push(&mut self.store, id);
        Some(id)
    }

    /// Keeps a record that was kept elsewhere before.
    pub(crate) fn adopt(&mut self, key: &FlowKey, record: HalfOpen) -> Option<u32> {
        let id = self.store.alloc(key)?;
        self.store[id] = record;
        let queue = &mut self.queues[usize::from(record.tries) - 1];
        let sent_at = record.sent_at;
        queue.insert(&mut self.store, id, |other| {
            let other_sent_at = other.sent_at;
            other_sent_at <= sent_at
        });
        Some(id)
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, id: u32) {
        let queue = usize::from(self.store[id].tries) - 1;
        self.queues[queue].unlink(&mut self.store, id);
        self.store.free(id);
    }

    /// The record whose SYN-ACK has waited longest past its time, if any has.
    pub(crate) fn due(&self, now: Instant, first_wait_ns: u64) -> Option<u32> {
        let mut oldest = self.queues.iter().filter_map(Fifo::oldest);
        oldest.find(|&id| self.deadline(id, first_wait_ns) <= now)
    }

    /// The SYN-ACK of `id` goes out once more. False when it has been sent often enough.
    pub(crate) fn try_again(&mut self, id: u32, now: Instant) -> bool {
        let tries = usize::from(self.store[id].tries);
        if tries >= MAX_TRIES {
            return false;
        }
        self.queues[tries - 1].unlink(&mut self.store, id);
        self.store[id].sent_at = now;
        self.store[id].tries += 1;
        self.queues[tries].push(&mut self.store, id);
        true
    }

    pub(crate) fn next_deadline(&self, first_wait_ns: u64) -> Option<Instant> {
        let oldest = self.queues.iter().filter_map(Fifo::oldest);
        oldest.map(|id| self.deadline(id, first_wait_ns)).min()
    }

    fn deadline(&self, id: u32, first_wait_ns: u64) -> Instant {
        let record = &self.store[id];
        let sent_at = record.sent_at;
        Instant::from_nanos(sent_at.as_nanos() + (first_wait_ns << (record.tries - 1)))
    }
}
