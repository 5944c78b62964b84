//! A visit to every flow that the stack holds, in bounded slices between which anything may happen: what an update of
//! the balancer asks of a shard (rule 6 of its protocol). Never here: what is made of the flows.
//!
//! Records stay where they are in their store, however it or the flow table grows, so a place is a cursor that nothing
//! makes invalid. Stores are visited in the order in which a flow goes through them, half-open, connection, TIME-WAIT:
//! one that moves on between two slices goes where the visit has yet to come. The few that go back are told by
//! `moves`.

use crate::store::flows::Family;

/// The parts of the visit, in order. A cursor is a part's number above the place in it.
pub(crate) const PARTS: [(Shelf, Family); 8] = [
    (Shelf::HalfOpen, Family::V4),
    (Shelf::HalfOpen, Family::V6),
    (Shelf::Connections, Family::V4),
    (Shelf::Connections, Family::V6),
    (Shelf::TimeWait, Family::V4),
    (Shelf::TimeWait, Family::V6),
    (Shelf::Stubs, Family::V4),
    (Shelf::Stubs, Family::V6),
];

#[derive(Clone, Copy)]
pub(crate) enum Shelf {
    HalfOpen,
    Connections,
    TimeWait,
    Stubs,
}

pub(crate) fn any<T>(_: &T) -> bool {
    true
}

#[cfg(test)]
mod tests;
