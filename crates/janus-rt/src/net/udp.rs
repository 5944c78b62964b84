//! UDP sockets of one core, over the engine's. The port belongs to the core that bound it first, whichever core the device
//! delivers its packets to.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use janus_tcp::{Datagram, Error, Instant, Stack, Token, UdpId};

use super::address::ToAddress;
use super::{Interest, Ready, foreign_core, io_error, on_stack, poll_on_stack, resolver};
use crate::inbox::Owner;
use crate::shard::Side;
use crate::shard::core_context::{self, CoreContext};
use crate::task::coop;

/// A UDP socket. Its calls take `&self`; of two tasks that wait for the same event, the one that polled last is woken. A call
/// on another core returns an error, and a drop there closes the socket.
///
/// Datagrams that arrive while 256 of them, or 256 KiB, wait unread are dropped, as on any host.
///
/// ```
/// use janus::net::UdpSocket;
/// use janus::{BackendChoice, Runtime, wire};
///
/// let (near, far) = wire::pair(wire::Config::default())?;
/// let host = |address: &str, end| {
///     let builder = Runtime::builder().ignore_environment().cores(1);
///     builder.address(address.parse().unwrap()).backend(BackendChoice::wire(end)).build()
/// };
/// let (server, client) = (host("192.0.2.1/24", near)?, host("192.0.2.2/24", far)?);
/// let handle = server.handle();
/// let serving = std::thread::spawn(move || {
///     server.run(|| async {
///         let socket = UdpSocket::bind("0.0.0.0:53").await?;
///         let mut question = [0; 512];
///         loop {
///             let (len, from) = socket.recv_from(&mut question).await?;
///             socket.send_to(&question[..len], from).await?;
///         }
///         # #[allow(unreachable_code)]
///         # Ok::<(), std::io::Error>(())
///     })
///     # .map_err(|error| error.to_string())
/// });
/// client.run(|| async {
///     let socket = UdpSocket::bind("0.0.0.0:0").await?;
///     socket.connect("192.0.2.1:53").await?;
///     let mut echoed = [0; 5];
///     loop {
///         socket.send(b"hello").await?; // again, where the server has not begun
///         let answer = socket.recv(&mut echoed);
///         match janus::time::timeout(janus::time::Duration::from_millis(100), answer).await {
///             Ok(Ok(len)) => break assert_eq!(&echoed[..len], b"hello"),
///             Ok(Err(_)) | Err(_) => {}
///         }
///     }
///     Ok::<(), std::io::Error>(())
/// })?;
/// handle.stop();
/// serving.join().unwrap()?;
/// # Ok::<(), janus::BoxError>(())
/// ```
pub struct UdpSocket {
    owner: Owner,
    id: UdpId,
    local: SocketAddr,
}

