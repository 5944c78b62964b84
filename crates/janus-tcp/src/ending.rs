//! The end of a whole stack: no new connections, then no connections. What becomes of one that its owner lets go of is in
//! `socket`.

use crate::cold::State;
use crate::schedule::MAX_REPLIES;
use crate::stack::Stack;
use crate::time::Instant;

impl Stack {
    /// From now on a SYN finds no listener. Handshakes that are half done are finished, and what waits to be accepted still
    /// waits.
    pub fn close_doors(&mut self) {
        self.index.listeners.hide();
    }

    /// Resets the connections that are left, orphans too, from the place `from` on (0: all), as far as there is
    /// room for the resets. Returns the place to go on from after a [`Stack::transmit`]; `None`: that was all.
    pub fn reset_from(&mut self, now: Instant, from: usize) -> Option<usize> {
        self.now = now;
        let places = self.store.tcbs.places().into_iter().flatten().enumerate();
        for (place, conn) in places.skip(from) {
            // A free place has the state in which its last owner left it: closed.
            if self.store.tcbs[conn].state == State::Closed {
                continue;
            }
            if self.schedule.replies.len() >= MAX_REPLIES {
                return Some(place);
            }
            self.abort_conn(conn);
            self.counters.reset_at_end += 1;
        }
        None
    }
}
