//! Listening: binding through the one table of listeners, then accepting from this core's own accept queue.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use janus_tcp::{Error, ListenerId, SocketOptions, Stack};

use super::address::ToAddress;
use super::stream::TcpStream;
use super::{foreign_core, io_error, on_stack, poll_on_stack, resolver};
use crate::control::hunger::Hunger;
use crate::inbox::Owner;
use crate::shard::Side;
use crate::shard::core_context::{self, CoreContext};

/// A port this core accepts connections on.
///
/// `main` runs on every core, so each core has a listener of its own for the same port, and each accepts its share. When one is
/// dropped, new connections go to the others; the connections in its accept queue are reset.
///
/// ```
/// use janus::net::TcpListener;
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// assert_ne!(listener.local_addr()?.port(), 0);
/// let second = TcpListener::bind(listener.local_addr()?).await;
/// assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
pub struct TcpListener {
    owner: Owner,
    id: ListenerId,
    local: SocketAddr,
    /// Where this core says that a task waits in `accept`.
    hunger: Arc<Hunger>,
}

impl TcpListener {
    /// Binds `address` on this core and waits until the port serves: until every core has bound it, or has waited for something
    /// else instead. A core that binds later waits until it has its share of new connections; existing connections stay on
    /// their cores.
    ///
    /// Port 0 takes a free port, and the mains of all cores that bind port 0 before it serves share that one; a bind after that
    /// takes another. [`local_addr`](TcpListener::local_addr) returns it.
    ///
    /// # Errors
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) when the port is taken, [`AddrNotAvailable`](io::ErrorKind::AddrNotAvailable) behind the
    /// portal for an address that the portal cannot offer, [`ConnectionAborted`](io::ErrorKind::ConnectionAborted) while the runtime shuts
    /// down, the lookup's errors for a name; of several addresses, the last one's error. An error of kind [`Other`](io::ErrorKind::Other)
    /// outside a Janus core.
    ///
    /// # Cancel safety
    /// Dropping the future releases the port.
    pub async fn bind(address: impl ToAddress) -> io::Result<TcpListener> {
        let mut last = None;
        for address in resolver::addresses(address.to_target()?).await? {
            match TcpListener::bind_as(address, Opening::default()).await {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(resolver::no_address))
    }

    pub(super) async fn bind_as(address: SocketAddr, how: Opening) -> io::Result<TcpListener> {
        let listener = core_context::with(|ctx| open(ctx, address, &how))
            .ok_or_else(core_context::no_core)??;
        Serving {
            listener: &listener,
        }
        .await?;
        Ok(listener)
    }

    /// Waits for the next connection and returns it with the peer's address.
    ///
    /// ```
    /// use janus::net::{TcpListener, TcpStream};
    ///
    /// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = janus::spawn(TcpStream::connect(listener.reachable_at()));
    /// let (stream, _peer) = listener.accept().await?;
    /// stream.write_all(b"welcome").await?;
    ///
    /// let client = client.await??;
    /// let mut greeting = [0; 7];
    /// client.read_exact(&mut greeting).await?;
    /// assert_eq!(&greeting, b"welcome");
    /// # Ok::<(), janus::BoxError>(())
    /// # })?;
    /// # Ok::<(), janus::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// An error of kind [`Other`](io::ErrorKind::Other) on another core than the listener's.
    ///
    /// # Cancel safety
    /// No connection is lost when the future is dropped: it stays in the accept queue.
    pub fn accept(&self) -> Accept<'_> {
        Accept {
            listener: self,
            waits: false,
        }
    }

    /// Returns the address bound, with the actual port if port 0 was asked for.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// Returns the address at which an outside client reaches this listener: behind the portal an address of this machine (the
    /// port + 8000 where this process may not bind the port), else the interface's address.
    pub fn reachable_at(&self) -> SocketAddr {
        let at = core_context::with_own(self.owner, |ctx| ctx.reachable_at(self.local));
        at.unwrap_or(self.local)
    }

    pub(super) fn on_stack<R>(
        &self,
        call: impl FnOnce(&mut Stack, ListenerId) -> Result<R, Error>,
    ) -> io::Result<R> {
        on_stack(self.owner, |stack, _| call(stack, self.id))
    }

    /// Polls for the next connection, as [`accept`](TcpListener::accept) does.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let side = Side::Accept(u32::from(self.local.port()));
        let port = self.local.port();
        let wait = |stack: &mut Stack, _, token| {
            self.hunger.set(port, true);
            stack.wait_accept(self.id, Some(token));
        };
        let accepted = poll_on_stack(self.owner, cx, side, wait, |stack, now| {
            let accepted = stack.accept_at(now, self.id);
            self.hunger.set(port, false);
            accepted
        });
        accepted.map_ok(|(conn, peer)| {
            if self.hunger.is_timing() {
                core_context::with_own(self.owner, |ctx| ctx.accepted(conn));
            }
            (TcpStream::new(self.owner, conn), peer)
        })
    }
}

