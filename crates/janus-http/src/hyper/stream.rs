//! The stream under hyper: it tells the connection's [`Watch`] what comes, resets a peer that takes nothing of what is
//! written, and answers a head that does not end, which hyper leaves without an answer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::hyper::rt::{Read, ReadBufCursor, Write};
use janus::net::TcpStream;

use super::watch::Watch;
use crate::Reject;
use crate::pace::Stall;
use crate::transport::Transport;

/// See the module.
pub(super) struct Stream {
    stream: TcpStream,
    watch: Arc<Watch>,
    stall: Stall<TcpStream>,
    /// Something has been received.
    begun: bool,
    /// The answer to a head that did not end is written.
    refused: bool,
}

impl Stream {
    pub(super) fn new(stream: TcpStream, watch: Arc<Watch>) -> Stream {
        Stream {
            stream,
            stall: Stall::new(watch.options().write_timeout),
            watch,
            begun: false,
            refused: false,
        }
    }

    /// Looks whether what comes first is HTTP/2's preface (RFC 9113 section 3.4).
    #[cold]
    fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut first = [0; 3];
        ready!(self.stream.poll_peek(cx, &mut first))?;
        if &first == b"PRI" {
            self.watch.begin_http2();
        }
        self.begun = true;
        Poll::Ready(Ok(()))
    }

    /// Answers a head that took too long, and waits for the peer's end.
    #[cold]
    fn poll_refuse(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.refused {
            self.refused = true;
            let (status, text) = (
                Reject::HeadTimeout.status(),
                Reject::HeadTimeout.explanation(),
            );
            let answer = format!(
                "HTTP/1.1 {status} {}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}\n",
                crate::reason(status),
                text.len() + 1,
            );
            let room = Transport::poll_write(&self.stream, cx, answer.as_bytes()).is_ready();
            if !room || Transport::poll_shutdown(&self.stream, cx).is_pending() {
                return Poll::Ready(Ok(()));
            }
        }
        while ready!(self.stream.poll_recv(cx))?.is_some() {}
        Poll::Ready(Ok(()))
    }

    fn written(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(count)) => self.watch.wrote(Some(count)),
            Poll::Pending if !self.watch.is_released() => {
                self.watch.wrote(None);
                let stalled = self.stall.poll(&self.stream, cx, self.watch.written());
                return stalled.map(|error| Err(error.into()));
            }
            _ => {}
        }
        wrote
    }
}

impl Read for Stream {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.watch.is_refused() {
            return this.poll_refuse(cx);
        }
        if !this.begun {
            ready!(this.poll_begin(cx))?;
        }
        ready!(Read::poll_read(Pin::new(&mut this.stream), cx, buf))?;
        this.watch.received();
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Write::poll_write(Pin::new(&mut self.stream), cx, bytes);
        self.written(cx, wrote)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Write::poll_write_vectored(Pin::new(&mut self.stream), cx, slices);
        self.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.stream), cx)
    }
}
