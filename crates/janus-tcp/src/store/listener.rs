//! Listening sockets: which of them a SYN is for, and the queue of connections waiting to be accepted.

mod delays;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use janus_wire::FlowKey;

use crate::rules::error::Error;
use crate::store::cold::NONE;
use crate::store::half_open::MAX_TRIES;
use crate::store::keys::ConnSlot;
use crate::time::Instant;

pub use delays::AcceptDelays;
use delays::Delays;

/// A listening socket of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u32);

/// Largest backlog; a larger wish is cut to it.
pub(crate) const MAX_BACKLOG: usize = 1 << 16;
/// SYN-ACKs sent before a record is given up in a full SYN queue.
const FEWEST_TRIES: u8 = 3;
/// Connections that an acceptor who was just woken may find.
const TABLE: usize = 16;
/// Listeners a stack holds.
pub(crate) const MAX_LISTENERS: usize = 4_096;

pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    v6_only: bool,
    /// Serves every address of IPv4, and of IPv6.
    all_v4: bool,
    all_v6: bool,
    /// Others that say so too may stand at the same place.
    shared: bool,
    /// One more than the slot of the next listener on the same port; 0 = none.
    next: u16,
    pub(crate) backlog: usize,
    /// Connections established and not accepted.
    pub(crate) queue: VecDeque<Waiting>,
    /// Token of the task that waits to accept.
    pub(crate) acceptor: u32,
    /// Half-open records for it: the SYN queue's length.
    pub(crate) half_open: u32,
    /// Those of them whose SYN-ACK was sent once only.
    pub(crate) young: u32,
    /// The socket options that its connections begin with.
    pub(crate) profile: u8,
    pub(crate) nodelay: bool,
    /// SYN-ACKs sent before a connection without data is shown; 0 = at once.
    pub(crate) defer_tries: u8,
}

/// A connection that waits to be accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) conn: ConnSlot,
    /// Tick from which on it has waited.
    since: u32,
}

impl Listener {
    /// Whether a connection to this address may be for it.
    #[inline(always)]
    fn serves(&self, local: IpAddr) -> bool {
        let all = match local {
            IpAddr::V4(_) => self.all_v4,
            IpAddr::V6(_) => self.all_v6,
        };
        all || self.local.ip() == local
    }

    /// As many handshakes are half done as may wait to be accepted (Linux: inet_csk_reqsk_queue_is_full).
    #[inline(always)]
    pub(crate) fn is_crowded(&self) -> bool {
        self.half_open as usize >= self.backlog
    }

    /// A half-open record, whose SYN-ACK was sent so often, is gone.
    #[inline(always)]
    fn one_less(&mut self, tries: u8) {
        self.half_open = self.half_open.saturating_sub(1);
        self.young = self.young.saturating_sub(u32::from(tries == 1));
    }

    /// Whether some address is both its own and one of `local`, which would be a listener on the same port.
    fn clashes(&self, local: SocketAddr, v6_only: bool) -> bool {
        let (own, other) = (places(self.local, self.v6_only), places(local, v6_only));
        own.iter().flatten().any(|a| {
            let same = |b: &IpAddr| {
                a == b || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
            };
            other.iter().flatten().any(same)
        })
    }
}

/// The addresses a listener is looked up by. `::` stands for the whole of both families, unless it is for IPv6 only.
fn places(local: SocketAddr, v6_only: bool) -> [Option<IpAddr>; 2] {
    let any_v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let both = local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !v6_only;
    [Some(local.ip()), both.then_some(any_v4)]
}

/// All listeners of a stack.
pub(crate) struct Listeners {
    slots: Vec<Option<Listener>>,
    /// For each port, one more than the slot of the first listener that has it; most foreign SYNs end here. The others
    /// follow by [`Listener::next`]: there is mostly none, and how many there are is the application's choice.
    by_port: Vec<u16>,
    /// When a listener went last.
    removed_at: Instant,
    /// Connections that wait to be accepted, of all listeners.
    waiting: u32,
    delays: Delays,
}

