//! Stubs: records of flows that live at another shard although their packets come here (rule 11 of the balancer's
//! protocol). A tuple that cannot be chosen, a fixed local port to a fixed peer, may belong to another shard than the one
//! that wants to open it. Then the owner keeps a stub and hands on what hits it; and since a stub is a flow like any
//! other, visited by every update, the packets keep coming to where it is. Who asks whom, and when, is the runtime's.
//!
//! A stub takes 64 bytes, over IPv6 56, and the table entry that its flow had: no more than the record of an idle connection, which a flow that
//! moves leaves behind. Nothing before the first, and no more than [`STUBS_MAX`].

use core::ops::Range;

use janus_mem::Growth;
use janus_wire::FlowKey;

use crate::store::flows::{Family, Flows};

/// Stubs a stack may hold: 256 MiB of them, over IPv6 224.
pub const STUBS_MAX: u32 = 1 << 22;
/// Stubs whose table groups are asked for before they go: about what memory takes to answer.
pub(crate) const AHEAD: u32 = 8;

#[derive(Clone, Copy, Default)]
pub(crate) struct Stub {
    /// Where the flow lives.
    pub(crate) shard: u16,
    /// A flow that has moved there left it.
    pub(crate) moved: Option<Moved>,
}

/// The moment of a move, as the balancer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Epoch of the newest ring that the shard knew.
    pub epoch: u16,
    /// Number of the moment, by which reports of one flow are ordered.
    pub stamp: u32,
}

/// The store, made when the first stub comes.
pub(crate) struct Stubs {
    store: Option<Flows<Stub>>,
    growth: Growth,
    /// Those that moves have left.
    moved: usize,
}

impl Stubs {
    pub(crate) fn new(growth: &Growth) -> Stubs {
        Stubs {
            store: None,
            growth: growth.clone(),
            moved: 0,
        }
    }

    /// Keeps a stub for `flow`. `None`: there is no place for it.
    pub(crate) fn add(&mut self, flow: &FlowKey, stub: Stub) -> Option<u32> {
        if self.store.is_none() {
            self.store = Some(Flows::new(STUBS_MAX, &self.growth).ok()?);
        }
        let store = self.store.as_mut()?;
        let id = store.alloc(flow)?;
        store[id] = stub;
        self.moved += usize::from(stub.moved.is_some());
        Some(id)
    }

    pub(crate) fn free(&mut self, id: u32) {
        if let Some(store) = &mut self.store {
            self.moved -= usize::from(store[id].moved.is_some());
            store.free(id);
        }
    }

    /// The flow that it stands for. The stub must exist.
    pub(crate) fn key(&self, id: u32) -> FlowKey {
        self.store().key(id)
    }

    #[inline(never)]
    pub(crate) fn is_for(&self, id: u32, key: &FlowKey) -> bool {
        self.store
            .as_ref()
            .is_some_and(|store| store.is_for(id, key))
    }

    /// The stub, which must exist.
    pub(crate) fn get(&self, id: u32) -> Stub {
        self.store()[id]
    }

    /// The stub at a place and the flow it stands for, if there is one.
    pub(crate) fn at(&self, id: u32) -> Option<(FlowKey, Stub)> {
        let store = self.store.as_ref()?;
        let stub = *store.get(id)?;
        let key = store.key(id);
        (key.local_port() != 0).then_some((key, stub))
    }

    /// At most `budget` places from `from` on (0: the first), and the place to go on from; `None`: these were the last.
    pub(crate) fn places(&self, from: u32, budget: u32) -> (Range<u32>, Option<u32>) {
        let Some(store) = &self.store else {
            return (0..0, None);
        };
        let [v4, v6] = store.ranges();
        let (range, after) = match from < v6.start {
            true => (v4, (!v6.is_empty()).then_some(v6.start)),
            false => (v6, None),
        };
        let start = from.max(range.start).min(range.end);
        let end = range.end.min(start.saturating_add(budget.max(1)));
        let next = if end < range.end { Some(end) } else { after };
        (start..end, next)
    }

    /// Stubs that moves have left.
    pub(crate) fn moved(&self) -> usize {
        self.moved
    }

    #[inline(never)]
    pub(crate) fn prefetch(&self, id: u32) {
        if let Some(store) = &self.store {
            store.prefetch(id);
        }
    }

    pub(crate) fn see(&self, family: Family, range: (u32, u32), see: impl FnMut(&FlowKey)) -> u32 {
        match &self.store {
            // Of a flow that has moved another shard tells.
            Some(store) => store.see(family, range, |stub| stub.moved.is_none(), see),
            None => 0,
        }
    }

    pub(crate) fn places_of(&self, family: Family) -> u32 {
        self.store
            .as_ref()
            .map_or(0, |store| store.places_of(family))
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.store.as_ref().map_or(0, Flows::committed_bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.store.as_ref().map_or(0, Flows::len)
    }

    fn store(&self) -> &Flows<Stub> {
        self.store.as_ref().expect("a record names a stub")
    }
}

#[cfg(test)]
mod tests;
