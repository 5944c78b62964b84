//! Packet buffers that are sent as they are: `recv()` the other way round.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use janus_tcp::{ConnId, Error, Instant, Stack};

use super::{TcpStream, wait_write};
use crate::net::send_buf::SendBuf;
use crate::net::{foreign_core, io_error};
use crate::shard::here;

impl TcpStream {
    /// A packet buffer to be filled and given to [`send_buf`](Self::send_buf), of the size of a full segment. Waits until the
    /// connection has room for it, as a write would, and there is one.
    ///
    /// ```no_run
    /// # async fn answer(stream: janus::net::TcpStream, file: std::fs::File) -> std::io::Result<()> {
    /// use std::io::Read;
    ///
    /// loop {
    ///     let mut buf = stream.alloc_buf().await?;
    ///     let count = (&file).read(buf.spare_mut())?;
    ///     buf.commit(count);
    ///     if count == 0 {
    ///         break;
    ///     }
    ///     stream.send_buf(buf).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn alloc_buf(&self) -> AllocBuf<'_> {
        AllocBuf { stream: self }
    }

    /// Hands over a packet buffer: one of [`alloc_buf`](Self::alloc_buf), or what [`recv`](Self::recv) gave, of this stream or of
    /// another. What is in it is not copied: headers are written in front of it, and it is kept until the peer has
    /// acknowledged all of it.
    ///
    /// It is taken whole or, as long as there is no room, not at all: dropping the future then drops it unsent. Each buffer is a
    /// segment of its own, so fill it; fewer than 512 bytes are copied behind what still waits to be sent, as that costs less.
    ///
    /// ```no_run
    /// # async fn pass(from: janus::net::TcpStream, to: janus::net::TcpStream) -> std::io::Result<()> {
    /// while let Some(piece) = from.recv().await? {
    ///     to.send_buf(piece).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn send_buf(&self, buf: impl Into<SendBuf>) -> Give<'_> {
        Give {
            stream: self,
            buf: Some(buf.into()),
        }
    }

    /// [`alloc_buf`](Self::alloc_buf) without waiting.
    pub fn try_alloc_buf(&self) -> io::Result<SendBuf> {
        self.on_stack(alloc)
    }

    /// [`send_buf`](Self::send_buf) without waiting; the error has the buffer.
    pub fn try_send_buf(&self, buf: impl Into<SendBuf>) -> Result<(), TrySendBufError> {
        let mut buf = Some(buf.into());
        let sent = here::with_own(self.owner, |here| {
            here.on_stack(|stack, now| give(stack, now, self.conn, &mut buf))
        });
        let error = match sent {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => io_error(error),
            None => foreign_core(),
        };
        Err(TrySendBufError { error, buf })
    }
}

fn alloc(stack: &mut Stack, now: Instant, conn: ConnId) -> Result<SendBuf, Error> {
    let (buf, capacity) = stack.alloc_buf(now, conn)?;
    Ok(SendBuf::new(buf, capacity))
}

/// Takes what is in `buf`, or leaves it there.
fn give(
    stack: &mut Stack,
    now: Instant,
    conn: ConnId,
    buf: &mut Option<SendBuf>,
) -> Result<(), Error> {
    let end = buf.as_ref().map_or(0, SendBuf::end);
    let Some(piece) = buf.take().and_then(SendBuf::into_piece) else {
        return Ok(());
    };
    stack.send_buf(now, conn, piece).map_err(|(error, piece)| {
        *buf = Some(SendBuf::from_piece(piece, end));
        error
    })
}

/// A packet buffer that was not sent, and why.
#[derive(Debug)]
pub struct TrySendBufError {
    error: io::Error,
    buf: Option<SendBuf>,
}

impl TrySendBufError {
    /// Why it was not sent; [`WouldBlock`](io::ErrorKind::WouldBlock) when there was no room.
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// The buffer.
    pub fn into_buf(self) -> Option<SendBuf> {
        self.buf
    }
}

impl fmt::Display for TrySendBufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the buffer was not sent: {}", self.error)
    }
}

impl StdError for TrySendBufError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}

impl From<TrySendBufError> for io::Error {
    fn from(refused: TrySendBufError) -> io::Error {
        refused.error
    }
}

/// See [`TcpStream::alloc_buf`].
#[must_use = "futures do nothing unless awaited"]
pub struct AllocBuf<'a> {
    stream: &'a TcpStream,
}

impl Future for AllocBuf<'_> {
    type Output = io::Result<SendBuf>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = self.stream;
        stream.poll_on_stack(cx, stream.writer(), wait_write, alloc)
    }
}

/// See [`TcpStream::send_buf`].
#[must_use = "futures do nothing unless awaited"]
pub struct Give<'a> {
    stream: &'a TcpStream,
    /// Until it is sent.
    buf: Option<SendBuf>,
}

impl Future for Give<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Give { stream, buf } = &mut *self;
        stream.poll_on_stack(cx, stream.writer(), wait_write, |stack, now, conn| {
            give(stack, now, conn, buf)
        })
    }
}
