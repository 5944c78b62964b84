//! A connection as a plain handle. Every call goes to the stack of the core that owns the connection; a call on another core
//! returns an error that says so. The futures are written out so that each is a reference and its argument, nothing more.
//! Readiness and calls that do not wait are in `ready`, packet buffers sent without copying in `given`, the halves in `tcp`,
//! and the traits of other crates in files of their own.

mod adopt;
mod given;
mod race;
mod ready;

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use janus_tcp::{ConnId, Error, Instant, SocketOptions, Stack, Token};

use super::address::{Target, ToAddress};
use super::recv_buf::RecvBuf;
use super::{foreign_core, io_error, on_stack, poll_on_stack, resolver};
use crate::inbox::Owner;
use crate::shard::Side;
use crate::shard::core_context::{self, CoreContext};
pub use adopt::AdoptError;
pub use given::{AllocBuf, Give, TrySendBufError};
use race::connect_by_name;

/// A TCP connection.
///
/// Reading and writing take `&self`, so one task can read while another writes; of two tasks that wait for the same event, the
/// one that polled last is woken. The handle may be sent to any thread: a call on another core returns an error, and a drop
/// there closes the connection through a message to its own core.
///
/// ```
/// use janus::net::{TcpListener, TcpStream};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.reachable_at()).await?;
/// let (stream, _peer) = listener.accept().await?;
/// client.write_all(b"hello").await?;
/// let mut greeting = [0; 5];
/// stream.read_exact(&mut greeting).await?;
/// assert_eq!(&greeting, b"hello");
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
pub struct TcpStream {
    conn: ConnId,
    owner: Owner,
}

impl TcpStream {
    pub(super) fn new(owner: Owner, conn: ConnId) -> TcpStream {
        TcpStream { conn, owner }
    }

    /// Returns the stack's identifier of the connection.
    #[inline]
    pub(crate) fn conn(&self) -> ConnId {
        self.conn
    }

    /// Returns the connection's core.
    #[inline]
    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// Opens a connection to `address` from this core. A name is looked up first ([`lookup_host`](super::lookup_host)). Its addresses of
    /// both families are tried in turn, the next when one has failed or has not answered within a quarter of a second, and the first to
    /// answer is taken (RFC 8305). Of several addresses given directly, the next is tried only when one has failed.
    ///
    /// ```
    /// use janus::net::{TcpListener, TcpStream};
    ///
    /// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let stream = TcpStream::connect(listener.reachable_at()).await?;
    /// assert_eq!(stream.peer_addr()?, listener.reachable_at());
    /// # Ok::<(), janus::BoxError>(())
    /// # })?;
    /// # Ok::<(), janus::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused), [`TimedOut`](io::ErrorKind::TimedOut),
    /// [`HostUnreachable`](io::ErrorKind::HostUnreachable) and their like, from the address tried last; the lookup's errors;
    /// [`OutOfMemory`](io::ErrorKind::OutOfMemory) at the bound on connections. An error of kind [`Other`](io::ErrorKind::Other) outside a
    /// Janus core.
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempts.
    pub fn connect(address: impl ToAddress) -> Connect {
        let opening = match address.to_target() {
            Ok(Target::Address(remote)) => {
                TcpStream::begin(any_of(remote).ip(), remote, &SocketOptions::default())
            }
            Ok(Target::Name { host, port }) => return Connect::boxed(connect_by_name(host, port)),
            Ok(Target::Addresses(several)) => return Connect::boxed(connect_in_turn(several)),
            Err(error) => Err(error),
        };
        Connect(Opening::Begun(Some(opening)))
    }

