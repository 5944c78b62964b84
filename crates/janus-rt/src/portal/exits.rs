//! The carrier's part for connections that shards open: which openings there are, and what happens to each on a packet, an event of the
//! kernel or a timeout. A single opening is described in `outgoing`.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use janus_mem::Frame;
use janus_tcp::{Instant, ListenerId, Local, Token};
use janus_wire::FlowKey;
use rustix::io::Errno;

use super::bridge::{Bridge, reset_on_drop};
use super::carrier::{Carrier, Passage};
use super::events::DoorId;
use super::outgoing::{self, Opening, Progress, Sign, Why, complaint, sign};
use super::reach::PortalReach;
use crate::losses::BRIDGES_MAX;

/// Longest time the shard may take to acknowledge that its connection is established. On a wire in memory it takes a turn, unless the shard
/// is blocked or the attempt was given up.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Openings to one port that the inner stack may be answering at a time.
const BACKLOG: usize = 1024;
/// Most entries, finished ones included, in the list of openings being answered: twice the number of passages.
const ANSWERED_MAX: usize = 2 * BRIDGES_MAX;
/// Messages to shards that can wait to be sent; more are lost, and the SYN is retransmitted.
const COMPLAINTS_MAX: usize = 64;
/// Set in the tokens of listeners; the rest is their port.
const LISTENER: u32 = 1 << 31;

/// A listener of the inner stack, present while openings to its port wait to be accepted.
struct Inside {
    id: ListenerId,
    openings: u32,
}

/// Connections that shards opened, or are opening.
pub(super) struct Exits {
    reach: PortalReach,
    /// Slot of each flow, as the inner stack names it.
    flows: HashMap<FlowKey, u32>,
    /// Listeners by port.
    inside: HashMap<u16, Inside>,
    /// Openings in the order in which the inner stack began to answer them, and since when; finished ones remain until their turn.
    answered: VecDeque<(Instant, FlowKey)>,
    pub(super) complaints: Vec<Frame>,
}

impl Exits {
    pub(super) fn new(reach: PortalReach) -> Exits {
        Exits {
            reach,
            flows: HashMap::new(),
            inside: HashMap::new(),
            answered: VecDeque::new(),
            complaints: Vec::new(),
        }
    }

    /// Forgets the flow of a bridge that has ended.
    pub(super) fn forget(&mut self, flow: &FlowKey) {
        self.flows.remove(flow);
    }

    /// Returns when the next opening is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.answered.front().map(|(since, _)| *since + ANSWER_MAX)
    }
}

impl Carrier {
    /// Takes frames that open connections out of those that came in; the rest is for the inner stack.
    pub(super) fn sift(&mut self) {
        if !self.frames.iter().any(|frame| sign(frame.data()).is_some()) {
            return;
        }
        let mut all = std::mem::replace(&mut self.frames, std::mem::take(&mut self.sifted));
        for frame in all.drain(..) {
            if let Some(frame) = self.sift_one(frame) {
                self.frames.push(frame);
            }
        }
        self.sifted = all;
    }

    /// Returns the frame if it is for the inner stack.
    fn sift_one(&mut self, frame: Frame) -> Option<Frame> {
        let Some((flow, sign)) = sign(frame.data()) else {
            return Some(frame);
        };
        let slot = self.exits.flows.get(&flow).copied();
        let passage = slot.and_then(|slot| self.passages[slot as usize].as_mut());
        match (passage, sign) {
            // On a client's connection it is the question of a daemon whose member is gone.
            (None, Sign::Opens) if self.inner.stack.has_connected(&flow) => Some(frame),
            (None, Sign::Opens) => self.begin(flow, frame),
            (Some(Passage::Opening(opening)), Sign::Opens) if !opening.is_answered() => {
                let old = opening.hold(frame);
                self.inner.pool.free(old.buf);
                None
            }
            (Some(Passage::Opening(_)), Sign::Resets) => {
                self.give_up(flow);
                Some(frame)
            }
            _ => Some(frame),
        }
    }

