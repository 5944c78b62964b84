//! Received bytes lent out in the buffer they arrived in. What is in the buffer's other bytes never shows.

use std::fmt;
use std::ops::Deref;

use janus_mem::PacketBuf;
use janus_tcp::Piece;

use crate::shard::here;

/// A piece of the stream, in the packet buffer it came in. Dropping it, on any thread, returns the buffer; given to
/// [`TcpStream::send_buf`](super::TcpStream::send_buf) it goes out again as it is.
pub struct RecvBuf {
    /// Taken only while being dropped.
    buf: Option<PacketBuf>,
    off: u16,
    len: u16,
}

impl RecvBuf {
    pub(super) fn new(received: Piece) -> RecvBuf {
        let Piece { buf, off, len } = received;
        RecvBuf {
            buf: Some(buf),
            off,
            len,
        }
    }

    pub(super) fn into_piece(mut self) -> Option<Piece> {
        let buf = self.buf.take()?;
        Some(Piece {
            buf,
            off: self.off,
            len: self.len,
        })
    }

    /// Passes over the first `count` bytes (at most all that are there).
    pub fn advance(&mut self, count: usize) {
        let count = count.min(usize::from(self.len)) as u16;
        self.off += count;
        self.len -= count;
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let at = usize::from(self.off);
        match &self.buf {
            Some(buf) => &buf.bytes()[at..at + usize::from(self.len)],
            None => &[],
        }
    }
}

impl AsRef<[u8]> for RecvBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuf({} bytes)", self.len)
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            give_back(buf);
        }
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
