//! Socket options of streams and listeners: all of them as one [`SocketOptions`], the common ones by name, and
//! [`Info`], a look at a connection. What each does is the engine's.

use std::io;
use std::time::Duration;

use janus_tcp::{Info, SocketOptions, Uto};

use super::listener::TcpListener;
use super::stream::TcpStream;

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

    /// With a time of zero, dropping the stream resets the connection. `None`: what was written is still delivered.
    /// Other times are refused: nothing waits here for a connection that was let go.
    pub fn set_linger(&self, time: Option<Duration>) -> io::Result<()> {
        if time.is_some_and(|time| !time.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "only a linger time of zero, or none: to wait for the peer, shut down and read to the end",
            ));
        }
        self.change(|options| options.reset_on_close = time.is_some())
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

    /// Shows a connection only when its first data is there, or after about this time.
    pub fn set_defer_accept(&self, time: Option<Duration>) -> io::Result<()> {
        self.on_stack(|stack, id| stack.set_defer_accept(id, time))
    }
}
