//! Packet buffers that an application fills, or received and passes on, and that are sent as they are: the segment is the buffer,
//! headers are written into the room in front of its bytes, and only when all of it is acknowledged does it go back. What is
//! given is taken whole or not at all. Copied is only what cannot go out so, or costs less so; a counter tells.

#[cfg(test)]
mod tests;

use janus_mem::{PacketBuf, SLOT_SIZE};
use janus_wire::{ethernet, ipv6, tcp};

use crate::cold::NONE;
use crate::error::Error;
use crate::pressure::Pressure;
use crate::segment::seg_flag;
use crate::socket::PAYLOAD_MAX;
use crate::stack::{ConnId, Stack};
use crate::time::Instant;
use crate::write::{Ending, Manner};

/// The longest headers there can be in front of the bytes.
const HEADERS_MAX: u16 = (ethernet::LEN + ipv6::LEN + tcp::LEN_MAX) as u16;
/// Most bytes that are copied behind the last segment when there is room: a packet of their own would cost more.
const JOINS_MAX: u16 = 512;

/// Bytes in a packet buffer: `buf.bytes()[off..off + len]`. Received ones lie where they came in.
#[derive(Debug)]
pub struct Piece {
    /// The buffer.
    pub buf: PacketBuf,
    /// Where the bytes begin.
    pub off: u16,
    /// How many there are.
    pub len: u16,
}

impl Piece {
    fn end(&self) -> usize {
        usize::from(self.off) + usize::from(self.len)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf.bytes()[usize::from(self.off)..self.end()]
    }
}

impl Stack {
    /// A packet buffer to be filled and given to [`send_buf`](Stack::send_buf), and how many bytes of it make a full segment,
    /// from its offset on. [`Error::WouldBlock`] when the connection would not take it either, or there is none.
    pub fn alloc_buf(&mut self, now: Instant, id: ConnId) -> Result<(PacketBuf, u16), Error> {
        self.now = now;
        let conn = self.may_write(id)?;
        let hot = self.heat(conn, now).ok_or(Error::TooManyConnections)?;
        let most = self.store.tcbs[conn].payload_mss().min(PAYLOAD_MAX);
        let room = self.send_room(hot) > 0;
        let taken = match room {
            true => self.may_take_buffer(hot, most.into()),
            false => None,
        };
        let given = taken.and_then(|taken| Some((self.store.blocks.pool.alloc()?, taken as u16)));
        if room && given.is_none() {
            self.put_off(hot, most.into());
        }
        self.settle(conn);
        given.ok_or(Error::WouldBlock)
    }

    /// Queues `piece` for sending as it is. When it cannot be taken it is given back, with why.
    pub fn send_buf(
        &mut self,
        now: Instant,
        id: ConnId,
        piece: Piece,
    ) -> Result<(), (Error, Piece)> {
        assert!(piece.end() <= SLOT_SIZE, "bytes beyond their buffer");
        self.now = now;
        let conn = match self.may_write(id) {
            Ok(conn) => conn,
            Err(error) => return Err((error, piece)),
        };
        if piece.len == 0 {
            self.store.blocks.pool.free(piece.buf);
            return Ok(());
        }
        let Some(hot) = self.heat(conn, now) else {
            return Err((Error::TooManyConnections, piece));
        };
        let sound = piece.off >= HEADERS_MAX && self.store.blocks.pool.shares(&piece.buf);
        if !sound || self.joins_last(conn, hot, piece.len) {
            return self.send_copy(now, id, piece);
        }
        let room = self.send_room(hot) > 0;
        if !room || !self.may_give(hot) {
            return self.refuse(conn, hot, room, piece);
        }
        let Piece { buf, off, len } = piece;
        let seg = match self.store.blocks.segments.alloc(buf, off, len) {
            Ok(seg) => seg,
            Err(buf) => return self.refuse(conn, hot, true, Piece { buf, off, len }),
        };
        self.append_given(hot, seg);
        self.took_room(hot, len.into());
        self.finish_write(hot, Manner::default());
        Ok(())
    }

    fn append_given(&mut self, id: u32, seg: u32) {
        let hot = &mut self.store.hot[id];
        let last = hot.unsent.tail;
        if last != NONE && !hot.record_ended && hot.ending == Ending::Usual {
            // Of pushes that follow each other in the queue the last is enough (SHLD-27).
            self.store.blocks.segments[last].flags &= !seg_flag::PSH;
        }
        self.store.blocks.segments.push_back(&mut hot.unsent, seg);
        self.counters.buffers_given += 1;
    }

    /// Refuses a piece: its owner keeps it, and is told when it is worth while to ask again.
    fn refuse(
        &mut self,
        conn: u32,
        hot: u32,
        starves: bool,
        piece: Piece,
    ) -> Result<(), (Error, Piece)> {
        if starves {
            self.put_off(hot, piece.len.into());
        }
        self.settle(conn);
        Err((Error::WouldBlock, piece))
    }

    /// Whether a connection may have one more buffer that somebody holds already. When memory is short, one that has nothing
    /// out may, always: what is sent will be free, and what is refused is not.
    fn may_give(&self, id: u32) -> bool {
        let hot = &self.store.hot[id];
        hot.unsent.is_empty() && hot.flight.is_empty()
            || self.store.blocks.shortage.level != Pressure::Critical && !self.has_its_share(id)
    }

    /// Whether so many bytes go behind those of the last unsent segment rather than alone.
    fn joins_last(&self, conn: u32, id: u32, len: u16) -> bool {
        let hot = &self.store.hot[id];
        if len > JOINS_MAX || hot.unsent.tail == NONE || hot.record_ended {
            return false;
        }
        let last = &self.store.blocks.segments[hot.unsent.tail];
        let mss = self.store.tcbs[conn].payload_mss();
        let end = usize::from(last.off) + usize::from(last.len + len);
        last.len + len <= mss && end <= SLOT_SIZE && last.buf.is_some()
    }

    /// As a write would. What there is no room for stays with its owner.
    fn send_copy(
        &mut self,
        now: Instant,
        id: ConnId,
        mut piece: Piece,
    ) -> Result<(), (Error, Piece)> {
        match self.write(now, id, piece.bytes()) {
            Ok(taken) if taken == usize::from(piece.len) => {
                self.counters.buffers_copied += 1;
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
}
