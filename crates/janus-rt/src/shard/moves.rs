//! Flows that move from one shard to another (rule 14 of the balancer's protocol): a parcel goes, a stub stays. What arrives is taken in before
//! packets and before a traversal, so that no packet comes to a place where its flow is not yet. Which flows move, and when, is said
//! by `emptying`; what a parcel is, by `janus-tcp`.

mod settled;
#[cfg(test)]
pub(crate) mod trips;

use std::collections::VecDeque;

use janus_csb::{Epoch, ShardId};
use janus_io::mpsc::{Receiver, SendError};
use janus_tcp::{ConnId, Error, Homecoming, Instant, Moved, Parcel, Refusal, Refused, STUBS_MAX};
use janus_wire::FlowKey;

use super::core_context::CoreContext;
use super::giving::{Answer, Held, Stays, Ticket};
use super::handlers::HandlerName;
use settled::Settled;

/// With so many stubs here nothing moves by itself. The rest of the places is for parcels that are refused and for tuples of others.
const STUBS: usize = STUBS_MAX as usize / 16 * 15;
/// Arrivals taken out of the ring at a time: what a look for their flows reads is fetched for all of them at once.
const HAND: usize = 16;
/// Arrivals that can wait for a shard. In tests there are more than so many at times.
pub(crate) const ARRIVALS: u32 = if cfg!(test) { 4 } else { 1024 };

/// An arrival at a shard from another, taken in before packets.
pub(crate) enum Arrival {
    /// As a value: a box is made by one thread and freed by another, and both wait for its arena then.
    Flow(Sent),
    /// A buffer that was on the wire of the shard that a connection came from.
    Buffer(Homecoming),
    /// A flow that was moved to `by` is over there; the stamp is that of its move.
    Over {
        flow: FlowKey,
        by: ShardId,
        stamp: u32,
    },
}

impl Arrival {
    /// The flow that comes.
    fn flow(&self) -> Option<&FlowKey> {
        match self {
            Arrival::Flow(sent) => Some(sent.parcel.flow()),
            Arrival::Buffer(_) | Arrival::Over { .. } => None,
        }
    }
}

/// A flow on its way.
pub(crate) struct Sent {
    parcel: Parcel,
    from: ShardId,
    /// When it left there.
    moved: Moved,
    /// The handler that serves the connection, if it is at rest.
    handler: Option<HandlerName>,
    why: Why,
    /// It comes home.
    refused: bool,
}

/// Reason of a move.
#[derive(Clone)]
pub(crate) enum Why {
    /// It belongs there.
    Given,
    /// A task waits for it there, or did.
    Offered,
    /// A scheme says so.
    Dealt,
    /// A task there has its handle.
    Asked(Ticket),
}

/// A shard's part in moves.
pub(crate) struct Moves {
    arrivals: Receiver<Arrival>,
    /// The next of them.
    hand: VecDeque<Arrival>,
    /// Parcels that other shards had no room for.
    outbox: VecDeque<(ShardId, Arrival)>,
    /// Flows that came of late: they move again once an update has told of it.
    settled: Settled,
    /// Those of the hand that came last. A place in a large map is waited for, and what a parcel has just been copied to with it.
    came: Vec<(u64, ShardId, Moved)>,
    /// The ring of the last traversal that began here.
    traversed: Epoch,
    /// The newest ring by then for which all shards had been traversed before, and that of the traversal before: of what moved earlier an
    /// update has told.
    told: Epoch,
    told_before: Epoch,
    /// When an update is asked for, by which stubs go.
    tidy_at: Option<Instant>,
}

impl Moves {
    pub(crate) fn new(arrivals: Receiver<Arrival>) -> Moves {
        Moves {
            arrivals,
            hand: VecDeque::with_capacity(HAND),
            outbox: VecDeque::new(),
            settled: Settled::default(),
            came: Vec::with_capacity(HAND),
            traversed: Epoch::default(),
            told: Epoch::default(),
            told_before: Epoch::default(),
            tidy_at: None,
        }
    }

