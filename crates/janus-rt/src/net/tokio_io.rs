//! tokio's traits for streams and their halves. Received bytes go from their packet buffers straight into the reader's, which need not
//! be initialized.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::buffered::BufferedStream;
use super::poll_traits::{buffered_reads, writes};
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
                let read = self.stream().poll_read_each(cx, room, |piece| buf.put_slice(piece));
                read.map_ok(|_count| ())
            }
        }
    )+ };
}

reads!(TcpStream, ReadHalf<'_>, OwnedReadHalf);
writes!(
    AsyncWrite,
    poll_shutdown,
    extra {
        fn is_write_vectored(&self) -> bool {
            true
        }
    },
    TcpStream,
    WriteHalf<'_>,
    OwnedWriteHalf,
    BufferedStream
);
buffered_reads!();

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
