//! Received bytes lent out in the buffer they arrived in. The buffer's other bytes are never visible.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use janus_mem::{PacketBuf, Part};
use janus_tcp::Piece;

use crate::shard::core_context;

/// A piece of the stream, in the packet buffer it arrived in. Dropping it, on any thread, returns the buffer; given to
/// [`TcpStream::send_buf`](super::TcpStream::send_buf), the buffer is sent without copying.
///
/// It takes eight bytes, since a task that keeps one across an await grows by its size.
///
/// ```
/// use janus::net::{TcpListener, TcpStream};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.reachable_at()).await?;
/// client.write_all(b"12:rest").await?;
/// let (stream, _peer) = listener.accept().await?;
/// let Some(mut piece) = stream.recv().await? else { panic!("the client has not shut down") };
/// assert_eq!(&piece[..2], b"12");
/// piece.advance(3);
/// assert_eq!(&*piece, b"rest");
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
pub struct RecvBuf {
    /// Taken only in `into_piece` or `drop`. Not an `Option`, so that an `Option` around the whole is no larger.
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
        // The drop must not take the part a second time.
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

    /// Takes the content out; the value must not be used after that.
    fn take(&mut self) -> Part {
        // SAFETY: called once, by `into_piece`, which keeps the value from being dropped, or by `drop`; the part is not read
        // after either.
        unsafe { ManuallyDrop::take(&mut self.part) }
    }

    /// Skips the first `count` bytes (at most all that are there).
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

/// Returns a buffer: on a core to the core's own magazine, elsewhere through the handle's own drop, which takes the longer way.
pub(super) fn give_back(buf: PacketBuf) {
    let mut buf = Some(buf);
    core_context::with(|ctx| {
        if let (Ok(mut pool), Some(buf)) = (ctx.pool.try_borrow_mut(), buf.take()) {
            pool.free(buf);
        }
    });
}
