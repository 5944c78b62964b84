//! setsockopt, getsockopt, fcntl and ioctl. An option that would change nothing here is refused with `ENOPROTOOPT`, as
//! the kernel refuses one it was built without: a program learns the truth.

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::State;
use crate::tcp_options;
use core::time::Duration;
use janus_tcp::Instant;

type Result<T> = std::result::Result<T, Errno>;

/// The C `int` at the front of `value`.
fn int(value: &[u8]) -> Result<i32> {
    let bytes = value.first_chunk().ok_or(Errno::EINVAL)?;
    Ok(i32::from_ne_bytes(*bytes))
}

/// Copies as much of `value` as there is room for, as the kernel does.
fn put(value: &[u8], into: &mut [u8]) -> usize {
    let len = value.len().min(into.len());
    into[..len].copy_from_slice(&value[..len]);
    len
}

impl Sockets {
    /// `setsockopt(2)`; `value` in the layout of the C ABI.
    pub fn setsockopt(
        &mut self,
        now: Instant,
        fd: i32,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<()> {
        let socket = self.table.get(fd)?;
        let mut tcp = socket.options.tcp;
        match (level, name) {
            (abi::SOL_SOCKET, abi::SO_REUSEADDR) => socket.options.reuse_address = int(value)? != 0,
            (abi::IPPROTO_IPV6, abi::IPV6_V6ONLY) if socket.family.v6 => {
                // What is bound has said what it is for (do_ipv6_setsockopt).
                if socket.state != State::Idle || socket.bound.is_some() {
                    return Err(Errno::EINVAL);
                }
                socket.family.v6_only = int(value)? != 0;
            }
            (abi::SOL_SOCKET, abi::SO_LINGER) => {
                let (on, seconds) = (int(value)?, int(value.get(4..).unwrap_or(&[]))?);
                socket.options.linger = (on != 0).then_some(seconds);
            }
            // Urgent data is always delivered in line (RFC 6093 section 5).
            (abi::SOL_SOCKET, abi::SO_OOBINLINE) if int(value)? != 0 => {}
            (abi::SOL_TCP, abi::TCP_DEFER_ACCEPT) => {
                socket.options.defer_accept = int(value)?.max(0);
                self.apply_deferral(fd)?;
            }
            (abi::SOL_TCP, abi::TCP_CONGESTION) => {
                tcp.congestion = Some(tcp_options::algorithm(value)?);
                self.change_options(now, fd, tcp)?;
            }
            _ => {
                tcp_options::change(&mut tcp, level, name, int(value)?)?
                    .ok_or(Errno::ENOPROTOOPT)?;
                self.change_options(now, fd, tcp)?;
            }
        }
        Ok(())
    }

    /// The descriptor has these options from now on, unless the engine refuses them.
    fn change_options(
        &mut self,
        now: Instant,
        fd: i32,
        tcp: janus_tcp::SocketOptions,
    ) -> Result<()> {
        let before = core::mem::replace(&mut self.table.get(fd)?.options.tcp, tcp);
        let applied = self.apply_options(now, fd);
        if applied.is_err() {
            self.table.get(fd)?.options.tcp = before;
        }
        applied
    }

    /// TCP_DEFER_ACCEPT means something to a listener only.
    pub(crate) fn apply_deferral(&mut self, fd: i32) -> Result<()> {
        let socket = *self.table.get(fd)?;
        if let State::Listening(listener) = socket.state {
            let seconds = socket.options.defer_accept as u64;
            let time = (seconds > 0).then(|| Duration::from_secs(seconds));
            self.stack.set_defer_accept(listener, time)?;
        }
        Ok(())
    }

    /// `getsockopt(2)`: bytes written to `into`.
    pub fn getsockopt(&mut self, fd: i32, level: i32, name: i32, into: &mut [u8]) -> Result<usize> {
        let socket = *self.table.get(fd)?;
        let value = match (level, name) {
            (abi::SOL_SOCKET, abi::SO_ERROR) => self.take_error(fd)?,
            (abi::SOL_SOCKET, abi::SO_REUSEADDR) => i32::from(socket.options.reuse_address),
            (abi::SOL_SOCKET, abi::SO_OOBINLINE) => 1,
            (abi::SOL_SOCKET, abi::SO_TYPE) => abi::SOCK_STREAM,
            (abi::SOL_SOCKET, abi::SO_DOMAIN) if socket.family.v6 => abi::AF_INET6,
            (abi::SOL_SOCKET, abi::SO_DOMAIN) => abi::AF_INET,
            (abi::IPPROTO_IPV6, abi::IPV6_V6ONLY) if socket.family.v6 => {
                i32::from(socket.family.v6_only)
            }
            (abi::SOL_SOCKET, abi::SO_PROTOCOL) => abi::IPPROTO_TCP,
            (abi::SOL_SOCKET, abi::SO_ACCEPTCONN) => {
                i32::from(matches!(socket.state, State::Listening(_)))
            }
            (abi::SOL_SOCKET, abi::SO_LINGER) => {
                let (on, seconds) = (
                    socket.options.linger.is_some(),
                    socket.options.linger.unwrap_or(0),
                );
                let mut linger = i32::from(on).to_ne_bytes().to_vec();
                linger.extend(seconds.to_ne_bytes());
                return Ok(put(&linger, into));
            }
            (abi::SOL_TCP, abi::TCP_MAXSEG) => match socket.options.tcp.max_segment {
                Some(wished) if !matches!(socket.state, State::Connected(_)) => wished.into(),
                _ => self.segment_size(socket.state)?,
            },
            (abi::SOL_TCP, abi::TCP_DEFER_ACCEPT) => socket.options.defer_accept,
            (abi::SOL_TCP, abi::TCP_CONGESTION) => {
                let algorithm = socket.options.tcp.congestion.unwrap_or_default();
                return Ok(put(&tcp_options::algorithm_name(algorithm), into));
            }
            (abi::SOL_TCP, abi::TCP_INFO) => match socket.state {
                State::Connecting(conn) | State::Connected(conn) => {
                    let info = self.stack.info(conn)?;
                    return Ok(put(&tcp_options::tcp_info(&info), into));
                }
                State::Idle | State::Listening(_) => return Err(Errno::EINVAL),
            },
            _ => tcp_options::value(&socket.options.tcp, level, name).ok_or(Errno::ENOPROTOOPT)?,
        };
        Ok(put(&value.to_ne_bytes(), into))
    }

    /// SO_ERROR: the connection's error, told once.
    fn take_error(&mut self, fd: i32) -> Result<i32> {
        let socket = *self.table.get(fd)?;
        let (State::Connecting(conn) | State::Connected(conn)) = socket.state else {
            return Ok(0);
        };
        match self.stack.is_connected(conn) {
            Err(error) if !socket.error_told => {
                self.table.get(fd)?.error_told = true;
                Ok(Errno::from(error).0)
            }
            _ => Ok(0),
        }
    }

    /// TCP_MAXSEG: the payload of a full segment; without a connection RFC 9293's default (do_tcp_getsockopt).
    fn segment_size(&self, state: State) -> Result<i32> {
        match state {
            State::Connected(conn) => Ok(i32::from(self.stack.info(conn)?.mss)),
            _ => Ok(536),
        }
    }

    /// `fcntl(2)` for the commands that concern a socket.
    pub fn fcntl(&mut self, fd: i32, command: i32, argument: i32) -> Result<i32> {
        let socket = self.table.get(fd)?;
        match command {
            abi::F_GETFL => Ok(abi::O_RDWR
                | if socket.nonblocking {
                    abi::O_NONBLOCK
                } else {
                    0
                }),
            abi::F_SETFL => {
                socket.nonblocking = argument & abi::O_NONBLOCK != 0;
                Ok(0)
            }
            abi::F_GETFD => Ok(i32::from(socket.close_on_exec)),
            abi::F_SETFD => {
                socket.close_on_exec = argument & abi::FD_CLOEXEC != 0;
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// `ioctl(2)`: `FIONBIO` takes `argument`, the others give their number.
    pub fn ioctl(&mut self, fd: i32, request: i32, argument: i32) -> Result<i32> {
        let socket = self.table.get(fd)?;
        let state = socket.state;
        match request {
            abi::FIONBIO => {
                socket.nonblocking = argument != 0;
                Ok(0)
            }
            abi::SIOCATMARK => match state {
                State::Connected(conn) => Ok(i32::from(self.stack.urgent(conn)? == Some(1))),
                _ => Err(Errno::EINVAL),
            },
            abi::FIONREAD | abi::SIOCOUTQ => match state {
                State::Listening(_) => Err(Errno::EINVAL),
                State::Idle | State::Connecting(_) => Ok(0),
                State::Connected(conn) => {
                    let info = self.stack.info(conn)?;
                    Ok(if request == abi::FIONREAD {
                        info.unread
                    } else {
                        info.unsent + info.in_flight
                    } as i32)
                }
            },
            _ => Err(Errno::EINVAL),
        }
    }

    /// Whether a call that cannot go on should fail with `EAGAIN` rather than wait.
    pub fn is_nonblocking(&mut self, fd: i32) -> bool {
        self.table.get(fd).is_ok_and(|socket| socket.nonblocking)
    }
}
