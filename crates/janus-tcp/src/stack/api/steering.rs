//! Calls of the runtime and the balancer: visiting flows, records of flows that live elsewhere, addresses that change, packets for our own
//! addresses, the end of a stack.

use janus_mem::Frame;
use janus_wire::FlowKey;

use crate::rules::error::Error;
use crate::stack::Stack;
use crate::stack::api::readdress::Addressing;
use crate::stack::api::traverse::{PARTS, Shelf, any};
use crate::stack::input::UnknownFlow;
use crate::store::cold::{EndReason, State, Tcb, flag};
use crate::store::flows::Family;
use crate::store::moves::MOVES_MAX;
use crate::store::records::Record;
use crate::store::rest::Rest;
use crate::store::schedule::MAX_REPLIES;
use crate::store::stub::{AHEAD, Moved, Stub};
use crate::time::Instant;

impl Stack {
    /// Visits on from `cursor` (0: the beginning) and looks at no more than `budget` places, each a record or a free
    /// one. Gives the cursor to go on from, `None` when all have been visited.
    ///
    /// A flow that is held from before the first slice until after the last is seen at least once, whatever happens in
    /// between, if those that [`Stack::take_moved`] tells of are seen too. Flows that come meanwhile may be seen.
    pub fn visit_flows(
        &self,
        cursor: u64,
        budget: usize,
        mut see: impl FnMut(&FlowKey),
    ) -> Option<u64> {
        let (mut part, mut place) = ((cursor >> 32) as usize, cursor as u32);
        let mut budget = u32::try_from(budget).unwrap_or(u32::MAX).max(1);
        while let Some(&(shelf, family)) = PARTS.get(part) {
            let range = (place, place.saturating_add(budget));
            let end = match shelf {
                Shelf::HalfOpen => self
                    .index
                    .half_open
                    .store()
                    .see(family, range, any, &mut see),
                // One that is over keeps its place until its owner lets go of it, but is no flow.
                Shelf::Connections => {
                    let open = |tcb: &Tcb| tcb.state != State::Closed;
                    self.store.tcbs.see(family, range, open, &mut see)
                }
                Shelf::TimeWait => self
                    .index
                    .time_wait
                    .store()
                    .see(family, range, any, &mut see),
                Shelf::Stubs => self.index.stubs.see(family, range, &mut see),
            };
            if end < self.places_in(shelf, family) {
                return Some((part as u64) << 32 | u64::from(end));
            }
            budget = budget.saturating_sub(end.saturating_sub(place));
            (part, place) = (part + 1, 0);
            if budget == 0 && part < PARTS.len() {
                return Some((part as u64) << 32);
            }
        }
        None
    }

    fn places_in(&self, shelf: Shelf, family: Family) -> u32 {
        match shelf {
            Shelf::HalfOpen => self.index.half_open.store().places_of(family),
            Shelf::Connections => self.store.tcbs.places_of(family),
            Shelf::TimeWait => self.index.time_wait.store().places_of(family),
            Shelf::Stubs => self.index.stubs.places_of(family),
        }
    }

    /// Flows held; connections that are over and have not been let go of are counted too.
    pub fn flows_held(&self) -> usize {
        let records = self.index.half_open.len() + self.index.time_wait.len() + self.stubs();
        records + self.store.tcbs.len()
    }

    /// From now on these are our addresses, and these our ways. Nothing more is taken for others; the flows they have are
    /// ended by [`end_homeless`](Self::end_homeless).
    pub fn readdress(&mut self, new: Addressing) {
        let Addressing {
            addresses,
            gateway,
            gateway_v6,
            routes,
            mtu,
        } = new;
        let mut interface = self.rules.interface().clone();
        interface.addresses = addresses;
        (interface.gateway, interface.gateway_v6) = (gateway, gateway_v6);
        (interface.routes, interface.mtu) = (routes, mtu);
        self.rules.set_interface(interface);
        self.host.forget_latest_neighbors(self.env.now);
    }

