//! Calls on an open connection: read, close, look. Opening is in `open`, writing in `write`. Nothing here waits; a call that
//! cannot go on says [`Error::WouldBlock`], and a token left with `wait_*` comes back when it can.

use std::net::SocketAddr;

use janus_wire::FlowKey;

use crate::conn::piece::Piece;
use crate::conn::{Conn, Linger};
use crate::rules::error::Error;
use crate::rules::profile::DEFAULT;
use crate::stack::Stack;
use crate::store::cold::{EndReason, NONE, State, Tcb, flag};
use crate::store::keys::{ConnId, ConnSlot};
use crate::store::outgoing::Outgoing;
use crate::store::records::Record;
use crate::store::schedule::Token;
use crate::time::Instant;

impl Stack {
    #[inline]
    pub(crate) fn conn(&self, id: ConnId) -> Result<ConnSlot, Error> {
        self.named(id).map(|(conn, _)| conn)
    }

    /// The connection that an application names, if it still has it.
    #[inline(always)]
    pub(crate) fn named(&self, id: ConnId) -> Result<(ConnSlot, &Tcb), Error> {
        let slot = id.slot().ok_or(Error::Stale)?;
        match self.store.tcbs.get(slot) {
            Some(tcb) if tcb.is_owned(id.generation) => Ok((slot, tcb)),
            _ => Err(Error::Stale),
        }
    }

    /// The flow of a connection.
    pub fn flow_of(&self, id: ConnId) -> Result<FlowKey, Error> {
        Ok(self.store.tcbs.key(self.conn(id)?))
    }

    /// Whether the handshake is done; an error when it failed.
    pub fn is_connected(&self, id: ConnId) -> Result<bool, Error> {
        let cold = &self.store.tcbs[self.conn(id)?];
        match cold.failure() {
            Some(error) => Err(error),
            None => Ok(!cold.state.is_opening()),
        }
    }

    /// Whether this is the flow of a connection whose handshake is done.
    #[must_use]
    pub fn has_connected(&self, flow: &FlowKey) -> bool {
        match self.record_of(flow) {
            Some(Record::Connection(conn)) => !self.store.tcbs[conn].state.is_opening(),
            _ => false,
        }
    }

