//! A socket that is neither a listener nor a connection yet: options and a local address, chosen before the first packet.
//! It is a description only. Nothing is taken from the stack before [`connect`](TcpSocket::connect) or
//! [`listen`](TcpSocket::listen).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use janus_tcp::SocketOptions;

use super::listener::{Opening, TcpListener};
use super::stream::TcpStream;
use crate::shard::core_context;

/// A connection or a listener to be, of one family.
///
/// ```
/// use janus::net::{TcpListener, TcpSocket};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let mut socket = TcpSocket::new_v4()?;
/// socket.set_recv_buffer_size(1 << 20)?;
/// let stream = socket.connect(listener.reachable_at()).await?;
/// assert_eq!(stream.options()?.receive_buffer, Some(1 << 20));
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TcpSocket {
    local: SocketAddr,
    options: SocketOptions,
    reuse_address: bool,
    reuse_port: bool,
}

impl TcpSocket {
    /// Describes a socket for IPv4.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn new_v4() -> io::Result<TcpSocket> {
        Ok(TcpSocket::at(Ipv4Addr::UNSPECIFIED.into()))
    }

    /// Describes a socket for IPv6. Listening on `[::]` takes both families.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn new_v6() -> io::Result<TcpSocket> {
        Ok(TcpSocket::at(Ipv6Addr::UNSPECIFIED.into()))
    }

    fn at(address: IpAddr) -> TcpSocket {
        TcpSocket {
            local: SocketAddr::new(address, 0),
            options: SocketOptions::default(),
            reuse_address: true,
            reuse_port: true,
        }
    }

    /// Chooses the local address; port 0 leaves the port open. Whether it is free is found out by
    /// [`connect`](TcpSocket::connect) and [`listen`](TcpSocket::listen).
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an address of the other family.
    pub fn bind(&mut self, address: SocketAddr) -> io::Result<()> {
        if address.is_ipv4() != self.local.is_ipv4() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{address} is of another family than the socket"),
            ));
        }
        self.local = address;
        Ok(())
    }

    /// Returns the address chosen; unspecified, with port 0, before [`bind`](TcpSocket::bind).
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// Opens a connection to `remote` with these options from the first segment on.
    ///
    /// Without a local port, one is chosen whose packets are steered to this core. With one, its packets may be steered to another core:
    /// that core is asked first, and forwards them while the connection lives.
    ///
    /// # Errors
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) when a connection of these addresses and ports exists on some core, perhaps in TIME-WAIT;
    /// else those of [`TcpStream::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempt.
    pub async fn connect(self, remote: SocketAddr) -> io::Result<TcpStream> {
        if remote.is_ipv4() != self.local.is_ipv4() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{remote} is of another family than the socket"),
            ));
        }
        TcpStream::open(self.local, remote, &self.options).await
    }

    /// Listens with an accept queue of `backlog` connections. Ready when the port serves, as [`TcpListener::bind`] is.
    ///
    /// # Errors
    /// Those of [`TcpListener::bind`].
    ///
    /// # Cancel safety
    /// Dropping the future releases the port.
    pub async fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        let how = Opening {
            backlog: Some(backlog),
            options: Some(self.options),
        };
        TcpListener::bind_as(self.local, how).await
    }

    /// Returns all options.
    pub fn options(&self) -> &SocketOptions {
        &self.options
    }

    /// Returns all options, to be changed.
    pub fn options_mut(&mut self) -> &mut SocketOptions {
        &mut self.options
    }

    /// Kept for programs that set it: an address whose last connection waits in TIME-WAIT can always be bound here.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn set_reuseaddr(&mut self, on: bool) -> io::Result<()> {
        self.reuse_address = on;
        Ok(())
    }

    /// Returns the value given to [`set_reuseaddr`](TcpSocket::set_reuseaddr); true at first.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        Ok(self.reuse_address)
    }

    /// Kept for programs that set it: the cores of a runtime always share a port, a core binds it once.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn set_reuseport(&mut self, on: bool) -> io::Result<()> {
        self.reuse_port = on;
        Ok(())
    }

    /// Returns the value given to [`set_reuseport`](TcpSocket::set_reuseport); true at first.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn reuseport(&self) -> io::Result<bool> {
        Ok(self.reuse_port)
    }

    /// Sends small writes at once (Nagle's algorithm off).
    ///
    /// # Errors
    /// None; a value that means nothing is refused by [`connect`](Self::connect) and [`listen`](Self::listen).
    pub fn set_nodelay(&mut self, on: bool) -> io::Result<()> {
        self.options.nodelay = on;
        Ok(())
    }

    /// Returns whether Nagle's algorithm is off.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options.nodelay)
    }

    /// Turns keep-alive probes of an idle peer on or off.
    ///
    /// # Errors
    /// None; a value that means nothing is refused by [`connect`](Self::connect) and [`listen`](Self::listen).
    pub fn set_keepalive(&mut self, on: bool) -> io::Result<()> {
        self.options.keepalive = on;
        Ok(())
    }

    /// Returns whether an idle peer is probed.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(self.options.keepalive)
    }

    /// Sets how many bytes may be written ahead. A size that is set is not tuned.
    ///
    /// # Errors
    /// None; a value that means nothing is refused by [`connect`](Self::connect) and [`listen`](Self::listen).
    pub fn set_send_buffer_size(&mut self, bytes: u32) -> io::Result<()> {
        self.options.send_buffer = Some(bytes);
        Ok(())
    }

    /// Returns the size that was set, else the configured size.
    ///
    /// # Errors
    /// An error of kind [`Other`](io::ErrorKind::Other) outside a Janus core, where no size was set.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        let configured = || configured(|config| config.send_buffer);
        self.options.send_buffer.map_or_else(configured, Ok)
    }

    /// Sets how many bytes may be received ahead. A size that is set is not tuned.
    ///
    /// # Errors
    /// None; a value that means nothing is refused by [`connect`](Self::connect) and [`listen`](Self::listen).
    pub fn set_recv_buffer_size(&mut self, bytes: u32) -> io::Result<()> {
        self.options.receive_buffer = Some(bytes);
        Ok(())
    }

    /// Returns the size that was set, else the configured size.
    ///
    /// # Errors
    /// An error of kind [`Other`](io::ErrorKind::Other) outside a Janus core, where no size was set.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        let configured = || configured(|config| config.receive_buffer);
        self.options.receive_buffer.map_or_else(configured, Ok)
    }

    /// Resets the connection when the stream is dropped, if `time` is zero; see [`TcpStream::set_linger`].
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a time that is not zero.
    pub fn set_linger(&mut self, time: Option<Duration>) -> io::Result<()> {
        self.options.reset_on_close = super::options::resets(time)?;
        Ok(())
    }

    /// Returns the linger time that was set.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.options.reset_on_close.then_some(Duration::ZERO))
    }

    /// Sets the time to live, or hop limit, of the packets.
    ///
    /// # Errors
    /// None; a value that means nothing is refused by [`connect`](Self::connect) and [`listen`](Self::listen).
    pub fn set_ttl(&mut self, hops: u8) -> io::Result<()> {
        self.options.ttl = Some(hops);
        Ok(())
    }

    /// Sets the type of service, or traffic class, of the packets. Its lower two bits are ECN's and must be zero.
    ///
    /// # Errors
    /// None; a value that means nothing is refused by [`connect`](Self::connect) and [`listen`](Self::listen).
    pub fn set_tos(&mut self, tos: u8) -> io::Result<()> {
        self.options.tos = tos;
        Ok(())
    }

    /// Returns the type of service, or traffic class, that was set.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn tos(&self) -> io::Result<u8> {
        Ok(self.options.tos)
    }
}

fn configured(what: impl FnOnce(&janus_tcp::Config) -> u32) -> io::Result<u32> {
    core_context::with(|ctx| ctx.on_stack(|stack, _| what(stack.config())))
        .ok_or_else(core_context::no_core)
}
