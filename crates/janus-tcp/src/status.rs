//! The state of a connection as a socket interface asks for it before every answer: in a few fields, without looking at
//! anything that is outstanding ([`crate::Info`] looks at all of it).

use std::net::IpAddr;

use crate::cold::{NONE, State, flag};
use crate::config::Config;
use crate::error::Error;
use crate::hot::hot_flag;
use crate::segment::seg_flag;
use crate::stack::{ConnId, Stack};

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state; a connection in TIME-WAIT is told as closed, since all it could do is done.
    pub state: State,
    /// Why it ended, if it ended badly.
    pub failure: Option<Error>,
    /// The peer's FIN has come, in order.
    pub peer_fin: bool,
    /// Bytes received and not read.
    pub unread: u32,
    /// Bytes written and not sent.
    pub unsent: u32,
    /// Bytes sent and not acknowledged.
    pub in_flight: u32,
    /// Our FIN is to be sent behind what is unsent.
    pub fin_unsent: bool,
    /// Our FIN is sent and not acknowledged.
    pub fin_in_flight: bool,
    /// There is room to write, and enough of it that a writer should be told.
    pub writable: bool,
    /// The last write, or the FIN, found no packet buffer: the writer is told when it is worth another try.
    pub starved: bool,
    /// The receive window is less than about a segment: the reader should make room, however little there is.
    pub window_low: bool,
}

impl Stack {
    /// Where the connection stands.
    #[inline]
    pub fn status(&self, id: ConnId) -> Result<Status, Error> {
        let conn = self.conn(id)?;
        let cold = &self.store.tcbs[conn];
        let hot = (cold.hot != NONE).then(|| &self.store.hot[cold.hot]);
        let closing = is_closing(cold.state);
        let tail = hot.map_or(NONE, |h| h.sender.unsent.tail);
        let fin_unsent = cold.has(flag::FIN_QUEUED)
            || closing && tail != NONE && self.store.blocks.segments[tail].has(seg_flag::FIN);
        Ok(Status {
            state: cold.state,
            failure: Self::failure(cold),
            peer_fin: cold.has(flag::PEER_FIN),
            unread: hot.map_or(0, |h| h.receiver.inbox.bytes),
            unsent: hot.map_or(0, |h| h.sender.unsent.bytes),
            in_flight: hot.map_or(0, |h| h.sender.flight.bytes),
            fin_unsent,
            fin_in_flight: closing && !fin_unsent,
            writable: self.view(conn).is_none_or(|view| view.is_writable()),
            starved: hot.is_some_and(|h| h.has(hot_flag::STARVED)),
            window_low: cold.receive_window() <= u32::from(cold.mss),
        })
    }

    /// Whether a connection whose FIN was asked for still has to get it acknowledged, also when its owner has let go of it.
    pub fn is_closing(&self, id: ConnId) -> bool {
        let cold = self.store.tcbs.get(id.index);
        cold.is_some_and(|cold| {
            let closing = is_closing(cold.state) || cold.has(flag::FIN_QUEUED);
            cold.generation == id.generation && closing
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.rules.config
    }

    /// Address of the neighbor for which a frame was dropped last, as its hardware address did not become known in time
    /// (`Counters::dropped_no_neighbor`); `None` before the first.
    pub fn unanswered_neighbor(&self) -> Option<IpAddr> {
        self.host.neighbors.unanswered()
    }

    /// Returns the largest charge of bytes that a connection may have written ahead.
    pub fn send_budget(&self, id: ConnId) -> Result<u32, Error> {
        let conn = self.conn(id)?;
        let view = self.view(conn);
        Ok(view.map_or(self.rules.config.send_buffer, |view| view.budget()))
    }
}

/// Our FIN was asked for, and is not acknowledged.
fn is_closing(state: State) -> bool {
    matches!(state, State::FinWait1 | State::Closing | State::LastAck)
}