    /// Reads up to `into.len()` bytes; 0 is the peer's FIN.
    #[inline]
    pub fn read(&mut self, now: Instant, id: ConnId, into: &mut [u8]) -> Result<usize, Error> {
        let mut done = 0;
        self.read_each(now, id, into.len(), |piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    /// Reads up to `most` bytes, which are given to `take` piece by piece as they lie in the buffers they came in; answers how
    /// many there were, and 0 at the peer's FIN.
    #[inline]
    pub fn read_each(
        &mut self,
        now: Instant,
        id: ConnId,
        most: usize,
        take: impl FnMut(&[u8]),
    ) -> Result<usize, Error> {
        let read = self.read_with(now, id, |c| c.read_each(most, take))?;
        Ok(read.unwrap_or(0))
    }

    /// Looks at up to `into.len()` bytes without taking them.
    pub fn peek(&mut self, id: ConnId, into: &mut [u8]) -> Result<usize, Error> {
        self.peek_at(id, 0, into)
    }

    /// Like [`Stack::peek`], behind the first `skip` bytes.
    pub fn peek_at(&mut self, id: ConnId, skip: usize, into: &mut [u8]) -> Result<usize, Error> {
        let Some(conn) = self.unread(id)? else {
            return Ok(0);
        };
        let hot = self.store.tcbs[conn].hot();
        let (mut done, mut skip, mut at) = (0, skip, self.store.hot[hot].receiver.inbox.head);
        while at.is_some() && done < into.len() {
            let seg = &self.store.blocks.segments[at];
            let payload = &seg.payload()[skip.min(usize::from(seg.len))..];
            skip = skip.saturating_sub(usize::from(seg.len));
            let n = payload.len().min(into.len() - done);
            into[done..done + n].copy_from_slice(&payload[..n]);
            done += n;
            at = seg.next;
        }
        Ok(done)
    }

    /// Takes up to `most` received bytes and throws them away.
    pub fn discard(&mut self, now: Instant, id: ConnId, most: usize) -> Result<usize, Error> {
        let mut done = 0;
        let mut scrap = [0; 512];
        while done < most {
            let n = scrap.len().min(most - done);
            match self.read(now, id, &mut scrap[..n]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Takes the next received bytes in the buffer they came in; `None` is the peer's FIN.
    pub fn recv(&mut self, now: Instant, id: ConnId) -> Result<Option<Piece>, Error> {
        self.read_with(now, id, |c| c.recv())?.transpose()
    }

    /// Reads with `read` where there are unread bytes; `None` at the end of the stream.
    #[inline(always)]
    fn read_with<R>(
        &mut self,
        now: Instant,
        id: ConnId,
        read: impl FnOnce(&mut Conn<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        self.env.set_now(now);
        let conn = id.slot().ok_or(Error::Stale)?;
        let Some(mut lent) = self.lend(conn) else {
            return self.unread(id).map(|_| None);
        };
        if !lent.is_owned(id.generation) {
            return Err(Error::Stale);
        }
        if !lent.has_unread() {
            return lent.nothing_to_read().map(|()| None);
        }
        let read = read(&mut lent);
        let done = lent.finish();
        self.carry_out(conn, done);
        Ok(Some(read))
    }

    /// Returns the connection if it has unread bytes; `None` at the end of the stream.
    #[inline(always)]
    pub(crate) fn unread(&self, id: ConnId) -> Result<Option<ConnSlot>, Error> {
        let (conn, cold) = self.named(id)?;
        if cold.hot().is_some() && !self.store.hot[cold.hot()].receiver.inbox.is_empty() {
            return Ok(Some(conn));
        }
        cold.nothing_to_read().map(|()| None)
    }

    /// Says that no more will be written: a FIN follows what is queued.
    pub fn shutdown_write(&mut self, now: Instant, id: ConnId) -> Result<(), Error> {
        self.env.set_now(now);
        let conn = self.conn(id)?;
        match self.store.tcbs[conn].state {
            State::Closed if self.store.tcbs[conn].failure().is_none() => Ok(()),
            State::Closed | State::SynSent => Err(Error::NotConnected),
            _ => {
                self.send_fin(conn);
                // A writer that waits has nothing to wait for any more.
                self.with(conn, |c| c.wake_writer());
                Ok(())
            }
        }
    }

    /// Lets go of a connection. What was written is still delivered and the FIN handshake completed without
    /// its owner; if bytes were received and not read, the peer learns by a reset that they are lost
    /// (RFC 9293 SHLD-3).
    /// Keeps MAY-1, SHLD-3.
    pub fn close(&mut self, now: Instant, id: ConnId) {
        self.env.set_now(now);
        let Some(conn) = id.slot() else { return };
        let one_more = self.orphans < self.rules.config().max_orphans as usize;
        if let Some(mut lent) = self.lend(conn)
            && lent.is_owned(id.generation)
            && lent.leaves_in_peace()
            && one_more
        {
            lent.owner_leaves();
            let (_, profile) = lent.flow();
            let done = lent.finish();
            self.orphans += 1;
            if profile != DEFAULT {
                // There is no reader any more.
                self.take_options(conn);
            }
            self.carry_out(conn, done);
            return;
        }
        self.close_with_care(now, id);
    }

    /// Closes a connection that may be done with at once, or with a reset.
    #[inline(never)]
    fn close_with_care(&mut self, now: Instant, id: ConnId) {
        let Ok(conn) = self.conn(id) else { return };
        let cold = &self.store.tcbs[conn];
        let unread = cold.hot().is_some() && !self.store.hot[cold.hot()].receiver.inbox.is_empty();
        let reset = self.rules.profiles().get(cold.profile).reset_on_close;
        if unread {
            self.abort_conn(conn);
            return;
        }
        // The peer's FIN is not to be waited for (Linux: tcp_close, TCP_LINGER2).
        let unwaited = cold.state == State::FinWait2 && cold.waits_for_no_fin(&self.rules);
        if reset || unwaited || cold.state == State::SynSent {
            self.abort(now, id);
            return;
        }
        if self.orphan(conn) {
            return;
        }
        let cold = &mut self.store.tcbs[conn];
        cold.reader = NONE;
        let (state, busy) = (cold.state, cold.hot().is_some());
        self.with(conn, |c| c.owner_leaves());
        match state {
            _ if busy => {}
            State::Closed => self.release(conn),
            // The FIN is out already; only the peer's is missing.
            State::FinWait2 => self.linger(conn, Linger::FinWait2),
            _ => self.send_fin(conn),
        }
    }

    /// Ends a connection at once, with a reset unless both sides have closed: then it is only forgotten (RFC 9293
    /// section 3.10.5).
    pub fn abort(&mut self, now: Instant, id: ConnId) {
        self.env.set_now(now);
        let Ok(conn) = self.conn(id) else { return };
        match self.store.tcbs[conn].state {
            State::Closing | State::LastAck => self.forget(conn),
            _ => self.abort_conn(conn),
        }
    }

    /// Resets a connection whose owner has let go of it, or never had it.
    pub(crate) fn abort_conn(&mut self, conn: ConnSlot) {
        self.reset_peer(conn);
        self.forget(conn);
    }

    fn forget(&mut self, conn: ConnSlot) {
        self.leave_rest(conn);
        let tcb = &mut self.store.tcbs[conn];
        if !tcb.has(flag::ORPHAN) {
            tcb.set(flag::ORPHAN);
            self.orphans += 1;
        }
        if tcb.hot().is_some() {
            self.store.hot[tcb.hot()].sender.writer = NONE;
        }
        self.end(conn, EndReason::Orderly);
    }

    /// Tells the peer that the connection is over, if it knows of it.
    pub(crate) fn reset_peer(&mut self, conn: ConnSlot) {
        let (key, tcb) = (self.key_of(conn), &self.store.tcbs[conn]);
        if let Some(reset) = Outgoing::reset_of(key, tcb, || self.timestamp_of(conn)) {
            self.ip().reply(&reset);
        }
    }

    /// Sends our FIN behind what is queued. Without a hot block for the farewell the peer learns it the short way.
    fn send_fin(&mut self, conn: ConnSlot) {
        if self.with_hot(conn, |c| c.send_fin()).is_none() {
            self.abort_conn(conn);
        }
    }

    /// Sets the token that is woken when there is something to read, or the connection opens or ends. A connection at rest is so no more.
    #[inline]
    pub fn wait_read(&mut self, id: ConnId, who: Option<Token>) {
        if let Ok(conn) = self.conn(id) {
            let word = who.map_or(NONE, |t| t.0);
            let before = core::mem::replace(&mut self.store.tcbs[conn].reader, word);
            self.left_rest(before);
        }
    }

    /// Sets the token that is woken when there is room to write. The connection keeps a hot block while a writer waits.
    pub fn wait_write(&mut self, now: Instant, id: ConnId, who: Option<Token>) {
        let Ok(conn) = self.conn(id) else { return };
        if who.is_none() && self.store.tcbs[conn].hot().is_none() {
            return;
        }
        self.env.set_now(now);
        self.with_hot(conn, |c| c.wait_to_write(who));
    }

    /// Switches Nagle's algorithm off or on (MUST-17).
    /// Keeps MUST-17.
    pub fn set_nodelay(&mut self, id: ConnId, on: bool) -> Result<(), Error> {
        let conn = self.conn(id)?;
        let tcb = &mut self.store.tcbs[conn];
        if on {
            tcb.set(flag::NODELAY);
            self.with(conn, |c| c.queue());
        } else {
            tcb.clear(flag::NODELAY);
        }
        Ok(())
    }

    /// The peer's address.
    pub fn peer_addr(&self, id: ConnId) -> Result<SocketAddr, Error> {
        Ok(self.store.tcbs.key(self.conn(id)?).peer_addr())
    }

    /// Our address.
    pub fn local_addr(&self, id: ConnId) -> Result<SocketAddr, Error> {
        Ok(self.store.tcbs.key(self.conn(id)?).local_addr())
    }
}
