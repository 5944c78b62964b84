//! Stubs: records of flows that live at another shard although their packets come here (rule 11 of the balancer's
//! protocol). A tuple that cannot be chosen, a fixed local port to a fixed peer, may belong to another shard than the one
//! that wants to open it. Then the owner keeps a stub and hands on what hits it; and since a stub is a flow like any
//! other, visited by every update, the packets keep coming to where it is. Who asks whom, and when, is the runtime's.
//!
//! One line of memory each, nothing before the first, and no more than [`STUBS_MAX`].

use janus_mem::{Frame, Growth};
use janus_wire::FlowKey;

use crate::error::Error;
use crate::flows::{Family, Flows};
use crate::input::Miss;
use crate::records::Record;
use crate::stack::Stack;

/// Stubs a stack may hold.
pub const STUBS_MAX: u32 = 1 << 16;

#[derive(Clone, Copy, Default)]
struct Stub {
    /// Where the flow lives.
    shard: u16,
}

/// The store, made when the first stub comes.
#[derive(Default)]
pub(crate) struct Stubs(Option<Flows<Stub>>);

impl Stubs {
    /// Returns the shard that owns the flow. The stub must exist.
    pub(crate) fn key(&self, id: u32) -> FlowKey {
        self.store().key(id)
    }

    #[inline(never)]
    pub(crate) fn is_for(&self, id: u32, key: &FlowKey) -> bool {
        self.0.as_ref().is_some_and(|store| store.is_for(id, key))
    }

    /// Where its flow lives.
    pub(crate) fn shard(&self, id: u32) -> u16 {
        self.store()[id].shard
    }

    #[inline(never)]
    pub(crate) fn prefetch(&self, id: u32) {
        if let Some(store) = &self.0 {
            store.prefetch(id);
        }
    }

    pub(crate) fn see(&self, family: Family, range: (u32, u32), see: impl FnMut(&FlowKey)) -> u32 {
        match &self.0 {
            Some(store) => store.see(family, range, |_| true, see),
            None => 0,
        }
    }

    pub(crate) fn places_of(&self, family: Family) -> u32 {
        self.0.as_ref().map_or(0, |store| store.places_of(family))
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Flows::committed_bytes)
    }

    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Flows::len)
    }

    fn store(&self) -> &Flows<Stub> {
        self.0.as_ref().expect("a record names a stub")
    }
}

impl Stack {
    /// Packets of `flow` are from now on handed to [`Miss::redirect`] for `shard`, which may open it when this has
    /// succeeded, and not before. [`Error::AddrInUse`]: the flow lives here, in TIME-WAIT perhaps, or a stub of it does.
    pub fn add_stub(&mut self, flow: &FlowKey, shard: u16) -> Result<(), Error> {
        let hash = self.index.hash.flow(flow);
        if self.find(flow, hash).is_some() {
            return Err(Error::AddrInUse);
        }
        if self.index.stubs.0.is_none() {
            let store = Flows::new(STUBS_MAX, &Growth::Inline);
            self.index.stubs.0 = Some(store.map_err(|_| Error::TooManyConnections)?);
        }
        let store = self.index.stubs.0.as_mut().expect("made above");
        let id = store.alloc(flow).ok_or(Error::TooManyConnections)?;
        store[id] = Stub { shard };
        if self.file(hash, Record::Stub(id)) {
            return Ok(());
        }
        self.free_stub(id);
        Err(Error::TooManyConnections)
    }

    /// The flow is over at `shard`, as that says: what comes now is met as a stranger. False when it has no stub here.
    pub fn remove_stub(&mut self, flow: &FlowKey, shard: u16) -> bool {
        let hash = self.index.hash.flow(flow);
        match self.find(flow, hash) {
            Some(Record::Stub(id)) if self.index.stubs.shard(id) == shard => {
                self.index.table.remove(hash, Record::Stub(id).encode());
                self.free_stub(id);
                true
            }
            _ => false,
        }
    }

    /// The shard to which the packets of `flow` are handed on, if there is a stub of it here.
    pub fn stub_of(&self, flow: &FlowKey) -> Option<u16> {
        if self.stubs() == 0 {
            return None;
        }
        match self.find(flow, self.index.hash.flow(flow)) {
            Some(Record::Stub(id)) => Some(self.index.stubs.shard(id)),
            _ => None,
        }
    }

    /// Stubs held.
    pub fn stubs(&self) -> usize {
        self.index.stubs.len()
    }

    /// Whether the flow lives here, be it half-open or in TIME-WAIT: what a shard asks to learn that one it has a stub
    /// of elsewhere is over.
    pub fn holds(&self, flow: &FlowKey) -> bool {
        let record = self.find(flow, self.index.hash.flow(flow));
        record.is_some_and(|record| !matches!(record, Record::Stub(_)))
    }

    #[cold]
    pub(crate) fn redirect<M: Miss>(&mut self, shard: u16, frame: Frame, miss: &mut M) {
        self.counters.redirected += 1;
        if let Some(frame) = miss.redirect(shard, frame) {
            self.store.blocks.pool.free(frame.buf);
        }
    }

    fn free_stub(&mut self, id: u32) {
        if let Some(store) = &mut self.index.stubs.0 {
            store.free(id);
        }
    }
}

#[cfg(test)]
mod tests;
