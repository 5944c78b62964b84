//! A hierarchical timing wheel: insert, cancel and fire in constant time, for any number of timers.
//!
//! Six levels of 64 slots over a tick of 2^18 ns (0.26 ms); a timer never fires early and at most one tick
//! late. Used by the engine for its retransmission timers and by the runtime for `sleep`. Nothing here knows
//! what a timer means: a payload goes in and comes out.

use core::num::NonZeroU32;
use core::time::Duration;

use janus_mem::{Growth, MemError, Slab};

use crate::time::Instant;

const TICK_BITS: u32 = 18;
/// How finely times are told apart.
pub(crate) const TICK: Duration = Duration::from_nanos(1 << TICK_BITS);
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
const NONE: u32 = u32::MAX;
/// Timers further away than this (205 days) fire at its end; nothing here waits that long. One top slot less
/// than the whole span, so that a timer is never linked into the slot the wheel stands in.
const MAX_TICKS: u64 = (SLOTS as u64 - 1) << (SLOT_BITS as u64 * (LEVELS as u64 - 1));
/// Timers that can be moved to a nearer slot for the price of one that fires, by [`Wheel::advance_some`]'s reckoning.
const MOVES_PER_FIRE: usize = 16;

/// A timer that was inserted. Stale ids (fired, cancelled) are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId {
    place: TimerPlace,
    generation: u32,
}

/// A timer, for an owner that has one at a time and a payload of its own to tell it from a later one in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerPlace(
    /// One more, so that an option of a place is no larger.
    NonZeroU32,
);

impl TimerPlace {
    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

impl TimerId {
    pub(crate) fn place(self) -> TimerPlace {
        self.place
    }
}

#[derive(Clone, Copy)]
struct Node {
    deadline: u64,
    prev: u32,
    next: u32,
    payload: u32,
    generation: u32,
    /// `level * SLOTS + slot`, or `FREE`.
    place: u16,
}

const FREE: u16 = u16::MAX;

impl Default for Node {
    fn default() -> Node {
        Node {
            deadline: 0,
            prev: NONE,
            next: NONE,
            payload: 0,
            generation: 0,
            place: FREE,
        }
    }
}

struct Level {
    occupied: u64,
    heads: [u32; SLOTS],
}

/// The wheel.
pub struct Wheel {
    now: u64,
    levels: [Level; LEVELS],
    /// First of the timers taken out of a slot that came due and not looked at yet, or `NONE`: a call's bound was met.
    rest: u32,
    nodes: Slab<Node>,
}

impl Wheel {
    /// A wheel for at most `max` timers at a time.
    pub fn new(max: u32, growth: &Growth) -> Result<Wheel, MemError> {
        Ok(Wheel {
            now: 0,
            levels: core::array::from_fn(|_| Level {
                occupied: 0,
                heads: [NONE; SLOTS],
            }),
            rest: NONE,
            nodes: Slab::new(max, growth)?,
        })
    }

    /// From now on what has been free for longest is taken first, of `spread` at least.
    pub(crate) fn reuse_oldest_first(&mut self, spread: usize) {
        self.nodes.reuse_oldest_first(spread);
    }

    /// Timers waiting.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// No timer waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory committed for timers.
    pub fn committed_bytes(&self) -> usize {
        self.nodes.committed_bytes()
    }

    /// Arms a timer; `None` when `max` timers are waiting already.
    #[inline]
    pub fn insert(&mut self, deadline: Instant, payload: u32) -> Option<TimerId> {
        let index = self.nodes.alloc()?;
        // Rounded up: a timer may be late by a tick, never early.
        let tick = (deadline.as_nanos() >> TICK_BITS) + 1;
        let tick = tick.clamp(self.now + 1, self.now + MAX_TICKS);
        let node = &mut self.nodes[index];
        node.deadline = tick;
        node.payload = payload;
        let generation = node.generation;
        self.link(index);
        let place = TimerPlace(NonZeroU32::MIN.saturating_add(index));
        Some(TimerId { place, generation })
    }

    /// Disarms a timer. False when it has fired or was cancelled before.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> bool {
        let waits = self.payload(id).is_some();
        if waits {
            self.disarm(id.place);
        }
        waits
    }

    /// Like [`Wheel::cancel`], for a timer with this payload, which no other has.
    #[inline]
    pub(crate) fn cancel_at(&mut self, place: TimerPlace, payload: u32) -> bool {
        let waits = self.payload_at(place) == Some(payload);
        if waits {
            self.disarm(place);
        }
        waits
    }

    fn disarm(&mut self, place: TimerPlace) {
        self.unlink(place.index());
        self.release(place.index());
    }