    /// When stubs are looked after.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.tidy_at
    }

    /// The newest ring for which all shards have been traversed, where this is the published one. A port without flows gets its
    /// listeners by a ring for which none is.
    fn told_by(&self, published: Epoch) -> Epoch {
        match published.since(self.traversed) >= 0 {
            true => self.traversed,
            false => self.told,
        }
    }

    /// Whether the flow of this hash has come so lately that it has to stay, where this is the published ring.
    fn must_stay(&self, hash: u64, published: Epoch) -> bool {
        self.settled.came_since(hash, self.told_by(published))
    }

    /// Stubs that are older than this ring go, a slice at a time, before this shard has ended its traversal.
    pub(super) fn over(&self) -> Epoch {
        self.told
    }

    /// The shard that the flow came from, and when, if it has ended here and is not on its way.
    fn ended(&self, flow: &FlowKey, hash: u64) -> Option<(ShardId, u32)> {
        let is_it = |(_, arrival): &(ShardId, Arrival)| arrival.flow() == Some(flow);
        let (from, moved) = self.settled.get(hash)?;
        (!self.outbox.iter().any(is_it)).then_some((from, moved.stamp))
    }

    /// Takes some of what was sent before `mark`.
    fn take_in_hand(&mut self, mark: u32) {
        self.arrivals.prefetch(HAND as u32);
        while self.hand.len() < HAND && !self.arrivals.has_passed(mark) {
            let Some(arrival) = self.arrivals.pop() else {
                return;
            };
            self.hand.push_back(arrival);
        }
    }

    fn note_who_came(&mut self) {
        for (flow, from, moved) in self.came.drain(..) {
            self.settled.insert(flow, from, moved);
        }
    }

    /// Something has come, or has still to go.
    pub(crate) fn has_news(&self) -> bool {
        !self.arrivals.is_empty() || !self.outbox.is_empty()
    }
}

impl CoreContext {
    /// Takes in what has arrived. `None`: somebody is about to send, and nothing else may be done before; else whether anything moved.
    pub(super) fn take_arrivals(&self) -> Option<bool> {
        let mut moves = self.moves.borrow_mut();
        // No more than had been sent before: others send all the while.
        let mark = moves.arrivals.mark();
        let mut since = None;
        loop {
            moves.take_in_hand(mark);
            if moves.hand.is_empty() {
                break;
            }
            since.get_or_insert_with(|| self.shared.clock.now());
            let stack = self.stack.borrow();
            let flows = moves.hand.iter().filter_map(Arrival::flow);
            for (flow, before) in flows.zip(0..) {
                stack.prefetch_place(flow, before);
            }
            drop(stack);
            while let Some(arrival) = moves.hand.pop_front() {
                drop(moves);
                match arrival {
                    Arrival::Flow(sent) => self.arrives(sent),
                    Arrival::Buffer(home) => {
                        self.on_stack(|stack, _| stack.comes_home(home.ticket, home.buf));
                    }
                    Arrival::Over { flow, by, stamp } => {
                        self.on_stack(|stack, _| stack.forget_move(&flow, by.0.into(), stamp));
                    }
                }
                moves = self.moves.borrow_mut();
            }
            moves.note_who_came();
        }
        let all = moves.arrivals.has_passed(mark);
        drop(moves);
        if let Some(since) = since {
            self.has_taken_in(since);
        }
        if !all {
            return None;
        }
        self.send_outbox();
        Some(since.is_some())
    }

    /// A steering was adopted. Where a traversal follows, stubs of which the last one has told go in its course (rule 14).
    pub(super) fn traversal_is_next(&self) {
        let steering = self.steering.borrow();
        let steering = steering.steering();
        let newest = steering.newest().epoch();
        let mut moves = self.moves.borrow_mut();
        if !steering.is_pending() || newest == moves.traversed {
            return;
        }
        moves.told_before = moves.told;
        moves.told = moves.told_by(steering.published().epoch());
        moves.traversed = newest;
    }

