//! A store of what a stack keeps for each flow, for both families behind one index: IPv4 records fill one cache
//! line, IPv6 ones have slots of their own, with their longer key beside the rest and not behind a second miss.
//! What a record means is its owner's business; connections, half-open and TIME-WAIT records are all kept so.
//!
//! Bit 29 of an index says IPv6. No IPv4 slot has such a number, so that the test which every access makes anyway,
//! whether the slot is there, tells the families apart: an IPv4 flow pays nothing for the other one.

use core::marker::PhantomData;
use core::ops::{Index, IndexMut, Range};

use janus_mem::{Growth, MemError, Slab, prefetch};
use janus_wire::{FlowKey, FlowKeyV4, FlowKeyV6, TableHash};

use crate::store::keys::Key;
use crate::store::records::MAX_RECORDS;

/// The bit of an index that says IPv6.
pub(crate) const V6: u32 = MAX_RECORDS;

/// One line: a key of 12 bytes, and at most 52 beside it.
#[repr(align(64))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot4<T> {
    key: FlowKeyV4,
    rest: T,
}

/// A key of 36 bytes, and at most 52 beside it. In the slab six of eight such slots touch two lines, and two touch the beginning of a
/// third, which is fetched with the others. With 96 bytes none would, for eight bytes more of each idle connection.
#[repr(align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot6<T> {
    key: FlowKeyV6,
    rest: T,
}

/// The store.
pub(crate) struct Flows<T, K = u32> {
    v4: Slab<Slot4<T>>,
    v6: Slab<Slot6<T>>,
    /// Records held in both together, and their bound.
    held: usize,
    max: usize,
    key: PhantomData<fn() -> K>,
}

impl<T: Copy + Default, K: Key> Flows<T, K> {
    /// A store for at most `max` records.
    pub(crate) fn new(max: u32, growth: &Growth) -> Result<Flows<T, K>, MemError> {
        const { assert!(size_of::<Slot4<T>>() == 64 && size_of::<Slot6<T>>() <= 88) };
        if max > MAX_RECORDS {
            return Err(MemError::BadSize);
        }
        Ok(Flows {
            v4: Slab::new(max, growth)?,
            v6: Slab::new(max, growth)?,
            held: 0,
            max: max as usize,
            key: PhantomData,
        })
    }

    /// A slot for the flow `key`, whose other contents are those of the slot's last owner. `None` at the bound.
    #[inline(always)]
    pub(crate) fn alloc(&mut self, key: &FlowKey) -> Option<K> {
        if self.is_full() {
            return None;
        }
        let id = match key {
            FlowKey::V4(key) => {
                let (id, slot) = self.v4.alloc_slot()?;
                slot.key = *key;
                id
            }
            FlowKey::V6(key) => {
                let (id, slot) = self.v6.alloc_slot()?;
                slot.key = *key;
                id | V6
            }
        };
        self.held += 1;
        K::new(id)
    }

    /// From now on what has been free for longest is taken first, of `spread` at least.
    pub(crate) fn reuse_oldest_first(&mut self, spread: usize) {
        self.v4.reuse_oldest_first(spread);
        self.v6.reuse_oldest_first(spread);
    }

    /// Frees a slot. Its key is cleared; its other contents stay.
    #[inline(always)]
    pub(crate) fn free(&mut self, id: K) {
        let id = id.index();
        self.held -= 1;
        if id & V6 == 0 {
            self.v4[id].key = FlowKeyV4::default();
            self.v4.free(id);
        } else {
            self.v6[id ^ V6].key = FlowKeyV6::default();
            self.v6.free(id ^ V6);
        }
    }
}

impl<T, K: Key> Flows<T, K> {
    /// Returns the flow that the record belongs to.
    #[inline]
    pub(crate) fn key(&self, id: K) -> FlowKey {
        let id = id.index();
        match self.v4.get(id) {
            Some(slot) => FlowKey::V4(slot.key),
            None => {
                is_v6();
                FlowKey::V6(self.v6[id ^ V6].key)
            }
        }
    }

    /// Returns the flow that the record belongs to, and the record, if its slot was ever handed out.
    #[inline(always)]
    pub(crate) fn with_key(&mut self, id: K) -> Option<(KeyRef<'_>, &mut T)> {
        let id = id.index();
        match self.v4.get_mut(id) {
            Some(slot) => Some((KeyRef::V4(&slot.key), &mut slot.rest)),
            None => {
                is_v6();
                let slot = self.v6.get_mut(id ^ V6)?;
                Some((KeyRef::V6(&slot.key), &mut slot.rest))
            }
        }
    }

    /// Whether the record is that of the flow `key`.
    #[inline(always)]
    pub(crate) fn is_for(&self, id: K, key: &FlowKey) -> bool {
        self.record_for(id, key).is_some()
    }

    /// The record, if it is that of the flow `key`.
    #[inline(always)]
    pub(crate) fn record_for(&self, id: K, key: &FlowKey) -> Option<&T> {
        let id = id.index();
        // The index of one family lies beyond the slots of the other.
        match key {
            FlowKey::V4(key) => {
                let slot = self.v4.get(id).filter(|slot| slot.key.is(key))?;
                Some(&slot.rest)
            }
            FlowKey::V6(key) => self.record_for_v6(id, key),
        }
    }

    #[inline(never)]
    fn record_for_v6(&self, id: u32, key: &FlowKeyV6) -> Option<&T> {
        let slot = self.v6.get(id ^ V6).filter(|slot| slot.key == *key)?;
        Some(&slot.rest)
    }

