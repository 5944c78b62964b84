//! Flows that move from one shard to another (rule 14 of the balancer's protocol): a parcel goes, a stub stays. What arrives is taken in before
//! packets and before a traversal, so that no packet comes to a place where its flow is not yet. Which flows move, and when, is said
//! by `emptying`; what a parcel is, by `janus-tcp`.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use janus_csb::{Epoch, ShardId};
use janus_io::mpsc::{Receiver, SendError};
use janus_tcp::{ConnId, Homecoming, Instant, Moved, Parcel, Refusal, Refused};
use janus_wire::FlowKey;

use super::core_context::CoreContext;
use super::giving::{Answer, Held, Stays, Ticket};
use super::handlers::HandlerName;

/// How long after a move an update is asked for that tells of it: two let its stub go.
const TIDY: Duration = Duration::from_millis(100);
/// With so many stubs here nothing moves by itself: they all go in one step.
const STUBS: usize = 4_096;
/// Arrivals that can wait for a shard.
pub(crate) const ARRIVALS: u32 = 1024;

/// An arrival at a shard from another, taken in before packets.
pub(crate) enum Arrival {
    Flow(Box<Sent>),
    /// A buffer that was on the wire of the shard that a connection came from.
    Buffer(Homecoming),
    /// A flow that was moved to `by` is over there; the stamp is that of its move.
    Over {
        flow: FlowKey,
        by: ShardId,
        stamp: u32,
    },
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
    /// Parcels that other shards had no room for.
    outbox: VecDeque<(ShardId, Arrival)>,
    /// Flows that came of late, with where from and when: they move again once a newer ring is published than was then.
    settled: HashMap<FlowKey, (ShardId, Moved)>,
    /// The newest ring that was adopted.
    view: Epoch,
    /// When an update is asked for, by which stubs go.
    tidy_at: Option<Instant>,
    /// Parcels that did not find what they need here.
    pub(crate) refused: u64,
}

impl Moves {
    pub(crate) fn new(arrivals: Receiver<Arrival>) -> Moves {
        Moves {
            arrivals,
            outbox: VecDeque::new(),
            settled: HashMap::new(),
            view: Epoch::default(),
            tidy_at: None,
            refused: 0,
        }
    }

    /// When stubs are looked after.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.tidy_at
    }

    /// Whether the flow has come so lately that it has to stay, where this is the published ring.
    fn must_stay(&self, flow: &FlowKey, published: Epoch) -> bool {
        let came = self.settled.get(flow);
        came.is_some_and(|(_, moved)| published.since(Epoch::new(moved.epoch)) <= 0)
    }

    /// The shard that the flow came from, and when, if it has ended here and is not on its way.
    fn ended(&self, flow: &FlowKey) -> Option<(ShardId, u32)> {
        let is_it = |(_, arrival): &(ShardId, Arrival)| match arrival {
            Arrival::Flow(sent) => sent.parcel.flow() == flow,
            Arrival::Buffer(_) | Arrival::Over { .. } => false,
        };
        let (from, moved) = self.settled.get(flow)?;
        (!self.outbox.iter().any(is_it)).then_some((*from, moved.stamp))
    }

    /// Something has come, or has still to go.
    pub(crate) fn has_news(&self) -> bool {
        !self.arrivals.is_empty() || !self.outbox.is_empty()
    }
}

impl CoreContext {
    /// Takes in what has arrived. `None`: somebody is about to send, and nothing else may be done before; else whether anything moved.
    pub(super) fn take_arrivals(&self) -> Option<bool> {
        let mut worked = false;
        loop {
            let arrival = self.moves.borrow_mut().arrivals.pop();
            match arrival {
                Some(Arrival::Flow(sent)) => self.arrives(*sent),
                Some(Arrival::Buffer(home)) => {
                    self.on_stack(|stack, _| stack.comes_home(home.ticket, home.buf));
                }
                Some(Arrival::Over { flow, by, stamp }) => {
                    self.on_stack(|stack, _| stack.forget_move(&flow, by.0.into(), stamp));
                }
                None if self.moves.borrow().arrivals.waiting() > 0 => return None,
                None => break,
            }
            worked = true;
        }
        self.send_outbox();
        Some(worked)
    }

