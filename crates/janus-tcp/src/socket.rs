//! What an application can ask of a connection that it has: read, close, look. Opening is in `open`, writing in `write`. Nothing here waits; a call that
//! cannot go on says [`Error::WouldBlock`], and a token left with `wait_*` comes back when it can.

use core::time::Duration;

use janus_mem::{HEADROOM, SLOT_SIZE};
use std::net::SocketAddr;

use crate::cold::{NONE, State, Tcb, flag};
use crate::emit::Outgoing;
use crate::error::Error;
use crate::given::Piece;
use crate::hot::hot_flag;
use crate::pressure::Pressure;
use crate::profile::DEFAULT;
use crate::segment::seg_flag;
use crate::stack::{ConnId, Stack, Token};
use crate::time::Instant;
use janus_wire::tcp::Flags;

/// Payload a packet buffer holds behind its room for headers.
pub(crate) const PAYLOAD_MAX: u16 = SLOT_SIZE as u16 - HEADROOM;

impl Stack {
    #[inline]
    pub(crate) fn conn(&self, id: ConnId) -> Result<u32, Error> {
        match self.store.tcbs.get(id.index) {
            Some(cold) if cold.generation == id.generation && !cold.has(flag::ORPHAN) => {
                Ok(id.index)
            }
            _ => Err(Error::Stale),
        }
    }

