//! The calls that move no data: what the caller's pointers hold goes to [`janus_posix::Sockets`], and its answers back.

use super::cabi::memory::UserPtr;
use super::cabi::sockaddr::{self, Name};
use super::descriptors::Kind;
use super::room::{Attempt, Patience, Room, State};
use janus_posix::{Errno, Lingering, abi};
use std::net::SocketAddr;

type Result<T> = std::result::Result<T, Errno>;

/// The longest value of an option that is read.
const OPTION_MAX: u32 = 4_096;

/// Gives a socket a descriptor of the process.
pub(super) fn publish(state: &mut State, socket: i32) -> Result<i32> {
    publish_kind(state, Kind::Socket(socket))
}

fn publish_kind(state: &mut State, kind: Kind) -> Result<i32> {
    match state.open.add(kind) {
        Ok((fd, forgotten)) => {
            // The tool closed it by the C library.
            if let Some(kind) = forgotten {
                drop_kind(state, kind);
            }
            Ok(fd)
        }
        Err(errno) => {
            drop_kind(state, kind);
            Err(errno)
        }
    }
}

/// Closes what a descriptor stood for; what SO_LINGER wants waited for.
fn drop_kind(state: &mut State, kind: Kind) -> Option<Lingering> {
    if let Some(end) = state.open.end(kind) {
        end.closed = true;
    }
    let Kind::Socket(socket) = kind else {
        return None;
    };
    let (mut sockets, now) = state.sockets();
    // Whether it was still there does not matter any more.
    sockets.close_lingering(now, socket).ok().flatten()
}

/// Whether there is such a descriptor: what the kernel asks before it looks at anything else.
pub(super) fn check(room: &Room, fd: i32) -> Result<()> {
    room.call(|state| state.open.get(fd).map(|_| ()))
}

pub(super) fn socket(room: &Room, domain: i32, kind: i32, protocol: i32) -> Result<i32> {
    room.call(|state| {
        let socket = state.host.sockets().socket(domain, kind, protocol)?;
        publish(state, socket)
    })
}

pub(super) fn bind(room: &Room, fd: i32, name: UserPtr, len: u32) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        match sockaddr::read(name, len)? {
            Name::Address(address) => state.host.sockets().bind(socket, address)?,
            Name::Nobody => return Err(Errno::EAFNOSUPPORT),
        }
        Ok(0)
    })
}

pub(super) fn listen(room: &Room, fd: i32, backlog: i32) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        state.host.sockets().listen(socket, backlog)?;
        Ok(0)
    })
}

pub(super) fn accept(room: &Room, fd: i32, name: UserPtr, len: UserPtr) -> Result<i32> {
    let mut patience = Patience::default();
    room.wait(|state| {
        let accepted = state
            .open
            .socket(fd)
            .and_then(|socket| Ok((socket, state.host.sockets().accept(socket)?)));
        match accepted {
            Ok((_, (socket, peer))) => Attempt::Done(hand_out(state, socket, peer, name, len)),
            Err(Errno::EAGAIN) if !is_nonblocking(state, fd) => {
                let socket = state.open.socket(fd).unwrap_or(-1);
                let timeout = state.host.sockets().receive_timeout(socket);
                Attempt::Blocked(Err(Errno::EAGAIN), patience.until(state, timeout))
            }
            Err(errno) => Attempt::Done(Err(errno)),
        }
    })
}

/// Publishes an accepted socket; closes it again when its name cannot be written, as the kernel does.
fn hand_out(
    state: &mut State,
    socket: i32,
    peer: SocketAddr,
    name: UserPtr,
    len: UserPtr,
) -> Result<i32> {
    let fd = publish(state, socket)?;
    if let Err(errno) = sockaddr::write(peer, name, len) {
        let kind = state.open.remove(fd)?;
        drop_kind(state, kind);
        return Err(errno);
    }
    Ok(fd)
}

pub(super) fn is_nonblocking(state: &mut State, fd: i32) -> bool {
    let socket = state.open.socket(fd);
    socket.is_ok_and(|socket| state.host.sockets().is_nonblocking(socket))
}

pub(super) fn connect(room: &Room, fd: i32, name: UserPtr, len: u32) -> Result<i32> {
    let mut patience = Patience::default();
    room.wait(|state| {
        let outcome = (|| {
            let socket = state.open.socket(fd)?;
            let name = sockaddr::read(name, len)?;
            let (mut sockets, now) = state.sockets();
            match name {
                Name::Address(address) => sockets.connect(now, socket, address),
                Name::Nobody => sockets.disconnect(now, socket),
            }
        })();
        match outcome {
            Err(Errno::EINPROGRESS | Errno::EALREADY) if !is_nonblocking(state, fd) => {
                let socket = state.open.socket(fd).unwrap_or(-1);
                let timeout = state.host.sockets().send_timeout(socket);
                let until = patience.until(state, timeout);
                match until {
                    Some(until) if until <= state.micros() => {
                        Attempt::Done(Err(Errno::EINPROGRESS))
                    }
                    until => Attempt::Blocked(Err(Errno::EAGAIN), until),
                }
            }
            outcome => Attempt::Done(outcome.map(|()| 0)),
        }
    })
}