    /// A steering was adopted: flows of whose moves an update has told may move again. With another ring, stubs of those go (rule 14).
    pub(super) fn forget_moves(&self) {
        let steering = self.steering.borrow();
        let steering = steering.steering();
        let (newest, published) = (steering.newest().epoch(), steering.published().epoch());
        let is_over = |epoch: Epoch| published.since(epoch) > 0;
        let mut moves = self.moves.borrow_mut();
        let anew = std::mem::replace(&mut moves.view, newest) != newest;
        // Its stub lives on until the next ring.
        let stays = |moved: &Moved| published.since(Epoch::new(moved.epoch)) <= 1;
        moves.settled.retain(|_, (_, moved)| stays(moved));
        drop(moves);
        self.on_stack(|stack, _| {
            if anew && stack.stubs() > 0 {
                stack.forget_moves(|epoch| is_over(Epoch::new(epoch)));
            }
        });
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
        self.moves.borrow().must_stay(flow, published)
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
            match self.send_to(to, Arrival::Flow(Box::new(sent))) {
                Err(Arrival::Flow(sent)) => Some(*sent),
                Ok(()) | Err(_) => None,
            }
        };
        let Some(sent) = back else { return Ok(()) };
        self.on_stack(|stack, _| stack.keep(&sent.parcel, me.0.into()));
        Err(self.takes_back(sent))
    }

    fn stub_stands(&self) {
        let due = self.now.get() + TIDY;
        self.moves.borrow_mut().tidy_at.get_or_insert(due);
    }

    /// Asks for an update while there are stubs of moves.
    pub(super) fn look_after_moves(&self, now: Instant) {
        let due = self.moves.borrow().tidy_at.is_some_and(|at| now >= at);
        if !due {
            return;
        }
        let stand = self.on_stack(|stack, _| stack.moved_flows().next().is_some());
        if stand {
            self.shared.mailbox.want_tidy();
        }
        self.moves.borrow_mut().tidy_at = stand.then(|| now + TIDY);
    }

    fn send_to(&self, to: ShardId, arrival: Arrival) -> Result<(), Arrival> {
        let forwarder = self.forwarder.borrow();
        let door = forwarder.door(to);
        match door.arrivals.send(arrival) {
            Ok(()) => {
                door.bell.wake();
                Ok(())
            }
            Err(SendError::Full(back) | SendError::Closed(back)) => Err(back),
        }
    }

    /// Sends on the parcels that found no room, in their order.
    fn send_outbox(&self) {
        loop {
            let next = self.moves.borrow_mut().outbox.pop_front();
            let Some((to, arrival)) = next else { return };
            if let Err(back) = self.send_to_by_stub(to, arrival) {
                self.moves.borrow_mut().outbox.push_front((to, back));
                return;
            }
        }
    }

    /// Sends something; where it is a flow a stub of it stands here from before it can be there.
    fn send_to_by_stub(&self, to: ShardId, arrival: Arrival) -> Result<(), Arrival> {
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
        let sent = self.send_to(to, arrival);
        if sent.is_err() && stub.is_ok() {
            // Packets that come meanwhile are lost, and sent again.
            self.on_stack(|stack, _| stack.remove_stub(&flow, shard));
        }
        sent
    }

    fn arrives(&self, sent: Sent) {
        let flow = *sent.parcel.flow();
        let came = (sent.from, sent.moved);
        if !sent.parcel.is_over() {
            self.moves.borrow_mut().settled.insert(flow, came);
        }
        if sent.refused {
            let why = sent.why.clone();
            let back = self.takes_back(sent);
            match why {
                Why::Given => {}
                Why::Offered | Why::Dealt => self.offers.borrow_mut().returned(),
                Why::Asked(ticket) => {
                    let held = back.map(|conn| Held::new(self.owner, conn));
                    ticket.answer(Answer::Stays(held, Stays::Busy));
                }
            }
            return;
        }
        let offered = matches!(sent.why, Why::Offered);
        let handler = match sent.handler {
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
        let back = (home, Arrival::Flow(Box::new(back)));
        let mut moves = self.moves.borrow_mut();
        moves.refused += 1;
        moves.outbox.push_back(back);
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
            let ended = self.moves.borrow().ended(&flow);
            let told = ended.filter(|(from, stamp)| {
                let (by, stamp) = (ShardId(self.core), *stamp);
                self.send_to(*from, Arrival::Over { flow, by, stamp })
                    .is_ok()
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