    /// The record, if its slot was ever handed out.
    #[inline]
    pub(crate) fn get(&self, id: K) -> Option<&T> {
        let id = id.index();
        match self.v4.get(id) {
            Some(slot) => Some(&slot.rest),
            None => self.v6.get(id ^ V6).map(|slot| &slot.rest),
        }
    }

    /// The record to be changed, if its slot was ever handed out.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: K) -> Option<&mut T> {
        Some(self.with_key(id)?.1)
    }

    /// Brings the record's lines close; any number is allowed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: K) {
        let id = id.index();
        if id & V6 == 0 {
            self.v4.prefetch(id);
        } else {
            self.v6.prefetch(id ^ V6);
        }
    }

    /// Brings the place close that a flow of this family gets after `before` others.
    #[inline]
    pub(crate) fn prefetch_next(&self, family: Family, before: u32) {
        match family {
            Family::V4 => self.v4.prefetch_next(before),
            Family::V6 => self.v6.prefetch_next(before),
        }
    }

    /// The indices of all places that were ever used, of each family: every record is at one of them.
    pub(crate) fn ranges(&self) -> [Range<u32>; 2] {
        [0..self.v4.high_water(), V6..V6 + self.v6.high_water()]
    }

    /// All places that were ever used.
    pub(crate) fn places(&self) -> impl Iterator<Item = K> + use<T, K> {
        self.ranges().into_iter().flatten().filter_map(K::new)
    }

    /// Sees the flows of one family at the places `from` to `to` for whose records `counts` holds; places beyond the last
    /// one are unused. Returns the place where it ended.
    #[inline]
    pub(crate) fn see(
        &self,
        family: Family,
        (from, to): (u32, u32),
        counts: impl Fn(&T) -> bool,
        mut see: impl FnMut(&FlowKey),
    ) -> u32 {
        match family {
            Family::V4 => {
                let none = FlowKeyV4::NONE;
                each(self.v4.slots(), from, to, |slot| {
                    if slot.key != none && counts(&slot.rest) {
                        see(&FlowKey::V4(slot.key));
                    }
                })
            }
            Family::V6 => {
                let none = FlowKeyV6::default();
                each(self.v6.slots(), from, to, |slot| {
                    if slot.key != none && counts(&slot.rest) {
                        see(&FlowKey::V6(slot.key));
                    }
                })
            }
        }
    }

    /// Places of one family that were ever used.
    pub(crate) fn places_of(&self, family: Family) -> u32 {
        match family {
            Family::V4 => self.v4.high_water(),
            Family::V6 => self.v6.high_water(),
        }
    }

    /// Records held.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// No record fits any more.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Bytes of memory committed.
    pub(crate) fn committed_bytes(&self) -> usize {
        self.v4.committed_bytes() + self.v6.committed_bytes()
    }
}

impl<T, K: Key> Index<K> for Flows<T, K> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: K) -> &T {
        let id = id.index();
        match self.v4.get(id) {
            Some(slot) => &slot.rest,
            None => {
                is_v6();
                &self.v6[id ^ V6].rest
            }
        }
    }
}

impl<T, K: Key> IndexMut<K> for Flows<T, K> {
    #[inline(always)]
    fn index_mut(&mut self, id: K) -> &mut T {
        let id = id.index();
        match self.v4.get_mut(id) {
            Some(slot) => &mut slot.rest,
            None => {
                is_v6();
                &mut self.v6[id ^ V6].rest
            }
        }
    }
}

/// A flow's key where it lies: two words, where a copy for either family takes five.
#[derive(Clone, Copy)]
pub(crate) enum KeyRef<'a> {
    V4(&'a FlowKeyV4),
    V6(&'a FlowKeyV6),
}

impl<'a> KeyRef<'a> {
    /// The hash by which the table files the flow.
    #[inline(always)]
    pub(crate) fn hash(self, hash: &TableHash) -> u64 {
        match self {
            KeyRef::V4(key) => hash.v4(key),
            KeyRef::V6(key) => hash.v6(key),
        }
    }

    /// Whether it is this flow.
    #[inline(always)]
    pub(crate) fn is(self, key: &FlowKey) -> bool {
        match (self, key) {
            (KeyRef::V4(own), FlowKey::V4(key)) => own.is(key),
            (KeyRef::V6(own), FlowKey::V6(key)) => own == key,
            _ => false,
        }
    }

    #[inline(always)]
    pub(crate) fn of(key: &'a FlowKey) -> KeyRef<'a> {
        match key {
            FlowKey::V4(key) => KeyRef::V4(key),
            FlowKey::V6(key) => KeyRef::V6(key),
        }
    }

    #[inline(always)]
    pub(crate) fn get(self) -> FlowKey {
        match self {
            KeyRef::V4(key) => FlowKey::V4(*key),
            KeyRef::V6(key) => FlowKey::V6(*key),
        }
    }
}

/// Which half of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Slots that are asked for before they are looked at: about what memory takes to answer.
const AHEAD: usize = 16;

/// Looks at the slots `from` to `to`, as far as there are any, and gives the place where it ended.
#[inline(always)]
fn each<S>(slots: &[S], from: u32, to: u32, mut look: impl FnMut(&S)) -> u32 {
    let to = slots.len().min(to as usize);
    let from = to.min(from as usize);
    for (at, slot) in slots[from..to].iter().enumerate() {
        prefetch(slots.as_ptr().wrapping_add(from + at + AHEAD));
        look(slot);
    }
    to as u32
}

/// Tells the compiler which way to lay out straight.
#[cold]
#[inline(always)]
fn is_v6() {}

#[cfg(test)]
mod tests;
