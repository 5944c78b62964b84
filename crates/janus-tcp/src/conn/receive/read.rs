//! Reading: bytes that were received go to the application, and the peer learns of the room that was made.

use crate::conn::Conn;
use crate::conn::piece::Piece;
use crate::rules::error::Error;
use crate::store::hot::hot_flag;

impl Conn<'_> {
    /// Something has come that was not read yet.
    #[inline(always)]
    pub(crate) fn has_unread(&self) -> bool {
        !self.hot.receiver.inbox.is_empty()
    }

    /// Takes up to `most` received bytes, piece by piece.
    #[inline]
    pub(crate) fn read_each(&mut self, most: usize, mut take: impl FnMut(&[u8])) -> usize {
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
    pub(crate) fn recv(&mut self) -> Result<Piece, Error> {
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
}
