//! TIME-WAIT (RFC 9293 section 3.6.1) in compact records: enough to acknowledge a repeated FIN and to judge a
//! new SYN, nothing else. A connection whose owner let go while it waits for the peer's FIN (FIN-WAIT-2) is
//! kept here too. All wait equally long, so one queue ordered by time serves; at the bound the oldest goes.

use janus_mem::{Growth, MemError, Slab};
use janus_wire::{FlowKeyV4, SeqNum};
use std::net::Ipv4Addr;

use crate::cold::NONE;
use crate::time::Instant;

#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
pub(crate) struct TimeWait {
    pub(crate) peer_addr: u32,
    pub(crate) local_addr: u32,
    pub(crate) peer_port: u16,
    pub(crate) local_port: u16,
    pub(crate) snd_nxt: SeqNum,
    pub(crate) rcv_nxt: SeqNum,
    pub(crate) ts_recent: u32,
    /// Our advertised window, scaled as on the wire.
    pub(crate) window: u16,
    pub(crate) timestamps: bool,
    /// The peer's FIN has not come yet.
    pub(crate) fin_wait_2: bool,
    pub(crate) used: bool,
    pub(crate) expires: Instant,
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

const _: () = assert!(size_of::<TimeWait>() == 64);

impl TimeWait {
    #[inline]
    pub(crate) fn key(&self) -> FlowKeyV4 {
        FlowKeyV4 {
            peer: Ipv4Addr::from_bits(self.peer_addr),
            local: Ipv4Addr::from_bits(self.local_addr),
            peer_port: self.peer_port,
            local_port: self.local_port,
        }
    }

    #[inline]
    pub(crate) fn is_for(&self, key: &FlowKeyV4) -> bool {
        self.used && self.key() == *key
    }
}

/// The store.
pub(crate) struct TimeWaits {
    slab: Slab<TimeWait>,
    head: u32,
    tail: u32,
    max: u32,
}

impl TimeWaits {
    pub(crate) fn new(max: u32, growth: &Growth) -> Result<TimeWaits, MemError> {
        Ok(TimeWaits {
            slab: Slab::new(max, growth)?,
            head: NONE,
            tail: NONE,
            max,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.slab.committed_bytes()
    }

    #[inline]
    pub(crate) fn prefetch(&self, id: u32) {
        self.slab.prefetch(id);
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> &TimeWait {
        &self.slab[id]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> &mut TimeWait {
        &mut self.slab[id]
    }

    /// The record that must go before another can come.
    pub(crate) fn to_evict(&self) -> Option<u32> {
        (self.slab.len() >= self.max as usize && self.head != NONE).then_some(self.head)
    }

    /// The oldest record, when its time is up.
    pub(crate) fn due(&self, now: Instant) -> Option<u32> {
        (self.head != NONE && self.slab[self.head].expires <= now).then_some(self.head)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        (self.head != NONE).then(|| self.slab[self.head].expires)
    }

    /// Files a record; `expires` must not lie before that of an earlier one.
    #[inline]
    pub(crate) fn insert(&mut self, record: TimeWait) -> Option<u32> {
        let id = self.slab.alloc()?;
        self.slab[id] = TimeWait {
            used: true,
            ..record
        };
        self.push(id);
        Some(id)
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) {
        self.unlink(id);
        self.slab[id].used = false;
        self.slab.free(id);
    }

    /// A repeated FIN restarts the wait.
    pub(crate) fn restart(&mut self, id: u32, expires: Instant) {
        self.unlink(id);
        self.slab[id].expires = expires;
        self.push(id);
    }

    #[inline]
    fn push(&mut self, id: u32) {
        let tail = self.tail;
        let record = &mut self.slab[id];
        (record.prev, record.next) = (tail, NONE);
        if tail == NONE {
            self.head = id;
        } else {
            self.slab[tail].next = id;
        }
        self.tail = id;
    }

    #[inline]
    fn unlink(&mut self, id: u32) {
        let TimeWait { prev, next, .. } = self.slab[id];
        if prev == NONE {
            self.head = next;
        } else {
            self.slab[prev].next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            self.slab[next].prev = prev;
        }
    }
}