    /// Opens a connection from `local`, whose address and port may be unspecified (zero), with these options.
    pub(super) async fn open(
        local: SocketAddr,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<TcpStream> {
        let opening = if local.port() == 0 {
            TcpStream::begin(local.ip(), remote, options)?
        } else {
            let asking = |ctx: &CoreContext| (ctx.owner, ctx.open_tuple(local, remote, options));
            let (owner, asking) = core_context::with(asking).ok_or_else(core_context::no_core)?;
            let conn = asking.await.ok_or_else(foreign_core)?;
            TcpStream::new(owner, conn.map_err(io_error)?)
        };
        Connect(Opening::Begun(Some(Ok(opening)))).await
    }

    fn begin(local: IpAddr, remote: SocketAddr, options: &SocketOptions) -> io::Result<TcpStream> {
        let begun = core_context::with(|ctx| {
            let conn = ctx.connect(local, remote, options);
            Ok(TcpStream::new(ctx.owner, conn?))
        });
        begun.ok_or_else(core_context::no_core)?.map_err(io_error)
    }

    /// Reads the bytes received so far, at least one; 0 means that the peer has shut down its side.
    ///
    /// # Errors
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset), [`TimedOut`](io::ErrorKind::TimedOut) or the ICMP error that ended the
    /// connection; an error of kind [`Other`](io::ErrorKind::Other) on another core than the stream's.
    ///
    /// # Cancel safety
    /// No byte is lost when the future is dropped.
    pub fn read<'a>(&'a self, into: &'a mut [u8]) -> Read<'a> {
        Read { stream: self, into }
    }

    /// Fills `into`.
    ///
    /// # Errors
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) when the stream ends before that; else those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Bytes already copied to `into` are lost when the future is dropped.
    pub async fn read_exact(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match self.read(into).await? {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the peer ended before all was there",
                    ));
                }
                n => into = &mut into[n..],
            }
        }
        Ok(())
    }

    /// Copies the bytes received so far without consuming them.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// No byte is lost when the future is dropped.
    pub fn peek<'a>(&'a self, into: &'a mut [u8]) -> Peek<'a> {
        Peek { stream: self, into }
    }

    /// Receives the next piece of the stream in the buffer it arrived in; `None` means that the peer has shut down its side.
    ///
    /// ```
    /// use janus::net::{TcpListener, TcpStream};
    ///
    /// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.reachable_at()).await?;
    /// client.write_all(b"hello").await?;
    /// drop(client);
    ///
    /// let (stream, _peer) = listener.accept().await?;
    /// let mut received = Vec::new();
    /// loop {
    ///     let Some(piece) = stream.recv().await? else { break };
    ///     received.extend_from_slice(&piece);
    /// }
    /// assert_eq!(received, b"hello");
    /// # Ok::<(), janus::BoxError>(())
    /// # })?;
    /// # Ok::<(), janus::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// No byte is lost when the future is dropped.
    pub fn recv(&self) -> Recv<'_> {
        Recv { stream: self }
    }

    /// Writes at least one byte of `bytes` to the send buffer; returns how many.
    ///
    /// # Errors
    /// [`BrokenPipe`](io::ErrorKind::BrokenPipe) after a [`shutdown`](Self::shutdown); else those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Nothing has been written when the future is dropped before it is ready.
    pub fn write<'a>(&'a self, bytes: &'a [u8]) -> Write<'a> {
        Write {
            stream: self,
            bytes,
        }
    }

    /// Writes all of `bytes` to the send buffer.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Cancel safety
    /// When the future is dropped, a part of `bytes` may have been written, and how much is not known.
    pub fn write_all<'a>(&'a self, bytes: &'a [u8]) -> WriteAll<'a> {
        WriteAll {
            stream: self,
            bytes,
        }
    }

    /// Shuts down the writing side; reading goes on. Only the writing side can be shut: TCP has no answer but a reset to data
    /// that the peer sends after [`Shutdown::Read`].
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) for [`Shutdown::Read`], [`NotConnected`](io::ErrorKind::NotConnected) when the
    /// connection is over.
    ///
    /// # Cancel safety
    /// The first poll shuts down the writing side, and never waits.
    pub async fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how == Shutdown::Read {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "only the writing side can be shut: stop reading instead",
            ));
        }
        self.shut()
    }

    /// Shuts down the writing side without waiting.
    pub(super) fn shut(&self) -> io::Result<()> {
        self.on_stack(Stack::shutdown_write)
    }

    /// Like [`shut`](Self::shut), but from any thread; away from the connection's core it sends a message there.
    pub(super) fn shut_anywhere(&self) {
        let conn = self.conn;
        let shut = move |ctx: &core_context::CoreContext| {
            // A connection that is over needs no shutdown.
            let _ = ctx.on_stack(|stack, now| stack.shutdown_write(now, conn));
        };
        if core_context::with_own(self.owner, shut).is_none() {
            self.owner.send_job(shut);
        }
    }

    /// Sends small writes at once instead of gathering them (turns Nagle's algorithm off).
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.on_stack(|stack, _, conn| stack.set_nodelay(conn, on))
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.on_stack(|stack, _, conn| stack.peer_addr(conn))
    }

    /// Returns this end's address.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.on_stack(|stack, _, conn| stack.local_addr(conn))
    }

    pub(super) fn on_stack<R>(
        &self,
        call: impl FnOnce(&mut Stack, Instant, ConnId) -> Result<R, Error>,
    ) -> io::Result<R> {
        on_stack(self.owner, |stack, now| call(stack, now, self.conn))
    }

    #[inline]
    fn poll_on_stack<R>(
        &self,
        cx: &mut Context<'_>,
        side: Side,
        wait: fn(&mut Stack, Instant, ConnId, Token),
        call: impl FnOnce(&mut Stack, Instant, ConnId) -> Result<R, Error>,
    ) -> Poll<io::Result<R>> {
        let conn = self.conn;
        let wait = |stack: &mut Stack, now, token| wait(stack, now, conn, token);
        poll_on_stack(self.owner, cx, side, wait, |stack, now| {
            call(stack, now, conn)
        })
    }

    /// Returns the stream itself, for code shared with the halves, which calls the same method.
    #[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio-io"))]
    pub(super) fn stream(&self) -> &TcpStream {
        self
    }

    fn reader(&self) -> Side {
        Side::Read(self.conn.index)
    }

    fn writer(&self) -> Side {
        Side::Write(self.conn.index)
    }

    /// Hands received bytes, up to `most`, to a closure as they lie in their buffers; returns how many, 0 when the peer has
    /// shut down, or at once when none are wanted.
    #[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
    #[inline]
    pub(super) fn poll_read_each(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        if most == 0 {
            return Poll::Ready(Ok(0));
        }
        self.poll_on_stack(cx, self.reader(), wait_read, |stack, now, conn| {
            stack.read_each(now, conn, most, take)
        })
    }

    /// Polls for the next piece, as [`TcpStream::recv`] does.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<RecvBuf>>> {
        Pin::new(&mut self.recv()).poll(cx)
    }

    /// Polls for bytes to copy, as [`TcpStream::peek`] does.
    pub fn poll_peek(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_on_stack(cx, self.reader(), wait_read, |stack, _, conn| {
            stack.peek(conn, into)
        })
    }

    #[inline]
    pub(super) fn poll_write_some(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_on_stack(cx, self.writer(), wait_write, |stack, now, conn| {
            stack.write(now, conn, bytes)
        })
    }

    #[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
    pub(super) fn poll_write_slices(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_on_stack(cx, self.writer(), wait_write, |stack, now, conn| {
            write_slices(stack, now, conn, slices)
        })
    }
}

