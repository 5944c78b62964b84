//! Records that do not wait as long as TIME-WAIT lasts (tcp(7), TCP_LINGER2): a ring of slots of a second each, and in each slot a
//! queue. A record is found by its own second, so filing it and taking it out cost the same however many there are, and no
//! record has a timer.

use crate::rules::profile::LINGER_MAX;
use crate::store::fifo::Fifo;
use crate::store::flows::Flows;
use crate::store::time_wait::TimeWait;
use crate::time::Instant;

/// More seconds than a wait has, so that two that differ by a round are never in one slot while both are to come.
const SLOTS: usize = u128::BITS as usize;
const _: () = assert!((LINGER_MAX.as_secs() as usize) + 1 < SLOTS);

pub(super) struct Slots {
    queues: [Fifo; SLOTS],
    /// Slots that are not empty, a bit each.
    occupied: u128,
    /// No record is due before; meaningless while there is none.
    earliest: Instant,
}

/// Rounds a time up to a whole second.
pub(super) fn whole_second(at: Instant) -> Instant {
    Instant::from_millis(at.as_nanos().div_ceil(1_000_000_000).saturating_mul(1_000))
}

fn second(at: Instant) -> u64 {
    at.as_millis() / 1_000
}

fn slot(at: Instant) -> usize {
    second(at) as usize % SLOTS
}

impl Slots {
    pub(super) const EMPTY: Slots = Slots {
        queues: [Fifo::EMPTY; SLOTS],
        occupied: 0,
        earliest: Instant::ZERO,
    };

    /// Files a record by its time, a whole second at most [`LINGER_MAX`] and one ahead.
    pub(super) fn push(&mut self, store: &mut Flows<TimeWait>, id: u32) {
        let expires = store[id].expires;
        self.earliest = match self.occupied {
            0 => expires,
            _ => self.earliest.min(expires),
        };
        self.occupied |= 1 << slot(expires);
        self.queues[slot(expires)].push(store, id);
    }

    pub(super) fn unlink(&mut self, store: &mut Flows<TimeWait>, id: u32) {
        let at = slot(store[id].expires);
        self.queues[at].unlink(store, id);
        if self.queues[at].oldest().is_none() {
            self.occupied &= !(1 << at);
        }
    }

    /// Returns a record whose time is up.
    pub(super) fn due(&mut self, store: &Flows<TimeWait>, now: Instant) -> Option<u32> {
        if self.occupied == 0 || self.earliest > now {
            return None;
        }
        let is_due = |id: &u32| store[*id].is_over(now);
        let known = self.queues[slot(self.earliest)].oldest();
        if let Some(id) = known.filter(is_due) {
            return Some(id);
        }
        // That second is over: the next that has records.
        let heads = self.queues.iter().filter_map(Fifo::oldest);
        let next = heads.min_by_key(|id| store[*id].expires)?;
        self.earliest = store[next].expires;
        Some(next).filter(is_due)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        (self.occupied != 0).then_some(self.earliest)
    }

    /// Returns the record that is to wait the least from `now` on, unless some are due already.
    pub(super) fn first(&self, now: Instant) -> Option<u32> {
        let here = slot(now);
        let ahead = self.occupied.rotate_right(here as u32).trailing_zeros() as usize;
        self.queues[(here + ahead) % SLOTS].oldest()
    }
}

#[cfg(test)]
mod tests;
