//! Readiness of a stream, and the calls that do not wait. Readiness is read from the stack at each call and never cached, so it cannot be
//! stale, and a wait after `WouldBlock` really waits.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::task::{Context, Poll};

use janus_tcp::{ConnId, Error, Instant, Stack, State, Status};

use super::{TcpStream, one_after_the_other, wait_read, wait_write, write_slices};
use crate::net::recv_buf::RecvBuf;
use crate::net::{Interest, Ready, foreign_core, io_error};
use crate::shard::core_context;
use crate::task::coop;

impl TcpStream {
    /// Waits until there is something to read: bytes, the end of the stream, or an error.
    ///
    /// # Errors
    /// [`NotConnected`](io::ErrorKind::NotConnected) when the connection is over; an error of kind [`Other`](io::ErrorKind::Other) on
    /// another core than the stream's.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    /// Waits until there is room to write, or the connection is over.
    ///
    /// # Errors
    /// Those of [`readable`](Self::readable).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_write_ready(cx)).await
    }

    /// Waits until the stream is ready for something in `interest`; returns the part it is ready for.
    ///
    /// # Errors
    /// Those of [`readable`](Self::readable).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        poll_fn(|cx| self.poll_ready(cx, interest)).await
    }

    /// Polls for [`readable`](TcpStream::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(cx, Interest::READABLE).map_ok(|_ready| ())
    }

    /// Polls for [`writable`](TcpStream::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(cx, Interest::WRITABLE).map_ok(|_ready| ())
    }

    fn poll_ready(&self, cx: &mut Context<'_>, interest: Interest) -> Poll<io::Result<Ready>> {
        if coop::proceed(cx).is_pending() {
            return Poll::Pending;
        }
        let looked = core_context::with_own(self.owner, |ctx| {
            let status = ctx.on_stack(|stack, _| stack.status(self.conn))?;
            let ready = ready_of(&status, interest);
            if !ready.is_empty() {
                coop::spend();
                return Ok(Some(ready));
            }
            // A task that waits for errors only is woken by incoming data, too, and looks again.
            if interest.is_readable() || interest.is_error() {
                let token = ctx.token(cx.waker(), self.reader());
                ctx.on_stack(|stack, now| wait_read(stack, now, self.conn, token));
            }
            if interest.is_writable() {
                let token = ctx.token(cx.waker(), self.writer());
                ctx.on_stack(|stack, now| wait_write(stack, now, self.conn, token));
            }
            Ok(None)
        });
        match looked {
            None => Poll::Ready(Err(foreign_core())),
            Some(Ok(None)) => Poll::Pending,
            Some(Ok(Some(ready))) => Poll::Ready(Ok(ready)),
            Some(Err(error)) => Poll::Ready(Err(io_error(error))),
        }
    }

    /// Reads the bytes received so far; 0 means that the peer has shut down its side.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there are none; else those of [`read`](TcpStream::read).
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.on_stack(|stack, now, conn| stack.read(now, conn, into))
    }

    /// Like [`try_read`](TcpStream::try_read), but into several slices, one after the other.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read), where nothing was read before.
    pub fn try_read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.on_stack(|stack, now, conn| read_slices(stack, now, conn, into))
    }

    /// Receives the next piece of the stream in the buffer it arrived in; `None` means that the peer has shut down its side.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there is none; else those of [`read`](TcpStream::read).
    pub fn try_recv(&self) -> io::Result<Option<RecvBuf>> {
        let piece = self.on_stack(|stack, now, conn| stack.recv(now, conn))?;
        Ok(piece.map(RecvBuf::new))
    }

    /// Like [`try_read`](TcpStream::try_read), but without consuming the bytes.
    ///
    /// # Errors
    /// Those of [`try_read`](Self::try_read).
    pub fn try_peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.on_stack(|stack, _, conn| stack.peek(conn, into))
    }

    /// Writes as much of `bytes` as there is room for; returns how many.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there is no room; else those of [`write`](TcpStream::write).
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.on_stack(|stack, now, conn| stack.write(now, conn, bytes))
    }

    /// Like [`try_write`](TcpStream::try_write), but of several slices, one after the other.
    ///
    /// # Errors
    /// Those of [`try_write`](Self::try_write), where nothing was written before.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.on_stack(|stack, now, conn| write_slices(stack, now, conn, slices))
    }

    /// Calls `call` once, which must use the stream without waiting. For code written for cached readiness: here none is cached, so
    /// nothing is cleared when `call` returns [`WouldBlock`](io::ErrorKind::WouldBlock).
    ///
    /// # Errors
    /// Those of `call`.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let _ = interest;
        call()
    }

    /// Calls `call` each time the stream is ready for `interest`, until it returns anything but [`WouldBlock`](io::ErrorKind::WouldBlock).
    ///
    /// # Errors
    /// Those of [`ready`](TcpStream::ready) and of `call`.
    ///
    /// # Cancel safety
    /// Dropping the future between two calls of `call` loses nothing; `call` itself is never interrupted.
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        mut call: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            self.ready(interest).await?;
            match call() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // `call` waits for something other than the stream's readiness: other tasks must not starve meanwhile.
                    crate::task::yield_now().await;
                }
                done => return done,
            }
        }
    }

    /// Returns the error that broke the connection, if one did. Unlike tokio's, it is not cleared.
    ///
    /// # Errors
    /// Those of [`readable`](Self::readable).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let status = self.on_stack(|stack, _, conn| stack.status(conn))?;
        Ok(status.failure.map(io_error))
    }
}

/// Returns the part of `interest` that a connection of this status is ready for.
fn ready_of(status: &Status, interest: Interest) -> Ready {
    let mut ready = Ready::EMPTY;
    let opening = matches!(status.state, State::SynSent | State::SynReceived);
    if opening {
        return ready;
    }
    let over = status.state == State::Closed || status.failure.is_some();
    let ended = over || status.peer_fin;
    if interest.is_readable() {
        if status.unread > 0 || ended {
            ready = ready | Ready::READABLE;
        }
        if ended {
            ready = ready | Ready::READ_CLOSED;
        }
    }
    let shut = over || !matches!(status.state, State::Established | State::CloseWait);
    if interest.is_writable() {
        if shut || status.writable && !status.starved {
            ready = ready | Ready::WRITABLE;
        }
        if shut {
            ready = ready | Ready::WRITE_CLOSED;
        }
    }
    if status.failure.is_some() && (interest.is_error() || !ready.is_empty()) {
        ready = ready | Ready::ERROR;
    }
    ready
}

fn read_slices(
    stack: &mut Stack,
    now: Instant,
    conn: ConnId,
    slices: &mut [IoSliceMut<'_>],
) -> Result<usize, Error> {
    let slices = slices.iter_mut().map(|slice| &mut **slice);
    one_after_the_other(slices, |slice| stack.read(now, conn, slice))
}
