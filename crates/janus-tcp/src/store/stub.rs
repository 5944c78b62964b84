//! Stubs: records of flows that live at another shard although their packets come here (rule 11 of the balancer's
//! protocol). A tuple that cannot be chosen, a fixed local port to a fixed peer, may belong to another shard than the one
//! that wants to open it. Then the owner keeps a stub and hands on what hits it; and since a stub is a flow like any
//! other, visited by every update, the packets keep coming to where it is. Who asks whom, and when, is the runtime's.
//!
//! One line of memory each, nothing before the first, and no more than [`STUBS_MAX`].

use janus_wire::FlowKey;

use crate::store::flows::{Family, Flows};

/// Stubs a stack may hold.
pub const STUBS_MAX: u32 = 1 << 16;

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
#[derive(Default)]
pub(crate) struct Stubs(pub(crate) Option<Flows<Stub>>);

impl Stubs {
    /// The flow that it stands for. The stub must exist.
    pub(crate) fn key(&self, id: u32) -> FlowKey {
        self.store().key(id)
    }

    #[inline(never)]
    pub(crate) fn is_for(&self, id: u32, key: &FlowKey) -> bool {
        self.0.as_ref().is_some_and(|store| store.is_for(id, key))
    }

    /// The stub, which must exist.
    pub(crate) fn get(&self, id: u32) -> Stub {
        self.store()[id]
    }

    /// All of them, with the flows they stand for.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, FlowKey, Stub)> {
        let store = self.0.as_ref();
        let places = store
            .into_iter()
            .flat_map(|store| store.places().map(move |id| (id, store)));
        let stubs = places.map(|(id, store)| (id, store.key(id), store[id]));
        stubs.filter(|(_, key, _)| key.local_port() != 0)
    }

    #[inline(never)]
    pub(crate) fn prefetch(&self, id: u32) {
        if let Some(store) = &self.0 {
            store.prefetch(id);
        }
    }

    pub(crate) fn see(&self, family: Family, range: (u32, u32), see: impl FnMut(&FlowKey)) -> u32 {
        match &self.0 {
            // Of a flow that has moved another shard tells.
            Some(store) => store.see(family, range, |stub| stub.moved.is_none(), see),
            None => 0,
        }
    }

    pub(crate) fn places_of(&self, family: Family) -> u32 {
        self.0.as_ref().map_or(0, |store| store.places_of(family))
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Flows::committed_bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Flows::len)
    }

    fn store(&self) -> &Flows<Stub> {
        self.0.as_ref().expect("a record names a stub")
    }
}

#[cfg(test)]
mod tests;