    /// This moment, as the balancer counts.
    fn moved_now(&self) -> Moved {
        let steering = self.steering.borrow();
        Moved {
            epoch: steering.steering().newest().epoch().number(),
            stamp: steering.stamp(),
        }
    }

    /// Whether flows may move away without being told to one by one.
    pub(super) fn may_leave_stubs(&self) -> bool {
        self.stack.borrow().stubs() < STUBS
    }

    /// Whether there are so many stubs that updates should follow each other until they have gone.
    pub(super) fn has_many_stubs(&self) -> bool {
        self.stack.borrow().stubs_of_moves() >= STUBS / 2
    }

    /// Sends a flow that no task has to another shard. False, and the flow is where it was, if it cannot go now.
    pub(crate) fn move_flow(&self, flow: &FlowKey, to: ShardId) -> bool {
        self.move_flow_for(flow, to, Why::Given)
    }

    pub(super) fn move_flow_for(&self, flow: &FlowKey, to: ShardId, why: Why) -> bool {
        !self.must_stay(flow)
            && self.stack.borrow_mut().is_unattended(flow)
            && self.send_away(flow, None, to, why).is_ok()
    }

    /// Whether the flow came too lately to move again.
    pub(super) fn must_stay(&self, flow: &FlowKey) -> bool {
        let published = self.steering.borrow().steering().published().epoch();
        let hash = self.stack.borrow().hash_of(flow);
        self.moves.borrow().must_stay(hash, published)
    }

    /// Sends a flow that may go, or the connection of that name, which may be over. An error has the name of the connection that is here again,
    /// if it is one.
    pub(super) fn send_away(
        &self,
        flow: &FlowKey,
        conn: Option<ConnId>,
        to: ShardId,
        why: Why,
    ) -> Result<(), Option<ConnId>> {
        let moved = self.moved_now();
        let me = ShardId(self.core);
        let mut stack = self.stack.borrow_mut();
        let now = self.now.get();
        let left = match conn {
            Some(conn) => stack.detach(now, conn, to.0.into()),
            None => stack.detach_flow(now, flow, to.0.into()),
        };
        let left = left.map_err(|_| None)?;
        let rest = left.parcel.rest();
        let handler = rest.and_then(|rest| self.handlers.name_of(rest.handler()));
        // Of a flow that is over no packet comes, or another connection has its tuple.
        let over = left.parcel.is_over();
        let stands = over || stack.leave_stub(flow, to.0.into(), moved).is_ok();
        drop(stack);
        #[cfg(test)]
        trips::stumble(flow);
        if !over {
            self.stub_stands();
        }
        let sent = Sent {
            parcel: left.parcel,
            from: me,
            moved,
            handler,
            why,
            refused: false,
        };
        let back = if !stands || rest.is_some() && handler.is_none() {
            Some(sent)
        } else {
            match self.send_to(to, Arrival::Flow(sent)) {
                Some(Arrival::Flow(sent)) => Some(sent),
                Some(_) | None => None,
            }
        };
        let Some(sent) = back else { return Ok(()) };
        self.on_stack(|stack, _| stack.keep(&sent.parcel, me.0.into()));
        Err(self.takes_back(sent))
    }

    /// Whether a flow that is sent to a shard now would be taken in.
    pub(super) fn has_room(&self, to: ShardId) -> bool {
        self.forwarder.borrow().door(to).arrivals.fits(1)
    }

    fn stub_stands(&self) {
        let due = self.shared.mailbox.next_tidy(self.now.get());
        self.moves.borrow_mut().tidy_at.get_or_insert(due);
    }

