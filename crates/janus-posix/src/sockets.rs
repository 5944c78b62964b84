//! The life of a socket: socket, bind, listen, accept, connect, shutdown, close, and its names. Each call answers what Linux
//! answers in that state; where the kernel's source decides rather than POSIX, the comment names the function.
//! Bytes are in `transfer`, options in `options`, readiness in `poll`.

use core::time::Duration;
use janus_tcp::{ConnId, Instant, Stack, State as TcpState};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::abi;
use crate::epoll::Items;
use crate::errno::Errno;
use crate::family::Family;
use crate::port_index::{Place, PortIndex};
use crate::ports;
use crate::shared::SharedOptions;
use crate::table::{Entry, Linger, Socket, SocketOptions, State, Table, slot_of};
use crate::watch::{ALL, stage};

#[cfg(test)]
pub(crate) mod tests;

type Result<T> = std::result::Result<T, Errno>;

/// Everything a process has open, and what its sockets have in common. The stack is somebody else's: [`Files::over`] brings both together.
#[derive(Default)]
pub struct Files {
    pub(crate) table: Table,
    pub(crate) items: Items,
    /// Slots that were waited for and on which something happened.
    pub(crate) woken: VecDeque<u32>,
    pub(crate) shared: SharedOptions,
    pub(crate) taken: PortIndex,
    /// Options that every new socket begins with.
    defaults: SocketOptions,
}

impl Files {
    /// The process's sockets over `stack`, which is the same at each call. Its secrets decide the order of ephemeral ports.
    #[inline]
    pub fn over<'a>(&'a mut self, stack: &'a mut Stack) -> Sockets<'a> {
        Sockets { stack, files: self }
    }

    /// Sets the options that every socket made from now on begins with.
    pub fn set_default_options(&mut self, options: janus_tcp::SocketOptions) {
        self.defaults.tcp = options;
    }

    /// Whether nothing is left of what closed sockets had here.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.table.open().next().is_none()
    }
}

/// A process's sockets over one stack, for a call or some.
pub struct Sockets<'a> {
    pub(crate) stack: &'a mut Stack,
    pub(crate) files: &'a mut Files,
}