impl UdpSocket {
    /// Opens a socket at `address`; port 0 takes a free port that cannot be predicted. `[::]` takes both families.
    ///
    /// # Errors
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) when another socket or another core has the port,
    /// [`Unsupported`](io::ErrorKind::Unsupported) behind the portal, which carries TCP only.
    ///
    /// # Cancel safety
    /// No socket is left when the future is dropped.
    pub async fn bind(address: impl ToAddress) -> io::Result<UdpSocket> {
        let mut last = None;
        for address in resolver::addresses(address.to_target()?).await? {
            match UdpSocket::open(address) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(resolver::no_address))
    }

    /// Limits the socket to datagrams from `peer`; [`send`](UdpSocket::send) sends there. An ICMP error for such a datagram is
    /// returned by the next call.
    ///
    /// # Errors
    /// The lookup's errors for a name, [`Unsupported`](io::ErrorKind::Unsupported) behind the portal, an error of kind
    /// [`Other`](io::ErrorKind::Other) on another core than the socket's; so it is for the other calls.
    ///
    /// # Cancel safety
    /// The socket is connected once the future is ready, and as before when it is dropped.
    pub async fn connect(&self, peer: impl ToAddress) -> io::Result<()> {
        let mut last = None;
        for peer in resolver::addresses(peer.to_target()?).await? {
            match self.connect_to(peer) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(resolver::no_address))
    }

    /// Like [`bind`](UdpSocket::bind), but without names.
    pub(super) fn open(address: SocketAddr) -> io::Result<UdpSocket> {
        core_context::with(|ctx| open(ctx, address)).ok_or_else(core_context::no_core)?
    }

    /// Like [`connect`](UdpSocket::connect), but without names.
    pub(super) fn connect_to(&self, peer: SocketAddr) -> io::Result<()> {
        self.on_stack(|stack, _, id| stack.udp_connect(id, Some(peer)))
    }

    /// Returns the address bound, with the actual port if port 0 was asked for.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// Returns the peer that the socket is connected to.
    ///
    /// # Errors
    /// [`NotConnected`](io::ErrorKind::NotConnected) without a peer; an error of kind [`Other`](io::ErrorKind::Other) on another core than the
    /// socket's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.on_stack(|stack, _, id| stack.udp_peer(id))?;
        peer.ok_or_else(|| io_error(Error::NotConnected))
    }

    /// Sends a datagram to the peer that the socket is connected to.
    ///
    /// # Errors
    /// [`NotConnected`](io::ErrorKind::NotConnected) without a peer, [`InvalidInput`](io::ErrorKind::InvalidInput) for a datagram that is
    /// too long, an ICMP error for an earlier datagram.
    ///
    /// # Cancel safety
    /// No datagram has been sent when the future is dropped before it is ready.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_send(cx, bytes)).await
    }

    /// Sends a datagram to `to`; of several addresses, to the first that it can be sent to.
    ///
    /// # Errors
    /// Those of [`send`](UdpSocket::send), and the lookup's for a name.
    ///
    /// # Cancel safety
    /// No datagram has been sent when the future is dropped before it is ready.
    pub async fn send_to(&self, bytes: &[u8], to: impl ToAddress) -> io::Result<usize> {
        let mut last = None;
        for to in resolver::addresses(to.to_target()?).await? {
            match poll_fn(|cx| self.poll_send_to(cx, bytes, to)).await {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => last = Some(error),
                sent => return sent,
            }
        }
        Err(last.unwrap_or_else(resolver::no_address))
    }

    /// Receives a datagram; the part that does not fit `into` is lost.
    ///
    /// # Errors
    /// An ICMP error for a datagram to the connected peer.
    ///
    /// # Cancel safety
    /// No datagram is lost when the future is dropped.
    pub async fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv_from(into).await?.0)
    }

    /// Like [`recv`](UdpSocket::recv), but also returns the sender's address.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// No datagram is lost when the future is dropped.
    pub async fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, into)).await
    }

    /// Receives a datagram in the packet buffer it arrived in.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// No datagram is lost when the future is dropped.
    pub async fn recv_datagram(&self) -> io::Result<Datagram> {
        poll_fn(|cx| self.poll_recv_datagram(cx)).await
    }

    /// Copies the next datagram without consuming it.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// Nothing is consumed when the future is dropped.
    pub async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.peek_from(into).await?.0)
    }

    /// Like [`peek`](UdpSocket::peek), but also returns the sender's address.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// Like [`peek`](Self::peek).
    pub async fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| {
            self.poll_on_stack(cx, self.reader(), wait_read, |stack, _, id| {
                let datagram = stack.udp_peek(id)?;
                Ok(copy(datagram, into))
            })
        })
        .await
    }

    /// Polls a [`send`](UdpSocket::send).
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_on_stack(cx, self.writer(), wait_write, |stack, now, id| {
            stack.udp_send(now, id, None, bytes)
        })
    }

    /// Polls a [`send_to`](UdpSocket::send_to).
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll_on_stack(cx, self.writer(), wait_write, |stack, now, id| {
            stack.udp_send(now, id, Some(to), bytes)
        })
    }

    /// Polls a [`recv_from`](UdpSocket::recv_from).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.poll_on_stack(cx, self.reader(), wait_read, |stack, _, id| {
            take(stack, id, into)
        })
    }

    /// Polls a [`recv_datagram`](UdpSocket::recv_datagram).
    pub fn poll_recv_datagram(&self, cx: &mut Context<'_>) -> Poll<io::Result<Datagram>> {
        self.poll_on_stack(cx, self.reader(), wait_read, |stack, _, id| {
            stack.udp_receive(id)
        })
    }

    /// Sends to the connected peer; `WouldBlock` when there is no room now.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there is no room; else those of [`send`](Self::send).
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.on_stack(|stack, now, id| stack.udp_send(now, id, None, bytes))
    }

    /// Sends to `to`; `WouldBlock` when there is no room now.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there is no room; else those of [`send`](Self::send).
    pub fn try_send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.on_stack(|stack, now, id| stack.udp_send(now, id, Some(to), bytes))
    }

    /// Receives a datagram that has arrived; `WouldBlock` when there is none.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when no datagram has arrived; else those of [`recv`](Self::recv).
    pub fn try_recv(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.try_recv_from(into)?.0)
    }

    /// Like [`try_recv`](UdpSocket::try_recv), but also returns the sender's address.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when no datagram has arrived; else those of [`recv`](Self::recv).
    pub fn try_recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.on_stack(|stack, _, id| take(stack, id, into))
    }

    /// Waits until a datagram, or an error, can be read.
    ///
    /// # Errors
    /// Those of [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(|_ready| ())
    }

    /// Waits until a datagram can be sent.
    ///
    /// # Errors
    /// Those of [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(|_ready| ())
    }

    /// Waits until the socket is ready for something in `interest`; returns the part it is ready for.
    ///
    /// # Errors
    /// An error of kind [`Other`](io::ErrorKind::Other) on another core than the socket's.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        poll_fn(|cx| self.poll_ready(cx, interest)).await
    }

    /// Returns the error that ICMP reported for a datagram to the connected peer, once.
    ///
    /// # Errors
    /// Those of [`ready`](Self::ready).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let error = self.on_stack(|stack, _, id| stack.udp_take_error(id))?;
        Ok(error.map(io_error))
    }

    /// Polls for [`ready`](UdpSocket::ready).
    pub fn poll_ready(&self, cx: &mut Context<'_>, interest: Interest) -> Poll<io::Result<Ready>> {
        let (reads, writes) = (
            interest.is_readable() || interest.is_error(),
            interest.is_writable(),
        );
        if coop::proceed(cx).is_pending() {
            return Poll::Pending;
        }
        let looked = core_context::with_own(self.owner, |ctx| {
            let mut ready = Ready::EMPTY;
            let id = self.id;
            if reads && ctx.on_stack(|stack, _| stack.udp_is_readable(id))? {
                ready = ready | Ready::READABLE;
            }
            if writes && ctx.on_stack(|stack, _| stack.udp_is_writable(id))? {
                ready = ready | Ready::WRITABLE;
            }
            if ready.is_empty() && reads {
                let token = ctx.token(cx.waker(), self.reader());
                ctx.on_stack(|stack, now| wait_read(stack, now, id, token));
            }
            if ready.is_empty() && writes {
                let token = ctx.token(cx.waker(), self.writer());
                ctx.on_stack(|stack, now| wait_write(stack, now, id, token));
            }
            Ok(ready)
        });
        match looked {
            None => Poll::Ready(Err(foreign_core())),
            Some(Err(error)) => Poll::Ready(Err(io_error(error))),
            Some(Ok(ready)) if ready.is_empty() => Poll::Pending,
            Some(Ok(ready)) => {
                coop::spend();
                Poll::Ready(Ok(ready))
            }
        }
    }

    fn reader(&self) -> Side {
        Side::DatagramIn(self.id.index())
    }

    fn writer(&self) -> Side {
        Side::DatagramOut(self.id.index())
    }

    fn on_stack<R>(
        &self,
        call: impl FnOnce(&mut Stack, Instant, UdpId) -> Result<R, Error>,
    ) -> io::Result<R> {
        on_stack(self.owner, |stack, now| call(stack, now, self.id))
    }

    fn poll_on_stack<R>(
        &self,
        cx: &mut Context<'_>,
        side: Side,
        wait: fn(&mut Stack, Instant, UdpId, Token),
        call: impl FnOnce(&mut Stack, Instant, UdpId) -> Result<R, Error>,
    ) -> Poll<io::Result<R>> {
        let id = self.id;
        let wait = |stack: &mut Stack, now, token| wait(stack, now, id, token);
        poll_on_stack(self.owner, cx, side, wait, |stack, now| {
            call(stack, now, id)
        })
    }
}