/// Returns the unspecified address of the remote's family, with port 0.
fn any_of(remote: SocketAddr) -> SocketAddr {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}

/// Writes one slice after the other, as far as there is room.
fn write_slices(
    stack: &mut Stack,
    now: Instant,
    conn: ConnId,
    slices: &[IoSlice<'_>],
) -> Result<usize, Error> {
    let slices = slices.iter().map(|slice| &**slice);
    one_after_the_other(slices, |slice| stack.write(now, conn, slice))
}

/// Calls `each` on each non-empty slice and adds up what it returns, until it does less than a whole slice; an error counts
/// only where nothing was done before.
fn one_after_the_other<S: Deref<Target = [u8]>>(
    slices: impl Iterator<Item = S>,
    mut each: impl FnMut(S) -> Result<usize, Error>,
) -> Result<usize, Error> {
    let mut done = 0;
    for slice in slices.filter(|slice| !slice.is_empty()) {
        let len = slice.len();
        match each(slice) {
            Ok(taken) => {
                done += taken;
                if taken < len {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn wait_read(stack: &mut Stack, _: Instant, conn: ConnId, who: Token) {
    stack.wait_read(conn, Some(who));
}

fn wait_write(stack: &mut Stack, now: Instant, conn: ConnId, who: Token) {
    stack.wait_write(now, conn, Some(who));
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let conn = self.conn;
        if core_context::with_own(self.owner, |ctx| ctx.close(conn)).is_none() {
            self.owner.send_close(conn);
        }
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpStream({:?}, {:?})", self.owner, self.conn)
    }
}

/// See [`TcpStream::connect`].
#[must_use = "futures do nothing unless awaited"]
pub struct Connect(Opening);

type Named = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

enum Opening {
    /// `None` once the result has been taken.
    Begun(Option<io::Result<TcpStream>>),
    /// Boxed, as a lookup is rare and its future large.
    Named(Box<Named>),
}

impl Connect {
    fn boxed(future: impl Future<Output = io::Result<TcpStream>> + Send + 'static) -> Connect {
        Connect(Opening::Named(Box::new(Box::pin(future))))
    }
}

/// Tries one address after the other; returns the error of the last.
async fn connect_in_turn(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut last = None;
    for remote in addresses {
        match TcpStream::connect(remote).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(resolver::no_address))
}

impl Future for Connect {
    type Output = io::Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let opening = match &mut self.0 {
            Opening::Begun(opening) => opening,
            Opening::Named(named) => return named.as_mut().as_mut().poll(cx),
        };
        let stream = match opening.take() {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => return Poll::Ready(Err(error)),
            None => return Poll::Ready(Err(io_error(Error::NotConnected))),
        };
        let side = stream.reader();
        let connected = stream.poll_on_stack(cx, side, wait_read, |stack, _, conn| {
            match stack.is_connected(conn) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Error::WouldBlock),
                Err(error) => Err(error),
            }
        });
        match connected {
            Poll::Pending => {
                *opening = Some(Ok(stream));
                Poll::Pending
            }
            Poll::Ready(result) => Poll::Ready(result.map(|()| stream)),
        }
    }
}

/// See [`TcpStream::read`].
#[must_use = "futures do nothing unless awaited"]
pub struct Read<'a> {
    stream: &'a TcpStream,
    into: &'a mut [u8],
}

impl Future for Read<'_> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Read { stream, into } = &mut *self;
        stream.poll_on_stack(cx, stream.reader(), wait_read, |stack, now, conn| {
            stack.read(now, conn, into)
        })
    }
}