    /// Begins a connection that a shard opens.
    fn begin(&mut self, flow: FlowKey, syn: Frame) -> Option<Frame> {
        if !self.exits.reach.admits(flow.local()) {
            self.counters.out_of_reach += 1;
            self.complain(syn, Why::NoNetwork);
            return None;
        }
        let Some(slot) = self.free_slot() else {
            self.is_full();
            self.inner.pool.free(syn.buf);
            return None;
        };
        let kernel = outgoing::connect(flow.peer_addr(), self.target(flow.local_addr()));
        let watched = kernel.and_then(|(kernel, other_port)| {
            self.counters.other_source_port += u64::from(other_port);
            let watched = self.watch(&kernel, slot);
            watched.map_err(|error| outgoing::errno(&error).unwrap_or(Errno::NOMEM))?;
            Ok(kernel)
        });
        match watched {
            Ok(kernel) => {
                self.exits.flows.insert(flow, slot);
                let opening = Opening::new(kernel, flow, syn);
                self.passages[slot as usize] = Some(Passage::Opening(opening));
                // The connection may be established already.
                self.work.push_back(slot);
            }
            Err(errno) => {
                self.counters.failed_outside += 1;
                if matches!(errno, Errno::MFILE | Errno::NFILE) {
                    self.inner.mailbox.no_descriptor();
                }
                self.free.push(slot);
                self.complain(syn, Why::of(Some(errno)));
            }
        }
        None
    }

    /// Returns the kernel's address for what a shard calls `to`: a port of ours may be offered by the portal elsewhere.
    fn target(&self, to: SocketAddr) -> SocketAddr {
        let door = DoorId {
            port: to.port(),
            // All of a port's doors have one number outside.
            number: 0,
        };
        let door = self.doors.get(&door).filter(|_| to.ip().is_loopback());
        let offered = door.and_then(|door| door.listener.local_addr().ok());
        SocketAddr::new(to.ip(), offered.unwrap_or(to).port())
    }

    /// Asks the kernel for the progress of an opening.
    pub(super) fn advance_opening(&mut self, slot: u32, now: Instant) {
        let Some(Some(Passage::Opening(opening))) = self.passages.get_mut(slot as usize) else {
            return;
        };
        let flow = opening.flow;
        match opening.look() {
            Progress::Waits => {}
            Progress::Stands(syn) => self.answer(flow, syn, now),
            Progress::Failed(syn, why) => {
                self.counters.failed_outside += 1;
                self.clear(slot, &flow);
                self.complain(syn, why);
            }
        }
    }

    /// Hands the SYN to the inner stack, with a listener for it: the kernel's connection is established.
    fn answer(&mut self, flow: FlowKey, syn: Frame, now: Instant) {
        let port = flow.local_port();
        let stack = &mut self.inner.stack;
        let inside = match self.exits.inside.get_mut(&port) {
            Some(inside) => inside,
            None => match stack.listen((Ipv6Addr::UNSPECIFIED, port), BACKLOG) {
                Ok(id) => {
                    stack.wait_accept(id, Some(Token(LISTENER | u32::from(port))));
                    let inside = Inside { id, openings: 0 };
                    self.exits.inside.entry(port).or_insert(inside)
                }
                // As many ports as a stack has listeners are being opened to. The shard retransmits its SYN.
                Err(_) => {
                    self.counters.full += 1;
                    self.inner.pool.free(syn.buf);
                    if let Some(slot) = self.exits.flows.get(&flow).copied() {
                        self.clear(slot, &flow);
                    }
                    return;
                }
            },
        };
        inside.openings += 1;
        self.remember_answered(flow, now);
        let mut frames = vec![syn];
        self.inner.stack.input(now, &mut frames, &mut Local);
    }

    fn remember_answered(&mut self, flow: FlowKey, now: Instant) {
        let Carrier {
            passages, exits, ..
        } = self;
        let slot = exits.flows.get(&flow);
        if let Some(Some(Passage::Opening(opening))) =
            slot.map(|slot| &mut passages[*slot as usize])
        {
            opening.answered = Some(now);
        }
        if exits.answered.len() >= ANSWERED_MAX {
            let waiting = std::mem::take(&mut exits.answered);
            let waits = |(since, flow): &(Instant, FlowKey)| self.waits(flow, *since);
            let waiting: VecDeque<_> = waiting.into_iter().filter(waits).collect();
            self.exits.answered = waiting;
        }
        self.exits.answered.push_back((now, flow));
    }

