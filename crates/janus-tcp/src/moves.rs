//! Flows that change store while an update of the balancer is on: half-open to connection, connection to TIME-WAIT, and
//! from there to a new beginning. The visit of `traverse` might miss one that goes back, so whoever moves a record
//! says so here (rule 6 of the balancer's protocol). While moves are not tracked, that is one look at a bool.
//!
//! What is told is bounded. When there is no room, a flow that goes on is met by the visit, and none goes back except
//! by an open in the place of a flow in TIME-WAIT, which is then refused; or by a SYN, which opens only where the newest
//! ring has the flow, so no other shard needs to hear of it.

use janus_wire::FlowKey;

use crate::stack::Stack;

/// Moves that can wait to be taken.
pub const MOVES_MAX: usize = 4_096;

/// Flows that moved since the last question.
#[derive(Default)]
pub(crate) struct Moves {
    on: bool,
    flows: Vec<FlowKey>,
}

impl Moves {
    /// Another move can be told, or need not be.
    pub(crate) fn has_room(&self) -> bool {
        !self.on || self.flows.len() < MOVES_MAX
    }
}

impl Stack {
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
            if self.find(&flow, self.index.hash.flow(&flow)).is_some() {
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
            self.counters.moves_told += 1;
        } else {
            self.counters.moves_untold += 1;
        }
    }
}

#[cfg(test)]
mod tests;