    /// Ends flows whose own address is none of those we were given, whose owners learn that the network cannot be reached. Looks on from
    /// `cursor` (0: the beginning) at no more than `budget` places; gives the cursor to go on from, `None` when all have been
    /// looked at.
    pub fn end_homeless(&mut self, now: Instant, cursor: u64, budget: usize) -> Option<u64> {
        self.env.set_now(now);
        let mut homeless: Vec<FlowKey> = Vec::new();
        let next = self.visit_flows(cursor, budget, |flow| {
            if !self.rules.interface().is_own(flow.local()) {
                homeless.push(*flow);
            }
        });
        for flow in homeless {
            self.end_one(&flow);
        }
        next
    }

    fn end_one(&mut self, flow: &FlowKey) {
        match self.record_of(flow) {
            Some(Record::Connection(conn)) => self.end(conn, EndReason::NoNetwork),
            Some(Record::HalfOpen(slot)) => self.drop_half_open(slot),
            Some(Record::TimeWait(slot)) => self.drop_time_wait(slot),
            Some(Record::Stub(slot)) => {
                let shard = self.index.stubs.get(slot).shard;
                self.remove_stub(flow, shard);
            }
            None => {}
        }
    }

    /// Whether frames for our own addresses wait to come back in. The stack's driver must not sleep then.
    #[inline]
    pub fn has_looped(&self) -> bool {
        self.host.own_loop().has_frames()
    }

    /// Moves at most `most` of the frames for our own addresses to the end of `into`, the oldest first. Each goes to
    /// [`Stack::input`] of the stack that has its flow, with the mark that its tag has. Until some were taken, connections
    /// send a bounded number of them.
    pub fn take_looped(&mut self, into: &mut Vec<Frame>, most: usize) {
        for id in self.host.own_loop_mut().take(into, most) {
            self.schedule.output.push_back(Some(id));
        }
    }

    /// From now on a SYN finds no listener. Handshakes that are half done are finished, and what waits to be accepted still
    /// waits.
    pub fn close_doors(&mut self) {
        self.index.listeners.hide();
    }

    /// Resets the connections that are left, orphans too, from the place `from` on (0: all), as far as there is
    /// room for the resets. Returns the place to go on from after a [`Stack::transmit`]; `None`: that was all.
    pub fn reset_from(&mut self, now: Instant, from: usize) -> Option<usize> {
        self.env.set_now(now);
        let places = self.store.tcbs.places().enumerate();
        for (place, conn) in places.skip(from) {
            // A free place has the state in which its last owner left it: closed.
            if self.store.tcbs[conn].state == State::Closed {
                continue;
            }
            if self.schedule.replies.len() >= MAX_REPLIES {
                return Some(place);
            }
            self.abort_conn(conn);
            self.env.counters.reset_at_end += 1;
        }
        None
    }

    /// From now on, or no longer, flows that change store are remembered for [`Stack::take_moved`]. To be on from before
    /// the first slice of [`Stack::visit_flows`] until after the last.
    pub fn track_moves(&mut self, on: bool) {
        if on && !self.index.moves.on {
            self.index.moves.flows.reserve_exact(MOVES_MAX);
        }
        if !on {
            self.index.moves.flows = Vec::new();
        }
        self.index.moves.on = on;
    }

    /// Sees the flows that have changed store since the last call and are still held: one that has ended meanwhile may
    /// have begun anew at another shard. To be called every turn: no more than [`MOVES_MAX`] are remembered.
    pub fn take_moved(&mut self, mut see: impl FnMut(&FlowKey)) {
        let mut flows = core::mem::take(&mut self.index.moves.flows);
        for flow in flows.drain(..) {
            if self.record_of(&flow).is_some() {
                see(&flow);
            }
        }
        self.index.moves.flows = flows;
    }

