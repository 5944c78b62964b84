//! The stream under hyper: it reports received and written bytes to the connection's [`Watch`], resets a peer that acknowledges nothing,
//! and answers a head that does not end, which hyper leaves without an answer.

use std::any::Any;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use janus::net::TcpStream;
use janus::time::{Sleep, now, sleep};

use super::watch::Watch;
use crate::Reject;
use crate::pace::{Stall, Taker};
use crate::transport::Transport;

/// First bytes of HTTP/2, which no method of HTTP/1.1 has (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI";
/// Bytes read at a time while the version of the connection is unknown, or input is only discarded.
const LITTLE: usize = 512;

/// The stream; see the module.
pub(super) struct Stream<I: 'static> {
    layer: Layer<I>,
    watch: Arc<Watch>,
    stall: Stall<Layer<I>>,
    /// Bytes of [`PREFACE`] received, and nothing else; `None`: the version is known.
    preface: Option<usize>,
    /// Whether the answer to a head that did not end is written.
    refused: bool,
}

/// The stream below: TCP itself, or a layer over it that hides TCP.
struct Layer<I>(I);

impl<I: 'static> Layer<I> {
    fn tcp(&self) -> Option<&TcpStream> {
        (&self.0 as &dyn Any).downcast_ref()
    }
}

impl<I: 'static> Taker for Layer<I> {
    type Sleep = Sleep;

    fn sleep(&self, duration: Duration) -> Sleep {
        sleep(duration)
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(now().as_nanos())
    }

    fn unacknowledged(&self) -> usize {
        self.tcp().map_or(0, Transport::unacknowledged)
    }

    fn abort(&self) {
        if let Some(tcp) = self.tcp() {
            Transport::abort(tcp);
        }
    }
}

impl<I: Read + Write + Unpin + 'static> Stream<I> {
    pub(super) fn new(stream: I, watch: Arc<Watch>) -> Self {
        Stream {
            layer: Layer(stream),
            stall: Stall::new(watch.options().write_timeout),
            watch,
            preface: Some(0),
            refused: false,
        }
    }

    /// Receives a little, and checks whether HTTP/2 begins with it.
    #[cold]
    fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut little = [0; LITTLE];
        let room = buf.remaining().min(LITTLE);
        let received = ready!(self.poll_little(cx, &mut little[..room]))?;
        let known = self.preface.unwrap_or_default();
        let wanted = &PREFACE[known..];
        let both = wanted.len().min(received.len());
        self.preface = match wanted[..both] == received[..both] {
            true if both == wanted.len() => {
                self.watch.begin_http2();
                None
            }
            true => Some(known + both),
            false => None,
        };
        buf.put_slice(received);
        Poll::Ready(Ok(()))
    }

    fn poll_little<'b>(
        &mut self,
        cx: &mut Context<'_>,
        little: &'b mut [u8],
    ) -> Poll<io::Result<&'b [u8]>> {
        let mut read = ReadBuf::new(little);
        ready!(Pin::new(&mut self.layer.0).poll_read(cx, read.unfilled()))?;
        let count = read.filled().len();
        Poll::Ready(Ok(&little[..count]))
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
            let mut layer = Pin::new(&mut self.layer.0);
            let room = layer.as_mut().poll_write(cx, answer.as_bytes()).is_ready();
            if !room || layer.poll_shutdown(cx).is_pending() {
                return Poll::Ready(Ok(()));
            }
        }
        let mut little = [0; LITTLE];
        while !ready!(self.poll_little(cx, &mut little))?.is_empty() {}
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
                let stalled = self.stall.poll(&self.layer, cx, self.watch.written());
                return stalled.map(|error| Err(error.into()));
            }
            _ => {}
        }
        wrote
    }
}

impl<I: Read + Write + Unpin + 'static> Read for Stream<I> {
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
        match this.preface {
            None => ready!(Pin::new(&mut this.layer.0).poll_read(cx, buf))?,
            Some(_) => ready!(this.poll_begin(cx, buf))?,
        }
        this.watch.received();
        Poll::Ready(Ok(()))
    }
}

impl<I: Read + Write + Unpin + 'static> Write for Stream<I> {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.layer.0).poll_write(cx, bytes);
        self.written(cx, wrote)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.layer.0).poll_write_vectored(cx, slices);
        self.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.layer.0.is_write_vectored()
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.layer.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.layer.0).poll_shutdown(cx)
    }
}
