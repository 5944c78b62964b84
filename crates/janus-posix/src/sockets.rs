//! The calls: socket, bind, listen, accept, connect, receive, send, shutdown, close. Each answers what Linux answers
//! in that state; where the kernel's source decides rather than POSIX, the comment names the function.
//! Options and fcntl are in `options`.

use janus_tcp::{ConnId, Instant, Stack};
use std::net::{IpAddr, SocketAddr};

use crate::abi;
use crate::errno::Errno;
use crate::family::Family;
use crate::ports::Ports;
use crate::table::{Socket, State, Table};

#[cfg(test)]
mod tests;

type Result<T> = std::result::Result<T, Errno>;

/// A process's sockets over one stack.
pub struct Sockets {
    pub(crate) stack: Stack,
    pub(crate) table: Table,
    ports: Ports,
    /// What every new socket begins with.
    defaults: janus_tcp::SocketOptions,
}

impl Sockets {
    /// No sockets yet. `seed` decides the order of ephemeral ports.
    pub fn new(stack: Stack, seed: u64) -> Sockets {
        Sockets {
            stack,
            table: Table::default(),
            ports: Ports::new(seed),
            defaults: janus_tcp::SocketOptions::default(),
        }
    }

    /// What every socket made from now on begins with.
    pub fn set_default_options(&mut self, options: janus_tcp::SocketOptions) {
        self.defaults = options;
    }

