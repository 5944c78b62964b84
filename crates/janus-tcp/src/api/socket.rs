//! Calls on an open connection: read, close, look. Opening is in `open`, writing in `write`. Nothing here waits; a call that
//! cannot go on says [`Error::WouldBlock`], and a token left with `wait_*` comes back when it can.

use core::time::Duration;
use std::net::SocketAddr;

use janus_mem::HEADROOM;

use crate::conn::{Conn, Linger, effect};
use crate::output::given::Piece;
use crate::rules::Rules;
use crate::rules::error::Error;
use crate::rules::profile::DEFAULT;
use crate::stack::{ConnId, Stack};
use crate::store::cold::{EndReason, NONE, State, Tcb, flag};
use crate::store::hot::hot_flag;
use crate::store::keys::ConnSlot;
use crate::store::pressure::Pressure;
use crate::store::schedule::Token;
use crate::store::segment::seg_flag;
use crate::time::Instant;
use crate::wire::Outgoing;

impl Conn<'_> {
    /// Takes up to `most` received bytes, piece by piece.
    #[inline]
    fn read_each(&mut self, most: usize, mut take: impl FnMut(&[u8])) -> usize {
        let most = match self.hot.has(hot_flag::URGENT) {
            true => self.up_to_mark(most),
            false => most,
        };
        let (inbox, segments) = (&mut self.hot.receiver.inbox, &mut self.blocks.segments);
        let mut done = 0;
        while done < most && inbox.head.is_some() {
            let head = inbox.head;
            let seg = &mut segments[head];
            let n = usize::from(seg.len).min(most - done);
            take(&seg.payload()[..n]);
            done += n;
            if n == usize::from(seg.len) {
                segments.free_front(inbox, &mut self.blocks.pool);
            } else {
                seg.off += n as u16;
                seg.len -= n as u16;
                inbox.bytes -= n as u32;
            }
        }
        self.after_read(done as u32);
        done
    }

    /// Takes the next received bytes in their buffer.
    fn recv(&mut self) -> Result<Piece, Error> {
        let Some(seg) = self.blocks.segments.pop_front(&mut self.hot.receiver.inbox) else {
            return Err(Error::WouldBlock);
        };
        if self.hot.has(hot_flag::URGENT) {
            // Such a reader looks at no mark; one that lies behind is forgotten.
            self.up_to_mark(0);
        }
        let len = self.blocks.segments[seg].len;
        let taken = self.blocks.segments.take(seg);
        self.after_read(u32::from(len));
        let (buf, off, len) = taken.ok_or(Error::NoBuffers)?;
        Ok(Piece { buf, off, len })
    }

    /// Room was made: the peer is told when that doubles what it may send (RFC 9293 section 3.8.6.2.2).
    #[inline]
    fn after_read(&mut self, taken: u32) {
        if self.hot.receiver.tuning.is_some() {
            self.tune_by_reading(taken);
        }
        let buffer = self.view().receive_buffer();
        let at_once = taken > 0 && self.read_acknowledges();
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let offered = cold.receive_window();
        // Largest window that the field can say: a peer that does not scale never sees more than 65,535.
        let most = 0xffff << cold.receive_scale();
        let free = buffer.saturating_sub(hot.receiver.inbox.bytes).min(most);
        let step = (2 * u32::from(cold.mss)).min(buffer / 2);
        let opens = free >= offered.saturating_mul(2).max(offered + step);
        if at_once || cold.state.can_receive() && opens {
            self.acknowledge();
        }
    }

    /// Whether the connection ends when its FIN is acknowledged and its owner has let go.
    pub(crate) fn waits_for_no_fin(&self) -> bool {
        self.tcb.waits_for_no_fin(self.rules)
    }

    /// Moves the state past the sending of our FIN and queues it. False when it was sent before.
    fn send_fin(&mut self) -> bool {
        let next = match self.tcb.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            State::SynReceived if !self.tcb.has(flag::FIN_QUEUED) => {
                // Our SYN may be lost and has to be repeated: the FIN waits for its acknowledgement
                // (`syn_received_acked`), where section 3.10.4 of RFC 9293 would have it at once.
                self.tcb.set(flag::FIN_QUEUED);
                return true;
            }
            _ => return false,
        };
        let cold = &mut *self.tcb;
        cold.state = next;
        cold.set(flag::FIN_QUEUED);
        self.queue_fin();
        self.queue();
        true
    }

    /// Puts the FIN on the last unsent segment, or on an empty one of its own.
    pub(crate) fn queue_fin(&mut self) {
        let tail = self.hot.sender.unsent.tail;
        if tail.is_some() {
            self.blocks.segments[tail].flags |= seg_flag::FIN;
        } else {
            // Without a buffer the flag stays, and is tried again when there may be one.
            let Some(buf) = self.blocks.pool.alloc_reserved() else {
                self.wait_for_buffer();
                return;
            };
            let unsent = &mut self.hot.sender.unsent;
            let queued = self
                .blocks
                .segments
                .append(unsent, buf, (HEADROOM, 0), seg_flag::FIN);
            if let Err(buf) = queued {
                self.blocks.pool.free(buf);
                self.wait_for_buffer();
                return;
            }
        }
        self.tcb.clear(flag::FIN_QUEUED);
    }

    /// Notes that a connection waits for a packet buffer. It keeps its hot block until one is there. Where nothing is in
    /// flight the persist timer runs meanwhile: memory may never come, and a peer that is gone must be found out.
    pub(crate) fn wait_for_buffer(&mut self) {
        self.counters.starved += 1;
        if !self.hot.has(hot_flag::STARVED) {
            self.hot.set(hot_flag::STARVED);
            self.effects.add(effect::STARVED);
        }
        self.persist();
    }
}