    /// Asks for an update while there are stubs of moves.
    pub(super) fn look_after_moves(&self, now: Instant) {
        let mut moves = self.moves.borrow_mut();
        let told = moves.told_before;
        moves.settled.forget_one(told);
        if moves.tidy_at.is_none_or(|at| now < at) {
            return;
        }
        let stand = self.stack.borrow().stubs_of_moves() > 0;
        moves.tidy_at = stand.then(|| self.shared.mailbox.next_tidy(now));
        drop(moves);
        if stand {
            self.shared.mailbox.want_tidy();
        }
    }

    /// Gives the arrival back where there is no room.
    fn send_to(&self, to: ShardId, arrival: Arrival) -> Option<Arrival> {
        let forwarder = self.forwarder.borrow();
        let door = forwarder.door(to);
        match door.arrivals.send(arrival) {
            Ok(()) => {
                door.bell.wake();
                None
            }
            Err(SendError::Full(back) | SendError::Closed(back)) => Some(back),
        }
    }

    /// Sends on the parcels that found no room, in their order.
    fn send_outbox(&self) {
        loop {
            let next = self.moves.borrow_mut().outbox.pop_front();
            let Some((to, arrival)) = next else { return };
            if let Some(back) = self.send_to_by_stub(to, arrival) {
                self.moves.borrow_mut().outbox.push_front((to, back));
                return;
            }
        }
    }

    /// Sends something; where it is a flow a stub of it stands here from before it can be there.
    fn send_to_by_stub(&self, to: ShardId, arrival: Arrival) -> Option<Arrival> {
        let mut arrival = arrival;
        let Arrival::Flow(sent) = &mut arrival else {
            return self.send_to(to, arrival);
        };
        if sent.parcel.is_over() {
            return self.send_to(to, arrival);
        }
        let (flow, shard) = (*sent.parcel.flow(), u16::from(to.0));
        let moved = self.moved_now();
        (sent.from, sent.moved) = (ShardId(self.core), moved);
        let stub = self.on_stack(|stack, _| stack.leave_stub(&flow, shard, moved));
        self.stub_stands();
        let back = self.send_to(to, arrival);
        if back.is_some() && stub.is_ok() {
            // Packets that come meanwhile go nowhere, and are sent again: a stranger's answer would end the connection.
            let me = self.core.into();
            let _stood = self.on_stack(|stack, _| stack.leave_stub(&flow, me, moved));
        }
        back
    }

    fn arrives(&self, sent: Sent) {
        let flow = *sent.parcel.flow();
        if !sent.parcel.is_over() {
            let mut moves = self.moves.borrow_mut();
            let hash = self.stack.borrow().hash_of(&flow);
            moves.came.push((hash, sent.from, sent.moved));
        }
        if sent.refused {
            let why = sent.why.clone();
            let back = self.takes_back(sent);
            match why {
                Why::Given => {}
                Why::Offered | Why::Dealt => self.offers.borrow_mut().returned(),
                Why::Asked(ticket) => ticket.answer(match back {
                    Some(conn) => Answer::Stays(Some(Held::new(self.owner, conn)), Stays::Busy),
                    None => Answer::Stays(None, Stays::Over(Error::ConnectionReset)),
                }),
            }
            return;
        }
        let offered = matches!(sent.why, Why::Offered);
        #[cfg(test)]
        trips::stumble(&flow);
        let handler = match sent.handler {
            // All that it needs here is lost.
            _ if self.fallen.get() => Err(()),
            None if offered && !self.is_awaited(&flow) => Err(()),
            None => Ok(None),
            Some(name) => self.handlers.named(name).map(Some).ok_or(()),
        };
        let back = match handler {
            Ok(handler) => match self.adopt(sent.parcel, handler) {
                Ok(conn) => return self.is_taken_in(sent.why, conn),
                Err(refused) => refused.parcel,
            },
            Err(()) => sent.parcel,
        };
        let home = sent.from;
        self.on_stack(|stack, _| stack.pass_on(&back, home.0.into()));
        let back = Sent {
            parcel: back,
            refused: true,
            ..sent
        };
        let back = (home, Arrival::Flow(back));
        self.forwarder.borrow_mut().counters.moves_refused += 1;
        self.moves.borrow_mut().outbox.push_back(back);
    }