    /// Why a connection ended, if it did so badly.
    pub(crate) fn failure(cold: &Tcb) -> Option<Error> {
        match cold.failure() {
            flag::RESET => Some(Error::ConnectionReset),
            flag::REFUSED => Some(Error::ConnectionRefused),
            flag::TIMED_OUT => Some(Error::TimedOut),
            flag::NO_HOST => Some(Error::HostUnreachable),
            flag::NO_NETWORK => Some(Error::NetworkUnreachable),
            flag::NO_PROTOCOL => Some(Error::ProtocolUnreachable),
            flag::HOST_UNKNOWN => Some(Error::HostUnknown),
            flag::HOST_ISOLATED => Some(Error::HostIsolated),
            flag::ROUTE_FAILED => Some(Error::RouteFailed),
            flag::PROHIBITED => Some(Error::Prohibited),
            flag::BAD_HEADER => Some(Error::HeaderRefused),
            _ => None,
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
        mut take: impl FnMut(&[u8]),
    ) -> Result<usize, Error> {
        let conn = self.conn(id)?;
        let Some(hot) = self.unread(conn)? else {
            return Ok(0);
        };
        let most = if self.store.hot[hot].has(hot_flag::URGENT) {
            self.up_to_mark(conn, hot, most)
        } else {
            most
        };
        let mut done = 0;
        while done < most {
            let inbox = &mut self.store.hot[hot].inbox;
            let head = inbox.head;
            if head == NONE {
                break;
            }
            let seg = &mut self.store.blocks.segments[head];
            let n = usize::from(seg.len).min(most - done);
            take(&seg.payload()[..n]);
            done += n;
            if n == usize::from(seg.len) {
                self.store.blocks.segments.pop_front(inbox);
                self.store
                    .blocks
                    .segments
                    .free(head, &mut self.store.blocks.pool);
            } else {
                seg.off += n as u16;
                seg.len -= n as u16;
                inbox.bytes -= n as u32;
            }
        }
        self.after_read(conn, hot, done as u32, now);
        Ok(done)
    }

    /// Looks at up to `into.len()` bytes without taking them.
    pub fn peek(&mut self, id: ConnId, into: &mut [u8]) -> Result<usize, Error> {
        self.peek_at(id, 0, into)
    }

    /// The same, behind the first `skip` of them.
    pub fn peek_at(&mut self, id: ConnId, skip: usize, into: &mut [u8]) -> Result<usize, Error> {
        let conn = self.conn(id)?;
        let Some(hot) = self.unread(conn)? else {
            return Ok(0);
        };
        let (mut done, mut skip, mut at) = (0, skip, self.store.hot[hot].inbox.head);
        while at != NONE && done < into.len() {
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
        let Some(hot) = self.unread(conn)? else {
            return Ok(None);
        };
        let Some(seg) = self
            .store
            .blocks
            .segments
            .pop_front(&mut self.store.hot[hot].inbox)
        else {
            return Err(Error::WouldBlock);
        };
        if self.store.hot[hot].has(hot_flag::URGENT) {
            // Such a reader looks at no mark; one that lies behind is forgotten.
            self.up_to_mark(conn, hot, 0);
        }
        let len = self.store.blocks.segments[seg].len;
        let taken = self.store.blocks.segments.take(seg);
        self.after_read(conn, hot, u32::from(len), now);
        let (buf, off, len) = taken.ok_or(Error::NoBuffers)?;
        Ok(Some(Piece { buf, off, len }))
    }

    /// The hot block that holds unread bytes; `None` at the end of the stream.
    #[inline]
    fn unread(&self, conn: u32) -> Result<Option<u32>, Error> {
        let cold = &self.store.tcbs[conn];
        if cold.hot != NONE && !self.store.hot[cold.hot].inbox.is_empty() {
            return Ok(Some(cold.hot));
        }
        if let Some(error) = Self::failure(cold) {
            return Err(error);
        }
        if cold.has(flag::PEER_FIN) || cold.state == State::Closed {
            return Ok(None);
        }
        Err(Error::WouldBlock)
    }

    /// Room was made: the peer is told when that doubles what it may send (RFC 9293 section 3.8.6.2.2).
    #[inline]
    fn after_read(&mut self, conn: u32, id: u32, taken: u32, now: Instant) {
        self.now = now;
        if self.store.hot[id].tuning != NONE {
            self.tune_by_reading(conn, id, taken, now);
        }
        let buffer = self.receive_buffer(conn, id);
        let at_once = taken > 0 && self.read_acknowledges(conn, id);
        let (cold, hot) = (&self.store.tcbs[conn], &mut self.store.hot[id]);
        let offered = cold.receive_window();
        // What the window field can say: a peer that does not scale never sees more than 65,535.
        let most = 0xffff << cold.receive_scale();
        let free = buffer.saturating_sub(hot.inbox.bytes).min(most);
        let step = (2 * u32::from(cold.mss)).min(buffer / 2);
        let opens = free >= offered.saturating_mul(2).max(offered + step);
        if at_once || cold.state.can_receive() && opens {
            hot.set(hot_flag::ACK_NOW);
            self.queue_output(id);
        }
        self.settle(conn);
    }

    /// Says that no more will be written: a FIN follows what is queued.
    pub fn shutdown_write(&mut self, now: Instant, id: ConnId) -> Result<(), Error> {
        self.now = now;
        let conn = self.conn(id)?;
        match self.store.tcbs[conn].state {
            State::Closed if Self::failure(&self.store.tcbs[conn]).is_none() => Ok(()),
            State::Closed | State::SynSent => Err(Error::NotConnected),
            _ => {
                self.send_fin(conn, now);
                // A writer that waits has nothing to wait for any more.
                self.wake_writer(conn);
                Ok(())
            }
        }
    }

    /// Lets go of a connection. What was written is still delivered and the FIN handshake completed without
    /// its owner; if bytes were received and not read, the peer learns by a reset that they are lost
    /// (RFC 9293 SHLD-3).
    pub fn close(&mut self, now: Instant, id: ConnId) {
        self.now = now;
        let Ok(conn) = self.conn(id) else { return };
        let cold = &self.store.tcbs[conn];
        let unread = cold.hot != NONE && !self.store.hot[cold.hot].inbox.is_empty();
        let reset = self.rules.profiles.get(cold.profile).reset_on_close;
        if unread {
            self.abort_conn(conn, now);
            return;
        }
        // Nobody is to wait for the peer's FIN (Linux: tcp_close, TCP_LINGER2).
        let unwaited = cold.state == State::FinWait2 && self.waits_for_no_fin(conn);
        if reset || unwaited || cold.state == State::SynSent {
            self.abort(now, id);
            return;
        }
        if self.orphan(conn, now) {
            return;
        }
        let cold = &mut self.store.tcbs[conn];
        cold.reader = NONE;
        if cold.hot != NONE {
            let hot = cold.hot;
            self.store.hot[hot].writer = NONE;
            // Nobody will read what waits for a gap.
            self.forget_reordered(hot);
        }
        if self.store.tcbs[conn].state == State::Closed {
            self.let_go(conn);
            return;
        }
        if self.send_fin(conn, now) {
            return;
        }
        // The FIN is out already; perhaps only the peer's is missing.
        if self.store.tcbs[conn].hot != NONE {
            self.settle(conn);
        } else if self.store.tcbs[conn].state == State::FinWait2 {
            self.enter_time_wait(conn, true);
        }
    }

    /// Whether the connection ends when its FIN is acknowledged and its owner has let go.
    pub(crate) fn waits_for_no_fin(&self, conn: u32) -> bool {
        let profile = self.store.tcbs[conn].profile;
        profile != DEFAULT && self.rules.profiles.get(profile).fin_wait_2 == Some(Duration::ZERO)
    }

    /// An ended connection's owner lets go too.
    fn let_go(&mut self, conn: u32) {
        if self.store.tcbs[conn].hot == NONE {
            self.release(conn);
        } else {
            self.settle(conn);
        }
    }

    /// Ends a connection at once, with a reset unless both sides have closed: then it is only forgotten (RFC 9293
    /// section 3.10.5).
    pub fn abort(&mut self, now: Instant, id: ConnId) {
        self.now = now;
        let Ok(conn) = self.conn(id) else { return };
        match self.store.tcbs[conn].state {
            State::Closing | State::LastAck => self.forget(conn),
            _ => self.abort_conn(conn, now),
        }
    }

    pub(crate) fn abort_conn(&mut self, conn: u32, now: Instant) {
        self.reset_peer(conn, now);
        self.forget(conn);
    }

    fn forget(&mut self, conn: u32) {
        let cold = &mut self.store.tcbs[conn];
        cold.reader = NONE;
        if !cold.has(flag::ORPHAN) {
            cold.set(flag::ORPHAN);
            self.orphans += 1;
        }
        let hot = self.store.tcbs[conn].hot;
        if hot != NONE {
            self.store.hot[hot].writer = NONE;
        }
        self.end(conn, 0);
    }

    /// Tells the peer that the connection is over, if it knows of it.
    pub(crate) fn reset_peer(&mut self, conn: u32, now: Instant) {
        let cold = &self.store.tcbs[conn];
        if !cold.state.is_synchronized() {
            return;
        }
        let segment = Outgoing {
            key: self.store.tcbs.key(conn),
            seq: cold.snd_nxt,
            ack: cold.rcv_nxt,
            flags: Flags::RST | Flags::ACK,
            window: 0,
            urgent: 0,
            // Section 3.2 of RFC 7323 would have them in a reset too.
            options: self.options_for(conn, now),
            profile: cold.profile,
        };
        let sent = self.reply(&segment, now);
        self.counters.resets_out += u64::from(sent);
    }

    /// Moves the state past the sending of our FIN and queues it. False when it was sent before.
    fn send_fin(&mut self, conn: u32, now: Instant) -> bool {
        let next = match self.store.tcbs[conn].state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            State::SynReceived if !self.store.tcbs[conn].has(flag::FIN_QUEUED) => {
                // Our SYN may be lost and has to be repeated: the FIN waits for its acknowledgement
                // (`syn_received_acked`), where section 3.10.4 of RFC 9293 would have it at once.
                self.store.tcbs[conn].set(flag::FIN_QUEUED);
                return true;
            }
            _ => return false,
        };
        let Some(hot) = self.heat(conn, now) else {
            // No hot block for the farewell: the peer learns it the short way.
            self.abort_conn(conn, now);
            return true;
        };
        let cold = &mut self.store.tcbs[conn];
        cold.state = next;
        cold.set(flag::FIN_QUEUED);
        self.queue_fin(conn, hot);
        self.queue_output(hot);
        true
    }

    /// Puts the FIN on the last unsent segment, or on an empty one of its own.
    pub(crate) fn queue_fin(&mut self, conn: u32, hot: u32) {
        let tail = self.store.hot[hot].unsent.tail;
        if tail != NONE {
            self.store.blocks.segments[tail].flags |= seg_flag::FIN;
        } else {
            // Without a buffer the flag stays, and is tried again when there may be one.
            let Some(buf) = self.store.blocks.pool.alloc_reserved() else {
                self.starve(hot);
                return;
            };
            match self.store.blocks.segments.alloc(buf, HEADROOM, 0) {
                Ok(seg) => {
                    self.store.blocks.segments[seg].flags |= seg_flag::FIN;
                    self.store
                        .blocks
                        .segments
                        .push_back(&mut self.store.hot[hot].unsent, seg);
                }
                Err(buf) => {
                    self.store.blocks.pool.free(buf);
                    self.starve(hot);
                    return;
                }
            }
        }
        self.store.tcbs[conn].clear(flag::FIN_QUEUED);
    }

    /// Notes that a connection waits for a packet buffer. It keeps its hot block until one is there. Where nothing is in
    /// flight the persist timer runs meanwhile: memory may never come, and a peer that is gone must be found out.
    pub(crate) fn starve(&mut self, hot: u32) {
        self.counters.starved += 1;
        if !self.store.hot[hot].has(hot_flag::STARVED) {
            if self.schedule.starved.is_empty() {
                self.schedule.retry.first(self.now);
            }
            self.store.hot[hot].set(hot_flag::STARVED);
            self.schedule.starved.push_back(hot);
        }
        self.persist(hot);
    }

    /// Who is told when there is something to read, or the connection opens or ends.
    #[inline]
    pub fn wait_read(&mut self, id: ConnId, who: Option<Token>) {
        if let Ok(conn) = self.conn(id) {
            self.store.tcbs[conn].reader = who.map_or(NONE, |t| t.0);
        }
    }

    /// Who is told when there is room to write. Keeps a hot block while it waits.
    pub fn wait_write(&mut self, now: Instant, id: ConnId, who: Option<Token>) {
        let Ok(conn) = self.conn(id) else { return };
        if who.is_none() && self.store.tcbs[conn].hot == NONE {
            return;
        }
        if let Some(hot) = self.heat(conn, now) {
            self.store.hot[hot].writer = who.map_or(NONE, |t| t.0);
            if who.is_some() && self.store.blocks.shortage.level == Pressure::Critical {
                // Also one that asked only whether it may write.
                self.await_window(hot);
            }
            self.settle(conn);
        }
    }

    /// Switches Nagle's algorithm off or on (MUST-17).
    pub fn set_nodelay(&mut self, id: ConnId, on: bool) -> Result<(), Error> {
        let conn = self.conn(id)?;
        let cold = &mut self.store.tcbs[conn];
        if on {
            cold.set(flag::NODELAY);
            if cold.hot != NONE {
                let hot = cold.hot;
                self.queue_output(hot);
            }
        } else {
            cold.clear(flag::NODELAY);
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
