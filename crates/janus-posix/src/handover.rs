//! A connection leaves its process, in bytes, and comes to another.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use janus_tcp::{ConnId, Error, Instant, Parcel, State as TcpState};
use janus_wire::FlowKey;

use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::{State, slot_of};

/// Shard of a connection that is on its way: none. What comes for it meanwhile is dropped, and sent again by its peer.
const NOWHERE: u16 = u16::MAX;

/// The two ends of a connection as its packets have them: this side's, and the peer's.
pub type Ends = (SocketAddr, SocketAddr);

impl Sockets<'_> {
    /// Takes the connection of a socket out of the stack, as bytes, if nothing is under way on it in either direction and neither side has said its end. The socket
    /// has none from then on. Packets for it are dropped until it is taken in again, or [forgotten](Sockets::forget_given).
    ///
    /// # Errors
    /// EAGAIN: not now. ENOTCONN: it has none. ENOMEM: there is no room to remember that it is on its way.
    pub fn give(&mut self, now: Instant, fd: i32) -> Result<(Ends, Vec<u8>), Errno> {
        let State::Connected(conn) = self.files.table.peek(fd)?.state else {
            return Err(Errno::ENOTCONN);
        };
        self.gather();
        let status = self.stack.status(conn)?;
        let is_open = status.state == TcpState::Established && !status.peer_fin;
        if !is_open || status.unread + status.unsent + status.in_flight > 0 {
            return Err(Errno::EAGAIN);
        }
        let (standing, ends) = (self.standing(fd), self.ends(conn)?);
        let parcel = self.stack.detach(now, conn, NOWHERE)?.parcel;
        if let Some((port, place)) = standing {
            self.files.taken.remove(port, &place);
        }
        self.files.table.get(fd)?.state = State::Idle;
        if self.stack.add_stub(parcel.flow(), NOWHERE).is_err() {
            self.connect_by(now, fd, parcel)?;
            return Err(Errno::ENOMEM);
        }
        let mut bytes = Vec::new();
        parcel.encode(&mut bytes);
        Ok((ends, bytes))
    }

    /// A connection that was given away lives elsewhere, or is over: what comes for it is no business of the stack's.
    pub fn forget_given(&mut self, (local, peer): Ends) {
        if let Some(flow) = FlowKey::new(peer, local) {
            self.stack.remove_stub(&flow, NOWHERE);
        }
    }

    /// Gives a connection, which was made bytes so long ago, to a socket that was made just now, or that has given it away.
    ///
    /// # Errors
    /// EISCONN; EINVAL: the bytes are none; ENOMEM: there is no room. Nothing of it is here then, and its peer is told nothing.
    pub fn take_in(
        &mut self,
        now: Instant,
        fd: i32,
        bytes: &[u8],
        ago: Duration,
    ) -> Result<Ends, Errno> {
        let parcel = Parcel::decode(bytes, self.stack.pool());
        let mut parcel = parcel.map_err(|_| Errno::EINVAL)?;
        let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
        parcel.rebase(Instant::from_nanos(now.as_nanos().saturating_sub(ago)));
        let conn = self.connect_by(now, fd, parcel)?;
        self.ends(conn)
    }

    fn ends(&self, conn: ConnId) -> Result<Ends, Errno> {
        Ok((self.stack.local_addr(conn)?, self.stack.peer_addr(conn)?))
    }

    fn connect_by(&mut self, now: Instant, fd: i32, parcel: Parcel) -> Result<ConnId, Errno> {
        if self.files.table.peek(fd)?.state != State::Idle {
            return Err(Errno::EISCONN);
        }
        let adopted = self.stack.adopt(now, parcel).map_err(|_| Errno::ENOMEM)?;
        let conn = adopted.ok_or(Error::Stale)?;
        let before = Arc::clone(&self.files.table.peek(fd)?.options);
        self.files.table.get(fd)?.options = self.options_on(conn, before)?;
        self.change(fd, |socket| socket.state = State::Connected(conn))?;
        self.note_stage(slot_of(fd)?);
        self.rearm(fd);
        Ok(conn)
    }
}
