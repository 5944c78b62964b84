//! Bytes to be sent in the packet buffer they lie in. `stream/given.rs` allocates such buffers and sends them. The buffer's
//! earlier content is never visible.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use janus_mem::{PacketBuf, SLOT_SIZE};
use janus_tcp::Piece;

use super::recv_buf::{self, RecvBuf};

/// A packet buffer owned by the application, to be filled and given to [`TcpStream::send_buf`](super::TcpStream::send_buf), which
/// sends it without copying. [`TcpStream::alloc_buf`](super::TcpStream::alloc_buf) makes one, and a buffer from
/// [`recv`](super::TcpStream::recv) converts to one. Dropped unsent, on any thread, it returns to its pool.
///
/// It dereferences to the bytes filled so far, and its [`Write`](io::Write) takes as many as fit.
///
/// ```
/// use janus::net::{TcpListener, TcpStream};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.reachable_at()).await?;
/// let mut buf = client.alloc_buf().await?;
/// assert_eq!(buf.put(b"hello"), 5);
/// assert_eq!(&*buf, b"hello");
/// client.send_buf(buf).await?;
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
pub struct SendBuf {
    /// Taken only when it is sent, converted or dropped.
    buf: Option<PacketBuf>,
    off: u16,
    len: u16,
    /// Bytes it may hold.
    capacity: u16,
    /// Initialized bytes, which may be shown: they were written here, or set to zero.
    seen: u16,
}

impl SendBuf {
    pub(super) fn new(buf: PacketBuf, capacity: u16) -> SendBuf {
        SendBuf {
            off: buf.off(),
            buf: Some(buf),
            len: 0,
            capacity,
            seen: 0,
        }
    }

    /// Makes one whose room ends at offset `end` of the buffer.
    pub(super) fn from_piece(piece: Piece, end: u16) -> SendBuf {
        let Piece { buf, off, len } = piece;
        SendBuf {
            buf: Some(buf),
            off,
            len,
            capacity: end - off,
            seen: len,
        }
    }

    /// Returns the offset in the buffer at which its room ends.
    pub(super) fn end(&self) -> u16 {
        self.off + self.capacity
    }

    pub(super) fn into_piece(mut self) -> Option<Piece> {
        let buf = self.buf.take()?;
        Some(Piece {
            buf,
            off: self.off,
            len: self.len,
        })
    }

    /// Returns how many bytes it can hold: as many as make a full segment of the connection it was made for. (One that was
    /// received may hold more; then it is cut when it is sent, and the rest is copied.)
    pub fn capacity(&self) -> usize {
        self.capacity.into()
    }

    /// Returns how many bytes can still be added.
    pub fn spare(&self) -> usize {
        usize::from(self.capacity - self.len)
    }

    /// Appends as many of `bytes` as there is room for; returns how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.spare());
        let at = usize::from(self.off + self.len);
        if let Some(buf) = &mut self.buf {
            buf.bytes_mut()[at..at + count].copy_from_slice(&bytes[..count]);
            self.len += count as u16;
            self.seen = self.seen.max(self.len);
        }
        count
    }

    /// Returns the unfilled room, for code that fills slices itself; [`commit`](Self::commit) then says how much was filled. It
    /// holds zeros, or bytes that were truncated earlier.
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let (off, seen) = (usize::from(self.off), usize::from(self.seen));
        let (len, end) = (usize::from(self.len), off + usize::from(self.capacity));
        let Some(buf) = &mut self.buf else {
            return &mut [];
        };
        buf.bytes_mut()[off + seen..end].fill(0);
        self.seen = self.capacity;
        &mut buf.bytes_mut()[off + len..end]
    }

    /// Adds the first `count` bytes of the room to the content (at most as many as [`spare_mut`](Self::spare_mut) has shown).
    pub fn commit(&mut self, count: usize) {
        let count = count.min(usize::from(self.seen - self.len));
        self.len += count as u16;
    }

    /// Shortens the content to `len` bytes, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = len.min(usize::from(self.len)) as u16;
    }
}

impl From<RecvBuf> for SendBuf {
    fn from(received: RecvBuf) -> SendBuf {
        SendBuf::from_piece(received.into_piece(), SLOT_SIZE as u16)
    }
}

impl Deref for SendBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let at = usize::from(self.off);
        match &self.buf {
            Some(buf) => &buf.bytes()[at..at + usize::from(self.len)],
            None => &[],
        }
    }
}

impl DerefMut for SendBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let at = usize::from(self.off);
        match &mut self.buf {
            Some(buf) => &mut buf.bytes_mut()[at..at + usize::from(self.len)],
            None => &mut [],
        }
    }
}

impl AsRef<[u8]> for SendBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl io::Write for SendBuf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.put(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for SendBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBuf({} of {} bytes)", self.len, self.capacity)
    }
}

impl Drop for SendBuf {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            recv_buf::give_back(buf);
        }
    }
}