    /// The flow's record is in another store now.
    #[inline]
    pub(crate) fn moved(&mut self, key: &FlowKey) {
        if self.index.moves.on {
            self.note_move(key);
        }
    }

    #[cold]
    fn note_move(&mut self, key: &FlowKey) {
        if self.index.moves.has_room() {
            self.index.moves.flows.push(*key);
            self.env.counters.moves_told += 1;
        } else {
            self.env.counters.moves_untold += 1;
        }
    }

    /// Packets of `flow` are from now on handed to [`UnknownFlow::redirect`] for `shard`, which may open it when this has
    /// succeeded, and not before. [`Error::AddrInUse`]: the flow lives here, in TIME-WAIT perhaps, or a stub of it does.
    pub fn add_stub(&mut self, flow: &FlowKey, shard: u16) -> Result<(), Error> {
        self.make_stub(flow, shard, None)
    }

    /// Like [`Stack::add_stub`] for a flow that has just moved to `shard`. A stub that stood here was of an older move.
    pub fn leave_stub(&mut self, flow: &FlowKey, shard: u16, moved: Moved) -> Result<(), Error> {
        self.make_stub(flow, shard, Some(moved))
    }

    fn make_stub(&mut self, flow: &FlowKey, shard: u16, moved: Option<Moved>) -> Result<(), Error> {
        let hash = self.index.hash.flow(flow);
        match self.record_of(flow) {
            Some(Record::Stub(older)) if moved.is_some() => self.drop_stub(older, flow),
            Some(_) => return Err(Error::AddrInUse),
            None => {}
        }
        let id = self.index.stubs.add(flow, Stub { shard, moved });
        let id = id.ok_or(Error::TooManyConnections)?;
        if self.file(hash, Record::Stub(id)) {
            return Ok(());
        }
        self.index.stubs.free(id);
        Err(Error::TooManyConnections)
    }

    /// The flow is over at `shard`, as that says: what comes now is met as a stranger. False when it has no stub here.
    pub fn remove_stub(&mut self, flow: &FlowKey, shard: u16) -> bool {
        self.remove_stub_if(flow, |stub| stub.shard == shard)
    }

    fn remove_stub_if(&mut self, flow: &FlowKey, goes: impl FnOnce(Stub) -> bool) -> bool {
        match self.record_of(flow) {
            Some(Record::Stub(id)) if goes(self.index.stubs.get(id)) => {
                self.drop_stub(id, flow);
                true
            }
            _ => false,
        }
    }

    fn drop_stub(&mut self, id: u32, flow: &FlowKey) {
        let hash = self.index.hash.flow(flow);
        self.index.table.remove(hash, Record::Stub(id).encode());
        self.index.stubs.free(id);
    }

    /// The shard to which the packets of `flow` are handed on, if there is a stub of it here.
    pub fn stub_of(&self, flow: &FlowKey) -> Option<u16> {
        if self.stubs() == 0 {
            return None;
        }
        match self.record_of(flow) {
            Some(Record::Stub(id)) => Some(self.index.stubs.get(id).shard),
            _ => None,
        }
    }

    /// The flow that moved to `shard` at `stamp` is over there: its stub goes, if it is still that one.
    pub fn forget_move(&mut self, flow: &FlowKey, shard: u16, stamp: u32) {
        let is_it = |moved: Moved| moved.stamp == stamp;
        self.remove_stub_if(flow, |stub| {
            stub.shard == shard && stub.moved.is_some_and(is_it)
        });
    }

    /// Sees the flows that have moved, where to, and when: at most `budget` places from `from` on (0: the first). Gives the place to go on
    /// from, `None` when all have been looked at. A stub that stands from before the first call until after the last is seen.
    pub fn moved_flows(
        &self,
        from: u32,
        budget: u32,
        mut see: impl FnMut(&FlowKey, u16, Moved),
    ) -> Option<u32> {
        let (places, next) = self.index.stubs.places(from, budget);
        for id in places {
            if let Some((flow, stub)) = self.index.stubs.at(id)
                && let Some(moved) = stub.moved
            {
                see(&flow, stub.shard, moved);
            }
        }
        next
    }

