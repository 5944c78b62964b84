//! Flows that change store while an update of the balancer is on: half-open to connection, connection to TIME-WAIT, and
//! from there to a new beginning. The visit of `traverse` might miss one that goes back, so whoever moves a record
//! says so here (rule 6 of the balancer's protocol). While moves are not tracked, that is one look at a bool.
//!
//! What is told is bounded. When there is no room, a flow that goes on is met by the visit, and none goes back except
//! by an open in the place of a flow in TIME-WAIT, which is then refused; or by a SYN, which opens only where the newest
//! ring has the flow, so no other shard needs to hear of it.

use janus_wire::FlowKey;

/// Moves that can wait to be taken.
pub const MOVES_MAX: usize = 4_096;

/// Flows that moved since the last question.
#[derive(Default)]
pub(crate) struct Moves {
    pub(crate) on: bool,
    pub(crate) flows: Vec<FlowKey>,
}

impl Moves {
    /// Another move can be told, or need not be.
    pub(crate) fn has_room(&self) -> bool {
        !self.on || self.flows.len() < MOVES_MAX
    }
}

#[cfg(test)]
mod tests;
