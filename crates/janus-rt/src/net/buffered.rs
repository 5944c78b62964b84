//! A stream that lends what it received: for readers that look for the end of a line, or of a head, in what is there.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use super::recv_buf::RecvBuf;
use super::stream::TcpStream;

/// A stream with the piece of it that is being read, in the packet buffer it arrived in: nothing is copied to look at it.
/// With the features `tokio-io` and `futures-io` it is their `AsyncBufRead`.
#[derive(Debug)]
pub struct BufferedStream {
    stream: TcpStream,
    piece: Option<RecvBuf>,
}

impl TcpStream {
    /// The stream, with what it received lent out piece by piece.
    pub fn buffered(self) -> BufferedStream {
        BufferedStream {
            stream: self,
            piece: None,
        }
    }
}

impl BufferedStream {
    /// The bytes at hand, after waiting for some if there are none; empty at the peer's end.
    pub async fn fill(&mut self) -> io::Result<&[u8]> {
        poll_fn(|cx| self.poll_fill(cx)).await?;
        Ok(self.at_hand())
    }

    /// The bytes at hand.
    pub fn at_hand(&self) -> &[u8] {
        self.piece.as_deref().unwrap_or_default()
    }

    /// The first `count` bytes at hand are done with.
    pub fn consume(&mut self, count: usize) {
        if let Some(piece) = &mut self.piece {
            piece.advance(count);
            // No packet buffer is held for nothing.
            if piece.is_empty() {
                self.piece = None;
            }
        }
    }

    /// The stream, to write to it or to ask it something. Reading from it goes past the bytes at hand.
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// The stream, and the bytes at hand.
    pub fn into_parts(self) -> (TcpStream, Option<RecvBuf>) {
        (self.stream, self.piece)
    }

    #[cfg(any(feature = "futures-io", feature = "tokio-io"))]
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Ready when there are bytes at hand, or the peer has ended.
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
    /// Copies what is at hand, up to `most` bytes, after waiting for some.
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
