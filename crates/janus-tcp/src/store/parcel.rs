//! A connection as a value: all of it, in no stack. [`Stack::detach`](crate::Stack::detach) makes one and
//! [`Stack::adopt`](crate::Stack::adopt) takes it in, with other secrets, numbers, caches and another clock perhaps. What lies in packet
//! buffers moves as handles; in bytes ([`Parcel::encode`]) it is copied. Between the two a connection has no owner: whoever holds its parcel
//! gives it to a stack, or the peer is left alone with it.
//!
//! A parcel is made of what the stores are made of, so that what a connection gains is in it without a word here; numbers of records and
//! blocks are places in the parcel's lists. Never here: which stack a connection should be in.

mod check;
mod code;
mod pack;

use core::fmt;

use janus_wire::FlowKey;

use crate::coded::{Coded, Shift, coded, coded_as};
use crate::rules::profile::SocketOptions;
use crate::store::Account;
use crate::store::challenge::Answered;
use crate::store::cold::{State, Tcb};
use crate::store::half_open::HalfOpen;
use crate::store::hot::Hot;
use crate::store::pmtu;
use crate::store::recovery::Recovery;
use crate::store::reorder::Beyond;
use crate::store::rest::Rest;
use crate::store::segment::{Away, Segment, Ticket};
use crate::store::time_wait::TimeWait;
use crate::store::tuning::Tuning;
use crate::store::urgent::Urgent;
use crate::time::Instant;

pub use code::Unreadable;

/// A connection that is in no stack, or a handshake that is not done, or a flow in TIME-WAIT. Dropped, it is lost, and its peer is told nothing.
#[must_use = "a connection that no stack adopts is lost"]
pub struct Parcel {
    pub(crate) flow: FlowKey,
    /// When it left its stack, by that one's clock, which all its times are said by.
    pub(crate) made: Instant,
    pub(crate) content: Content,
}

/// In each, what timestamps are counted from is the timestamp that would have been sent when the parcel was made.
pub(crate) enum Content {
    Connection(Connection),
    HalfOpen(HalfOpen),
    TimeWait(TimeWait),
}

/// A connection. Idle, it is its record and little else.
pub(crate) struct Connection {
    pub(crate) tcb: Tcb,
    pub(crate) place: Place,
    /// Its rest, if no task waits for it.
    pub(crate) rest: Option<Rest>,
    /// Socket options that are not the defaults; `nodelay` is the record's.
    pub(crate) options: Option<Box<SocketOptions>>,
    /// When segments that fit nothing were last answered.
    pub(crate) answered: Answered,
    /// Milliseconds, wrapping, of the last look at it, if its options ask for looks.
    pub(crate) looked_ms: Option<u32>,
    /// A path that does not carry all that the link does.
    pub(crate) path: Option<Box<pmtu::Path>>,
    pub(crate) busy: Option<Box<Busy>>,
}

/// The owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An application.
    Owned,
    /// It waits to be accepted.
    Waiting,
    /// None: the stack finishes it alone.
    Orphan,
}

coded_as!(Place {
    Owned = 0,
    Waiting = 1,
    Orphan = 2,
});

/// State of a connection while something is in flight, queued, out of order, unread or timed.
pub(crate) struct Busy {
    pub(crate) hot: Hot,
    pub(crate) flight: Vec<Segment>,
    pub(crate) unsent: Vec<Segment>,
    pub(crate) inbox: Vec<Segment>,
    /// Buffers of `flight` that are on a wire.
    pub(crate) away: Vec<Away>,
    pub(crate) beyond: Option<Beyond>,
    /// Losses with SACK, and a timeout that is doubted without.
    pub(crate) recovery: Option<Marked>,
    pub(crate) doubt: Option<Marked>,
    pub(crate) tuning: Option<Tuning>,
    pub(crate) urgent: Option<Urgent>,
    pub(crate) account: Option<Account>,
    /// The segment that probes the path, counted through `flight` and `unsent`.
    pub(crate) probe: Option<u32>,
}

coded!(Busy {
    hot,
    flight,
    unsent,
    inbox,
    away,
    beyond,
    recovery,
    doubt,
    tuning,
    urgent,
    account,
    probe
});

/// A recovery block, and the places in `flight` that it names.
pub(crate) struct Marked {
    pub(crate) block: Recovery,
    pub(crate) sack_hint: Option<u32>,
    pub(crate) lost_from: Option<u32>,
    pub(crate) decided: Option<u32>,
}

coded!(Marked {
    block,
    sack_hint,
    lost_from,
    decided
});