impl Tcb {
    /// Whether the connection ends when its FIN is acknowledged and its owner has let go.
    fn waits_for_no_fin(&self, rules: &Rules) -> bool {
        let profile = self.profile;
        profile != DEFAULT && rules.profiles.get(profile).fin_wait_2 == Some(Duration::ZERO)
    }
}

impl Stack {
    #[inline]
    pub(crate) fn conn(&self, id: ConnId) -> Result<ConnSlot, Error> {
        let slot = id.slot().ok_or(Error::Stale)?;
        match self.store.tcbs.get(slot) {
            Some(cold) if cold.generation == id.generation && !cold.has(flag::ORPHAN) => Ok(slot),
            _ => Err(Error::Stale),
        }
    }

    /// Why a connection ended, if it did so badly.
    /// Keeps MUST-12, MUST-47, SHLD-25.
    pub(crate) fn failure(cold: &Tcb) -> Option<Error> {
        match cold.ended_by() {
            EndReason::Reset => Some(Error::ConnectionReset),
            EndReason::Refused => Some(Error::ConnectionRefused),
            EndReason::TimedOut => Some(Error::TimedOut),
            EndReason::NoHost => Some(Error::HostUnreachable),
            EndReason::NoNetwork => Some(Error::NetworkUnreachable),
            EndReason::NoProtocol => Some(Error::ProtocolUnreachable),
            EndReason::HostUnknown => Some(Error::HostUnknown),
            EndReason::HostIsolated => Some(Error::HostIsolated),
            EndReason::RouteFailed => Some(Error::RouteFailed),
            EndReason::Prohibited => Some(Error::Prohibited),
            EndReason::BadHeader => Some(Error::HeaderRefused),
            EndReason::Orderly => None,
        }
    }

