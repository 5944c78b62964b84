//! One queue's end of the line.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use janus_shm::{Bell, Message, Violation};
use rustix::net::{Shutdown, shutdown};

use super::{Ends, FAREWELL, Line, Place, State};

/// A queue's part of the line.
pub(crate) struct Berth {
    pub(super) line: Arc<Line>,
    pub(super) number: usize,
    pub(super) seen: u32,
}

impl Berth {
    pub(crate) fn bell(&self) -> &Bell {
        &self.line.bells[self.number].0
    }

    pub(crate) fn depth(&self) -> u32 {
        self.line.depth()
    }

    pub(crate) fn unsent_max(&self) -> u32 {
        self.line.unsent_max()
    }

    fn place(&self) -> &Place {
        &self.line.places[self.number]
    }

    /// Whether there are other rings, or none any more.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.place().changes.load(Ordering::Acquire) != self.seen
    }

    /// Whether the rings that it has, or is about to have, are the first daemon's.
    pub(crate) fn has_the_first(&self) -> bool {
        self.seen <= 1
    }

    pub(crate) fn take(&mut self) -> Option<Ends> {
        let place = &self.line.places[self.number];
        let mut ends = place.ends.lock().unwrap_or_else(PoisonError::into_inner);
        self.seen = place.changes.load(Ordering::Acquire);
        ends.take()
    }

    /// The daemon broke the rules: it is hung up on.
    pub(crate) fn breaks(&self, violation: Violation) {
        eprintln!(
            "janus: the daemon at {} breaks the rules ({violation})",
            self.line.path.display()
        );
        if let Some(link) = &self.line.lock().link {
            let _ = shutdown(link.as_fd(), Shutdown::Both);
        }
    }

    /// This queue is closed. True: no daemon has this member's memory any more.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.line.lock();
        state.open -= 1;
        if state.open > 0 {
            // The others' rings are used yet, and all are in one memory: the daemon keeps what this one had.
            return false;
        }
        let Some(link) = &state.link else {
            return true;
        };
        let listens = state.listens;
        let keeps = state.succeeded;
        let says = link.send(&Message::Leave { keeps }, &[]).is_ok();
        if self.line.packets.lent && state.daemon == 1 {
            // Heard no more; the daemon hears its end once nothing of the memory is used.
            let _ = shutdown(link.as_fd(), Shutdown::Read);
            return false;
        }
        if !listens || !says {
            let _ = shutdown(link.as_fd(), Shutdown::Both);
        }
        let gone = |state: &mut State| listens && state.link.is_some();
        let waited = (self.line.changed).wait_timeout_while(state, FAREWELL, gone);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.link.is_none()
    }
}
