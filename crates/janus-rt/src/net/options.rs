//! Socket options of streams and listeners: all of them as one [`SocketOptions`], the common ones by name, and
//! [`Info`], a look at a connection. What each does is the engine's.

use std::io;
use std::time::Duration;

use janus_tcp::{Info, SocketOptions, Uto};

use super::listener::TcpListener;
use super::stream::TcpStream;

/// Of those who wish nothing.
const TTL: u8 = 64;

impl TcpStream {
    /// All of the connection's options.
    pub fn options(&self) -> io::Result<SocketOptions> {
        self.on_stack(|stack, _, conn| stack.options(conn))
    }

    /// Changes the connection's options. Connections with equal options share one copy; a core holds 255 different
    /// sets at a time.
    pub fn set_options(&self, options: &SocketOptions) -> io::Result<()> {
        self.on_stack(|stack, now, conn| stack.set_options(now, conn, options))
    }

    fn change(&self, change: impl FnOnce(&mut SocketOptions)) -> io::Result<()> {
        self.on_stack(|stack, now, conn| {
            let mut options = stack.options(conn)?;
            change(&mut options);
            stack.set_options(now, conn, &options)
        })
    }

    /// Asks the peer whether it is there when nothing came from it for `idle`; `None` switches that off, as it is by
    /// default.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        self.change(|options| {
            options.keepalive = idle.is_some();
            options.keepalive_idle = idle.unwrap_or(SocketOptions::default().keepalive_idle);
        })
    }

    /// Ends the connection when data stays unacknowledged for so long. `None`: when the retransmissions are used up.
    pub fn set_user_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.change(|options| options.user_timeout = time)
    }

    /// Tells the peer how long this end waits when the connection gets nowhere, and heeds what it says (RFC 5482).
    /// On a listener's connections, and with the configured default, it begins with the handshake.
    pub fn set_uto(&self, uto: Uto) -> io::Result<()> {
        self.change(|options| options.uto = uto)
    }

    /// Ends the connection when nothing comes for so long.
    pub fn set_idle_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.change(|options| options.idle_timeout = time)
    }

    /// Wakes the task that waits to read when nothing came for so long, again after each further eighth of that, and at least
    /// once in each such time whatever came. It finds nothing to read and looks at its own clock: a bound on waiting that puts no
    /// timer on the connection.
    pub fn set_wake_reader(&self, silence: Option<Duration>) -> io::Result<()> {
        self.change(|options| options.wake_reader = silence)
    }

    /// With a time of zero, dropping the stream resets the connection. `None`: what was written is still delivered.
    /// Other times are refused: nothing waits here for a connection that was let go.
    pub fn set_linger(&self, time: Option<Duration>) -> io::Result<()> {
        let resets = resets(time)?;
        self.change(|options| options.reset_on_close = resets)
    }

    /// [`set_linger`](TcpStream::set_linger) with a time of zero: dropping the stream resets the connection.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.change(|options| options.reset_on_close = true)
    }

    /// A time of zero when dropping the stream resets the connection.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        let options = self.options()?;
        Ok(options.reset_on_close.then_some(Duration::ZERO))
    }

    /// Whether small writes are sent at once.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options()?.nodelay)
    }

    /// Acknowledges all data at once, from now on; unlike Linux's option of that name it stays set.
    pub fn set_quickack(&self, on: bool) -> io::Result<()> {
        self.change(|options| options.quick_ack = on)
    }

    /// Whether all data is acknowledged at once.
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(self.options()?.quick_ack)
    }

    /// How long the peer may be silent before it is asked whether it is there; `None`: it is not asked.
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        let options = self.options()?;
        Ok(options.keepalive.then_some(options.keepalive_idle))
    }

    /// Bytes that may be written ahead; the size is kept, nothing tunes it. `None`: as configured.
    pub fn set_send_buffer_size(&self, bytes: Option<u32>) -> io::Result<()> {
        self.change(|options| options.send_buffer = bytes)
    }

    /// Bytes that may be received ahead; the size is kept, nothing tunes it. `None`: as configured.
    pub fn set_recv_buffer_size(&self, bytes: Option<u32>) -> io::Result<()> {
        self.change(|options| options.receive_buffer = bytes)
    }

    /// The time to live, or hop limit, of the connection's packets.
    pub fn ttl(&self) -> io::Result<u8> {
        Ok(self.options()?.ttl.unwrap_or(TTL))
    }

    /// The time to live, or hop limit, of the connection's packets.
    pub fn set_ttl(&self, hops: u8) -> io::Result<()> {
        self.change(|options| options.ttl = Some(hops))
    }

    /// A look at the connection.
    pub fn info(&self) -> io::Result<Info> {
        self.on_stack(|stack, _, conn| stack.info(conn))
    }
}

impl TcpListener {
    /// The options that accepted connections begin with.
    pub fn set_options(&self, options: &SocketOptions) -> io::Result<()> {
        self.on_stack(|stack, id| stack.set_listener_options(id, options))
    }

    /// The options that accepted connections begin with.
    pub fn options(&self) -> io::Result<SocketOptions> {
        self.on_stack(|stack, id| stack.listener_options(id))
    }

    /// The time to live, or hop limit, that accepted connections begin with.
    pub fn set_ttl(&self, hops: u8) -> io::Result<()> {
        self.on_stack(|stack, id| {
            let options = stack.listener_options(id)?;
            let ttl = Some(hops);
            stack.set_listener_options(id, &SocketOptions { ttl, ..options })
        })
    }

    /// The time to live, or hop limit, that accepted connections begin with.
    pub fn ttl(&self) -> io::Result<u8> {
        Ok(self.options()?.ttl.unwrap_or(TTL))
    }

    /// How many connections may wait to be accepted on this core; those that wait stay.
    pub fn set_backlog(&self, backlog: usize) -> io::Result<()> {
        self.on_stack(|stack, id| stack.set_backlog(id, backlog))
    }

    /// How many connections may wait to be accepted on this core.
    pub fn backlog(&self) -> io::Result<usize> {
        self.on_stack(|stack, id| Ok(stack.backlog(id)))
    }

    /// Shows a connection only when its first data is there, or after about this time.
    pub fn set_defer_accept(&self, time: Option<Duration>) -> io::Result<()> {
        self.on_stack(|stack, id| stack.set_defer_accept(id, time))
    }
}

/// Whether a linger time means that dropping resets.
pub(super) fn resets(time: Option<Duration>) -> io::Result<bool> {
    if time.is_some_and(|time| !time.is_zero()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "only a linger time of zero, or none: to wait for the peer, shut down and read to the end",
        ));
    }
    Ok(time.is_some())
}
