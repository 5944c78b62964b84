//! setsockopt, getsockopt, fcntl and ioctl. An option that would change nothing here is refused with `ENOPROTOOPT`, as
//! the kernel refuses one it was built without, or kept and told where programs set it without needing it ([`crate::ignored_options`]).

use crate::abi;
use crate::errno::Errno;
use crate::family::Family;
use crate::sockets::Sockets;
use crate::table::{Entry, Linger, SocketOptions, State, slot_of};
use crate::tcp_options;
use crate::watch::OUTPUT;
use core::time::Duration;
use janus_tcp::{ConnId, Instant, State as TcpState};

type Result<T> = std::result::Result<T, Errno>;

/// The C `int` at the front of `value`.
fn int(value: &[u8]) -> Result<i32> {
    let bytes = value.first_chunk().ok_or(Errno::EINVAL)?;
    Ok(i32::from_ne_bytes(*bytes))
}

/// The options of IP that a single byte can say (do_ip_setsockopt).
fn int_or_byte(value: &[u8]) -> Result<i32> {
    match value {
        [] => Err(Errno::EINVAL),
        [byte, ..] if value.len() < 4 => Ok((*byte).into()),
        _ => int(value),
    }
}

/// A `struct timeval` as a timeout: zero is for ever (sock_set_timeout).
fn timeout(value: &[u8]) -> Result<Option<Duration>> {
    let word = |at: usize| -> Result<i64> {
        let bytes = value.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|b| i64::from_ne_bytes(*b)).ok_or(Errno::EINVAL)
    };
    let (seconds, micros) = (word(0)?, word(8)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    // A negative time is over at once.
    let Ok(seconds) = u64::try_from(seconds) else {
        return Ok(Some(Duration::ZERO));
    };
    let time = Duration::from_secs(seconds) + Duration::from_micros(micros as u64);
    Ok((!time.is_zero()).then_some(time))
}

fn timeval(time: Option<Duration>) -> Vec<u8> {
    let time = time.unwrap_or(Duration::ZERO);
    let mut value = (time.as_secs() as i64).to_ne_bytes().to_vec();
    value.extend(i64::from(time.subsec_micros()).to_ne_bytes());
    value
}

/// Copies as much of `value` as there is room for, as the kernel does.
fn put(value: &[u8], into: &mut [u8]) -> usize {
    let len = value.len().min(into.len());
    into[..len].copy_from_slice(&value[..len]);
    len
}

/// Whether a socket of this family knows options of this level at all.
fn knows(family: Family, level: i32) -> bool {
    matches!(level, abi::SOL_SOCKET | abi::SOL_TCP | abi::SOL_IP)
        || (level == abi::SOL_IPV6 && family.v6)
}

