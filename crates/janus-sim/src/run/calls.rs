//! System calls of a script, carried out on the sockets under test, and their outcome compared to the one expected.
//! A call that cannot go on says so; whether it may wait for that is decided in `run`.

use super::Runner;
use super::flow::Flow;
use super::values::{by_reference, c_int, c_int_or, int, option_bytes, vector};
use crate::script::{Call, Expr};
use janus_posix::{Errno, Lingering, abi};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

mod events;
mod transfer;

/// A descriptor of the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fd {
    pub(super) script: i64,
    pub(super) live: i32,
    /// The connection its packets belong to.
    pub(super) flow: Option<usize>,
}

/// Result of a call.
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

/// How far a call has come that is tried again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    /// Bytes it has moved.
    done: usize,
    /// Bytes of it that stand in the connection's record of what was written.
    noted: usize,
    /// Bytes that it has read.
    buffer: Vec<u8>,
    /// Its `close` waits for this.
    lingering: Option<Lingering>,
    /// When it gives up, in microseconds since the start.
    pub(super) deadline: Option<u64>,
    /// It has: this is the last try.
    pub(super) timed_out: bool,
}

impl Attempt {
    fn value(value: i64) -> Attempt {
        Attempt::Returned(Returned { value, errno: None })
    }
}

/// The largest socket option there is room for.
const OPTION_MAX: usize = 512;
/// The calls there are, however often their arguments are wrong.
const CALLS: [&str; 26] = [
    "socket",
    "bind",
    "listen",
    "accept",
    "accept4",
    "connect",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "write",
    "writev",
    "send",
    "sendto",
    "sendmsg",
    "fcntl",
    "ioctl",
    "close",
    "shutdown",
    "getsockopt",
    "setsockopt",
    "poll",
    "epoll_create",
    "epoll_ctl",
    "epoll_wait",
];

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
    /// Tries a call once. `course` is what earlier tries of it have left.
    pub(super) fn attempt(&mut self, call: &Call, course: &mut Course) -> Result<Attempt> {
        use Expr::Ellipsis;
        match (call.name.as_str(), call.arguments.as_slice()) {
            ("read", [fd, data, n]) => self.receive(fd, data, (&Self::one(n)?, 0), course),
            ("readv", [fd, buffers, count]) => {
                self.receive(fd, &Ellipsis, (&vector(buffers, count)?, 0), course)
            }
            ("recv", [fd, data, n, flags]) | ("recvfrom", [fd, data, n, flags, _, _]) => {
                self.receive(fd, data, (&Self::one(n)?, c_int(flags)?), course)
            }
            ("recvmsg", [fd, message, flags]) => {
                self.receive_message(fd, message, c_int(flags)?, course)
            }
            ("write", [fd, data, n]) => self.transmit(fd, data, (&Self::one(n)?, 0), course),
            ("writev", [fd, buffers, count]) => {
                self.transmit(fd, &Ellipsis, (&vector(buffers, count)?, 0), course)
            }
            ("send", [fd, data, n, flags]) | ("sendto", [fd, data, n, flags, _, _]) => {
                self.transmit(fd, data, (&Self::one(n)?, c_int(flags)?), course)
            }
            ("sendmsg", [fd, message, flags]) => {
                self.transmit_message(fd, message, c_int(flags)?, course)
            }
            ("poll", [fds, count, timeout]) => self.poll(fds, count, timeout, course),
            ("epoll_create", [size]) => self.epoll_create(call, size),
            ("epoll_ctl", [epoll, op, fd, event]) => self.epoll_ctl(epoll, op, fd, event),
            ("epoll_wait", [epoll, event, most, timeout]) => {
                self.epoll_wait(epoll, event, (most, timeout), course)
            }
            ("connect", [fd, address, _]) => self.connect(fd, address, course),
            ("accept", [fd, _, _]) | ("accept4", [fd, _, _, _]) => self.accept(call, fd, course),
            ("close", [fd]) => self.close(fd, course),
            _ => self.attempt_at_once(call),
        }
    }

    /// The calls that never wait.
    fn attempt_at_once(&mut self, call: &Call) -> Result<Attempt> {
        let now = self.world.instant();
        let outcome = match (call.name.as_str(), call.arguments.as_slice()) {
            ("socket", [domain, kind, protocol]) => {
                return self.socket(call, domain, kind, protocol);
            }
            ("bind", [fd, address, _]) => {
                let any = SocketAddr::new(self.any(), self.settings().bind_port);
                let address = address_or(address, any)?;
                let fd = self.live(fd)?;
                zero(self.world.sockets().bind(fd, address))
            }
            ("listen", [fd, backlog]) => {
                let fd = self.live(fd)?;
                self.current = None;
                zero(self.world.sockets().listen(fd, c_int(backlog)?))
            }
            ("shutdown", [fd, how]) => {
                let (fd, how) = (self.live(fd)?, c_int(how)?);
                zero(self.world.sockets().shutdown(now, fd, how))
            }
            ("setsockopt", [fd, level, name, value, len]) => {
                let fd = self.live(fd)?;
                let mut value = option_bytes(value)?;
                if *len != Expr::Ellipsis {
                    value.truncate(super::values::len(len)?);
                }
                let (level, name) = (c_int(level)?, c_int(name)?);
                zero(
                    self.world
                        .sockets()
                        .setsockopt(now, fd, level, name, &value),
                )
            }
            ("getsockopt", [fd, level, name, value, len]) => {
                return self.getsockopt(fd, (level, name), value, len);
            }
            ("fcntl", [fd, command, rest @ ..]) if rest.len() < 2 => {
                let (fd, command) = (self.live(fd)?, c_int(command)?);
                let argument = rest.first().map_or(Ok(0), c_int)?;
                let outcome = self.world.sockets().fcntl(fd, command, argument);
                outcome.map(i64::from)
            }
            ("ioctl", [fd, request, value]) => return self.ioctl(fd, request, value),
            ("open" | "sendfile" | "pipe" | "splice", _) => {
                return Err(format!(
                    "`{}` is not here: these are the sockets of one stack, without files and pipes; use `write` and `read`",
                    call.name
                ));
            }
            ("cap_set" | "psp_rx_assoc" | "psp_tx_assoc", _) => {
                return Err(format!("`{}` is a kernel's affair and not here", call.name));
            }
            (name, _) if CALLS.contains(&name) => return wrong_arguments(call),
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

    /// In the kernel the caller would sleep now, for so long at most.
    fn blocked(&self, course: &mut Course, patience: Option<Duration>) -> Attempt {
        if course.deadline.is_none() {
            let micros = patience.map(|time| time.as_micros() as u64);
            course.deadline = micros.map(|micros| self.world.micros().saturating_add(micros));
        }
        Attempt::Blocked
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
            .sockets()
            .socket(domain, c_int(kind)?, c_int(protocol)?)
        {
            Ok(live) => self.opened(call, live, None),
            Err(errno) => Ok(self.returned(Err(errno))),
        }
    }

    fn accept(&mut self, call: &Call, fd: &Expr, course: &mut Course) -> Result<Attempt> {
        let listener = self.live(fd)?;
        match self.world.sockets().accept(listener) {
            Ok((live, peer)) => {
                if let ("accept4", Some(flags)) = (call.name.as_str(), call.arguments.get(3)) {
                    let nonblocking = c_int(flags)? & abi::SOCK_NONBLOCK;
                    // Of a descriptor that was made a moment ago.
                    let _ = self.world.sockets().fcntl(live, abi::F_SETFL, nonblocking);
                }
                let peer = canonical(peer);
                let flow = self.flows.iter().rposition(|flow| flow.remote == peer);
                self.opened(call, live, flow)
            }
            Err(Errno::EAGAIN)
                if !course.timed_out && !self.world.sockets().is_nonblocking(listener) =>
            {
                let patience = self.world.sockets().receive_timeout(listener);
                Ok(self.blocked(course, patience))
            }
            Err(errno) => Ok(self.returned(Err(errno))),
        }
    }

    fn connect(&mut self, fd: &Expr, address: &Expr, course: &mut Course) -> Result<Attempt> {
        let settings = self.settings();
        let default = match (settings.mapped, settings.remote_ip) {
            (true, IpAddr::V4(ip)) => ip.to_ipv6_mapped().into(),
            (_, ip) => ip,
        };
        let remote = address_or(address, SocketAddr::new(default, settings.connect_port))?;
        let (live, now) = (self.live(fd)?, self.world.instant());
        let outcome = self.world.sockets().connect(now, live, remote);
        if outcome == Err(Errno::EINPROGRESS) {
            let local = self
                .world
                .sockets()
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
        if waiting && course.timed_out {
            // Whoever has waited is told that it goes on.
            return Ok(self.returned(Err(Errno::EINPROGRESS)));
        }
        if waiting && !self.world.sockets().is_nonblocking(live) {
            let patience = self.world.sockets().send_timeout(live);
            return Ok(self.blocked(course, patience));
        }
        Ok(self.returned(zero(outcome)))
    }

    /// With SO_LINGER on and time to wait, a `close` waits for the last acknowledgement.
    fn close(&mut self, fd: &Expr, course: &mut Course) -> Result<Attempt> {
        if let Some(lingering) = &course.lingering {
            return Ok(
                match self.world.sockets().lingers(lingering) && !course.timed_out {
                    true => Attempt::Blocked,
                    false => Attempt::value(0),
                },
            );
        }
        let script = int(fd)?;
        let (live, now) = (self.live(fd)?, self.world.instant());
        self.fds.retain(|fd| fd.script != script);
        Ok(match self.world.sockets().close_lingering(now, live) {
            Ok(Some(lingering)) => {
                let patience = lingering.time;
                course.lingering = Some(lingering);
                self.blocked(course, Some(patience))
            }
            Ok(None) => Attempt::value(0),
            Err(errno) => self.returned(Err(errno)),
        })
    }

    /// `getsockopt(4, SOL_SOCKET, SO_ERROR, [0], [4]) = 0`: the values in brackets are those expected.
    fn getsockopt(
        &mut self,
        fd: &Expr,
        (level, name): (&Expr, &Expr),
        value: &Expr,
        len: &Expr,
    ) -> Result<Attempt> {
        let live = self.live(fd)?;
        let room = match len {
            Expr::Ellipsis => OPTION_MAX,
            _ => by_reference(len)? as usize,
        };
        let mut got = vec![0; room.min(OPTION_MAX)];
        let (level, name) = (c_int(level)?, c_int(name)?);
        let outcome = self.world.sockets().getsockopt(live, level, name, &mut got);
        if let Ok(n) = outcome {
            if *len != Expr::Ellipsis && n != room {
                return Err(format!("the option's length: expected {room}, actual {n}"));
            }
            got.truncate(n);
        }
        if outcome.is_ok() && *value != Expr::Ellipsis {
            let mut expected = option_bytes(value)?;
            // A name may be given without the zeros behind it.
            expected.resize(got.len().max(expected.len()), 0);
            if got != expected {
                let text = |bytes: &[u8]| match (value, bytes.first_chunk()) {
                    (Expr::List(_), Some(int)) => i32::from_ne_bytes(*int).to_string(),
                    (Expr::Bytes(_), _) => format!("\"{}\"", bytes.escape_ascii()),
                    _ => format!("{bytes:02x?}"),
                };
                return Err(format!(
                    "the option's value: expected {}, actual {}",
                    text(&expected),
                    text(&got)
                ));
            }
        }
        Ok(self.returned(outcome.map(|_| 0)))
    }

    /// `ioctl(4, FIONREAD, [100]) = 0`, `ioctl(4, FIONBIO, [1]) = 0`.
    fn ioctl(&mut self, fd: &Expr, request: &Expr, value: &Expr) -> Result<Attempt> {
        let (live, request, value) = (self.live(fd)?, c_int(request)?, by_reference(value)?);
        let outcome = self.world.sockets().ioctl(live, request, value);
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
