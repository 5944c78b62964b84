//! tokio's traits for streams and their halves. Received bytes go from their packet buffers straight into the reader's, which
//! need not be initialised; nothing is buffered on the way out, so there is nothing to flush.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::buffered::BufferedStream;
use super::stream::TcpStream;
use super::tcp::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};

macro_rules! reads {
    ($($reader:ty),+) => { $(
        impl AsyncRead for $reader {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let room = buf.remaining();
                if room == 0 {
                    return Poll::Ready(Ok(()));
                }
                let read = self.stream().poll_read_each(cx, room, |piece| buf.put_slice(piece));
                read.map_ok(|_count| ())
            }
        }
    )+ };
}

macro_rules! writes {
    ($($writer:ty),+) => { $(
        impl AsyncWrite for $writer {
            #[inline]
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_write_some(cx, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_write_slices(cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            #[inline]
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.stream().shut())
            }
        }
    )+ };
}

reads!(TcpStream, ReadHalf<'_>, OwnedReadHalf);
writes!(TcpStream, WriteHalf<'_>, OwnedWriteHalf, BufferedStream);

impl AsyncRead for BufferedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        let read = self.poll_take(cx, room, |bytes| buf.put_slice(bytes));
        read.map_ok(|_count| ())
    }
}

impl AsyncBufRead for BufferedStream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_fill(cx))?;
        Poll::Ready(Ok(this.at_hand()))
    }

    fn consume(mut self: Pin<&mut Self>, count: usize) {
        BufferedStream::consume(&mut self, count);
    }
}