    /// Whether the handshake is done; an error when it failed.
    pub fn is_connected(&self, id: ConnId) -> Result<bool, Error> {
        let cold = &self.store.tcbs[self.conn(id)?];
        match Self::failure(cold) {
            Some(error) => Err(error),
            None => Ok(!matches!(cold.state, State::SynSent | State::SynReceived)),
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
        let conn = self.conn(id)?;
        if !self.has_unread(conn)? {
            return Ok(0);
        }
        self.now = now;
        Ok(self.with(conn, |c| c.read_each(most, take)).unwrap_or(0))
    }

    /// Looks at up to `into.len()` bytes without taking them.
    pub fn peek(&mut self, id: ConnId, into: &mut [u8]) -> Result<usize, Error> {
        self.peek_at(id, 0, into)
    }

    /// Like [`Stack::peek`], behind the first `skip` bytes.
    pub fn peek_at(&mut self, id: ConnId, skip: usize, into: &mut [u8]) -> Result<usize, Error> {
        let conn = self.conn(id)?;
        if !self.has_unread(conn)? {
            return Ok(0);
        }
        let hot = self.store.tcbs[conn].hot;
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
        let conn = self.conn(id)?;
        if !self.has_unread(conn)? {
            return Ok(None);
        }
        self.now = now;
        let piece = self.with(conn, |c| c.recv());
        piece.unwrap_or(Err(Error::WouldBlock)).map(Some)
    }

    /// Whether there are unread bytes; false at the end of the stream.
    #[inline]
    fn has_unread(&self, conn: ConnSlot) -> Result<bool, Error> {
        let cold = &self.store.tcbs[conn];
        if cold.hot.is_some() && !self.store.hot[cold.hot].receiver.inbox.is_empty() {
            return Ok(true);
        }
        if let Some(error) = Self::failure(cold) {
            return Err(error);
        }
        if cold.has(flag::PEER_FIN) || cold.state == State::Closed {
            return Ok(false);
        }
        Err(Error::WouldBlock)
    }

    /// Says that no more will be written: a FIN follows what is queued.
    pub fn shutdown_write(&mut self, now: Instant, id: ConnId) -> Result<(), Error> {
        self.now = now;
        let conn = self.conn(id)?;
        match self.store.tcbs[conn].state {
            State::Closed if Self::failure(&self.store.tcbs[conn]).is_none() => Ok(()),
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
        self.now = now;
        let Ok(conn) = self.conn(id) else { return };
        let cold = &self.store.tcbs[conn];
        let unread = cold.hot.is_some() && !self.store.hot[cold.hot].receiver.inbox.is_empty();
        let reset = self.rules.profiles.get(cold.profile).reset_on_close;
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
        let (state, busy) = (cold.state, cold.hot.is_some());
        // Text that waits for a gap has no reader any more.
        self.with(conn, |c| {
            c.hot.sender.writer = NONE;
            c.forget_reordered();
            if c.tcb.state != State::Closed {
                c.send_fin();
            }
        });
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
        self.now = now;
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
        let tcb = &mut self.store.tcbs[conn];
        tcb.reader = NONE;
        if !tcb.has(flag::ORPHAN) {
            tcb.set(flag::ORPHAN);
            self.orphans += 1;
        }
        if tcb.hot.is_some() {
            self.store.hot[tcb.hot].sender.writer = NONE;
        }
        self.end(conn, EndReason::Orderly);
    }

    /// Tells the peer that the connection is over, if it knows of it.
    pub(crate) fn reset_peer(&mut self, conn: ConnSlot) {
        let (key, tcb) = (self.key_of(conn), &self.store.tcbs[conn]);
        if let Some(reset) = Outgoing::reset_of(key, tcb, &self.rules, self.now) {
            self.ip().reply(&reset);
        }
    }

    /// Sends our FIN behind what is queued. Without a hot block for the farewell the peer learns it the short way.
    fn send_fin(&mut self, conn: ConnSlot) {
        if self.with_hot(conn, |c| c.send_fin()).is_none() {
            self.abort_conn(conn);
        }
    }

    /// Sets the token that is woken when there is something to read, or the connection opens or ends.
    #[inline]
    pub fn wait_read(&mut self, id: ConnId, who: Option<Token>) {
        if let Ok(conn) = self.conn(id) {
            self.store.tcbs[conn].reader = who.map_or(NONE, |t| t.0);
        }
    }

    /// Sets the token that is woken when there is room to write. The connection keeps a hot block while a writer waits.
    pub fn wait_write(&mut self, now: Instant, id: ConnId, who: Option<Token>) {
        let Ok(conn) = self.conn(id) else { return };
        if who.is_none() && self.store.tcbs[conn].hot.is_none() {
            return;
        }
        self.now = now;
        self.with_hot(conn, |c| {
            c.hot.sender.writer = who.map_or(NONE, |t| t.0);
            if who.is_some() && c.blocks.shortage.level == Pressure::Critical {
                // Also one that asked only whether it may write.
                c.await_window();
            }
        });
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