    /// The stack underneath.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The stack underneath: frames in and out, timers.
    pub fn stack_mut(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// `socket(2)`: TCP over IPv4, or over both families.
    pub fn socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Result<i32> {
        let family = match domain {
            abi::AF_INET => Family::default(),
            abi::AF_INET6 => Family {
                v6: true,
                v6_only: false,
            },
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        let flags = abi::SOCK_NONBLOCK | abi::SOCK_CLOEXEC;
        if kind & !flags != abi::SOCK_STREAM {
            return Err(Errno::ESOCKTNOSUPPORT);
        }
        if protocol != 0 && protocol != abi::IPPROTO_TCP {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let mut socket = Socket::new(State::Idle, family);
        socket.options.tcp = self.defaults;
        socket.nonblocking = kind & abi::SOCK_NONBLOCK != 0;
        socket.close_on_exec = kind & abi::SOCK_CLOEXEC != 0;
        self.table.insert(socket)
    }

    /// `bind(2)`.
    pub fn bind(&mut self, fd: i32, address: SocketAddr) -> Result<()> {
        let socket = *self.table.get(fd)?;
        if socket.state != State::Idle || socket.bound.is_some() {
            return Err(Errno::EINVAL);
        }
        let address = socket.family.inner(address, Errno::EINVAL)?;
        let ip = address.ip();
        let interface = self.stack.interface();
        let ours = interface.any_local || interface.addresses.iter().any(|own| own.addr == ip);
        if !ip.is_unspecified() && !ours {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let address = match address.port() {
            0 => SocketAddr::new(ip, self.free_port(fd, ip)?),
            _ if self.bind_conflict(fd, address, socket.options.reuse_address) => {
                return Err(Errno::EADDRINUSE);
            }
            _ => address,
        };
        self.table.get(fd)?.bound = Some(address);
        Ok(())
    }

    /// Two sockets on one port need SO_REUSEADDR on both, and neither listening (inet_csk_bind_conflict).
    fn bind_conflict(&self, fd: i32, address: SocketAddr, reuse: bool) -> bool {
        let family = self.table.peek(fd).map(|socket| socket.family);
        let family = family.unwrap_or_default();
        self.table
            .iter()
            .filter(|(other, _)| *other != fd)
            .any(|(_, socket)| {
                let Some(taken) = socket.bound else {
                    return false;
                };
                let same_ip = socket.family.overlaps(taken.ip(), family, address.ip());
                let listening = matches!(socket.state, State::Listening(_));
                taken.port() == address.port()
                    && same_ip
                    && (listening || !reuse || !socket.options.reuse_address)
            })
    }

    fn free_port(&mut self, fd: i32, ip: IpAddr) -> Result<u16> {
        let mut candidates = self.ports.candidates();
        candidates
            .find(|port| !self.bind_conflict(fd, SocketAddr::new(ip, *port), false))
            .ok_or(Errno::EADDRINUSE)
    }

    /// `listen(2)`. An unbound socket gets an ephemeral port.
    pub fn listen(&mut self, fd: i32, backlog: i32) -> Result<()> {
        let socket = *self.table.get(fd)?;
        match socket.state {
            State::Idle => {}
            // A second call may only change the backlog; the first one's stays.
            State::Listening(_) => return Ok(()),
            State::Connecting(_) | State::Connected(_) => return Err(Errno::EINVAL),
        }
        let local = match socket.bound {
            Some(local) => local,
            None => {
                let any = socket.family.any();
                SocketAddr::new(any, self.free_port(fd, any)?)
            }
        };
        // The kernel's queue is full when it holds more than the backlog (sk_acceptq_is_full), and a negative
        // backlog is a huge one.
        let wished = if backlog < 0 {
            abi::SOMAXCONN
        } else {
            backlog.min(abi::SOMAXCONN)
        };
        let backlog = wished as usize + 1;
        let listener = match socket.family.v6_only {
            true => self.stack.listen_v6_only(local, backlog)?,
            false => self.stack.listen(local, backlog)?,
        };
        let socket = self.table.get(fd)?;
        socket.bound = Some(local);
        socket.state = State::Listening(listener);
        let options = socket.options.tcp;
        self.stack.set_listener_options(listener, &options)?;
        self.apply_deferral(fd)
    }

    /// `accept(2)`. The new socket inherits the listener's options and blocks, whatever the listener does.
    pub fn accept(&mut self, fd: i32) -> Result<(i32, SocketAddr)> {
        let socket = *self.table.get(fd)?;
        let State::Listening(listener) = socket.state else {
            return Err(Errno::EINVAL);
        };
        if self.table.is_full() {
            return Err(Errno::EMFILE);
        }
        let (conn, peer) = self.stack.accept(listener)?;
        let mut accepted = Socket::new(State::Connected(conn), socket.family);
        accepted.options = socket.options;
        accepted.options.tcp = self.stack.options(conn)?;
        accepted.bound = self.stack.local_addr(conn).ok();
        Ok((self.table.insert(accepted)?, socket.family.outer(peer)))
    }

    /// `connect(2)`. The first call always says `EINPROGRESS`, later ones `EALREADY` until the outcome is known, which
    /// is then told once: a caller that may block repeats the call until it says neither.
    pub fn connect(&mut self, now: Instant, fd: i32, remote: SocketAddr) -> Result<()> {
        let socket = *self.table.get(fd)?;
        match socket.state {
            State::Listening(_) | State::Connected(_) => Err(Errno::EISCONN),
            State::Connecting(conn) => self.connect_outcome(now, fd, conn),
            State::Idle => {
                let remote = socket.family.inner(remote, Errno::ENETUNREACH)?;
                let conn = self.open(now, fd, socket.bound, remote)?;
                let socket = self.table.get(fd)?;
                socket.state = State::Connecting(conn);
                (socket.read_shut, socket.end_seen, socket.error_told) = (false, false, false);
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
        let socket = self.table.get(fd)?;
        let (options, any) = (socket.options.tcp, socket.family.any());
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
        for port in self.ports.candidates() {
            let local = SocketAddr::new(any, port);
            if self.bind_conflict(fd, local, true) {
                continue;
            }
            match self.stack.connect_with(now, local, remote, &options) {
                Err(janus_tcp::Error::AddrInUse) => continue,
                outcome => return Ok(outcome?),
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    fn connect_outcome(&mut self, now: Instant, fd: i32, conn: ConnId) -> Result<()> {
        match self.stack.is_connected(conn) {
            Ok(false) => Err(Errno::EALREADY),
            Ok(true) => {
                self.table.get(fd)?.state = State::Connected(conn);
                Ok(())
            }
            Err(error) => {
                let told = self.table.get(fd)?.error_told;
                self.fall_back_to_idle(now, fd, conn);
                // __inet_stream_connect: an error that SO_ERROR has already fetched leaves this one.
                Err(if told {
                    Errno::ECONNABORTED
                } else {
                    error.into()
                })
            }
        }
    }

    /// A failed or abandoned attempt leaves a socket that may connect again.
    fn fall_back_to_idle(&mut self, now: Instant, fd: i32, conn: ConnId) {
        self.stack.close(now, conn);
        if let Ok(socket) = self.table.get(fd) {
            socket.state = State::Idle;
            socket.error_told = false;
        }
    }

    /// The connection of a socket on which bytes may flow; whether its handshake is done.
    fn flowing(&mut self, fd: i32, unconnected: Errno) -> Result<(ConnId, bool)> {
        let socket = *self.table.get(fd)?;
        match socket.state {
            State::Idle | State::Listening(_) => Err(unconnected),
            State::Connected(conn) => Ok((conn, true)),
            State::Connecting(conn) => match self.stack.is_connected(conn) {
                Ok(done) => {
                    if done {
                        self.table.get(fd)?.state = State::Connected(conn);
                    }
                    Ok((conn, done))
                }
                Err(_) => Ok((conn, true)),
            },
        }
    }

    /// `read(2)`, `recv(2)`: 0 is the end of the peer's stream. Understands `MSG_PEEK`; `MSG_DONTWAIT` is how every
    /// call behaves here.
    pub fn recv(&mut self, now: Instant, fd: i32, into: &mut [u8], flags: i32) -> Result<usize> {
        if flags & abi::MSG_OOB != 0 {
            // tcp_recv_urg with no urgent data, or with it delivered in line.
            return Err(Errno::EINVAL);
        }
        let (conn, done) = self.flowing(fd, Errno::ENOTCONN)?;
        if !done {
            return Err(Errno::EAGAIN);
        }
        let outcome = match flags & abi::MSG_PEEK != 0 {
            true => self.stack.peek(conn, into),
            false => self.stack.read(now, conn, into),
        };
        let socket = self.table.get(fd)?;
        match outcome {
            Ok(n) => {
                socket.end_seen |= n == 0 && !into.is_empty();
                Ok(n)
            }
            Err(janus_tcp::Error::WouldBlock) if socket.read_shut => Ok(0),
            Err(janus_tcp::Error::WouldBlock) => Err(Errno::EAGAIN),
            // SOCK_DONE in tcp_recvmsg_locked: after the end there is only the end.
            Err(_) if socket.end_seen || socket.error_told => Ok(0),
            Err(error) => {
                socket.error_told = true;
                Err(error.into())
            }
        }
    }

    /// `read(2)`.
    pub fn read(&mut self, now: Instant, fd: i32, into: &mut [u8]) -> Result<usize> {
        self.recv(now, fd, into, 0)
    }

    /// `write(2)`, `send(2)`: how much was taken. A caller that may block goes on with the rest. SIGPIPE is the
    /// caller's affair.
    pub fn send(&mut self, now: Instant, fd: i32, bytes: &[u8], flags: i32) -> Result<usize> {
        let (conn, done) = self.flowing(fd, Errno::EPIPE)?;
        if !done {
            return Err(Errno::EAGAIN);
        }
        let outcome = match flags & abi::MSG_OOB != 0 {
            true => self.stack.write_urgent(now, conn, bytes),
            false => self.stack.write(now, conn, bytes),
        };
        let socket = self.table.get(fd)?;
        outcome.map_err(|error| match error {
            janus_tcp::Error::WouldBlock => Errno::EAGAIN,
            // sk_stream_error: the connection's own error once, a broken pipe from then on. A reset after the
            // peer's FIN is a broken pipe at once (tcp_reset).
            janus_tcp::Error::ConnectionReset
            | janus_tcp::Error::TimedOut
            | janus_tcp::Error::ConnectionRefused
            | janus_tcp::Error::HostUnreachable
            | janus_tcp::Error::NetworkUnreachable
            | janus_tcp::Error::ProtocolUnreachable => {
                let told = std::mem::replace(&mut socket.error_told, true);
                if told || socket.end_seen {
                    Errno::EPIPE
                } else {
                    error.into()
                }
            }
            other => other.into(),
        })
    }

    /// `write(2)`.
    pub fn write(&mut self, now: Instant, fd: i32, bytes: &[u8]) -> Result<usize> {
        self.send(now, fd, bytes, 0)
    }

    /// `shutdown(2)`.
    pub fn shutdown(&mut self, now: Instant, fd: i32, how: i32) -> Result<()> {
        let socket = *self.table.get(fd)?;
        let (read, write) = match how {
            abi::SHUT_RD => (true, false),
            abi::SHUT_WR => (false, true),
            abi::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        match socket.state {
            State::Idle => Err(Errno::ENOTCONN),
            // inet_shutdown: a listener stops listening, an attempt is given up.
            State::Listening(listener) => {
                if read {
                    self.stack.unlisten(now, listener);
                    self.table.get(fd)?.state = State::Idle;
                }
                Ok(())
            }
            State::Connecting(conn) if self.stack.is_connected(conn) == Ok(false) => {
                self.fall_back_to_idle(now, fd, conn);
                Ok(())
            }
            State::Connecting(conn) | State::Connected(conn) => {
                if self.stack.is_connected(conn).is_err() {
                    return Err(Errno::ENOTCONN);
                }
                self.table.get(fd)?.read_shut |= read;
                if write {
                    self.stack.shutdown_write(now, conn)?;
                }
                Ok(())
            }
        }
    }

    /// `close(2)`. With SO_LINGER on and zero seconds the connection is reset; with more, it is finished in the
    /// background: to wait for that is the caller's affair.
    pub fn close(&mut self, now: Instant, fd: i32) -> Result<()> {
        let socket = self.table.remove(fd)?;
        match socket.state {
            State::Idle => {}
            State::Listening(listener) => self.stack.unlisten(now, listener),
            State::Connecting(conn) | State::Connected(conn) => match socket.options.linger {
                Some(0) => self.stack.abort(now, conn),
                _ => self.stack.close(now, conn),
            },
        }
        Ok(())
    }

    /// `getsockname(2)`.
    pub fn getsockname(&mut self, fd: i32) -> Result<SocketAddr> {
        let socket = *self.table.get(fd)?;
        let nowhere = SocketAddr::new(socket.family.any(), 0);
        let name = match socket.state {
            State::Connecting(conn) | State::Connected(conn) => self.stack.local_addr(conn)?,
            State::Idle | State::Listening(_) => socket.bound.unwrap_or(nowhere),
        };
        Ok(socket.family.outer(name))
    }

    /// `getpeername(2)`.
    pub fn getpeername(&mut self, fd: i32) -> Result<SocketAddr> {
        let family = self.table.get(fd)?.family;
        match self.flowing(fd, Errno::ENOTCONN)? {
            (conn, true) if self.stack.is_connected(conn).is_ok() => {
                Ok(family.outer(self.stack.peer_addr(conn)?))
            }
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// The connection of a socket, for those who look deeper than the socket interface lets them.
    pub fn connection(&mut self, fd: i32) -> Option<ConnId> {
        match self.table.get(fd).ok()?.state {
            State::Connecting(conn) | State::Connected(conn) => Some(conn),
            State::Idle | State::Listening(_) => None,
        }
    }

    /// Closes every socket, as the end of a process does.
    pub fn close_all(&mut self, now: Instant) {
        let open: Vec<i32> = self.table.iter().map(|(fd, _)| fd).collect();
        for fd in open {
            // Each was there a moment ago.
            let _ = self.close(now, fd);
        }
    }
}
