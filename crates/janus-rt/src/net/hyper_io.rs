//! hyper's traits for streams. Received bytes go from their packet buffers straight into hyper's, which need not be initialized.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::poll_traits::writes;
use super::stream::TcpStream;

impl Read for TcpStream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        let read = self.poll_read_each(cx, room, |piece| buf.put_slice(piece));
        read.map_ok(|_count| ())
    }
}

writes!(
    Write,
    poll_shutdown,
    extra {
        fn is_write_vectored(&self) -> bool {
            true
        }
    },
    TcpStream
);
