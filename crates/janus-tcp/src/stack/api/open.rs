//! How connections begin, for the application: listening, accepting, and opening actively. What arrives in
//! answer is in `handshake`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use janus_wire::{FlowKey, SeqNum, StampBase};

use crate::congestion::{self, INITIAL_SEGMENTS};
use crate::rules::error::Error;
use crate::rules::interface::PortBlock;
use crate::rules::isn;
use crate::rules::profile::{DEFAULT, SocketOptions};
use crate::stack::Stack;
use crate::store::cold::{EndReason, NONE, State, Tcb};
use crate::store::keys::{ConnId, Key};
use crate::store::listener::{AcceptDelays, ListenerId, MAX_BACKLOG};
use crate::store::records::Record;
use crate::store::schedule::Token;
use crate::time::Instant;

impl Stack {
    /// Listens on an address; `0.0.0.0` means all of ours that are IPv4, `::` all of ours.
    /// Keeps MUST-43.
    pub fn listen(
        &mut self,
        local: impl Into<SocketAddr>,
        backlog: usize,
    ) -> Result<ListenerId, Error> {
        self.listen_as(local, false, false, backlog)
    }

    /// [`Stack::listen`] where `::` means all of our addresses that are IPv6.
    pub fn listen_v6_only(
        &mut self,
        local: impl Into<SocketAddr>,
        backlog: usize,
    ) -> Result<ListenerId, Error> {
        self.listen_as(local, true, false, backlog)
    }

    /// [`Stack::listen`]; `v6_only`: `::` does not mean IPv4. `shared`: others that say so too may listen at the same place, and
    /// connections are spread over them by their addresses and ports (Linux: SO_REUSEPORT).
    pub fn listen_as(
        &mut self,
        local: impl Into<SocketAddr>,
        v6_only: bool,
        shared: bool,
        backlog: usize,
    ) -> Result<ListenerId, Error> {
        let local = local.into();
        let ip = local.ip();
        if !ip.is_unspecified() && !self.rules.interface().is_ours(ip) {
            return Err(Error::AddrNotAvailable);
        }
        self.index.listeners.add(local, v6_only, shared, backlog)
    }

    /// How many connections may wait to be accepted from now on; those that wait stay.
    pub fn set_backlog(&mut self, id: ListenerId, backlog: usize) -> Result<(), Error> {
        let listener = self.index.listeners.get(id).ok_or(Error::Stale)?;
        listener.backlog = backlog.clamp(1, MAX_BACKLOG);
        Ok(())
    }

    /// How many connections may wait to be accepted.
    pub fn backlog(&mut self, id: ListenerId) -> usize {
        self.index.listeners.get(id).map_or(0, |l| l.backlog)
    }

    /// The address that a listener was made with.
    pub fn listens_at(&mut self, id: ListenerId) -> Option<SocketAddr> {
        self.index.listeners.get(id).map(|l| l.local)
    }

    /// Stops listening; connections not yet accepted are reset.
    pub fn unlisten(&mut self, now: Instant, id: ListenerId) {
        self.env.set_now(now);
        let Some(gone) = self.index.listeners.remove(id, now) else {
            return;
        };
        for waiting in gone.queue {
            self.abort_conn(waiting.conn);
        }
        self.rules.profiles_mut().let_go(gone.profile);
    }

    /// The oldest connection that waits to be accepted.
    pub fn accept(&mut self, id: ListenerId) -> Result<(ConnId, SocketAddr), Error> {
        let conn = self.index.listeners.accept(id, self.env.now)?;
        let peer = self.store.tcbs.key(conn).peer_addr();
        Ok((self.store.tcbs.id_of(conn), peer))
    }

    /// Like [`Stack::accept`], at `now`, by which [`Stack::accept_delays`] goes.
    pub fn accept_at(
        &mut self,
        now: Instant,
        id: ListenerId,
    ) -> Result<(ConnId, SocketAddr), Error> {
        self.env.set_now(now);
        self.accept(id)
    }