    /// A flow has come for this reason and is here.
    fn is_taken_in(&self, why: Why, conn: Option<ConnId>) {
        match (why, conn) {
            (Why::Given, _) | (Why::Asked(_), None) => {}
            (Why::Offered | Why::Dealt, _) => self.offers.borrow_mut().claimed(),
            (Why::Asked(ticket), Some(conn)) => {
                ticket.answer(Answer::Here(Held::new(self.owner, conn)));
            }
        }
    }

    /// Sends frames back that stubs have led here where their flows have ended, and word of that before them: the stub goes, and they are
    /// strangers where they come to.
    #[cold]
    pub(super) fn send_back(&self) {
        let mut forwarder = self.forwarder.borrow_mut();
        let astray = std::mem::take(&mut forwarder.astray);
        drop(forwarder);
        for (flow, frame) in astray {
            let hash = self.stack.borrow().hash_of(&flow);
            let ended = self.moves.borrow().ended(&flow, hash);
            let told = ended.filter(|(from, stamp)| {
                let (by, stamp) = (ShardId(self.core), *stamp);
                self.send_to(*from, Arrival::Over { flow, by, stamp })
                    .is_none()
            });
            let mut forwarder = self.forwarder.borrow_mut();
            let mut pool = self.pool.borrow_mut();
            match told {
                Some((from, _)) => forwarder.forward(from, frame, &mut pool),
                None => {
                    forwarder.counters.dropped_over += 1;
                    pool.free(frame.buf);
                }
            }
        }
        self.forwarder.borrow_mut().ring();
    }

    /// The flow is here again as it was. Returns the connection's name, if it is one.
    fn takes_back(&self, sent: Sent) -> Option<ConnId> {
        if self.fallen.get() {
            self.loses(sent);
            return None;
        }
        let handler = sent.parcel.rest().map(|rest| rest.handler());
        let adopted = self.adopt(sent.parcel, handler);
        let refused = match adopted {
            Ok(conn) => return conn,
            Err(refused) => refused,
        };
        // A listener that has gone meanwhile took those with it that waited for it.
        let lost = refused.why != Refusal::NoListener;
        self.forwarder.borrow_mut().counters.moves_lost += u64::from(lost);
        None
    }

    /// A flow comes home where all has been lost: it is too. Strangers' packets are what it gets from now on.
    #[cold]
    fn loses(&self, sent: Sent) {
        let (flow, by) = (*sent.parcel.flow(), sent.from);
        #[cfg(test)]
        trips::note(&flow);
        self.on_stack(|stack, _| stack.remove_stub(&flow, by.0.into()));
        self.forwarder.borrow_mut().counters.moves_lost += 1;
    }

    fn adopt(&self, parcel: Parcel, handler: Option<u8>) -> Result<Option<ConnId>, Box<Refused>> {
        let rest = parcel.rest();
        let mut stack = self.stack.borrow_mut();
        let conn: Option<ConnId> = stack.adopt(self.now.get(), parcel)?;
        if let (Some(conn), Some(rest), Some(handler)) = (conn, rest, handler) {
            // It is open, or has just ended: then its handler learns that.
            let _ = stack.rest_on(conn, rest.at(handler));
        }
        Ok(conn)
    }

    /// Buffers that have come home after their connections had left go after them.
    pub(super) fn send_home(&self) {
        let mut stack = self.stack.borrow_mut();
        let mut moves = self.moves.borrow_mut();
        while let Some(home) = stack.pop_homecoming() {
            let to = ShardId(home.to as u8);
            match to == ShardId(self.core) {
                true => stack.comes_home(home.ticket, home.buf),
                false => moves.outbox.push_back((to, Arrival::Buffer(home))),
            }
        }
    }
}