impl Busy {
    /// Segments of all queues.
    pub(crate) fn segments(&self) -> usize {
        let queued = self.flight.len() + self.unsent.len() + self.inbox.len();
        queued + self.beyond.as_ref().map_or(0, Beyond::slots)
    }
}

impl Connection {
    fn shift(&mut self, by: &Shift) {
        self.tcb.shift(by);
        self.answered.shift(by);
        self.path.shift(by);
        if let Some(looked) = &mut self.looked_ms {
            by.ms(looked);
        }
        let Some(busy) = &mut self.busy else { return };
        busy.shift(by);
        let timers = &mut busy.hot.timers;
        if self.tcb.state.is_opening() {
            // When the SYN was last sent stands here until a round trip is measured.
            by.us(&mut timers.rtt_off_max);
        }
        if timers.orphaned_ms != 0 {
            // The lowest bit only says that it is a time.
            timers.orphaned_ms &= !1;
            by.ms(&mut timers.orphaned_ms);
            timers.orphaned_ms |= 1;
        }
    }
}

impl Parcel {
    /// The connection's ends.
    pub fn flow(&self) -> &FlowKey {
        &self.flow
    }

    /// When it left its stack, by that one's clock.
    pub fn made(&self) -> Instant {
        self.made
    }

    /// The parcel is for a stack whose clock shows `now` at the moment at which the old one's showed [`made`](Self::made). Between stacks that
    /// have one clock this is not needed, and the time on the way counts.
    pub fn rebase(&mut self, now: Instant) {
        let by = Shift::new(self.made, now);
        self.made = now;
        match &mut self.content {
            Content::Connection(conn) => conn.shift(&by),
            Content::HalfOpen(record) => record.shift(&by),
            Content::TimeWait(record) => record.shift(&by),
        }
    }

    /// The rest that the connection was at. Its time may count on in the new stack
    /// ([`Stack::rest_on`](crate::Stack::rest_on)).
    pub fn rest(&self) -> Option<Rest> {
        match &self.content {
            Content::Connection(conn) => conn.rest,
            _ => None,
        }
    }

    /// Buffers that are on the wire of a stack that the connection came from. Each is for [`Stack::comes_home`](crate::Stack::comes_home),
    /// under this number, and until then its segment is not sent again.
    pub fn tickets(&self) -> impl Iterator<Item = Ticket> {
        let busy = match &self.content {
            Content::Connection(conn) => conn.busy.as_deref(),
            _ => None,
        };
        let away = busy.into_iter().flat_map(|busy| &busy.away);
        away.map(|(_, ticket)| *ticket)
    }

    /// Whether it is nothing but its record: nothing in flight, queued, unread or timed.
    pub fn is_idle(&self) -> bool {
        !matches!(&self.content, Content::Connection(conn) if conn.busy.is_some())
    }

    /// Whether no packet is for it any more: an application has what is left of the connection.
    pub fn is_over(&self) -> bool {
        matches!(&self.content, Content::Connection(conn) if conn.tcb.state == State::Closed)
    }

    /// Whether an application has the connection.
    pub fn is_owned(&self) -> bool {
        matches!(&self.content, Content::Connection(conn) if conn.place == Place::Owned)
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.content {
            Content::Connection(conn) if conn.busy.is_some() => "busy connection",
            Content::Connection(_) => "idle connection",
            Content::HalfOpen(_) => "handshake",
            Content::TimeWait(_) => "flow in TIME-WAIT",
        };
        write!(f, "Parcel({content} {:?})", self.flow)
    }
}

/// Why a stack does not take a connection in. Nothing of it stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Its local address is none of the stack's.
    NotOurs,
    /// The flow lives here, or buffers of the parcel that are on a wire are awaited by another.
    Taken,
    /// It waits to be accepted, and nothing listens here.
    NoListener,
    /// There is no place for it: a table, a queue or memory is full.
    Full,
    /// It has options, and there are too many different ones here.
    TooManyOptionSets,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NotOurs => "the connection's local address is none of this stack's",
            Refusal::Taken => "the flow, or a buffer of it, is in this stack already",
            Refusal::NoListener => "the connection waits to be accepted, and nothing listens here",
            Refusal::Full => "this stack has no room for the connection",
            Refusal::TooManyOptionSets => {
                "this stack has too many different sets of socket options"
            }
        })
    }
}

impl core::error::Error for Refusal {}

/// A parcel that was not taken in, as it was.
#[derive(Debug)]
pub struct Refused {
    /// The connection.
    pub parcel: Parcel,
    /// Why.
    pub why: Refusal,
}