impl Listeners {
    pub(crate) fn new() -> Listeners {
        Listeners {
            slots: Vec::new(),
            by_port: vec![0; 1 << 16],
            removed_at: Instant::ZERO,
            waiting: 0,
            delays: Delays::default(),
        }
    }

    /// `v6_only`: of `::`, that IPv4 is not meant.
    /// Keeps MUST-41, MUST-42.
    pub(crate) fn add(
        &mut self,
        local: SocketAddr,
        v6_only: bool,
        shared: bool,
        backlog: usize,
    ) -> Result<ListenerId, Error> {
        if self
            .on_port(local.port())
            .any(|(_, l)| !(shared && l.shared) && l.clashes(local, v6_only))
        {
            return Err(Error::AddrInUse);
        }
        let backlog = backlog.clamp(1, MAX_BACKLOG);
        let any = local.ip().is_unspecified();
        let listener = Listener {
            local,
            v6_only,
            // `::` stands for both families, unless it is for IPv6 only.
            all_v4: any && (local.is_ipv4() || !v6_only),
            all_v6: any && local.is_ipv6(),
            shared,
            next: self.by_port[usize::from(local.port())],
            backlog,
            queue: VecDeque::with_capacity(backlog),
            acceptor: NONE,
            half_open: 0,
            young: 0,
            profile: 0,
            nodelay: false,
            defer_tries: 0,
        };
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.slots.len() < MAX_LISTENERS => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return Err(Error::TooManyConnections),
        };
        self.slots[slot] = Some(listener);
        self.by_port[usize::from(local.port())] = slot as u16 + 1;
        Ok(ListenerId(slot as u32))
    }

    pub(crate) fn remove(&mut self, id: ListenerId, now: Instant) -> Option<Listener> {
        let gone = self.slots.get_mut(id.0 as usize)?.take()?;
        self.removed_at = now;
        self.waiting -= gone.queue.len() as u32;
        let own = id.0 as u16 + 1;
        let first = &mut self.by_port[usize::from(gone.local.port())];
        if *first == own {
            *first = gone.next;
        } else {
            let mut others = self.slots.iter_mut().flatten();
            if let Some(before) = others.find(|l| l.next == own) {
                before.next = gone.next;
            }
        }
        Some(gone)
    }

    /// No SYN finds a listener any more. They stay, with what waits in their queues.
    pub(crate) fn hide(&mut self) {
        self.by_port.fill(0);
    }

    #[inline]
    pub(crate) fn get(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// The socket options of a listener, or the defaults when there is none.
    pub(crate) fn profile(&self, id: ListenerId) -> u8 {
        let listener = self.slots.get(id.0 as usize).and_then(Option::as_ref);
        listener.map_or(0, |listener| listener.profile)
    }

    /// SYN-ACKs that a listener waits for data, once the handshake is done.
    pub(crate) fn defer_tries(&self, id: ListenerId) -> u8 {
        let listener = self.slots.get(id.0 as usize).and_then(Option::as_ref);
        listener.map_or(0, |listener| listener.defer_tries)
    }

    /// A SYN for it is answered and remembered.
    pub(crate) fn half_opened(&mut self, id: ListenerId) {
        if let Some(listener) = self.get(id) {
            listener.half_open = listener.half_open.saturating_add(1);
            listener.young = listener.young.saturating_add(1);
        }
    }

    /// A handshake is done: `conn` waits to be accepted. Returns who waits for that. A record whose SYN-ACK was sent `tries` times is gone
    /// by it; after a cookie, 0, there was none.
    #[inline(always)]
    pub(crate) fn established(
        &mut self,
        id: ListenerId,
        tries: u8,
        conn: ConnSlot,
        now: Instant,
    ) -> Option<&mut u32> {
        let listener = self.slots.get_mut(id.0 as usize)?.as_mut()?;
        if tries > 0 {
            listener.one_less(tries);
        }
        let since = delays::tick(now);
        listener.queue.push_back(Waiting { conn, since });
        self.waiting += 1;
        Some(&mut listener.acceptor)
    }

    /// The oldest connection that waits does so no more.
    #[inline(always)]
    pub(crate) fn pop(&mut self, id: ListenerId) -> Result<Waiting, Error> {
        let listener = self.get(id).ok_or(Error::Stale)?;
        let waiting = listener.queue.pop_front().ok_or(Error::WouldBlock)?;
        self.waiting -= 1;
        Ok(waiting)
    }

    /// Like [`Listeners::pop`]: it is accepted.
    #[inline(always)]
    pub(crate) fn accept(&mut self, id: ListenerId, now: Instant) -> Result<ConnSlot, Error> {
        let Waiting { conn, since } = self.pop(id)?;
        self.delays.accepted(delays::tick(now).wrapping_sub(since));
        Ok(conn)
    }

    /// Connections that wait to be accepted.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting as usize
    }

    /// How long connections wait.
    pub(crate) fn delays(&self) -> AcceptDelays {
        self.delays.seen()
    }

    /// Shows up to `max` connections of each listener that have waited longer than it takes as a rule. Returns the time until there may be
    /// more of them.
    pub(crate) fn overdue(
        &self,
        now: Instant,
        max: usize,
        mut see: impl FnMut(ConnSlot),
    ) -> Option<Duration> {
        let (tick, patience) = (delays::tick(now), self.delays.patience());
        let mut soonest = None;
        for listener in self.slots.iter().flatten() {
            let waited = |waiting: &Waiting| tick.wrapping_sub(waiting.since);
            let overdue = |waiting: &&Waiting| waited(waiting) >= patience;
            let queue = &listener.queue;
            let shown = queue.iter().take_while(overdue).take(max);
            shown.for_each(|waiting| see(waiting.conn));
            let next = queue.iter().find(|waiting| !overdue(waiting));
            let left = next.map_or(patience, |next| patience - waited(next));
            if !queue.is_empty() {
                soonest = Some(soonest.map_or(left, |soonest: u32| soonest.min(left)));
            }
        }
        soonest.map(delays::time)
    }

    /// Shows the connections that wait to be accepted and began to between these moments, the second one left out.
    pub(crate) fn came_between(&self, moments: [Instant; 2], mut see: impl FnMut(ConnSlot)) {
        let [from, to] = moments.map(delays::tick);
        for listener in self.slots.iter().flatten() {
            let age = |waiting: &&Waiting| to.wrapping_sub(waiting.since) as i32;
            let queue = listener.queue.iter().rev();
            let young = queue.take_while(|w| age(w) <= to.wrapping_sub(from) as i32);
            let shown = young.filter(|w| age(w) > 0);
            shown.for_each(|waiting| see(waiting.conn));
        }
    }

    /// Whether a connection for this flow would be accepted at once, as far as that can be known: the listener's acceptor waits, or was woken
    /// at this moment.
    pub(crate) fn is_hungry(&self, id: ListenerId, now: Instant) -> bool {
        let listener = self.slots.get(id.0 as usize).and_then(Option::as_ref);
        listener.is_some_and(|listener| match listener.queue.front() {
            None => listener.acceptor != NONE,
            Some(first) => first.since == delays::tick(now) && listener.queue.len() < TABLE,
        })
    }

    /// Whether a connection waits to be accepted.
    pub(crate) fn has_waiting(&self, port: u16, conn: ConnSlot) -> bool {
        let mut waiting = self.on_port(port).flat_map(|(_, listener)| &listener.queue);
        waiting.any(|waiting| waiting.conn == conn)
    }

    /// A connection does not wait to be accepted any more. False when it did not.
    pub(crate) fn withdraw(&mut self, port: u16, conn: ConnSlot) -> bool {
        let mut next = self.by_port[usize::from(port)];
        while let Some(listener) = usize::from(next)
            .checked_sub(1)
            .and_then(|slot| self.slots[slot].as_mut())
        {
            if let Some(at) = listener.queue.iter().position(|waits| waits.conn == conn) {
                listener.queue.remove(at);
                self.waiting -= 1;
                return true;
            }
            next = listener.next;
        }
        false
    }

    /// Such a record is gone, whatever became of it.
    pub(crate) fn half_open_gone(&mut self, id: ListenerId, tries: u8) {
        if let Some(listener) = self.get(id) {
            listener.one_less(tries);
        }
    }

    /// The first SYN-ACK of such a record was not answered in time.
    pub(crate) fn half_open_aged(&mut self, id: ListenerId) {
        if let Some(listener) = self.get(id) {
            listener.young = listener.young.saturating_sub(1);
        }
    }

    /// How often a SYN-ACK is sent. While more than half of the SYN queue is taken, the older records leave room for the
    /// young ones sooner, the fewer of these there are (Linux: reqsk_timer_handler).
    pub(crate) fn syn_ack_tries(&mut self, id: ListenerId) -> u8 {
        let mut tries = MAX_TRIES as u8;
        let Some(listener) = self.get(id) else {
            return tries;
        };
        let taken = listener.half_open as usize;
        if 2 * taken <= listener.backlog.max(8) {
            return tries;
        }
        let mut young = 2 * listener.young as usize;
        while tries > FEWEST_TRIES && taken >= young {
            tries -= 1;
            young *= 2;
        }
        tries
    }

    /// The listener for a SYN to this address: one bound to just it before one bound to any. Of several that share a place,
    /// `hash` says which.
    #[inline(always)]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64) -> Option<ListenerId> {
        let first = usize::from(self.by_port[usize::from(key.local_port())]).checked_sub(1)?;
        if let Some(only) = &self.slots[first]
            && only.next == 0
            && !only.shared
        {
            return only.serves(key.local()).then_some(ListenerId(first as u32));
        }
        self.find_among(key.local(), key.local_port(), hash)
    }

    /// Like [`Listeners::find`], where several may do.
    #[inline(never)]
    fn find_among(&self, local: IpAddr, port: u16, hash: u64) -> Option<ListenerId> {
        let mut any = None;
        for (id, listener) in self.on_port(port) {
            if listener.local.ip() == local {
                return Some(self.one_of(id, listener, local, hash));
            }
            if listener.serves(local) {
                any = Some((id, listener));
            }
        }
        any.map(|(id, listener)| self.one_of(id, listener, local, hash))
    }

    #[inline]
    fn one_of(&self, id: ListenerId, found: &Listener, local: IpAddr, hash: u64) -> ListenerId {
        if found.shared {
            self.among_sharers(found, local, hash).unwrap_or(id)
        } else {
            id
        }
    }

    /// Of those that share the place of `found`, the one that the flow's hash chooses.
    #[cold]
    fn among_sharers(&self, found: &Listener, local: IpAddr, hash: u64) -> Option<ListenerId> {
        let sharers = || {
            self.on_port(found.local.port())
                .filter(|(_, other)| other.local == found.local && other.serves(local))
        };
        let chosen = hash as usize % sharers().count().max(1);
        sharers().nth(chosen).map(|(id, _)| id)
    }

    /// Whether each listener there was at this time is still the same.
    #[inline(always)]
    pub(crate) fn are_since(&self, then: Instant) -> bool {
        then > self.removed_at
    }

    /// Whether a listener would take a connection to this address, if no nearer one took it.
    pub(crate) fn serves(&self, id: ListenerId, local: IpAddr, port: u16) -> bool {
        let listener = self.slots.get(id.0 as usize).and_then(Option::as_ref);
        listener.is_some_and(|l| l.local.port() == port && l.serves(local))
    }

    /// The listeners on a port.
    #[inline]
    fn on_port(&self, port: u16) -> impl Iterator<Item = (ListenerId, &Listener)> {
        let mut next = self.by_port[usize::from(port)];
        core::iter::from_fn(move || {
            let slot = usize::from(next).checked_sub(1)?;
            let listener = self.slots[slot].as_ref()?;
            next = listener.next;
            Some((ListenerId(slot as u32), listener))
        })
    }
}

#[cfg(test)]
mod tests;