fn open(ctx: &CoreContext, address: SocketAddr) -> io::Result<UdpSocket> {
    if ctx.shared.passage.is_some() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the portal carries TCP only: for UDP choose another backend, such as `backend = \"tap\"`",
        ));
    }
    let core = u64::from(ctx.core);
    let draw = || ctx.on_stack(|stack, _| stack.next_random(core));
    let (ip, port) = (address.ip(), address.port());
    let port = ctx
        .shared
        .datagrams
        .claim(ctx.owner, ctx.core, ip, port, draw)?;
    let local = SocketAddr::new(address.ip(), port);
    match ctx.on_stack(|stack, _| stack.udp_bind(local)) {
        Ok(id) => Ok(UdpSocket {
            owner: ctx.owner,
            id,
            local,
        }),
        Err(error) => {
            ctx.shared.datagrams.release(port);
            Err(io_error(error))
        }
    }
}

fn wait_read(stack: &mut Stack, _: Instant, id: UdpId, who: Token) {
    stack.udp_wait_read(id, Some(who));
}

fn wait_write(stack: &mut Stack, _: Instant, id: UdpId, who: Token) {
    stack.udp_wait_write(id, Some(who));
}

fn copy(datagram: &Datagram, into: &mut [u8]) -> (usize, SocketAddr) {
    let bytes = datagram.bytes();
    let count = bytes.len().min(into.len());
    into[..count].copy_from_slice(&bytes[..count]);
    (count, datagram.peer)
}

fn take(stack: &mut Stack, id: UdpId, into: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
    let datagram = stack.udp_receive(id)?;
    let copied = copy(&datagram, into);
    stack.udp_done(datagram);
    Ok(copied)
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let (id, port) = (self.id, self.local.port());
        let close = move |ctx: &CoreContext| {
            ctx.on_stack(|stack, _| stack.udp_close(id));
            let index = id.index();
            for side in [Side::DatagramIn(index), Side::DatagramOut(index)] {
                let forgotten = ctx.waiters.borrow_mut().forget(side);
                drop(forgotten);
            }
            ctx.shared.datagrams.release(port);
        };
        if core_context::with_own(self.owner, close).is_none() {
            self.owner.send_job(close);
        }
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UdpSocket({})", self.local)
    }
}