    /// How long connections wait to be accepted.
    pub fn accept_delays(&self) -> AcceptDelays {
        self.index.listeners.delays()
    }

    /// Connections that wait to be accepted, at all listeners.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.index.listeners.waiting()
    }

    /// Shows up to `max` flows at each listener that have waited to be accepted for longer than is usual. Returns the time after which to
    /// ask again; `None` when none waits.
    pub fn overdue(
        &mut self,
        now: Instant,
        max: usize,
        mut see: impl FnMut(FlowKey),
    ) -> Option<Duration> {
        let tcbs = &self.store.tcbs;
        let listeners = &self.index.listeners;
        listeners.overdue(now, max, |conn| see(tcbs.key(conn)))
    }

    /// Shows the flows that wait to be accepted and began to between these moments, the second one left out.
    pub fn came_between(&self, moments: [Instant; 2], mut see: impl FnMut(FlowKey)) {
        let tcbs = &self.store.tcbs;
        let listeners = &self.index.listeners;
        listeners.came_between(moments, |conn| see(tcbs.key(conn)));
    }

    /// Whether a connection of this flow would be accepted at once: somebody waits for one.
    pub fn is_awaited(&mut self, now: Instant, flow: &FlowKey) -> bool {
        let hash = self.index.hash.flow(flow);
        let listeners = &self.index.listeners;
        let listener = listeners.find(flow, hash);
        listener.is_some_and(|id| listeners.is_hungry(id, now))
    }

    /// Connections that wait to be accepted.
    pub fn accept_queue_len(&mut self, id: ListenerId) -> usize {
        self.index.listeners.get(id).map_or(0, |l| l.queue.len())
    }

    /// Opens a connection. The local port is the caller's choice (it knows which shard a port leads to; where any will do,
    /// [`Stack::connect_from`] asks it);
    /// address `0.0.0.0` or `::` means the interface's own towards the peer.
    pub fn connect(
        &mut self,
        now: Instant,
        local: impl Into<SocketAddr>,
        remote: impl Into<SocketAddr>,
    ) -> Result<ConnId, Error> {
        self.connect_with(now, local, remote, &SocketOptions::default())
    }

    /// Like [`Stack::connect`], with socket options from the first segment on.
    /// Keeps MUST-43, MUST-44.
    pub fn connect_with(
        &mut self,
        now: Instant,
        local: impl Into<SocketAddr>,
        remote: impl Into<SocketAddr>,
        options: &SocketOptions,
    ) -> Result<ConnId, Error> {
        let (local, remote) = (local.into(), remote.into());
        options.check()?;
        self.env.set_now(now);
        let reachable = self.rules.interface().may_be_destination(remote.ip());
        if !reachable || remote.port() == 0 || local.port() == 0 {
            return Err(Error::InvalidAddress);
        }
        let addr = self.own_address(local.ip(), remote.ip())?;
        let local = SocketAddr::new(addr, local.port());
        let key = FlowKey::new(remote, local).ok_or(Error::InvalidAddress)?;
        let hash = self.index.hash.flow(&key);
        let old = match self.record_of(&key) {
            None => None,
            // A flow in TIME-WAIT makes room (RFC 9293 MAY-2), and ours begins beyond what it had sent. An orphan in FIN-WAIT-2 does not: its
            // peer has it still (Linux: tcp_twsk_unique).
            Some(Record::TimeWait(id))
                if self.index.moves.has_room() && !self.index.time_wait.get(id).fin_wait_2 =>
            {
                let old = self.index.time_wait.get(id).snd_nxt;
                self.drop_time_wait(id);
                Some(old)
            }
            Some(_) => return Err(Error::AddrInUse),
        };
        let (first, stamps) = self.rules.first_numbers(&key, now);
        if self.rules.loops(remote.ip()) {
            self.host.own_loop_mut().begin();
        }
        let opened = self.open(&key, hash, (isn::beyond(first, old), stamps), options)?;
        if old.is_some() {
            self.moved(&key);
        }
        Ok(opened)
    }

    fn open(
        &mut self,
        key: &FlowKey,
        hash: u64,
        (iss, stamps): (SeqNum, StampBase),
        options: &SocketOptions,
    ) -> Result<ConnId, Error> {
        let conn = self
            .store
            .tcbs
            .alloc(key)
            .ok_or(Error::TooManyConnections)?;
        let cold = &mut self.store.tcbs[conn];
        *cold = Tcb {
            snd_nxt: iss + 1u32,
            mss: self.rules.largest_segment(key, DEFAULT),
            generation: cold.generation,
            last_heard_ms: self.env.now_ms,
            cwnd_code: congestion::encode_window(INITIAL_SEGMENTS),
            state: State::SynSent,
            ..Tcb::at_rest(stamps)
        };
        let generation = cold.generation;
        if let Err(error) = self.give_options(conn, options) {
            self.store.tcbs[conn].state = State::Closed;
            self.release(conn);
            return Err(error);
        }
        let id = ConnId {
            index: conn.index(),
            generation,
        };
        let filed = self.ensure_hot(conn) && self.file(hash, Record::Connection(conn));
        if !filed {
            self.store.tcbs[conn].state = State::Closed;
            self.after_end(conn, EndReason::Orderly);
            self.release(conn);
            return Err(Error::TooManyConnections);
        }
        self.with(conn, |c| c.open(iss));
        Ok(id)
    }

    /// Sets the token that is woken when a connection waits to be accepted.
    #[inline]
    pub fn wait_accept(&mut self, id: ListenerId, who: Option<Token>) {
        if let Some(listener) = self.index.listeners.get(id) {
            listener.acceptor = who.map_or(NONE, |t| t.0);
        }
    }

    /// Opens a connection from the first port of ours to choose for which `leads_here` says that its packets come to this stack, and
    /// which is free. The order in which ports are tried is the destination's own (RFC 6056 section 3.3.4): who sees
    /// those of connections to itself cannot foresee others'. An unspecified `local` means the interface's own address
    /// towards the peer.
    ///
    /// [`Error::NoSourcePort`] when no port leads here, [`Error::AddrInUse`] when those that do are all taken.
    pub fn connect_from(
        &mut self,
        now: Instant,
        local: IpAddr,
        remote: SocketAddr,
        options: &SocketOptions,
        mut leads_here: impl FnMut(&FlowKey) -> bool,
    ) -> Result<ConnId, Error> {
        let local = self.own_address(local, remote.ip())?;
        let walk = (self.host.source_ports()).walk(local, remote.ip(), remote.port(), now);
        let mut error = Error::NoSourcePort;
        let ports = self.rules.interface().ports.unwrap_or(PortBlock::DYNAMIC);
        for step in 0..u32::from(ports.count) {
            let port = ports.port(walk.number(step));
            let local = SocketAddr::new(local, port);
            let flow = FlowKey::new(remote, local).ok_or(Error::InvalidAddress)?;
            if local == remote {
                // It would be connected with itself.
                continue;
            }
            if !leads_here(&flow) {
                self.env.counters.ports_elsewhere += 1;
                continue;
            }
            match self.connect_with(now, local, remote, options) {
                Err(Error::AddrInUse) => error = Error::AddrInUse,
                outcome => {
                    self.host.source_ports().use_up(&walk, step + 1);
                    return outcome;
                }
            }
        }
        Err(error)
    }

    /// The address of ours that `local` means to a peer at `remote`.
    pub(crate) fn own_address(&self, local: IpAddr, remote: IpAddr) -> Result<IpAddr, Error> {
        if local.is_unspecified() {
            let own = self.rules.interface().source_for(remote);
            own.ok_or(Error::AddrNotAvailable)
        } else if self.rules.interface().is_ours(local) {
            Ok(local)
        } else {
            Err(Error::AddrNotAvailable)
        }
    }
}

#[cfg(test)]
mod tests;