pub(super) fn shutdown(room: &Room, fd: i32, how: i32) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        let (mut sockets, now) = state.sockets();
        sockets.shutdown(now, socket, how)?;
        Ok(0)
    })
}

/// The descriptor is gone at once; with SO_LINGER the call lasts until all was acknowledged, or as long as that says.
pub(super) fn close(room: &Room, fd: i32) -> Result<i32> {
    let mut closed: Option<Option<Lingering>> = None;
    let mut patience = Patience::default();
    room.wait(|state| {
        let lingering = match &closed {
            Some(lingering) => lingering,
            None => {
                let kind = match state.open.remove(fd) {
                    Ok(kind) => kind,
                    Err(errno) => return Attempt::Done(Err(errno)),
                };
                closed.insert(drop_kind(state, kind))
            }
        };
        match lingering {
            Some(lingering) if state.host.sockets().lingers(lingering) => {
                Attempt::Blocked(Ok(0), patience.until(state, Some(lingering.time)))
            }
            _ => Attempt::Done(Ok(0)),
        }
    })
}

pub(super) fn fcntl(room: &Room, fd: i32, command: i32, argument: i32) -> Result<i32> {
    room.call(|state| {
        let kind = state.open.get(fd)?;
        if let Kind::Socket(socket) = kind {
            return state.host.sockets().fcntl(socket, command, argument);
        }
        let access = match kind {
            Kind::PipeIn(_) => libc::O_WRONLY,
            _ => libc::O_RDONLY,
        };
        let end = state.open.end(kind).ok_or(Errno::EBADF)?;
        match command {
            abi::F_GETFL if end.nonblocking => Ok(access | abi::O_NONBLOCK),
            abi::F_GETFL => Ok(access),
            abi::F_SETFL => {
                end.nonblocking = argument & abi::O_NONBLOCK != 0;
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    })
}

pub(super) fn ioctl(room: &Room, fd: i32, request: u64, argument: UserPtr) -> Result<i32> {
    room.call(|state| {
        if let Kind::PipeOut(pipe) | Kind::PipeIn(pipe) = state.open.get(fd)? {
            let len = state.open.pipe(pipe).len() as i32;
            return match request {
                libc::FIONREAD => argument.write(&len.to_ne_bytes()).map(|()| 0),
                _ => Err(Errno(libc::ENOTTY)),
            };
        }
        let socket = state.open.socket(fd)?;
        let request = i32::try_from(request).map_err(|_| Errno(libc::ENOTTY))?;
        if request == abi::FIONBIO {
            return state.host.sockets().ioctl(socket, request, argument.int()?);
        }
        let value = state.host.sockets().ioctl(socket, request, 0)?;
        argument.write(&value.to_ne_bytes())?;
        Ok(0)
    })
}

pub(super) fn getsockopt(
    room: &Room,
    fd: i32,
    (level, name): (i32, i32),
    value: UserPtr,
    len: UserPtr,
) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        let space = usize::try_from(len.int()?).map_err(|_| Errno::EINVAL)?;
        let mut bytes = vec![0; space.min(OPTION_MAX as usize)];
        let (mut sockets, _) = state.sockets();
        let n = sockets.getsockopt(socket, level, name, &mut bytes)?;
        value.write(&bytes[..n])?;
        len.write(&(n as u32).to_ne_bytes())?;
        Ok(0)
    })
}

pub(super) fn setsockopt(
    room: &Room,
    fd: i32,
    (level, name): (i32, i32),
    value: UserPtr,
    len: u32,
) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        if len > i32::MAX as u32 {
            return Err(Errno::EINVAL);
        }
        let bytes = value.bytes(len.min(OPTION_MAX) as usize)?;
        let (mut sockets, now) = state.sockets();
        sockets.setsockopt(now, socket, level, name, &bytes)?;
        Ok(0)
    })
}

pub(super) fn pipe(room: &Room, ends: UserPtr) -> Result<i32> {
    room.call(|state| {
        let pipe = state.open.new_pipe();
        let out = publish_kind(state, Kind::PipeOut(pipe))?;
        let into = publish_kind(state, Kind::PipeIn(pipe))?;
        let both = [out.to_ne_bytes(), into.to_ne_bytes()].concat();
        if let Err(errno) = ends.write(&both) {
            for fd in [out, into] {
                let kind = state.open.remove(fd)?;
                drop_kind(state, kind);
            }
            return Err(errno);
        }
        Ok(0)
    })
}
