//! The balancer's end in a shard: its view of the rings, and its part of an update, in slices between two batches.

use crate::flow::{Diverged, FlowId, Gone};
use crate::flows::{DivergenceFilter, Flows};
use crate::publish::Reader;
use crate::reports::{CHUNK, Chunk, Outbox};
use crate::shard::ShardId;
use crate::steering::Steering;

/// Work that an update asks of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing now.
    Nothing,
    /// [`ShardEnd::slice`], until it says that it is finished.
    Traverse,
    /// Note how far the producers of all inbound rings have come; when everything up to there has been taken, say
    /// [`ShardEnd::drained`] with this round.
    Drain(u32),
}

/// One for each shard; lives in its thread.
#[derive(Debug)]
pub struct ShardEnd {
    me: ShardId,
    reader: Reader,
    outbox: Outbox,
    /// The traversal last begun or finished.
    pass: u64,
    /// Where it is; `None`: at the end.
    cursor: Option<u64>,
    /// Found and not sent yet.
    kept: Vec<Diverged>,
    /// Where flows that have left are.
    gone: Vec<Gone>,
    finished: bool,
    drained: u32,
}

impl ShardEnd {
    pub(crate) fn new(me: ShardId, reader: Reader, outbox: Outbox) -> ShardEnd {
        ShardEnd {
            me,
            reader,
            outbox,
            pass: 0,
            cursor: None,
            kept: Vec::new(),
            gone: Vec::new(),
            finished: true,
            drained: 0,
        }
    }

    /// The shard's number.
    pub fn id(&self) -> ShardId {
        self.me
    }

    /// Adopts the newest steering if there is one (rule 1); says whether it did. Between batches only, and never a wait.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        self.reader.refresh()
    }

    /// Whether there is a newer steering to adopt.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.reader.is_behind()
    }

    /// Before the thread sleeps: see [`Reader::park`]. An update that wants something of this shard waits until it
    /// wakes, so whoever drives the balancer rings its bell.
    pub fn park(&mut self) {
        self.reader.park();
    }

    /// A number for this moment: of two reports of one flow the one with the later number is of what happened later.
    pub fn stamp(&self) -> u32 {
        self.outbox.stamp()
    }

    /// The steering adopted last.
    #[inline]
    pub fn steering(&self) -> &Steering {
        self.reader.current()
    }

    /// Returns the work to do for an update.
    #[inline]
    pub fn work(&self) -> Work {
        let steering = self.steering();
        if let Some(pass) = steering.pass() {
            return if self.pass == pass && self.finished {
                Work::Nothing
            } else {
                Work::Traverse
            };
        }
        if steering.round() != self.drained {
            Work::Drain(steering.round())
        } else {
            Work::Nothing
        }
    }

    /// One slice of the traversal, of about `budget` records; true: finished, or nothing to do.
    pub fn slice(&mut self, flows: &mut impl Flows, budget: usize) -> bool {
        let Some(pass) = self.steering().pass() else {
            return true;
        };
        if self.pass != pass {
            self.pass = pass;
            self.cursor = Some(0);
            self.kept.clear();
            self.gone.clear();
            self.finished = false;
        } else if self.finished {
            return true;
        }
        // Waiting reports go first: while the control side lags no new flows are visited, and memory stays bounded.
        let lags = self.is_laden() && !self.send(false);
        if let Some(cursor) = self.cursor {
            let steering = self.reader.current();
            let layout = steering.newest();
            let seen = (self.outbox.stamp(), steering.tells_news());
            let (kept, gone) = (&mut self.kept, &mut self.gone);
            let mut filter = DivergenceFilter::new(layout, self.me, seen, kept, gone);
            if !lags {
                self.cursor = flows.visit(cursor, budget, &mut filter);
            }
            // Always: there is not room for many where they are kept.
            flows.take_moved(&mut filter);
            self.outbox.held(flows.held());
        }
        if lags {
            return false;
        }
        while self.is_laden() {
            if !self.send(false) {
                return false;
            }
        }
        self.finished = self.cursor.is_none() && self.send(true);
        self.finished
    }

    /// The shard has lost the flows that it held. A traversal that is under way begins anew, as what is left may lie elsewhere.
    pub fn traverse_anew(&mut self) {
        if !self.finished {
            self.cursor = Some(0);
        }
    }

    /// There is as much as a chunk takes: the control side has not taken what it was given before.
    pub fn is_laden(&self) -> bool {
        self.kept.len() >= CHUNK || self.gone.len() >= CHUNK
    }

    /// Gives at most a chunk of what was found to the control side; false: there is no room.
    fn send(&mut self, last: bool) -> bool {
        // From the end, where nothing must be moved up: the order of reports means nothing.
        let kept = self.kept.split_off(self.kept.len().saturating_sub(CHUNK));
        let gone = self.gone.split_off(self.gone.len().saturating_sub(CHUNK));
        let chunk = Chunk {
            pass: self.pass,
            kept,
            gone,
            last,
        };
        match self.outbox.send(chunk) {
            Ok(()) => true,
            Err(mut back) => {
                self.kept.append(&mut back.kept);
                self.gone.append(&mut back.gone);
                false
            }
        }
    }

    /// Everything that waited in the inbound rings when `round` was first seen has been taken, and what was to be
    /// passed on of it has been.
    pub fn drained(&mut self, round: u32) {
        self.drained = round;
        self.outbox.drained(round);
    }

    /// Leaves the number of flows held now for [`Balancer::held`](crate::Balancer::held); a traversal does too.
    #[inline]
    pub fn report_held(&self, flows: usize) {
        self.outbox.held(flows);
    }

    /// Rule 10: whether this shard may open a connection whose arriving packets have this key, local port and name.
    /// What I/O cores look up, and every ring from theirs to the newest, must name it. If not, try another source port.
    pub fn may_open(&self, key: u32, port: u16, id: FlowId) -> bool {
        self.steering().all_name(self.me, key, port, id)
    }
}
