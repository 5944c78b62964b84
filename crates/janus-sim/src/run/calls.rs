//! System calls of a script, carried out on the sockets under test, and their outcome compared to the one expected.
//! A call that cannot go on says so; whether it may wait for that is decided in `run`.

use super::Runner;
use super::flow::{Flow, WRITTEN_MAX, inbound_byte, outbound_byte};
use super::values::{by_reference, c_int, c_int_or, int, len, option_bytes, vector_len};
use crate::script::{Call, Expr};
use janus_posix::{Errno, abi};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A descriptor of the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fd {
    pub(super) script: i64,
    pub(super) live: i32,
    /// The connection its packets belong to.
    pub(super) flow: Option<usize>,
}

/// What a call returned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Returned {
    pub(super) value: i64,
    pub(super) errno: Option<Errno>,
}

impl std::fmt::Display for Returned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.errno {
            Some(errno) => write!(f, "{} {errno}", self.value),
            None => write!(f, "{}", self.value),
        }
    }
}

pub(super) enum Attempt {
    Returned(Returned),
    /// In the kernel the caller would be asleep now.
    Blocked,
}

impl Attempt {
    fn value(value: i64) -> Attempt {
        Attempt::Returned(Returned { value, errno: None })
    }
}

type Result<T> = std::result::Result<T, String>;

/// An outcome without a value.
fn zero(outcome: std::result::Result<(), Errno>) -> std::result::Result<i64, Errno> {
    outcome.map(|()| 0)
}

fn wrong_arguments<T>(call: &Call) -> Result<T> {
    Err(format!(
        "`{}` cannot be called with {} arguments of this kind",
        call.name,
        call.arguments.len()
    ))
}