/// See [`TcpStream::peek`].
#[must_use = "futures do nothing unless awaited"]
pub struct Peek<'a> {
    stream: &'a TcpStream,
    into: &'a mut [u8],
}

impl Future for Peek<'_> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Peek { stream, into } = &mut *self;
        stream.poll_peek(cx, into)
    }
}

/// See [`TcpStream::recv`].
#[must_use = "futures do nothing unless awaited"]
pub struct Recv<'a> {
    stream: &'a TcpStream,
}

impl Future for Recv<'_> {
    type Output = io::Result<Option<RecvBuf>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let received =
            self.stream
                .poll_on_stack(cx, self.stream.reader(), wait_read, |stack, now, conn| {
                    stack.recv(now, conn)
                });
        received.map_ok(|piece| piece.map(RecvBuf::new))
    }
}

/// See [`TcpStream::write`].
#[must_use = "futures do nothing unless awaited"]
pub struct Write<'a> {
    stream: &'a TcpStream,
    bytes: &'a [u8],
}

impl Future for Write<'_> {
    type Output = io::Result<usize>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Write { stream, bytes } = *self;
        stream.poll_write_some(cx, bytes)
    }
}

/// See [`TcpStream::write_all`]. Written out because a task is as large as the largest future it awaits: as an `async fn` this
/// is three times the size.
#[must_use = "futures do nothing unless awaited"]
pub struct WriteAll<'a> {
    stream: &'a TcpStream,
    bytes: &'a [u8],
}

impl Future for WriteAll<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while !self.bytes.is_empty() {
            match Pin::new(&mut self.stream.write(self.bytes)).poll(cx) {
                Poll::Ready(Ok(n)) => self.bytes = &self.bytes[n..],
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}
