//! Received bytes lent out in the buffer they arrived in. What is in the buffer's other bytes never shows.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use janus_mem::{PacketBuf, Part};
use janus_tcp::Piece;

use crate::shard::here;

/// A piece of the stream, in the packet buffer it came in. Dropping it, on any thread, returns the buffer; given to
/// [`TcpStream::send_buf`](super::TcpStream::send_buf) it goes out again as it is.
///
/// It takes eight bytes, as a task that keeps one over an await is larger by them.
pub struct RecvBuf {
    /// Taken only at its end. No `Option`, so that one around the whole is no larger.
    part: ManuallyDrop<Part>,
}

impl RecvBuf {
    #[inline]
    pub(super) fn new(received: Piece) -> RecvBuf {
        let Piece { buf, off, len } = received;
        RecvBuf {
            part: ManuallyDrop::new(Part::new(buf, off, len)),
        }
    }

    pub(super) fn into_piece(self) -> Piece {
        // Its own drop takes nothing then.
        let mut this = ManuallyDrop::new(self);
        let part = this.take();
        let len = part.len() as u16;
        let buf = part.into_buf();
        Piece {
            off: buf.off(),
            buf,
            len,
        }
    }

    /// What it holds; it holds nothing any more.
    fn take(&mut self) -> Part {
        // SAFETY: called at its end only, by `into_piece`, which keeps it from being dropped, or by `drop`; nobody looks at
        // it after either.
        unsafe { ManuallyDrop::take(&mut self.part) }
    }

    /// Passes over the first `count` bytes (at most all that are there).
    pub fn advance(&mut self, count: usize) {
        self.part.advance(count);
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.part.bytes()
    }
}

impl AsRef<[u8]> for RecvBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuf({} bytes)", self.len())
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        give_back(self.take().into_buf());
    }
}

/// On a core a buffer goes to its own magazine; elsewhere the handle's own drop takes the longer way.
pub(super) fn give_back(buf: PacketBuf) {
    let mut buf = Some(buf);
    here::with(|here| {
        if let (Ok(mut pool), Some(buf)) = (here.pool.try_borrow_mut(), buf.take()) {
            pool.free(buf);
        }
    });
}