impl Runner<'_> {
    /// Tries a call once. `progress` is how much a blocking write has written in earlier tries.
    pub(super) fn attempt(&mut self, call: &Call, progress: &mut usize) -> Result<Attempt> {
        use Expr::Ellipsis;
        let now = self.world.instant();
        let outcome = match (call.name.as_str(), call.arguments.as_slice()) {
            ("socket", [domain, kind, protocol]) => {
                return self.socket(call, domain, kind, protocol);
            }
            ("bind", [fd, address, _]) => {
                let any = SocketAddr::new(self.any(), self.settings().bind_port);
                let address = address_or(address, any)?;
                let fd = self.live(fd)?;
                zero(self.world.sockets.bind(fd, address))
            }
            ("listen", [fd, backlog]) => {
                let fd = self.live(fd)?;
                self.current = None;
                zero(self.world.sockets.listen(fd, c_int(backlog)?))
            }
            ("accept", [fd, _, _]) | ("accept4", [fd, _, _, _]) => return self.accept(call, fd),
            ("connect", [fd, address, _]) => return self.connect(fd, address),
            ("read", [fd, Ellipsis, n]) => return self.receive(fd, len(n)?, 0),
            ("readv", [fd, vector, count]) => {
                return self.receive(fd, vector_len(vector, count)?, 0);
            }
            ("recv", [fd, Ellipsis, n, flags]) | ("recvfrom", [fd, Ellipsis, n, flags, _, _]) => {
                return self.receive(fd, len(n)?, c_int(flags)?);
            }
            ("write", [fd, data, n]) => return self.send(fd, data, len(n)?, 0, progress),
            ("writev", [fd, vector, count]) => {
                return self.send(fd, &Ellipsis, vector_len(vector, count)?, 0, progress);
            }
            ("send", [fd, data, n, flags]) | ("sendto", [fd, data, n, flags, _, _]) => {
                return self.send(fd, data, len(n)?, c_int(flags)?, progress);
            }
            ("shutdown", [fd, how]) => {
                let (fd, how) = (self.live(fd)?, c_int(how)?);
                zero(self.world.sockets.shutdown(now, fd, how))
            }
            ("close", [fd]) => self.close(fd)?,
            ("setsockopt", [fd, level, name, value, _]) => {
                let fd = self.live(fd)?;
                let value = option_bytes(value)?;
                let (level, name) = (c_int(level)?, c_int(name)?);
                zero(self.world.sockets.setsockopt(now, fd, level, name, &value))
            }
            ("getsockopt", [fd, level, name, value, _]) => {
                return self.getsockopt(fd, level, name, value);
            }
            ("fcntl", [fd, command]) => {
                let fd = self.live(fd)?;
                self.world
                    .sockets
                    .fcntl(fd, c_int(command)?, 0)
                    .map(i64::from)
            }
            ("fcntl", [fd, command, argument]) => {
                let fd = self.live(fd)?;
                self.world
                    .sockets
                    .fcntl(fd, c_int(command)?, c_int(argument)?)
                    .map(i64::from)
            }
            ("ioctl", [fd, request, value]) => return self.ioctl(fd, request, value),
            (
                "epoll_create" | "epoll_ctl" | "epoll_wait" | "poll" | "sendmsg" | "recvmsg"
                | "sendfile" | "splice",
                _,
            ) => {
                return Err(format!("`{}` is not supported yet", call.name));
            }
            (
                "socket" | "bind" | "listen" | "accept" | "connect" | "read" | "write" | "recv"
                | "send" | "sendto" | "shutdown" | "close" | "setsockopt" | "getsockopt" | "fcntl"
                | "ioctl",
                _,
            ) => return wrong_arguments(call),
            _ => return Err(format!("`{}` is not a system call known here", call.name)),
        };
        Ok(self.returned(outcome))
    }

    fn returned(&self, outcome: std::result::Result<i64, Errno>) -> Attempt {
        Attempt::Returned(match outcome {
            Ok(value) => Returned { value, errno: None },
            Err(errno) => Returned {
                value: -1,
                errno: Some(errno),
            },
        })
    }

    /// The outcome of a call that waits: `EAGAIN` on a blocking descriptor is no outcome yet.
    fn unless_blocked(
        &mut self,
        fd: i32,
        outcome: std::result::Result<i64, Errno>,
        flags: i32,
    ) -> Attempt {
        let patient = flags & abi::MSG_DONTWAIT == 0 && !self.world.sockets.is_nonblocking(fd);
        if outcome == Err(Errno::EAGAIN) && patient {
            Attempt::Blocked
        } else {
            self.returned(outcome)
        }
    }

    fn fd(&self, expr: &Expr) -> Result<Option<Fd>> {
        let script = int(expr)?;
        Ok(self.fds.iter().find(|fd| fd.script == script).copied())
    }

    /// The descriptor behind the script's number. One that the script has not opened is not open.
    fn live(&self, expr: &Expr) -> Result<i32> {
        Ok(self.fd(expr)?.map_or(-1, |fd| fd.live))
    }

    /// Notes which descriptor stands for the script's number.
    fn opened(&mut self, call: &Call, live: i32, flow: Option<usize>) -> Result<Attempt> {
        let script = int(&call.result)?;
        if script >= 0 {
            if self.fds.iter().any(|fd| fd.script == script) {
                return Err(format!("the script has a descriptor {script} already"));
            }
            self.fds.push(Fd { script, live, flow });
        }
        Ok(Attempt::value(if script >= 0 {
            script
        } else {
            live.into()
        }))
    }

    /// The wildcard of the script's family.
    fn any(&self) -> IpAddr {
        match self.settings().local_ip {
            IpAddr::V4(_) if !self.settings().mapped => Ipv4Addr::UNSPECIFIED.into(),
            _ => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    fn socket(
        &mut self,
        call: &Call,
        domain: &Expr,
        kind: &Expr,
        protocol: &Expr,
    ) -> Result<Attempt> {
        let domain = match self.any() {
            IpAddr::V4(_) => c_int_or(domain, abi::AF_INET)?,
            IpAddr::V6(_) => c_int_or(domain, abi::AF_INET6)?,
        };
        match self
            .world
            .sockets
            .socket(domain, c_int(kind)?, c_int(protocol)?)
        {
            Ok(live) => self.opened(call, live, None),
            Err(errno) => Ok(self.returned(Err(errno))),
        }
    }

    fn accept(&mut self, call: &Call, fd: &Expr) -> Result<Attempt> {
        let listener = self.live(fd)?;
        match self.world.sockets.accept(listener) {
            Ok((live, peer)) => {
                if let ("accept4", Some(flags)) = (call.name.as_str(), call.arguments.get(3)) {
                    let nonblocking = c_int(flags)? & abi::SOCK_NONBLOCK;
                    // Of a descriptor that was made a moment ago.
                    let _ = self.world.sockets.fcntl(live, abi::F_SETFL, nonblocking);
                }
                let peer = canonical(peer);
                let flow = self.flows.iter().rposition(|flow| flow.remote == peer);
                self.opened(call, live, flow)
            }
            Err(errno) => Ok(self.unless_blocked(listener, Err(errno), 0)),
        }
    }

    fn connect(&mut self, fd: &Expr, address: &Expr) -> Result<Attempt> {
        let settings = self.settings();
        let default = match (settings.mapped, settings.remote_ip) {
            (true, IpAddr::V4(ip)) => ip.to_ipv6_mapped().into(),
            (_, ip) => ip,
        };
        let remote = address_or(address, SocketAddr::new(default, settings.connect_port))?;
        let (live, now) = (self.live(fd)?, self.world.instant());
        let outcome = self.world.sockets.connect(now, live, remote);
        if outcome == Err(Errno::EINPROGRESS) {
            let local = self
                .world
                .sockets
                .getsockname(live)
                .map_err(|errno| errno.to_string())?;
            self.flows
                .push(Flow::new(canonical(local), canonical(remote)));
            self.current = Some(self.flows.len() - 1);
            let script = int(fd)?;
            if let Some(fd) = self.fds.iter_mut().find(|fd| fd.script == script) {
                fd.flow = self.current;
            }
        }
        let waiting = matches!(outcome, Err(Errno::EINPROGRESS | Errno::EALREADY));
        if waiting && !self.world.sockets.is_nonblocking(live) {
            return Ok(Attempt::Blocked);
        }
        Ok(self.returned(zero(outcome)))
    }

    fn receive(&mut self, fd: &Expr, len: usize, flags: i32) -> Result<Attempt> {
        let (live, now) = (self.live(fd)?, self.world.instant());
        let mut into = vec![0; len];
        let outcome = self.world.sockets.recv(now, live, &mut into, flags);
        if let (Ok(n), Some(flow)) = (outcome, self.fd(fd)?.and_then(|fd| fd.flow)) {
            let flow = &mut self.flows[flow];
            let wrong = into[..n]
                .iter()
                .zip(flow.read..)
                .find(|(byte, offset)| **byte != inbound_byte(*offset));
            if let Some((_, offset)) = wrong {
                return Err(format!(
                    "the byte read at sequence number {} is not the one sent there",
                    offset + 1
                ));
            }
            if flags & abi::MSG_PEEK == 0 {
                flow.read += n as u64;
            }
        }
        Ok(self.unless_blocked(live, outcome.map(|n| n as i64), flags))
    }

    /// A blocking write is done when all is taken; it goes on where the try before ended.
    fn send(
        &mut self,
        fd: &Expr,
        data: &Expr,
        len: usize,
        flags: i32,
        progress: &mut usize,
    ) -> Result<Attempt> {
        let (live, now) = (self.live(fd)?, self.world.instant());
        let flow = self.fd(fd)?.and_then(|fd| fd.flow);
        let written = flow.map_or(0, |flow| self.flows[flow].written.len());
        if written + len > WRITTEN_MAX {
            return Err(format!(
                "a script may write {WRITTEN_MAX} bytes on a connection"
            ));
        }
        let bytes = match data {
            Expr::Ellipsis => (0..(len - *progress) as u64)
                .map(|at| outbound_byte(written as u64 + at))
                .collect(),
            Expr::Bytes(text) if text.len() >= len => text[*progress..len].to_vec(),
            _ => {
                return Err(format!(
                    "`{data}` is not {len} bytes; write `...` to leave them to the runner"
                ));
            }
        };
        let outcome = self.world.sockets.send(now, live, &bytes, flags);
        if let (Ok(n), Some(flow)) = (outcome, flow) {
            self.flows[flow].written.extend_from_slice(&bytes[..n]);
        }
        let patient = flags & abi::MSG_DONTWAIT == 0 && !self.world.sockets.is_nonblocking(live);
        Ok(match outcome {
            Ok(n) if *progress + n < len && patient => {
                *progress += n;
                Attempt::Blocked
            }
            Ok(n) => Attempt::value((*progress + n) as i64),
            Err(Errno::EAGAIN) => self.unless_blocked(live, Err(Errno::EAGAIN), flags),
            // What was written before the error counts; the error is told by the next call.
            Err(_) if *progress > 0 => Attempt::value(*progress as i64),
            Err(errno) => self.returned(Err(errno)),
        })
    }

    fn close(&mut self, fd: &Expr) -> Result<std::result::Result<i64, Errno>> {
        let script = int(fd)?;
        let live = self.live(fd)?;
        self.fds.retain(|fd| fd.script != script);
        let now = self.world.instant();
        Ok(zero(self.world.sockets.close(now, live)))
    }

    /// `getsockopt(4, SOL_SOCKET, SO_ERROR, [0], [4]) = 0`: the value in brackets is the one expected.
    fn getsockopt(
        &mut self,
        fd: &Expr,
        level: &Expr,
        name: &Expr,
        value: &Expr,
    ) -> Result<Attempt> {
        let live = self.live(fd)?;
        let mut got = [0; 8];
        let outcome = self
            .world
            .sockets
            .getsockopt(live, c_int(level)?, c_int(name)?, &mut got);
        if let (Ok(n), true) = (outcome, *value != Expr::Ellipsis) {
            let expected = option_bytes(value)?;
            let actual = &got[..n.min(expected.len())];
            if actual != expected {
                let number = |bytes: &[u8]| {
                    bytes
                        .first_chunk()
                        .map_or(0, |int| i32::from_ne_bytes(*int))
                };
                return Err(format!(
                    "the option's value: expected {}, actual {}",
                    number(&expected),
                    number(actual)
                ));
            }
        }
        Ok(self.returned(outcome.map(|_| 0)))
    }

    /// `ioctl(4, FIONREAD, [100]) = 0`, `ioctl(4, FIONBIO, [1]) = 0`.
    fn ioctl(&mut self, fd: &Expr, request: &Expr, value: &Expr) -> Result<Attempt> {
        let (live, request, value) = (self.live(fd)?, c_int(request)?, by_reference(value)?);
        let outcome = self.world.sockets.ioctl(live, request, value);
        if request == abi::FIONBIO {
            return Ok(self.returned(outcome.map(i64::from)));
        }
        match outcome {
            Ok(actual) if actual != value => {
                Err(format!("the value: expected {value}, actual {actual}"))
            }
            outcome => Ok(self.returned(outcome.map(|_| 0))),
        }
    }
}

/// As it is on the wire.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn address_or(expr: &Expr, default: SocketAddr) -> Result<SocketAddr> {
    match expr {
        Expr::Ellipsis => Ok(default),
        Expr::Address(address) => Ok(*address),
        _ => Err(format!("`{expr}` is not an address")),
    }
}

/// Why the outcome is not the one the script expects, if it is not.
pub(super) fn mismatch(call: &Call, actual: Returned) -> Result<Option<String>> {
    let wrong_value = call.result != Expr::Ellipsis && int(&call.result)? != actual.value;
    let wrong_errno = match &call.errno {
        Some(name) => {
            Errno::by_name(name).ok_or_else(|| format!("`{name}` is not an errno known here"))?
                != actual.errno.unwrap_or(Errno(0))
        }
        None => false,
    };
    Ok((wrong_value || wrong_errno).then(|| {
        let errno = call
            .errno
            .as_ref()
            .map_or(String::new(), |name| format!(" {name}"));
        format!(
            "{}: expected {}{errno}, actual {actual}",
            call.name, call.result
        )
    }))
}