impl Sockets<'_> {
    /// `setsockopt(2)`; `value` in the layout of the C ABI.
    pub fn setsockopt(
        &mut self,
        now: Instant,
        fd: i32,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<()> {
        let socket = self.files.table.peek(fd)?;
        if !knows(socket.family, level) {
            return Err(Errno::ENOPROTOOPT);
        }
        let (before, idle) = (*socket.options, socket.state == State::Idle);
        let mut options = before;
        match (level, name) {
            (abi::IPPROTO_IPV6, abi::IPV6_V6ONLY) => {
                // A bound socket's family is settled (do_ipv6_setsockopt).
                if !idle || socket.bound.is_some() {
                    return Err(Errno::EINVAL);
                }
                let v6_only = int(value)? != 0;
                return self.change(fd, |socket| socket.family.v6_only = v6_only);
            }
            (abi::SOL_SOCKET, abi::SO_RCVTIMEO) => options.receive_timeout = timeout(value)?,
            (abi::SOL_SOCKET, abi::SO_SNDTIMEO) => options.send_timeout = timeout(value)?,
            (abi::SOL_SOCKET, abi::SO_LINGER) => {
                let (on, seconds) = (int(value)?, int(value.get(4..).unwrap_or(&[]))?);
                options.linger.on = on != 0;
                if on != 0 {
                    options.linger.seconds = seconds;
                }
            }
            (abi::SOL_TCP, abi::TCP_QUICKACK) => match socket.state.connection() {
                Some(conn) => return self.set_quick_ack(conn, int(value)?),
                None => options.waits_to_ack = int(value)? == 0,
            },
            (abi::SOL_TCP, abi::TCP_CONGESTION) => {
                options.tcp.congestion = Some(tcp_options::algorithm(value)?);
            }
            (abi::SOL_TCP, abi::TCP_WINDOW_CLAMP) if int(value)? == 0 && !idle => {
                return Err(Errno::EINVAL);
            }
            _ => {
                let value = match level {
                    abi::SOL_IP | abi::SOL_IPV6 => int_or_byte(value)?,
                    _ => int(value)?,
                };
                set_number(&mut options, level, name, value)?.ok_or(Errno::ENOPROTOOPT)?;
            }
        }
        self.take_options(now, fd, &before, &options)?;
        if (level, name) == (abi::SOL_TCP, abi::TCP_NODELAY)
            && options.tcp.nodelay
            && let Some(conn) = self.files.table.peek(fd)?.state.connection()
        {
            // Each time, what a cork or MSG_MORE holds back leaves (__tcp_sock_set_nodelay).
            self.stack.push(now, conn)?;
        }
        if before.urgent_in_line != options.urgent_in_line {
            self.changed_in_line(now, fd, options.urgent_in_line)?;
        }
        let input = (abi::EPOLLIN | abi::EPOLLRDNORM) as u32;
        match (level, name) {
            (abi::SOL_SOCKET, abi::SO_RCVLOWAT) if self.has_input(fd)? => {
                self.look_again(now, fd, input)
            }
            (abi::SOL_SOCKET, abi::SO_SNDBUF) | (abi::SOL_TCP, abi::TCP_NOTSENT_LOWAT) => {
                self.look_again(now, fd, OUTPUT)
            }
            _ => Ok(()),
        }
    }

    /// The descriptor has these options from now on, unless the engine refuses them.
    pub(crate) fn take_options(
        &mut self,
        now: Instant,
        fd: i32,
        before: &SocketOptions,
        options: &SocketOptions,
    ) -> Result<()> {
        if before == options {
            return Ok(());
        }
        let (old, new) = (
            self.files.shared.share(before),
            self.files.shared.share(options),
        );
        self.change(fd, |socket| socket.options = new)?;
        let mut applied = Ok(());
        if before.tcp != options.tcp {
            applied = self.apply_options(now, fd);
        }
        if before.defer_accept != options.defer_accept {
            applied = applied.and(self.apply_deferral(fd));
        }
        if applied.is_err() {
            self.change(fd, |socket| socket.options = old)?;
        }
        applied
    }

    /// TCP_QUICKACK is no lasting wish but a mode, which the connection's own use changes. With an even number other than
    /// zero only what waits now is acknowledged (__tcp_sock_set_quickack).
    fn set_quick_ack(&mut self, conn: ConnId, value: i32) -> Result<()> {
        self.stack.set_quick_ack(conn, value != 0)?;
        if value % 2 == 0 && value != 0 {
            self.stack.set_quick_ack(conn, false)?;
        }
        Ok(())
    }

    /// Whether octets or an end have come (tcp_data_ready): a reset is neither.
    fn has_input(&self, fd: i32) -> Result<bool> {
        let conn = self.files.table.peek(fd)?.state.connection();
        let status = conn.map(|conn| self.stack.status(conn));
        Ok(status.is_some_and(|it| it.is_ok_and(|it| it.peer_fin || it.unread > 0)))
    }

    /// A mark was moved, and something may be beyond it now (sk_write_space, tcp_set_rcvlowat).
    fn look_again(&mut self, now: Instant, fd: i32, side: u32) -> Result<()> {
        let slot = slot_of(fd)?;
        let what = self.mask_of(now, slot) & side;
        if what != 0 {
            self.happened(slot, what);
        }
        Ok(())
    }

    /// TCP_DEFER_ACCEPT means something to a listener only.
    pub(crate) fn apply_deferral(&mut self, fd: i32) -> Result<()> {
        let socket = self.files.table.peek(fd)?;
        if let State::Listening(listener) = socket.state {
            let seconds = socket.options.defer_accept as u64;
            let time = (seconds > 0).then(|| Duration::from_secs(seconds));
            self.stack.set_defer_accept(listener, time)?;
        }
        Ok(())
    }

    /// `getsockopt(2)`: bytes written to `into`.
    pub fn getsockopt(&mut self, fd: i32, level: i32, name: i32, into: &mut [u8]) -> Result<usize> {
        let socket = self.files.table.peek(fd)?;
        if !knows(socket.family, level) {
            // do_ip_getsockopt and ipv6_getsockopt say different things.
            return Err(match socket.family.v6 {
                false => Errno::EOPNOTSUPP,
                true => Errno::ENOPROTOOPT,
            });
        }
        let (state, family) = (socket.state, socket.family);
        let options = *socket.options;
        let value = match (level, name) {
            (abi::SOL_SOCKET, abi::SO_ERROR) => self.take_pending(fd).map_or(0, |error| error.0),
            (abi::SOL_SOCKET, abi::SO_TYPE) => abi::SOCK_STREAM,
            (abi::SOL_SOCKET, abi::SO_DOMAIN) if family.v6 => abi::AF_INET6,
            (abi::SOL_SOCKET, abi::SO_DOMAIN) => abi::AF_INET,
            (abi::IPPROTO_IPV6, abi::IPV6_V6ONLY) => i32::from(family.v6_only),
            (abi::SOL_SOCKET, abi::SO_PROTOCOL) => abi::IPPROTO_TCP,
            (abi::SOL_SOCKET, abi::SO_ACCEPTCONN) => {
                i32::from(matches!(state, State::Listening(_)))
            }
            (abi::SOL_SOCKET, abi::SO_RCVTIMEO) => {
                return Ok(put(&timeval(options.receive_timeout), into));
            }
            (abi::SOL_SOCKET, abi::SO_SNDTIMEO) => {
                return Ok(put(&timeval(options.send_timeout), into));
            }
            (abi::SOL_SOCKET, abi::SO_LINGER) => {
                let Linger { on, seconds } = options.linger;
                let linger = [i32::from(on).to_ne_bytes(), seconds.to_ne_bytes()].concat();
                return Ok(put(&linger, into));
            }
            (abi::SOL_SOCKET, abi::SO_RCVBUF) if options.tcp.receive_buffer.is_none() => {
                self.receive_budget(state)?
            }
            (abi::SOL_SOCKET, abi::SO_SNDBUF) if options.tcp.send_buffer.is_none() => {
                self.send_budget(state)?
            }
            (abi::SOL_TCP, abi::TCP_MAXSEG) => match options.tcp.max_segment {
                Some(wished) if state.connection().is_none() => wished.into(),
                _ => self.segment_size(state)?,
            },
            (abi::IPPROTO_IP, abi::IP_MTU) | (abi::IPPROTO_IPV6, abi::IPV6_MTU) => {
                let conn = state.connection().ok_or(Errno::ENOTCONN)?;
                match self.stack.status(conn)?.state {
                    TcpState::Closed => return Err(Errno::ENOTCONN),
                    _ => self.stack.info(conn)?.path_mtu.into(),
                }
            }
            (abi::SOL_TCP, abi::TCP_CONGESTION) => {
                let algorithm = options.tcp.congestion;
                let algorithm = algorithm.unwrap_or(self.stack.config().congestion);
                return Ok(put(&tcp_options::algorithm_name(algorithm), into));
            }
            (abi::SOL_TCP, abi::TCP_QUICKACK) => i32::from(match state.connection() {
                Some(conn) => self.stack.quick_ack(conn).unwrap_or(true),
                None => !options.waits_to_ack,
            }),
            (abi::SOL_TCP, abi::TCP_LINGER2) => {
                let config = self.stack.config();
                let usual = config.fin_wait_2.unwrap_or(config.time_wait);
                tcp_options::linger2(options.tcp.fin_wait_2, usual)
            }
            (abi::SOL_TCP, abi::TCP_INFO) => return self.tcp_info(state, into),
            _ => number(&options, level, name).ok_or(Errno::ENOPROTOOPT)?,
        };
        Ok(put(&value.to_ne_bytes(), into))
    }

    fn tcp_info(&mut self, state: State, into: &mut [u8]) -> Result<usize> {
        let info = match state {
            State::Connecting(conn) | State::Connected(conn) => {
                tcp_options::tcp_info(&self.stack.info(conn)?)
            }
            State::Idle => tcp_options::tcp_info_without(abi::TCP_CLOSE, 0, 0),
            State::Listening(listener) => {
                let waiting = self.stack.accept_queue_len(listener) as u32;
                let most = self.stack.backlog(listener) as u32 - 1;
                tcp_options::tcp_info_without(abi::TCP_LISTEN, waiting, most)
            }
        };
        Ok(put(&info, into))
    }

    /// TCP_MAXSEG: the payload of a full segment; without a connection RFC 9293's default (do_tcp_getsockopt).
    fn segment_size(&self, state: State) -> Result<i32> {
        match state.connection() {
            Some(conn) if self.stack.is_connected(conn) == Ok(true) => {
                Ok(i32::from(self.stack.info(conn)?.mss))
            }
            _ => Ok(536),
        }
    }

    /// `fcntl(2)` for the commands that concern a socket, or an epoll instance.
    pub fn fcntl(&mut self, fd: i32, command: i32, argument: i32) -> Result<i32> {
        let entry = self
            .files
            .table
            .entry_mut(slot_of(fd)?)
            .ok_or(Errno::EBADF)?;
        let (nonblocking, close_on_exec) = match entry {
            Entry::Socket(socket) => (Some(&mut socket.nonblocking), &mut socket.close_on_exec),
            Entry::Epoll(epoll) => (None, &mut epoll.close_on_exec),
        };
        match command {
            abi::F_GETFL => Ok(abi::O_RDWR
                | match nonblocking {
                    Some(true) => abi::O_NONBLOCK,
                    _ => 0,
                }),
            abi::F_SETFL => {
                if let Some(nonblocking) = nonblocking {
                    *nonblocking = argument & abi::O_NONBLOCK != 0;
                }
                Ok(0)
            }
            abi::F_GETFD => Ok(i32::from(*close_on_exec)),
            abi::F_SETFD => {
                *close_on_exec = argument & abi::FD_CLOEXEC != 0;
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// `ioctl(2)`: `FIONBIO` takes `argument`, the others give their number.
    pub fn ioctl(&mut self, fd: i32, request: i32, argument: i32) -> Result<i32> {
        let socket = self.files.table.get(fd)?;
        if request == abi::FIONBIO {
            socket.nonblocking = argument != 0;
            return Ok(0);
        }
        let state = socket.state;
        match (request, state) {
            (abi::SIOCATMARK, _) => Ok(i32::from(self.ahead(fd).at_mark())),
            (abi::FIONREAD | abi::SIOCOUTQ | abi::SIOCOUTQNSD, State::Listening(_)) => {
                Err(Errno::EINVAL)
            }
            (abi::FIONREAD | abi::SIOCOUTQ | abi::SIOCOUTQNSD, _) => {
                let Some(conn) = state.connection() else {
                    return Ok(0);
                };
                let status = self.stack.status(conn)?;
                // tcp_ioctl: a FIN that is not read does not count, one that is not acknowledged does.
                let unsent = status.unsent + u32::from(status.fin_unsent);
                Ok(match (status.state, request) {
                    (TcpState::SynSent | TcpState::SynReceived, _) => 0,
                    (_, abi::FIONREAD) => self.unread_to_mark(fd, status.unread),
                    (_, abi::SIOCOUTQNSD) => unsent,
                    _ => unsent + status.in_flight + u32::from(status.fin_in_flight),
                } as i32)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    /// Whether a call that cannot go on should fail with `EAGAIN` rather than wait.
    pub fn is_nonblocking(&mut self, fd: i32) -> bool {
        self.files
            .table
            .peek(fd)
            .is_ok_and(|socket| socket.nonblocking)
    }
}

/// Changes an option that is a number. `None`: there is no such option.
fn set_number(
    options: &mut SocketOptions,
    level: i32,
    name: i32,
    value: i32,
) -> Result<Option<()>> {
    match (level, name) {
        (abi::SOL_SOCKET, abi::SO_REUSEADDR) => options.reuse_address = value != 0,
        (abi::SOL_SOCKET, abi::SO_REUSEPORT) => options.reuse_port = value != 0,
        (abi::SOL_SOCKET, abi::SO_OOBINLINE) => options.urgent_in_line = value != 0,
        (abi::SOL_SOCKET, abi::SO_RCVLOWAT) => {
            options.receive_low = match value {
                ..0 => i32::MAX,
                0 => 1,
                _ => value,
            };
        }
        (abi::SOL_TCP, abi::TCP_DEFER_ACCEPT) => {
            options.defer_accept = tcp_options::deferral(value);
        }
        (abi::SOL_TCP, abi::TCP_INQ) => match value {
            0 | 1 => options.tell_unread = value != 0,
            _ => return Err(Errno::EINVAL),
        },
        (abi::SOL_SOCKET, abi::SO_ZEROCOPY) => match value {
            0 | 1 => options.zero_copy = value != 0,
            _ => return Err(Errno::EINVAL),
        },
        _ => {
            let kept = options.ignored.change(level, name, value)?;
            if kept.is_none() {
                return tcp_options::change(&mut options.tcp, level, name, value);
            }
        }
    }
    Ok(Some(()))
}

/// Returns the value of an option that is a number.
fn number(options: &SocketOptions, level: i32, name: i32) -> Option<i32> {
    Some(match (level, name) {
        (abi::SOL_SOCKET, abi::SO_REUSEADDR) => i32::from(options.reuse_address),
        (abi::SOL_SOCKET, abi::SO_REUSEPORT) => i32::from(options.reuse_port),
        (abi::SOL_SOCKET, abi::SO_OOBINLINE) => i32::from(options.urgent_in_line),
        (abi::SOL_SOCKET, abi::SO_RCVLOWAT) => options.receive_low,
        (abi::SOL_SOCKET, abi::SO_SNDLOWAT) => 1,
        (abi::SOL_TCP, abi::TCP_DEFER_ACCEPT) => options.defer_accept,
        (abi::SOL_TCP, abi::TCP_INQ) => i32::from(options.tell_unread),
        (abi::SOL_SOCKET, abi::SO_ZEROCOPY) => i32::from(options.zero_copy),
        _ => {
            let kept = options.ignored.value(level, name);
            return kept.or_else(|| tcp_options::value(&options.tcp, level, name));
        }
    })
}