impl Sockets<'_> {
    /// The stack underneath.
    pub fn stack(&self) -> &Stack {
        self.stack
    }

    /// The stack underneath: frames in and out, timers.
    pub fn stack_mut(&mut self) -> &mut Stack {
        self.stack
    }

    /// `socket(2)`: TCP over IPv4, or over both families.
    pub fn socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Result<i32> {
        let flags = abi::SOCK_NONBLOCK | abi::SOCK_CLOEXEC;
        // The order of __sys_socket and inet_create.
        if kind & !0xf & !flags != 0 {
            return Err(Errno::EINVAL);
        }
        let family = match domain {
            abi::AF_INET => Family::default(),
            abi::AF_INET6 => Family {
                v6: true,
                v6_only: false,
            },
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        match kind & 0xf {
            abi::SOCK_STREAM => {}
            0 | 11.. => return Err(Errno::EINVAL),
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        }
        if protocol != 0 && protocol != abi::IPPROTO_TCP {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let options = self.files.shared.share(&self.files.defaults);
        let mut socket = Socket::new(State::Idle, family, options);
        socket.nonblocking = kind & abi::SOCK_NONBLOCK != 0;
        socket.close_on_exec = kind & abi::SOCK_CLOEXEC != 0;
        self.files.table.insert(Entry::Socket(socket))
    }

    /// `bind(2)`.
    pub fn bind(&mut self, fd: i32, address: SocketAddr) -> Result<()> {
        let socket = self.files.table.peek(fd)?;
        let family = socket.family;
        // A connection that is over and had no port of its own has none any more (tcp_set_state).
        let over = socket.state.connection().is_some_and(|conn| {
            let status = self.stack.status(conn);
            status.is_ok_and(|status| status.state == TcpState::Closed)
        });
        let has_port = socket.bound.is_some() && (socket.port_given || !over);
        let wrong_time = !(socket.state == State::Idle || over) || has_port;
        let port_given = address.port() != 0;
        // The address is looked at first (__inet_bind).
        let address = family.inner(address, Errno::EINVAL)?;
        let ip = address.ip();
        let interface = self.stack.interface();
        let ours = interface.any_local || interface.addresses.iter().any(|own| own.addr == ip);
        if !ip.is_unspecified() && !ours {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if wrong_time {
            return Err(Errno::EINVAL);
        }
        let address = match address.port() {
            0 => SocketAddr::new(ip, self.free_port(fd, ip)?),
            port if self.files.taken.conflict(port, &self.place(fd, ip)?, true)
                || self.lingers_in_the_way(port, &self.place(fd, ip)?) =>
            {
                return Err(Errno::EADDRINUSE);
            }
            _ => address,
        };
        self.change(fd, |socket| {
            socket.bound = Some(Box::new(address));
            socket.port_given = port_given;
        })
    }

    /// Returns the socket's properties in the port index, were it at this address.
    fn place(&self, fd: i32, ip: IpAddr) -> Result<Place> {
        let socket = self.files.table.peek(fd)?;
        Ok(Place {
            ip,
            family: socket.family,
            reuse_address: socket.options.reuse_address,
            reuse_port: socket.options.reuse_port,
            listening: matches!(socket.state, State::Listening(_)),
            chosen: true,
        })
    }

    /// Whether connections without an owner have the port, which only SO_REUSEADDR shares with them. (Linux asks for it
    /// on both sides; here it is not recorded whether the owner had it.)
    fn lingers_in_the_way(&self, port: u16, place: &Place) -> bool {
        !place.reuse_address
            && self.stack.port_lingers(port, |ip| {
                let family = Family {
                    v6: ip.is_ipv6(),
                    v6_only: false,
                };
                family.overlaps(ip, place.family, place.ip)
            })
    }

    /// Where a socket is, if it has a port.
    pub(crate) fn standing(&self, fd: i32) -> Option<(u16, Place)> {
        let socket = self.files.table.peek(fd).ok()?;
        let bound = socket.bound.as_deref().copied();
        let chosen = bound.is_some();
        let address = bound.or_else(|| self.stack.local_addr(socket.state.connection()?).ok())?;
        let place = self.place(fd, address.ip()).ok()?;
        Some((address.port(), Place { chosen, ..place }))
    }

    /// Changes something of a socket that others who want its port look at.
    pub(crate) fn change(&mut self, fd: i32, change: impl FnOnce(&mut Socket)) -> Result<()> {
        if let Some((port, place)) = self.standing(fd) {
            self.files.taken.remove(port, &place);
        }
        change(self.files.table.get(fd)?);
        if let Some((port, place)) = self.standing(fd) {
            self.files.taken.add(port, place);
        }
        Ok(())
    }

    fn free_port(&mut self, fd: i32, ip: IpAddr) -> Result<u16> {
        let place = self.place(fd, ip)?;
        let block = self.stack.interface().ports;
        let mut candidates = ports::candidates(self.stack.next_random(0), block);
        candidates
            .find(|port| !self.files.taken.conflict(*port, &place, false))
            .ok_or(Errno::EADDRINUSE)
    }

    /// `listen(2)`. An unbound socket gets an ephemeral port; one that listens gets another backlog.
    pub fn listen(&mut self, fd: i32, backlog: i32) -> Result<()> {
        let socket = self.files.table.peek(fd)?;
        let (family, reuse_port) = (socket.family, socket.options.reuse_port);
        // The kernel's queue is full when it holds more than the backlog (sk_acceptq_is_full), and a negative
        // backlog is a huge one.
        let wished = match backlog {
            ..0 => abi::SOMAXCONN,
            _ => backlog.min(abi::SOMAXCONN),
        };
        let backlog = wished as usize + 1;
        match socket.state {
            State::Idle => {}
            State::Listening(listener) => {
                self.stack.set_backlog(listener, backlog)?;
                return Ok(());
            }
            State::Connecting(_) | State::Connected(_) => return Err(Errno::EINVAL),
        }
        let local = match socket.bound.as_deref() {
            Some(local) => *local,
            None => {
                let any = family.any();
                SocketAddr::new(any, self.free_port(fd, any)?)
            }
        };
        self.change(fd, |socket| socket.bound = Some(Box::new(local)))?;
        // inet_csk_listen_start asks for the port again, as one that listens.
        let (port, place) = self.standing(fd).ok_or(Errno::EINVAL)?;
        self.files.taken.remove(port, &place);
        let conflict = self.files.taken.conflict(port, &place, true);
        self.files.taken.add(port, place);
        if conflict {
            return Err(Errno::EADDRINUSE);
        }
        let listener = self
            .stack
            .listen_as(local, family.v6_only, reuse_port, backlog)?;
        self.change(fd, |socket| socket.state = State::Listening(listener))?;
        let options = self.files.table.peek(fd)?.options.tcp;
        self.stack.set_listener_options(listener, &options)?;
        self.apply_deferral(fd)?;
        self.rearm(fd);
        Ok(())
    }

    /// Whether a socket waits for connections.
    pub fn is_listening(&self, fd: i32) -> bool {
        let socket = self.files.table.peek(fd);
        socket.is_ok_and(|socket| matches!(socket.state, State::Listening(_)))
    }

    /// Whether a socket has a name, and neither listens nor connects.
    pub fn is_bound(&self, fd: i32) -> bool {
        let socket = self.files.table.peek(fd);
        socket.is_ok_and(|socket| socket.state == State::Idle && socket.bound.is_some())
    }

    /// Whether a descriptor is an epoll instance.
    pub fn is_epoll(&self, fd: i32) -> bool {
        let entry = slot_of(fd)
            .ok()
            .and_then(|slot| self.files.table.entry(slot));
        matches!(entry, Some(Entry::Epoll(_)))
    }

    /// `accept(2)`. The new socket inherits the listener's options and blocks, whatever the listener does.
    pub fn accept(&mut self, fd: i32) -> Result<(i32, SocketAddr)> {
        self.accept4(fd, 0)
    }

    /// `accept4(2)`.
    pub fn accept4(&mut self, fd: i32, flags: i32) -> Result<(i32, SocketAddr)> {
        if flags & !(abi::SOCK_NONBLOCK | abi::SOCK_CLOEXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let socket = self.files.table.peek(fd)?;
        let State::Listening(listener) = socket.state else {
            return Err(Errno::EINVAL);
        };
        let (family, options) = (socket.family, Arc::clone(&socket.options));
        if self.files.table.is_full() {
            return Err(Errno::EMFILE);
        }
        let (conn, peer) = self.stack.accept(listener)?;
        if options.waits_to_ack {
            self.stack.set_quick_ack(conn, false)?;
        }
        let options = self.options_on(conn, options)?;
        let mut accepted = Socket::new(State::Connected(conn), family, options);
        accepted.nonblocking = flags & abi::SOCK_NONBLOCK != 0;
        accepted.close_on_exec = flags & abi::SOCK_CLOEXEC != 0;
        accepted.bound = None;
        if let Ok(status) = self.stack.status(conn) {
            accepted.seen = stage(status.state, status.peer_fin);
        }
        let new = self.files.table.insert(Entry::Socket(accepted))?;
        if let Some((port, place)) = self.standing(new) {
            self.files.taken.add(port, place);
        }
        Ok((new, family.outer(peer)))
    }

    /// These options, with those of a connection that the engine carries out.
    pub(crate) fn options_on(
        &mut self,
        conn: ConnId,
        options: Arc<SocketOptions>,
    ) -> Result<Arc<SocketOptions>> {
        let tcp = self.stack.options(conn)?;
        Ok(match tcp == options.tcp {
            true => options,
            false => self.files.shared.share(&SocketOptions { tcp, ..*options }),
        })
    }

    /// `connect(2)`. The first call always says `EINPROGRESS`, later ones `EALREADY` until the outcome is known, which
    /// is then told once: a caller that may block repeats the call until it says neither.
    pub fn connect(&mut self, now: Instant, fd: i32, remote: SocketAddr) -> Result<()> {
        let socket = self.files.table.peek(fd)?;
        match socket.state {
            State::Listening(_) | State::Connected(_) => Err(Errno::EISCONN),
            // SS_DISCONNECTING.
            State::Connecting(_) if socket.disconnecting => Err(Errno::EINVAL),
            State::Connecting(conn) => self.connect_outcome(now, fd, conn),
            State::Idle => {
                let remote = socket.family.inner(remote, Errno::ENETUNREACH)?;
                let bound = socket.bound.as_deref().copied();
                let waits = socket.options.waits_to_ack;
                let conn = self.open(now, fd, bound, remote)?;
                if waits {
                    self.stack.set_quick_ack(conn, false)?;
                }
                self.change(fd, |socket| {
                    socket.state = State::Connecting(conn);
                    socket.seen = stage(TcpState::SynSent, false);
                    // tcp_connect_init.
                    (socket.error, socket.error_told) = (0, false);
                })?;
                self.rearm(fd);
                Err(Errno::EINPROGRESS)
            }
        }
    }

    fn open(
        &mut self,
        now: Instant,
        fd: i32,
        bound: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<ConnId> {
        let socket = self.files.table.peek(fd)?;
        let (mut options, any) = (socket.options.tcp, socket.family.any());
        // A read shutdown of the connection before this one no longer counts.
        options.read_shut = false;
        // The kernel takes 0.0.0.0 for this host; there is no loopback here.
        if let Some(local) = bound {
            // A tuple that is taken: what __inet_hash_connect says.
            return self
                .stack
                .connect_with(now, local, remote, &options)
                .map_err(|error| match error {
                    janus_tcp::Error::AddrInUse => Errno::EADDRNOTAVAIL,
                    other => other.into(),
                });
        }
        let block = self.stack.interface().ports;
        for port in ports::candidates(self.stack.next_random(0), block) {
            if self.files.taken.is_chosen(port) {
                continue;
            }
            let local = SocketAddr::new(any, port);
            match self.stack.connect_with(now, local, remote, &options) {
                Err(janus_tcp::Error::AddrInUse) => continue,
                outcome => return Ok(outcome?),
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    fn connect_outcome(&mut self, now: Instant, fd: i32, conn: ConnId) -> Result<()> {
        let status = self.stack.status(conn)?;
        match status.state {
            TcpState::SynSent | TcpState::SynReceived => Err(Errno::EALREADY),
            TcpState::Closed => {
                // __inet_stream_connect: an error that SO_ERROR has already fetched leaves this one.
                let error = self.take_pending(fd).unwrap_or(Errno::ECONNABORTED);
                self.fall_back_to_idle(now, fd, conn);
                Err(error)
            }
            _ => {
                self.files.table.get(fd)?.state = State::Connected(conn);
                Ok(())
            }
        }
    }

    /// A failed or abandoned attempt leaves a socket that may connect again (tcp_disconnect).
    fn fall_back_to_idle(&mut self, now: Instant, fd: i32, conn: ConnId) {
        // Fails only for a descriptor that is not open.
        let _ = self.change(fd, |socket| {
            socket.state = State::Idle;
            socket.forget_port();
            socket.disconnecting = false;
            (socket.read_shut, socket.write_shut, socket.fin_asked) = (false, false, false);
            (socket.error, socket.error_told) = (0, false);
        });
        self.stack.abort(now, conn);
    }

    /// `connect(2)` to `AF_UNSPEC`: whatever the socket was, it is neither connected nor listening any more.
    pub fn disconnect(&mut self, now: Instant, fd: i32) -> Result<()> {
        match self.files.table.peek(fd)?.state {
            State::Idle => {
                let socket = self.files.table.get(fd)?;
                (socket.read_shut, socket.write_shut) = (false, false);
            }
            State::Listening(_) => self.stop_listening(now, fd)?,
            State::Connecting(conn) | State::Connected(conn) => {
                // tcp_disconnect: an end that is not an orderly one is an error, and one that is there stays.
                let error = match self.stack.status(conn)?.state {
                    TcpState::Closed => self.pending_error(fd).map_or(0, |error| error.0),
                    _ => Errno::ECONNRESET.0,
                };
                self.fall_back_to_idle(now, fd, conn);
                self.files.table.get(fd)?.error = error as u8;
            }
        }
        self.happened(slot_of(fd)?, ALL);
        Ok(())
    }

    fn stop_listening(&mut self, now: Instant, fd: i32) -> Result<()> {
        if let State::Listening(listener) = self.files.table.peek(fd)?.state {
            self.stack.unlisten(now, listener);
            self.change(fd, |socket| {
                socket.state = State::Idle;
                socket.forget_port();
            })?;
        }
        Ok(())
    }

    /// The state of a socket's connection changed what the stack's wake-ups should reach.
    pub(crate) fn rearm(&mut self, fd: i32) {
        if let Ok(slot) = slot_of(fd) {
            self.arm(slot);
        }
    }

    /// `shutdown(2)`.
    pub fn shutdown(&mut self, now: Instant, fd: i32, how: i32) -> Result<()> {
        let (read, write) = match how {
            abi::SHUT_RD => (true, false),
            abi::SHUT_WR => (false, true),
            abi::SHUT_RDWR => (true, true),
            _ => {
                self.files.table.peek(fd)?;
                return Err(Errno::EINVAL);
            }
        };
        let outcome = match self.files.table.peek(fd)?.state {
            State::Idle => self.shut(fd, read, write).and(Err(Errno::ENOTCONN)),
            // inet_shutdown: a listener stops listening, an attempt is given up.
            State::Listening(_) if read => self.stop_listening(now, fd),
            State::Listening(_) => Ok(()),
            State::Connecting(conn) | State::Connected(conn) => {
                match self.stack.status(conn)?.state {
                    TcpState::SynSent => {
                        self.fall_back_to_idle(now, fd, conn);
                        self.files.table.get(fd)?.error = Errno::ECONNRESET.0 as u8;
                        Ok(())
                    }
                    TcpState::Closed => {
                        self.shut(fd, read, write)?;
                        let socket = self.files.table.get(fd)?;
                        socket.disconnecting |= socket.state == State::Connecting(conn);
                        Err(Errno::ENOTCONN)
                    }
                    _ => {
                        self.shut(fd, read, write)?;
                        let socket = self.files.table.get(fd)?;
                        socket.state = State::Connected(conn);
                        socket.fin_asked |= write;
                        if write {
                            self.stack.shutdown_write(now, conn)?;
                        }
                        self.stop_reading(now, fd, read)
                    }
                }
            }
        };
        self.happened(slot_of(fd)?, ALL);
        outcome
    }

    /// Tells the stack too: once our FIN is out, data that will never be read is answered with a reset.
    fn stop_reading(&mut self, now: Instant, fd: i32, read: bool) -> Result<()> {
        if !read {
            return Ok(());
        }
        let before = *self.files.table.peek(fd)?.options;
        let mut options = before;
        options.tcp.read_shut = true;
        // When there are too many sets of options to say so, such data is accepted, and stays unread.
        let _ = self.take_options(now, fd, &before, &options);
        Ok(())
    }

    fn shut(&mut self, fd: i32, read: bool, write: bool) -> Result<()> {
        let socket = self.files.table.get(fd)?;
        socket.read_shut |= read;
        socket.write_shut |= write;
        Ok(())
    }

    /// `close(2)`. With SO_LINGER on and zero seconds the connection is reset; with more, it is finished in the
    /// background: for how long to wait for that, [`Sockets::close_lingering`] says.
    pub fn close(&mut self, now: Instant, fd: i32) -> Result<()> {
        self.close_lingering(now, fd).map(|_| ())
    }

    /// `close(2)`, and what SO_LINGER wants waited for.
    pub fn close_lingering(&mut self, now: Instant, fd: i32) -> Result<Option<Lingering>> {
        let slot = slot_of(fd)?;
        self.files.table.entry(slot).ok_or(Errno::EBADF)?;
        self.unwatch(slot);
        if let Some((port, place)) = self.standing(fd) {
            self.files.taken.remove(port, &place);
        }
        let Entry::Socket(socket) = self.files.table.remove(fd)? else {
            return Ok(None);
        };
        match socket.state {
            State::Idle => {}
            State::Listening(listener) => self.stack.unlisten(now, listener),
            State::Connecting(conn) | State::Connected(conn) => {
                let Linger { on, seconds } = socket.options.linger;
                return Ok(self.let_go(now, conn, on.then_some(seconds)));
            }
        }
        Ok(None)
    }

    fn let_go(&mut self, now: Instant, conn: ConnId, linger: Option<i32>) -> Option<Lingering> {
        match linger {
            Some(0) => self.stack.abort(now, conn),
            _ => self.stack.close(now, conn),
        }
        let seconds = linger.filter(|seconds| *seconds != 0)?;
        let lingering = Lingering {
            conn,
            // It is taken without its sign (sk_setsockopt).
            time: Duration::from_secs((seconds as u32).into()),
        };
        self.lingers(&lingering).then_some(lingering)
    }

    /// Whether what was written before a `close` has not all been acknowledged (sk_stream_closing).
    pub fn lingers(&self, lingering: &Lingering) -> bool {
        self.stack.is_closing(lingering.conn)
    }

    /// `getsockname(2)`.
    pub fn getsockname(&mut self, fd: i32) -> Result<SocketAddr> {
        let socket = self.files.table.peek(fd)?;
        let nowhere = SocketAddr::new(socket.family.any(), 0);
        let bound = socket.bound.as_deref().copied();
        let name = match socket.state.connection() {
            Some(conn) => self.stack.local_addr(conn)?,
            None => bound.unwrap_or(nowhere),
        };
        Ok(socket.family.outer(name))
    }

    /// `getpeername(2)`: ENOTCONN while the SYN is unanswered, and after the end (inet_getname).
    pub fn getpeername(&mut self, fd: i32) -> Result<SocketAddr> {
        let socket = self.files.table.peek(fd)?;
        let conn = socket.state.connection().ok_or(Errno::ENOTCONN)?;
        match self.stack.status(conn)?.state {
            TcpState::Closed | TcpState::SynSent => Err(Errno::ENOTCONN),
            _ => Ok(socket.family.outer(self.stack.peer_addr(conn)?)),
        }
    }

    /// The connection of a socket, for those who look deeper than the socket interface lets them.
    pub fn connection(&mut self, fd: i32) -> Option<ConnId> {
        self.files.table.peek(fd).ok()?.state.connection()
    }

    /// Closes every descriptor, as the end of a process does.
    pub fn close_all(&mut self, now: Instant) {
        let open: Vec<i32> = self.files.table.open().collect();
        for fd in open {
            // Each was there a moment ago.
            let _ = self.close(now, fd);
        }
    }
}

/// Connection that a `close` with SO_LINGER waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lingering {
    conn: ConnId,
    /// How long.
    pub time: Duration,
}
