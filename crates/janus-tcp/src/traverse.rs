//! A visit to every flow that the stack holds, in bounded slices between which anything may happen: what an update of
//! the balancer asks of a shard (rule 6 of its protocol). Never here: what is made of the flows.
//!
//! Records stay where they are in their store, however it or the flow table grows, so a place is a cursor that nothing
//! makes invalid. Stores are visited in the order in which a flow goes through them, half-open, connection, TIME-WAIT:
//! one that moves on between two slices goes where the visit has yet to come. The few that go back are told by
//! `moves`.

use janus_wire::FlowKey;

use crate::cold::{State, Tcb};
use crate::flows::Family;
use crate::stack::Stack;

/// The parts of the visit, in order. A cursor is a part's number above the place in it.
const PARTS: [(Store, Family); 8] = [
    (Store::HalfOpen, Family::V4),
    (Store::HalfOpen, Family::V6),
    (Store::Connections, Family::V4),
    (Store::Connections, Family::V6),
    (Store::TimeWait, Family::V4),
    (Store::TimeWait, Family::V6),
    (Store::Stubs, Family::V4),
    (Store::Stubs, Family::V6),
];

#[derive(Clone, Copy)]
enum Store {
    HalfOpen,
    Connections,
    TimeWait,
    Stubs,
}

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
        while let Some(&(store, family)) = PARTS.get(part) {
            let range = (place, place.saturating_add(budget));
            let end = match store {
                Store::HalfOpen => self
                    .index
                    .half_open
                    .store()
                    .see(family, range, any, &mut see),
                // One that is over keeps its place until its owner lets go of it, but is no flow.
                Store::Connections => {
                    let open = |tcb: &Tcb| tcb.state != State::Closed;
                    self.store.tcbs.see(family, range, open, &mut see)
                }
                Store::TimeWait => self
                    .index
                    .time_wait
                    .store()
                    .see(family, range, any, &mut see),
                Store::Stubs => self.index.stubs.see(family, range, &mut see),
            };
            if end < self.places_in(store, family) {
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

    fn places_in(&self, store: Store, family: Family) -> u32 {
        match store {
            Store::HalfOpen => self.index.half_open.store().places_of(family),
            Store::Connections => self.store.tcbs.places_of(family),
            Store::TimeWait => self.index.time_wait.store().places_of(family),
            Store::Stubs => self.index.stubs.places_of(family),
        }
    }

    /// Flows held; connections that are over and have not been let go of are counted too.
    pub fn flows_held(&self) -> usize {
        let records = self.index.half_open.len() + self.index.time_wait.len() + self.stubs();
        records + self.store.tcbs.len()
    }
}

fn any<T>(_: &T) -> bool {
    true
}

#[cfg(test)]
mod tests;