    /// Whether the opening of this flow, which the inner stack answers since `since`, is still the same and waiting.
    fn waits(&self, flow: &FlowKey, since: Instant) -> bool {
        let slot = self.exits.flows.get(flow);
        let passage = slot.and_then(|slot| self.passages[*slot as usize].as_ref());
        matches!(passage, Some(Passage::Opening(opening)) if opening.answered == Some(since))
    }

    /// Returns whether a token of the inner stack's is a listener's; if so, accepts the connections that wait there.
    pub(super) fn admit(&mut self, token: Token, now: Instant) -> bool {
        if token.0 & LISTENER == 0 {
            return false;
        }
        let port = token.0 as u16;
        while let Some(inside) = self.exits.inside.get(&port) {
            let id = inside.id;
            let stack = &mut self.inner.stack;
            let (conn, peer) = match stack.accept(id) {
                Ok(accepted) => accepted,
                Err(_) => {
                    stack.wait_accept(id, Some(token));
                    break;
                }
            };
            let local = stack.local_addr(conn);
            let flow = local.ok().and_then(|local| FlowKey::new(peer, local));
            match flow.and_then(|flow| Some((flow, self.take_answered(&flow)?))) {
                Some((flow, (slot, opening))) => {
                    self.counters.opened += 1;
                    let bridge = Bridge::new(opening.kernel, conn, Token(slot));
                    self.passages[slot as usize] = Some(Passage::Open(bridge, Some(flow)));
                    self.work.push_back(slot);
                    self.leave(port, now);
                }
                None => self.inner.stack.abort(now, conn),
            }
        }
        true
    }

    fn take_answered(&mut self, flow: &FlowKey) -> Option<(u32, Opening)> {
        let slot = *self.exits.flows.get(flow)?;
        let place = &mut self.passages[slot as usize];
        match place.take() {
            Some(Passage::Opening(opening)) if opening.is_answered() => Some((slot, opening)),
            other => {
                *place = other;
                None
            }
        }
    }

    /// Notes that one opening to this port waits no more.
    fn leave(&mut self, port: u16, now: Instant) {
        let Some(inside) = self.exits.inside.get_mut(&port) else {
            return;
        };
        inside.openings -= 1;
        if inside.openings == 0 {
            let id = inside.id;
            self.exits.inside.remove(&port);
            self.inner.stack.unlisten(now, id);
        }
    }

    /// Drops an opening that the shard gave up or does not answer: the kernel's end is reset.
    fn give_up(&mut self, flow: FlowKey) {
        let Some(slot) = self.exits.flows.get(&flow).copied() else {
            return;
        };
        let Some(Some(Passage::Opening(opening))) = self.passages.get(slot as usize) else {
            return;
        };
        self.counters.given_up += 1;
        reset_on_drop(&opening.kernel);
        if opening.is_answered() {
            self.leave(flow.local_port(), self.inner.clock.now());
        }
        self.clear(slot, &flow);
    }

    /// Empties the slot of an opening.
    fn clear(&mut self, slot: u32, flow: &FlowKey) {
        self.exits.forget(flow);
        if let Some(Passage::Opening(opening)) = self.passages[slot as usize].take()
            && let Some(syn) = opening.into_syn()
        {
            self.inner.pool.free(syn.buf);
        }
        self.free.push(slot);
    }

    /// Gives up openings that have waited too long for the shard.
    pub(super) fn give_up_overdue(&mut self, now: Instant) {
        while let Some(&(since, flow)) = self.exits.answered.front() {
            let waits = self.waits(&flow, since);
            if waits && since + ANSWER_MAX > now {
                return;
            }
            self.exits.answered.pop_front();
            if waits {
                self.give_up(flow);
            }
        }
    }

    /// Tells the shard why its connection fails.
    fn complain(&mut self, syn: Frame, why: Why) {
        if self.exits.complaints.len() < COMPLAINTS_MAX
            && let Some(message) = complaint(syn.data(), why, &mut self.inner.pool)
        {
            self.exits.complaints.push(message);
        }
        self.inner.pool.free(syn.buf);
    }
}

/// Configures a stack whose listeners are short-lived: it answers every SYN it is given itself.
pub(crate) fn answers_all(config: &mut janus_tcp::Config, openings: u32) {
    config.max_half_open = openings;
    config.syn_cookies = janus_tcp::SynCookies::Never;
}

#[cfg(test)]
mod tests;
