//! A port that this core no longer listens on while others do. Until the steering says so here, new connections still
//! come; they would be refused, though a listener waits for them elsewhere. So what the walk would have end here waits,
//! and goes on when the next layout is adopted: that names one of the others, unless another update came first.

use janus_mem::Frame;

use super::core_context::CoreContext;

/// Frames that may wait. More come only from clients that repeat themselves, or in a flood.
pub(crate) const WAITING_MAX: usize = 256;

/// The ports, and what waits.
#[derive(Default)]
pub(crate) struct Leaving {
    /// No more than ports can be bound.
    ports: Vec<u16>,
    waiting: Vec<Frame>,
}

impl Leaving {
    /// The core has let go of `port`.
    pub(crate) fn add(&mut self, port: u16) {
        if !self.has(port) {
            self.ports.push(port);
        }
    }

    #[inline]
    pub(crate) fn has(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Keeps a frame whose walk has ended here, if there is room.
    pub(crate) fn hold(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(frame);
        }
        self.waiting.push(frame);
        Ok(())
    }

    /// What waits, in the order in which it came.
    pub(crate) fn take(&mut self) -> std::vec::Drain<'_, Frame> {
        self.waiting.drain(..)
    }
}

impl CoreContext {
    /// Between two batches: which ports are still being left, and what waits goes before `arrived` if it may go on.
    #[cold]
    pub(super) fn go_on_leaving(
        &self,
        leaving: &mut Leaving,
        adopted: bool,
        arrived: &mut Vec<Frame>,
    ) {
        let before = leaving.ports.len();
        let ends = self.shared.ending.stopping();
        leaving
            .ports
            .retain(|&port| !ends && self.shared.control.is_leaving(self.core, port));
        if adopted || leaving.ports.len() < before {
            arrived.splice(0..0, leaving.take());
        }
    }
}
