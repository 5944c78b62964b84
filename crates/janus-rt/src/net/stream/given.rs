//! Packet buffers that the application fills, or has received, and that are sent without copying.

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
use crate::shard::core_context;

impl TcpStream {
    /// Allocates a packet buffer of the size of a full segment, to be filled and given to [`send_buf`](Self::send_buf). Waits until the
    /// connection has room for it, as a write would, and until a buffer is free.
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
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Cancel safety
    /// No buffer is held when the future is dropped.
    pub fn alloc_buf(&self) -> AllocBuf<'_> {
        AllocBuf { stream: self }
    }

    /// Sends a packet buffer from [`alloc_buf`](Self::alloc_buf), or from [`recv`](Self::recv) of this stream or another, without copying
    /// its content: headers are written in front of it, and the retransmit queue keeps it until the peer has acknowledged all of it.
    ///
    /// Each buffer is a segment of its own, so fill it; fewer than 512 bytes are copied behind unsent data, as that costs less.
    ///
    /// ```
    /// use janus::net::{TcpListener, TcpStream};
    ///
    /// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.reachable_at()).await?;
    /// let (stream, _peer) = listener.accept().await?;
    ///
    /// client.write_all(b"again").await?;
    /// let Some(piece) = stream.recv().await? else { panic!("the client has not shut down") };
    /// stream.send_buf(piece).await?; // from the buffer it arrived in
    ///
    /// let mut echoed = [0; 5];
    /// client.read_exact(&mut echoed).await?;
    /// assert_eq!(&echoed, b"again");
    /// # Ok::<(), janus::BoxError>(())
    /// # })?;
    /// # Ok::<(), janus::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Cancel safety
    /// The buffer is taken whole or not at all; dropping the future before it is ready drops the buffer unsent.
    pub fn send_buf(&self, buf: impl Into<SendBuf>) -> Give<'_> {
        Give {
            stream: self,
            buf: Some(buf.into()),
        }
    }

    /// Like [`alloc_buf`](Self::alloc_buf), but without waiting.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there is no room or no buffer; else those of [`write`](Self::write).
    pub fn try_alloc_buf(&self) -> io::Result<SendBuf> {
        self.on_stack(alloc)
    }

    /// Like [`send_buf`](Self::send_buf), but without waiting.
    ///
    /// # Errors
    /// Those of [`try_alloc_buf`](Self::try_alloc_buf); the error returns the buffer.
    pub fn try_send_buf(&self, buf: impl Into<SendBuf>) -> Result<(), TrySendBufError> {
        let mut buf = Some(buf.into());
        let sent = core_context::with_own(self.owner, |ctx| {
            ctx.on_stack(|stack, now| give(stack, now, self.conn, &mut buf))
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

/// Takes the buffer out of `buf`, or leaves it there on an error.
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

/// A packet buffer that was not sent, and the reason.
#[derive(Debug)]
pub struct TrySendBufError {
    error: io::Error,
    buf: Option<SendBuf>,
}

impl TrySendBufError {
    /// Returns the reason; [`WouldBlock`](io::ErrorKind::WouldBlock) when there was no room.
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// Returns the buffer.
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
    /// `None` once it is sent.
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