    /// Stubs of moves go for whose epochs `over` holds: at most `budget` places are looked at from `from` on (0: the first). Gives the place
    /// to go on from, `None` when all have been looked at.
    pub fn forget_moves(
        &mut self,
        from: u32,
        budget: u32,
        over: impl Fn(u16) -> bool,
    ) -> Option<u32> {
        let is_over = |stub: Stub| stub.moved.is_some_and(|moved| over(moved.epoch));
        let (places, next) = self.index.stubs.places(from, budget);
        for id in places {
            if let Some((flow, _)) = self.index.stubs.at(id + AHEAD) {
                self.prefetch_flow(&flow);
            }
            if let Some((flow, stub)) = self.index.stubs.at(id)
                && is_over(stub)
            {
                self.drop_stub(id, &flow);
            }
        }
        next
    }

    /// Stubs of flows that have moved.
    pub fn stubs_of_moves(&self) -> usize {
        self.index.stubs.moved()
    }

    /// Sees every stub: its flow, the shard it leads to, and when that flow moved there, if it did.
    pub fn each_stub(&self, mut see: impl FnMut(&FlowKey, u16, Option<Moved>)) {
        let mut from = Some(0);
        while let Some(place) = from {
            let (places, next) = self.index.stubs.places(place, u32::MAX);
            for (flow, stub) in places.filter_map(|id| self.index.stubs.at(id)) {
                see(&flow, stub.shard, stub.moved);
            }
            from = next;
        }
    }

    /// The hash under which the flow is filed here, by a secret of this stack's.
    #[inline]
    pub fn hash_of(&self, flow: &FlowKey) -> u64 {
        self.index.hash.flow(flow)
    }

    /// Brings close what a look for the flow reads first.
    #[inline]
    pub fn prefetch_flow(&self, flow: &FlowKey) {
        self.index.table.prefetch(self.index.hash.flow(flow));
    }

    /// Brings close what a flow reads and writes first that comes after so many others.
    #[inline]
    pub fn prefetch_place(&self, flow: &FlowKey, before: u32) {
        self.prefetch_flow(flow);
        let family = match flow {
            FlowKey::V4(_) => Family::V4,
            FlowKey::V6(_) => Family::V6,
        };
        self.store.tcbs.prefetch_next(family, before);
    }

    /// Whether no task of an application has the flow: it is at rest, waits to be accepted, or is the stack's own.
    pub fn is_unattended(&mut self, flow: &FlowKey) -> bool {
        match self.record_of(flow) {
            Some(Record::Connection(conn)) => {
                let tcb = &self.store.tcbs[conn];
                let rests = Rest::of_word(tcb.reader).is_some();
                let waits = || self.index.listeners.has_waiting(flow.local_port(), conn);
                rests || tcb.has(flag::ORPHAN) || waits()
            }
            Some(Record::HalfOpen(_) | Record::TimeWait(_)) => true,
            Some(Record::Stub(_)) | None => false,
        }
    }

    /// Stubs held.
    pub fn stubs(&self) -> usize {
        self.index.stubs.len()
    }

    /// Whether the flow lives here, be it half-open or in TIME-WAIT: what a shard asks to learn that one it has a stub
    /// of elsewhere is over.
    pub fn holds(&self, flow: &FlowKey) -> bool {
        let record = self.record_of(flow);
        record.is_some_and(|record| !matches!(record, Record::Stub(_)))
    }

    #[cold]
    pub(crate) fn redirect<M: UnknownFlow>(&mut self, shard: u16, frame: Frame, unknown: &mut M) {
        self.env.counters.redirected += 1;
        if let Some(frame) = unknown.redirect(shard, frame) {
            self.store.blocks.pool.free(frame.buf);
        }
    }
}
