//! A stream that lends what it received: for parsers that look for the end of a line, or of a head, in the received bytes.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use super::recv_buf::RecvBuf;
use super::stream::TcpStream;

/// A stream with the piece of it that is being read, in the packet buffer it arrived in; looking at the bytes copies nothing.
/// With the features `tokio-io` and `futures-io` it implements their `AsyncBufRead`.
///
/// ```
/// use janus::net::{TcpListener, TcpStream};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.reachable_at()).await?;
/// client.write_all(b"first\nsecond\n").await?;
///
/// let (stream, _peer) = listener.accept().await?;
/// let mut lines = stream.buffered();
/// let end = lines.fill().await?.iter().position(|&byte| byte == b'\n').unwrap();
/// assert_eq!(&lines.at_hand()[..end], b"first");
/// lines.consume(end + 1);
/// assert_eq!(lines.fill().await?, b"second\n");
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
#[derive(Debug)]
pub struct BufferedStream {
    stream: TcpStream,
    piece: Option<RecvBuf>,
}

impl TcpStream {
    /// Wraps the stream so that it lends received bytes piece by piece.
    pub fn buffered(self) -> BufferedStream {
        BufferedStream {
            stream: self,
            piece: None,
        }
    }
}

impl BufferedStream {
    /// Returns the bytes at hand, after waiting for some if there are none; empty when the peer has shut down.
    ///
    /// # Errors
    /// Those of [`TcpStream::recv`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn fill(&mut self) -> io::Result<&[u8]> {
        poll_fn(|cx| self.poll_fill(cx)).await?;
        Ok(self.at_hand())
    }

    /// Returns the bytes at hand.
    pub fn at_hand(&self) -> &[u8] {
        self.piece.as_deref().unwrap_or_default()
    }

    /// Consumes the first `count` bytes at hand.
    pub fn consume(&mut self, count: usize) {
        if let Some(piece) = &mut self.piece {
            piece.advance(count);
            // An empty piece must not hold its packet buffer.
            if piece.is_empty() {
                self.piece = None;
            }
        }
    }

    /// Returns the stream, to write to it or to query it. Reading from it skips the bytes at hand.
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the stream and the bytes at hand.
    pub fn into_parts(self) -> (TcpStream, Option<RecvBuf>) {
        (self.stream, self.piece)
    }

    #[cfg(any(feature = "futures-io", feature = "tokio-io"))]
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Polls until there are bytes at hand, or the peer has shut down.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.piece.is_none() {
            match self.stream.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(None)) => break,
                Poll::Ready(Ok(Some(piece))) => {
                    self.piece = Some(piece).filter(|piece| !piece.is_empty());
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    #[cfg(any(feature = "futures-io", feature = "tokio-io"))]
    /// Copies the bytes at hand, up to `most`, after waiting for some.
    pub(super) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        if most == 0 {
            return Poll::Ready(Ok(0));
        }
        std::task::ready!(self.poll_fill(cx))?;
        let bytes = self.at_hand();
        let count = bytes.len().min(most);
        take(&bytes[..count]);
        self.consume(count);
        Poll::Ready(Ok(count))
    }
}