    /// Returns the payload of a timer that waits; `None` when it has fired or was cancelled.
    pub fn payload(&self, id: TimerId) -> Option<u32> {
        let node = self.nodes.get(id.place.index())?;
        let waits = node.generation == id.generation && node.place != FREE;
        waits.then_some(node.payload)
    }

    /// Returns the payload of the timer that waits in a place.
    #[inline]
    pub(crate) fn payload_at(&self, place: TimerPlace) -> Option<u32> {
        let node = self.nodes.get(place.index())?;
        (node.place != FREE).then_some(node.payload)
    }

    /// Fires what is due at `now`. `fire` gets the payload; it may not touch the wheel, so it collects.
    pub fn advance(&mut self, now: Instant, fire: impl FnMut(u32)) {
        self.advance_some(now, usize::MAX, fire);
    }

    /// Like [`Wheel::advance`], but fires at most `most` timers, and looks at a bounded number of others, so that no call
    /// takes long however many are due at one moment. What is left comes first in the next call, and until then
    /// [`Wheel::next`] is not after `now`.
    pub fn advance_some(&mut self, now: Instant, most: usize, mut fire: impl FnMut(u32)) {
        let target = now.as_nanos() >> TICK_BITS;
        let mut budget = most.saturating_mul(MOVES_PER_FIRE);
        while self.empty_rest(&mut budget, &mut fire) {
            let Some((tick, level, slot)) = self.earliest().filter(|(tick, ..)| *tick <= target)
            else {
                self.now = self.now.max(target);
                return;
            };
            self.now = self.now.max(tick);
            self.rest = core::mem::replace(&mut self.levels[level].heads[slot], NONE);
            self.levels[level].occupied &= !(1 << slot);
        }
    }

    /// When `advance` should next be called: at or shortly before the earliest timer.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        let tick = match self.rest {
            NONE => self.earliest()?.0,
            _ => self.now,
        };
        Some(Instant::from_nanos(tick << TICK_BITS))
    }

    /// The first slot to come due, and its tick. Lower levels lie wholly before higher ones.
    #[inline]
    fn earliest(&self) -> Option<(u64, usize, usize)> {
        for (level, l) in self.levels.iter().enumerate() {
            if l.occupied == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            let here = ((self.now >> shift) & (SLOTS as u64 - 1)) as u32;
            let ahead = l.occupied.rotate_right(here).trailing_zeros();
            let slot = (here + ahead) as usize % SLOTS;
            let tick = ((self.now >> shift) + u64::from(ahead)) << shift;
            return Some((tick, level, slot));
        }
        None
    }

    /// Fires, or moves nearer, what was taken out of a slot. False when the budget is used up before.
    fn empty_rest(&mut self, budget: &mut usize, fire: &mut impl FnMut(u32)) -> bool {
        let mut at = self.rest;
        while at != NONE && *budget > 0 {
            let node = &self.nodes[at];
            let (next, due, payload) = (node.next, node.deadline <= self.now, node.payload);
            if due {
                *budget = budget.saturating_sub(MOVES_PER_FIRE);
                self.release(at);
                fire(payload);
            } else {
                *budget -= 1;
                self.link(at);
            }
            at = next;
        }
        self.rest = at;
        if at != NONE {
            self.nodes[at].prev = NONE;
        }
        at == NONE
    }

    #[inline]
    fn link(&mut self, index: u32) {
        let tick = self.nodes[index].deadline;
        // The level is given by the highest group of bits in which the deadline differs from now.
        let differing = (tick ^ self.now) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let level = level.min(LEVELS - 1);
        let slot = ((tick >> (SLOT_BITS * level as u32)) & (SLOTS as u64 - 1)) as usize;
        let head = core::mem::replace(&mut self.levels[level].heads[slot], index);
        self.levels[level].occupied |= 1 << slot;
        let node = &mut self.nodes[index];
        node.prev = NONE;
        node.next = head;
        node.place = (level * SLOTS + slot) as u16;
        if head != NONE {
            self.nodes[head].prev = index;
        }
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        let Node {
            prev, next, place, ..
        } = self.nodes[index];
        if next != NONE {
            self.nodes[next].prev = prev;
        }
        if prev != NONE {
            self.nodes[prev].next = next;
            return;
        }
        if self.rest == index {
            self.rest = next;
            return;
        }
        let (level, slot) = (usize::from(place) / SLOTS, usize::from(place) % SLOTS);
        self.levels[level].heads[slot] = next;
        if next == NONE {
            self.levels[level].occupied &= !(1 << slot);
        }
    }

    #[inline]
    fn release(&mut self, index: u32) {
        let node = &mut self.nodes[index];
        node.place = FREE;
        node.generation = node.generation.wrapping_add(1);
        self.nodes.free(index);
    }
}

#[cfg(test)]
mod tests;
