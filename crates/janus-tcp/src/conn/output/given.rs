//! Packet buffers that an application fills, or received and passes on, and that are sent as they are: the segment is the buffer,
//! headers are written into the room in front of its bytes, and only when all of it is acknowledged does it go back. What is
//! given is taken whole or not at all. Copied is only what cannot go out so, or costs less so; a counter tells.

#[cfg(test)]
mod tests;

use janus_mem::{PacketBuf, SLOT_SIZE};
use janus_wire::{ethernet, ipv6, tcp};

use crate::conn::Conn;
use crate::conn::piece::Piece;
use crate::rules::error::Error;
use crate::rules::profile::WriteFlags;
use crate::store::hot::Ending;
use crate::store::keys::SegId;
use crate::store::pressure::Pressure;
use crate::store::segment::{PAYLOAD_MAX, seg_flag};

/// The longest headers there can be in front of the bytes.
const HEADERS_MAX: u16 = (ethernet::LEN + ipv6::LEN + tcp::LEN_MAX) as u16;
/// Most bytes that are copied behind the last segment when there is room: a packet of their own would cost more.
const JOINS_MAX: u16 = 512;

/// Result of giving a piece.
pub(crate) enum Given {
    Taken,
    /// Its owner keeps it, and is told when it is worth while to ask again.
    Refused(Piece),
    /// It cannot go out as it is, or costs less when copied.
    Copy(Piece),
}

impl Conn<'_> {
    pub(crate) fn alloc_buf(&mut self) -> Result<(PacketBuf, u16), Error> {
        let most = self.tcb.payload_mss().min(PAYLOAD_MAX);
        if self.send_room() == 0 {
            return Err(Error::WouldBlock);
        }
        let taken = self.may_take_buffer(most.into());
        let given = taken.and_then(|taken| Some((self.blocks.pool.alloc()?, taken as u16)));
        if given.is_none() {
            self.defer_write(most.into());
        }
        given.ok_or(Error::WouldBlock)
    }

    pub(crate) fn give(&mut self, piece: Piece) -> Given {
        let sound = piece.off >= HEADERS_MAX && self.blocks.pool.shares(&piece.buf);
        if !sound || self.joins_last(piece.len) {
            return Given::Copy(piece);
        }
        let room = self.send_room() > 0;
        if !room || !self.may_give() {
            return self.refuse(room, piece);
        }
        let Piece { buf, off, len } = piece;
        match self.blocks.segments.alloc(buf, off, len) {
            Ok(seg) => self.append_given(Some(seg)),
            Err(buf) => return self.refuse(true, Piece { buf, off, len }),
        }
        self.took_room(len.into());
        self.finish_write(WriteFlags::default());
        Given::Taken
    }

    fn refuse(&mut self, starves: bool, piece: Piece) -> Given {
        if starves {
            self.defer_write(piece.len.into());
        }
        Given::Refused(piece)
    }

    fn append_given(&mut self, seg: Option<SegId>) {
        let hot = &mut *self.hot;
        let last = hot.sender.unsent.tail;
        if last.is_some() && !hot.sender.record_ended && hot.sender.ending == Ending::Usual {
            // Of pushes that follow each other in the queue the last is enough (SHLD-27).
            self.blocks.segments[last].flags &= !seg_flag::PSH;
        }
        self.blocks.segments.push_back(&mut hot.sender.unsent, seg);
        self.env.counters.buffers_given += 1;
    }

    /// Whether a connection may have one more buffer that somebody holds already. When memory is short, one that has nothing
    /// out may, always: what is sent will be free, and what is refused is not.
    fn may_give(&self) -> bool {
        let hot = &*self.hot;
        hot.sender.unsent.is_empty() && hot.sender.flight.is_empty()
            || self.blocks.shortage.level != Pressure::Critical && !self.view().has_its_share()
    }

    /// Whether so many bytes go behind those of the last unsent segment rather than alone.
    fn joins_last(&self, len: u16) -> bool {
        let hot = &*self.hot;
        if len > JOINS_MAX || hot.sender.unsent.tail.is_none() || hot.sender.record_ended {
            return false;
        }
        let last = &self.blocks.segments[hot.sender.unsent.tail];
        let mss = self.tcb.payload_mss();
        let end = usize::from(last.off) + usize::from(last.len + len);
        last.len + len <= mss && end <= SLOT_SIZE && last.buf.is_some()
    }
}
