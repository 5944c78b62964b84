//! Calls of the application that write: bytes, buffers of its own, urgent data.

use janus_mem::{PacketBuf, SLOT_SIZE};

use crate::conn::output::given::Given;
use crate::conn::piece::Piece;
use crate::conn::receive::urgent::UrgentMark;
use crate::rules::error::Error;
use crate::rules::profile::WriteFlags;
use crate::stack::Stack;
use crate::store::keys::{ConnId, ConnSlot};
use crate::store::urgent::Urgent;
use crate::time::Instant;

impl Stack {
    /// Queues up to `bytes.len()` bytes for sending.
    /// Keeps MUST-61.
    #[inline]
    pub fn write(&mut self, now: Instant, id: ConnId, bytes: &[u8]) -> Result<usize, Error> {
        self.write_as(now, id, bytes, WriteFlags::default())
    }

    /// Like [`Stack::write`], with MSG_MORE, MSG_EOR or urgent semantics.
    pub fn write_as(
        &mut self,
        now: Instant,
        id: ConnId,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Result<usize, Error> {
        self.env.set_now(now);
        let conn = id.slot().ok_or(Error::Stale)?;
        let mut lent = match self.lend(conn) {
            Some(lent) => {
                if !lent.is_owned(id.generation) {
                    return Err(Error::Stale);
                }
                lent.may_write()?;
                lent
            }
            None => {
                self.may_write(id)?;
                if bytes.is_empty() {
                    return Ok(0);
                }
                self.attach_hot(conn);
                self.lend(conn).ok_or(Error::TooManyConnections)?
            }
        };
        if bytes.is_empty() {
            return Ok(0);
        }
        let written = lent.write(bytes, flags);
        let done = lent.finish();
        self.carry_out(conn, done);
        written
    }

    /// Returns the number of bytes that [`write`](Self::write) would take now, as far as packet buffers last.
    pub fn writable(&mut self, id: ConnId) -> Result<usize, Error> {
        let conn = self.may_write(id)?;
        Ok(match self.store.tcbs[conn].hot() {
            None => self.rules.config().send_buffer as usize,
            Some(_) => self.with(conn, |c| c.send_room()).unwrap_or(0),
        })
    }

    /// The connection, if its state lets anything be written.
    #[inline]
    pub(crate) fn may_write(&self, id: ConnId) -> Result<ConnSlot, Error> {
        let (conn, cold) = self.named(id)?;
        cold.may_write().map(|()| conn)
    }

    /// Queued bytes leave as soon as the windows let it, however small its end: no cork, no Nagle's algorithm, no
    /// wait for more holds it (Linux: TCP_NAGLE_PUSH).
    pub fn push(&mut self, now: Instant, id: ConnId) -> Result<(), Error> {
        self.env.set_now(now);
        let conn = self.conn(id)?;
        self.with(conn, |c| c.push());
        Ok(())
    }

    /// A packet buffer to be filled and given to [`send_buf`](Stack::send_buf), and how many bytes of it make a full segment,
    /// from its offset on. [`Error::WouldBlock`] when the connection would not take it either, or there is none.
    pub fn alloc_buf(&mut self, now: Instant, id: ConnId) -> Result<(PacketBuf, u16), Error> {
        self.env.set_now(now);
        let conn = self.may_write(id)?;
        let given = self.with_hot(conn, |c| c.alloc_buf());
        given.ok_or(Error::TooManyConnections)?
    }

    /// Queues `piece` for sending as it is. When it cannot be taken it is given back, with why.
    pub fn send_buf(
        &mut self,
        now: Instant,
        id: ConnId,
        piece: Piece,
    ) -> Result<(), (Error, Piece)> {
        assert!(piece.end() <= SLOT_SIZE, "bytes beyond their buffer");
        self.env.set_now(now);
        let conn = match self.may_write(id) {
            Ok(conn) => conn,
            Err(error) => return Err((error, piece)),
        };
        if piece.len == 0 {
            self.store.blocks.pool.free(piece.buf);
            return Ok(());
        }
        if !self.ensure_hot(conn) {
            return Err((Error::TooManyConnections, piece));
        }
        match self.with(conn, |c| c.give(piece)) {
            Some(Given::Taken) | None => Ok(()),
            Some(Given::Refused(piece)) => Err((Error::WouldBlock, piece)),
            Some(Given::Copy(piece)) => self.send_copy(id, piece),
        }
    }

    /// As a write would. What there is no room for stays with its owner.
    fn send_copy(&mut self, id: ConnId, mut piece: Piece) -> Result<(), (Error, Piece)> {
        match self.write(self.env.now, id, piece.bytes()) {
            Ok(taken) if taken == usize::from(piece.len) => {
                self.env.counters.buffers_copied += 1;
                self.store.blocks.pool.free(piece.buf);
                Ok(())
            }
            Ok(taken) => {
                piece.off += taken as u16;
                piece.len -= taken as u16;
                Err((Error::WouldBlock, piece))
            }
            Err(error) => Err((error, piece)),
        }
    }

    /// Writes as [`Stack::write`] does, and calls all that is queued up to here urgent.
    /// Keeps MUST-31.
    pub fn write_urgent(&mut self, now: Instant, id: ConnId, bytes: &[u8]) -> Result<usize, Error> {
        let urgent = WriteFlags {
            urgent: true,
            ..WriteFlags::default()
        };
        self.write_as(now, id, bytes, urgent)
    }

    /// How many bytes are still to be read until the urgent data ends (MUST-33): 1 says that the next byte is its last,
    /// the mark of older interfaces. Reading stops before that byte once. `None`: nothing is urgent.
    /// Keeps MUST-33.
    pub fn urgent(&self, id: ConnId) -> Result<Option<u32>, Error> {
        let conn = self.conn(id)?;
        let left = self.view(conn).map(|view| view.urgent_left());
        Ok(left.filter(|&left| left > 0))
    }

    /// Like [`Stack::urgent`], with what a reader that takes the last octet aside has to know.
    pub fn urgent_mark(&self, id: ConnId) -> Result<Option<UrgentMark>, Error> {
        let conn = self.conn(id)?;
        Ok(self.view(conn).and_then(|view| view.urgent_mark()))
    }

    /// The last octet of what is urgent, if it has come. It stays in the stream.
    pub fn urgent_octet(&mut self, id: ConnId) -> Result<Option<u8>, Error> {
        let Some(mark) = self.urgent_mark(id)?.filter(|mark| mark.here) else {
            return Ok(None);
        };
        let hot = self.store.tcbs[self.conn(id)?].hot();
        let urgent = hot.and_then(|hot| self.store.blocks.urgents.get(&hot));
        let early = urgent.and_then(|urgent| urgent.early);
        if early.is_some() {
            return Ok(early);
        }
        let mut octet = [0];
        let n = self.peek_at(id, mark.left as usize - 1, &mut octet)?;
        Ok((n == 1).then_some(octet[0]))
    }

    /// Notes that it was taken aside.
    pub fn take_urgent_octet(&mut self, id: ConnId) -> Result<(), Error> {
        if let Some(urgent) = self.urgent_of(id)? {
            urgent.taken = true;
        }
        Ok(())
    }

    fn urgent_of(&mut self, id: ConnId) -> Result<Option<&mut Urgent>, Error> {
        let hot = self.store.tcbs[self.conn(id)?].hot();
        Ok(hot.and_then(|hot| self.store.blocks.urgents.get_mut(&hot)))
    }

    /// Octets that were marks once are bytes of the stream like any other.
    pub fn keep_passed_octets(&mut self, id: ConnId) -> Result<(), Error> {
        if let Some(urgent) = self.urgent_of(id)? {
            urgent.passed = None;
        }
        Ok(())
    }
}
