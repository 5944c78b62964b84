//! Socket options of streams and listeners: all of them as one [`SocketOptions`], the common ones by name, and [`Info`], a
//! snapshot of a connection. The engine carries them out.

use std::io;
use std::time::Duration;

use janus_tcp::{Info, SocketOptions, Uto};

use super::listener::TcpListener;
use super::stream::TcpStream;

/// Time to live of connections whose options set none.
const TTL: u8 = 64;

impl TcpStream {
    /// Returns all of the connection's options.
    ///
    /// # Errors
    /// An error of kind [`Other`](io::ErrorKind::Other) on another core than the stream's.
    pub fn options(&self) -> io::Result<SocketOptions> {
        self.on_stack(|stack, _, conn| stack.options(conn))
    }

    /// Changes the connection's options. Connections with equal options share one copy; a core holds 255 different
    /// sets at a time.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a value that means nothing, [`OutOfMemory`](io::ErrorKind::OutOfMemory) when the core
    /// holds 255 different sets of options; else those of [`options`](Self::options).
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

    /// Probes the peer when nothing has arrived from it for `idle`; `None`, the default, turns probing off.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        self.change(|options| {
            options.keepalive = idle.is_some();
            options.keepalive_idle = idle.unwrap_or(SocketOptions::default().keepalive_idle);
        })
    }

    /// Ends the connection when data stays unacknowledged for `time`. `None`: when the retransmissions are used up.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_user_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.change(|options| options.user_timeout = time)
    }

    /// Tells the peer this end's user timeout, and honors the peer's (RFC 5482). On a listener's connections, and with the
    /// configured default, this begins with the handshake.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_uto(&self, uto: Uto) -> io::Result<()> {
        self.change(|options| options.uto = uto)
    }

    /// Ends the connection when nothing arrives for `time`.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_idle_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.change(|options| options.idle_timeout = time)
    }

    /// Wakes the task that waits to read when nothing has arrived for `silence`, again after each further eighth of it, and at
    /// least once in each such time whatever arrived. The task finds nothing to read and looks at its own clock: a bound on
    /// waiting that puts no timer on the connection.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_wake_reader(&self, silence: Option<Duration>) -> io::Result<()> {
        self.on_stack(|stack, now, conn| stack.set_wake_reader(now, conn, silence))
    }

    /// Resets the connection when the stream is dropped, if `time` is zero. `None`: written data is still delivered. Other
    /// times are refused: a drop never waits.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a time that is not zero; else those of [`set_options`](Self::set_options).
    pub fn set_linger(&self, time: Option<Duration>) -> io::Result<()> {
        let resets = resets(time)?;
        self.change(|options| options.reset_on_close = resets)
    }

    /// Like [`set_linger`](TcpStream::set_linger) with a time of zero: dropping the stream resets the connection.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.change(|options| options.reset_on_close = true)
    }

    /// Returns a time of zero when dropping the stream resets the connection, else `None`.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        let options = self.options()?;
        Ok(options.reset_on_close.then_some(Duration::ZERO))
    }

    /// Returns whether small writes are sent at once.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options()?.nodelay)
    }

    /// Acknowledges all data at once, from now on; unlike Linux's option of that name, it stays set.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_quickack(&self, on: bool) -> io::Result<()> {
        self.change(|options| options.quick_ack = on)
    }

    /// Returns whether all data is acknowledged at once.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(self.options()?.quick_ack)
    }

    /// Returns how long the peer may be silent before it is probed; `None`: it is not probed.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        let options = self.options()?;
        Ok(options.keepalive.then_some(options.keepalive_idle))
    }

    /// Sets how many bytes may be written ahead; a size that is set is not tuned. `None`: as configured.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_send_buffer_size(&self, bytes: Option<u32>) -> io::Result<()> {
        self.change(|options| options.send_buffer = bytes)
    }

    /// Sets how many bytes may be received ahead; a size that is set is not tuned. `None`: as configured.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_recv_buffer_size(&self, bytes: Option<u32>) -> io::Result<()> {
        self.change(|options| options.receive_buffer = bytes)
    }

    /// Returns the time to live, or hop limit, of the connection's packets.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn ttl(&self) -> io::Result<u8> {
        Ok(self.options()?.ttl.unwrap_or(TTL))
    }

    /// Sets the time to live, or hop limit, of the connection's packets.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_ttl(&self, hops: u8) -> io::Result<()> {
        self.change(|options| options.ttl = Some(hops))
    }

    /// Returns a snapshot of the connection.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn info(&self) -> io::Result<Info> {
        self.on_stack(|stack, _, conn| stack.info(conn))
    }
}

impl TcpListener {
    /// Sets the options that accepted connections begin with.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a value that means nothing, [`OutOfMemory`](io::ErrorKind::OutOfMemory) when the core
    /// holds 255 different sets of options; else those of [`options`](Self::options).
    pub fn set_options(&self, options: &SocketOptions) -> io::Result<()> {
        self.on_stack(|stack, id| stack.set_listener_options(id, options))
    }

    /// Returns the options that accepted connections begin with.
    ///
    /// # Errors
    /// An error of kind [`Other`](io::ErrorKind::Other) on another core than the listener's.
    pub fn options(&self) -> io::Result<SocketOptions> {
        self.on_stack(|stack, id| stack.listener_options(id))
    }

    /// Sets the time to live, or hop limit, that accepted connections begin with.
    ///
    /// # Errors
    /// Those of [`set_options`](Self::set_options).
    pub fn set_ttl(&self, hops: u8) -> io::Result<()> {
        self.on_stack(|stack, id| {
            let options = stack.listener_options(id)?;
            let ttl = Some(hops);
            stack.set_listener_options(id, &SocketOptions { ttl, ..options })
        })
    }

    /// Returns the time to live, or hop limit, that accepted connections begin with.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn ttl(&self) -> io::Result<u8> {
        Ok(self.options()?.ttl.unwrap_or(TTL))
    }

    /// Sets how many connections this core's accept queue holds; those already in it stay.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn set_backlog(&self, backlog: usize) -> io::Result<()> {
        self.on_stack(|stack, id| stack.set_backlog(id, backlog))
    }

    /// Returns how many connections this core's accept queue holds.
    ///
    /// # Errors
    /// An error of kind [`Other`](io::ErrorKind::Other) on another core than the listener's.
    pub fn backlog(&self) -> io::Result<usize> {
        self.on_stack(|stack, id| Ok(stack.backlog(id)))
    }

    /// Lets `accept` return a connection only when its first data has arrived, or after about `time`.
    ///
    /// # Errors
    /// Those of [`options`](Self::options).
    pub fn set_defer_accept(&self, time: Option<Duration>) -> io::Result<()> {
        self.on_stack(|stack, id| stack.set_defer_accept(id, time))
    }
}

/// Returns whether a linger time means that a drop resets the connection.
pub(super) fn resets(time: Option<Duration>) -> io::Result<bool> {
    if time.is_some_and(|time| !time.is_zero()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "only a linger time of zero, or none: to wait for the peer, shut down and read to the end",
        ));
    }
    Ok(time.is_some())
}