/// Settings a listener is opened with, besides its address.
#[derive(Default)]
pub(super) struct Opening {
    /// Accept queue's length; `None`: as configured.
    pub(super) backlog: Option<usize>,
    /// Options that accepted connections begin with; `None`: the defaults.
    pub(super) options: Option<SocketOptions>,
}

/// Returns whether the portal can offer a port that is bound on `ip`: the unspecified addresses, 127.0.0.1 or ::1.
fn offered(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST
}

fn open(ctx: &CoreContext, address: SocketAddr, how: &Opening) -> io::Result<TcpListener> {
    if !ctx.shared.ending.is_open() {
        let text = "the runtime is shutting down: it takes no new connections";
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, text));
    }
    if ctx.shared.passage.is_some() && !offered(address.ip()) {
        let text = format!(
            "behind the portal nobody finds a listener on {}: bind 127.0.0.1, ::1, or 0.0.0.0; addresses of our own come with \
             another `backend`",
            address.ip()
        );
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
    }
    let port = ctx.shared.control.bind(ctx.core, address)?;
    let local = SocketAddr::new(address.ip(), port);
    // Listening before the port serves is safe: until then a SYN reaches only a shard that every later set of listeners that
    // includes this one would choose too.
    let backlog = ctx.shared.settings.get().backlog;
    let listening = ctx.on_stack(|stack, now| {
        let id = stack.listen(local, how.backlog.unwrap_or(backlog))?;
        if let Some(options) = &how.options
            && let Err(error) = stack.set_listener_options(id, options)
        {
            stack.unlisten(now, id);
            return Err(error);
        }
        Ok(id)
    });
    match listening {
        Ok(id) => Ok(TcpListener {
            owner: ctx.owner,
            id,
            local,
            hunger: ctx.shared.mailbox.board(ctx.core).hunger.clone(),
        }),
        Err(error) => {
            ctx.shared.control.release(ctx.core, port);
            Err(io_error(error))
        }
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let (id, port) = (self.id, self.local.port());
        if core_context::with_own(self.owner, |ctx| ctx.unlisten(id, port)).is_none() {
            self.owner.send_job(move |ctx| ctx.unlisten(id, port));
        }
    }
}

/// Waits until a bound port serves.
struct Serving<'a> {
    listener: &'a TcpListener,
}

impl Future for Serving<'_> {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let listener = self.listener;
        let waited = core_context::with_own(listener.owner, |ctx| {
            let from_main = ctx.in_main.get();
            let port = listener.local.port();
            let serving = ctx
                .shared
                .control
                .poll_serving(ctx.core, port, from_main, cx.waker());
            if serving.is_pending() && from_main {
                ctx.main_in_bind.set(true);
            }
            serving
        });
        waited.map_or(Poll::Ready(Err(foreign_core())), |serving| serving.map(Ok))
    }
}

/// See [`TcpListener::accept`].
#[must_use = "futures do nothing unless awaited"]
pub struct Accept<'a> {
    listener: &'a TcpListener,
    waits: bool,
}

impl Future for Accept<'_> {
    type Output = io::Result<(TcpStream, SocketAddr)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let accepted = self.listener.poll_accept(cx);
        self.waits = accepted.is_pending();
        accepted
    }
}

impl Drop for Accept<'_> {
    fn drop(&mut self) {
        if self.waits {
            // Connections of other cores are not for a task that has turned away.
            self.listener.hunger.set(self.listener.local.port(), false);
        }
    }
}
