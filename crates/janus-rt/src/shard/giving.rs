//! A connection that a task of another core asks for, with its handle in hand: it moves there (`moves`), and the task is told its new name.
//! How a stream is made of that is `net`'s.

use std::sync::Arc;
use std::task::{Poll, Waker};

use janus_csb::ShardId;
use janus_tcp::{ConnId, Error};

use super::core_context::CoreContext;
use super::moves::Why;
use super::waiters::Side;
use crate::inbox::Owner;
use crate::lock::Lock;

/// A connection of which a task has the handle. It closes when this is dropped.
pub(crate) struct Held {
    owner: Owner,
    conn: ConnId,
}

impl Held {
    pub(crate) fn new(owner: Owner, conn: ConnId) -> Held {
        Held { owner, conn }
    }

    /// Returns its core and its name, for another handle.
    pub(crate) fn into_parts(self) -> (Owner, ConnId) {
        let parts = (self.owner, self.conn);
        std::mem::forget(self);
        parts
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.owner.send_close(self.conn);
    }
}

/// Answer to a task that asks.
pub(crate) enum Answer {
    /// The connection is where it asked for it.
    Here(Held),
    /// It is where it was; `None`: it has ended.
    Stays(Option<Held>, Stays),
}

/// Reason why a connection stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// It is another runtime's.
    Foreign,
    /// It was opened from a port of its own choice, which stays its core's.
    FixedPort,
    /// Too much moves at this time, or there is no room.
    Busy,
    Over(Error),
}

/// Place for the answer. The one that asks, and the connection's way, have it.
#[derive(Clone, Default)]
pub(crate) struct Ticket(Arc<Lock<Place>>);

#[derive(Default)]
struct Place {
    answer: Option<Answer>,
    waker: Option<Waker>,
    /// The answer is not waited for any more.
    forgotten: bool,
}

impl Ticket {
    /// Gives the answer. A connection that is not waited for any more closes.
    pub(crate) fn answer(&self, answer: Answer) {
        let mut place = self.0.lock();
        if place.forgotten {
            drop(place);
            return drop(answer);
        }
        place.answer = Some(answer);
        let waker = place.waker.take();
        drop(place);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Answer> {
        let waker = waker.clone();
        let mut place = self.0.lock();
        if let Some(answer) = place.answer.take() {
            drop(place);
            return Poll::Ready(answer);
        }
        let before = place.waker.replace(waker);
        drop(place);
        drop(before);
        Poll::Pending
    }

    /// The answer is not waited for any more.
    pub(crate) fn forget(&self) {
        let mut place = self.0.lock();
        place.forgotten = true;
        let left = (place.answer.take(), place.waker.take());
        drop(place);
        drop(left);
    }
}

/// Outcome of one attempt to give a connection away.
pub(crate) enum Attempt {
    Gone,
    /// Not now; it has this name.
    Later(ConnId),
    Never(Stays),
}

impl CoreContext {
    /// Tries to move a connection to the core that asks for it; its handle is the caller's, and no task waits for anything of it.
    pub(crate) fn give(&self, conn: ConnId, to: ShardId, ticket: &Ticket) -> Attempt {
        let flow = match self.stack.borrow().flow_of(conn) {
            Ok(flow) => flow,
            Err(error) => return Attempt::Never(Stays::Over(error)),
        };
        if self.tuple_claims.borrow().stands_elsewhere(&flow) {
            return Attempt::Never(Stays::FixedPort);
        }
        if self.must_stay(&flow) || !self.may_leave_stubs() {
            self.shared.mailbox.want_tidy();
            return Attempt::Later(conn);
        }
        for side in [Side::Read(conn.index), Side::Write(conn.index)] {
            let forgotten = self.waiters.borrow_mut().forget(side);
            drop(forgotten);
        }
        self.served(conn, true);
        match self.send_away(&flow, Some(conn), to, Why::Asked(ticket.clone())) {
            Ok(()) => Attempt::Gone,
            Err(Some(conn)) => Attempt::Later(conn),
            Err(None) => Attempt::Never(Stays::Over(Error::ConnectionReset)),
        }
    }
}
