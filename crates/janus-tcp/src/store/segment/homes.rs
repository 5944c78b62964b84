//! Buffers that are on the wire when their connection moves to another stack. The device gives them back to the stack that sent them; from
//! there they go after the connection, however often it has moved meanwhile, under a number that its parcel carries along.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use janus_mem::{PacketBuf, Pool};

use super::Segments;
use crate::coded::{Coded, Garbled, Source};
use crate::store::keys::{Key, SegId};

/// Number under which a buffer that is on the wire is known to the stacks that its connection has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Coded for Ticket {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
    }

    fn take(from: &mut Source<'_>) -> Result<Ticket, Garbled> {
        u64::take(from).map(Ticket)
    }
}

/// A buffer that has come home to a stack its connection has left.
#[derive(Debug)]
pub struct Homecoming {
    /// Where the connection went from this stack.
    pub to: u16,
    /// Its name there: see [`Stack::comes_home`](crate::Stack::comes_home).
    pub ticket: Ticket,
    /// The buffer.
    pub buf: PacketBuf,
}

/// Where a buffer is waited for that another stack has sent.
#[derive(Clone, Copy)]
enum Expected {
    Here(SegId),
    /// The connection has moved on.
    Gone(u16),
}

/// The buffers.
#[derive(Default)]
pub(crate) struct Homes {
    /// Those that this stack's device has, by their descriptors.
    sent: BTreeMap<SegId, (Ticket, u16)>,
    /// Those that it was given by the stack before this one, by the cookies of their frames.
    inherited: BTreeMap<u32, (Ticket, u16)>,
    /// Those that another's has.
    expected: BTreeMap<Ticket, Expected>,
    on_the_way: VecDeque<Homecoming>,
    /// Makes numbers that no other stack makes, whatever secrets they share.
    numbers: RandomState,
    numbered: u64,
}

impl Segments {
    /// The segment's connection moves to `to` while its buffer is on the wire. Returns the number that it is known by, and whether this
    /// stack's device has it, so that the descriptor must wait for it.
    pub(super) fn leaves_wire_behind(&mut self, id: SegId, to: u16) -> (Ticket, bool) {
        let mut known = self.homes.expected.iter_mut();
        let known = known.find(|(_, at)| matches!(at, Expected::Here(here) if *here == id));
        if let Some((ticket, at)) = known {
            *at = Expected::Gone(to);
            return (*ticket, false);
        }
        self.homes.numbered += 1;
        let ticket = Ticket(self.homes.numbers.hash_one(self.homes.numbered));
        self.homes.sent.insert(id, (ticket, to));
        (ticket, true)
    }

    /// The segment's buffer is on another stack's wire.
    pub(super) fn expect(&mut self, ticket: Ticket, id: SegId) {
        self.homes.expected.insert(ticket, Expected::Here(id));
    }

    /// Whether a segment here waits for the buffer already.
    pub(crate) fn is_expected(&self, ticket: Ticket) -> bool {
        matches!(self.homes.expected.get(&ticket), Some(Expected::Here(_)))
    }

    /// A connection with such a buffer goes on to `to` without having been here.
    pub(crate) fn pass_on(&mut self, ticket: Ticket, to: u16) {
        self.homes.expected.insert(ticket, Expected::Gone(to));
    }

    /// The connection of such a buffer went nowhere: this is shard `me`.
    pub(crate) fn stay(&mut self, ticket: Ticket, me: u16) {
        let sent = self.homes.sent.values_mut();
        for (_, to) in sent.filter(|(sent, _)| *sent == ticket) {
            *to = me;
        }
    }

    /// The buffer of a segment that is over has come from the wire.
    #[inline(always)]
    pub(super) fn orphan_came_home(&mut self, id: SegId, buf: PacketBuf, pool: &mut Pool) {
        if self.homes.sent.is_empty() {
            pool.free(buf);
        } else {
            self.follow(id, buf, pool);
        }
    }

    #[cold]
    fn follow(&mut self, id: SegId, buf: PacketBuf, pool: &mut Pool) {
        match self.homes.sent.remove(&id) {
            Some((ticket, to)) => self
                .homes
                .on_the_way
                .push_back(Homecoming { to, ticket, buf }),
            None => pool.free(buf),
        }
    }

    /// A buffer comes from the stack that had it on its wire. One that is not awaited is given back.
    pub(crate) fn comes_home(&mut self, ticket: Ticket, buf: PacketBuf, pool: &mut Pool) {
        match self.homes.expected.remove(&ticket) {
            Some(Expected::Here(id)) => self.came_home(id, buf, pool),
            Some(Expected::Gone(to)) => {
                self.homes
                    .on_the_way
                    .push_back(Homecoming { to, ticket, buf })
            }
            None => pool.free(buf),
        }
    }

    /// Takes the debts to connections that have left out of a stack that is given up.
    pub(crate) fn take_homes(&mut self) -> Homes {
        let mut homes = core::mem::take(&mut self.homes);
        let has_left = |at: &mut Expected| matches!(at, Expected::Gone(_));
        homes.expected.retain(|_, at| has_left(at));
        homes
    }

    /// Goes on with what the stack before this one owed. This one has lent no buffer yet.
    pub(crate) fn inherit(&mut self, homes: Homes) {
        self.homes = homes;
        let sent = core::mem::take(&mut self.homes.sent).into_iter();
        let by_cookie = sent.map(|(id, owed)| (id.index(), owed));
        self.homes.inherited.extend(by_cookie);
    }

    /// A frame has come from the wire that the stack before this one lent.
    #[cold]
    pub(crate) fn inherited_came_home(&mut self, cookie: u32, buf: PacketBuf, pool: &mut Pool) {
        match self.homes.inherited.remove(&cookie) {
            Some((ticket, to)) => self
                .homes
                .on_the_way
                .push_back(Homecoming { to, ticket, buf }),
            None => pool.free(buf),
        }
    }

    /// The next buffer that has to go after its connection.
    pub(crate) fn pop_homecoming(&mut self) -> Option<Homecoming> {
        self.homes.on_the_way.pop_front()
    }

    pub(crate) fn has_homecoming(&self) -> bool {
        !self.homes.on_the_way.is_empty()
    }

    /// Buffers that are awaited for connections that are gone or from stacks that they came from.
    pub(crate) fn homes_awaited(&self) -> usize {
        self.homes.sent.len() + self.homes.inherited.len() + self.homes.expected.len()
    }
}
