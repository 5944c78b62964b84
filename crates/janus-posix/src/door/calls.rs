//! The calls that move no data: what the caller's pointers hold goes to [`crate::Sockets`], and its answers back.

use super::cabi::memory::UserPtr;
use super::cabi::sockaddr::{self, Name};
use super::descriptors::Kind;
use super::room::{Attempt, Room, State};
use crate::{Errno, abi};

type Result<T> = std::result::Result<T, Errno>;

/// The longest value of an option that is read.
const OPTION_MAX: u32 = 4_096;

/// Gives a socket a descriptor of the process.
fn publish(state: &mut State, socket: i32) -> Result<i32> {
    match state.open.add(Kind::Socket(socket)) {
        Ok((fd, forgotten)) => {
            // The tool closed it by the C library.
            if let Some(kind) = forgotten {
                drop_kind(state, kind);
            }
            Ok(fd)
        }
        Err(errno) => {
            drop_kind(state, Kind::Socket(socket));
            Err(errno)
        }
    }
}

/// Closes what a descriptor stood for.
fn drop_kind(state: &mut State, kind: Kind) {
    if let Kind::Socket(socket) = kind {
        let (sockets, now) = state.sockets();
        // Whether it was still there does not matter any more.
        let _ = sockets.close(now, socket);
    }
}

/// Whether there is such a descriptor: what the kernel asks before it looks at anything else.
pub(super) fn check(room: &Room, fd: i32) -> Result<()> {
    room.call(|state| state.open.get(fd).map(|_| ()))
}

pub(super) fn socket(room: &Room, domain: i32, kind: i32, protocol: i32) -> Result<i32> {
    room.call(|state| {
        let socket = state.host.sockets.socket(domain, kind, protocol)?;
        publish(state, socket)
    })
}

pub(super) fn bind(room: &Room, fd: i32, name: UserPtr, len: u32) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        match sockaddr::read(name, len)? {
            Name::Address(address) => state.host.sockets.bind(socket, address)?,
            Name::Nobody => return Err(Errno::EAFNOSUPPORT),
        }
        Ok(0)
    })
}

pub(super) fn listen(room: &Room, fd: i32, backlog: i32) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        state.host.sockets.listen(socket, backlog)?;
        Ok(0)
    })
}

pub(super) fn accept(room: &Room, fd: i32, name: UserPtr, len: UserPtr) -> Result<i32> {
    room.wait(|state| {
        let attempt = state
            .open
            .socket(fd)
            .and_then(|socket| Ok((socket, state.host.sockets.accept(socket)?)));
        match attempt {
            Ok((_, (socket, peer))) => Attempt::Done((|| {
                let fd = publish(state, socket)?;
                if let Err(errno) = sockaddr::write(peer, name, len) {
                    let kind = state.open.remove(fd)?;
                    drop_kind(state, kind);
                    return Err(errno);
                }
                Ok(fd)
            })()),
            Err(Errno::EAGAIN) if !is_nonblocking(state, fd) => {
                Attempt::Blocked(Err(Errno::EAGAIN), None)
            }
            Err(errno) => Attempt::Done(Err(errno)),
        }
    })
}

pub(super) fn is_nonblocking(state: &mut State, fd: i32) -> bool {
    let socket = state.open.socket(fd);
    socket.is_ok_and(|socket| state.host.sockets.is_nonblocking(socket))
}

pub(super) fn connect(room: &Room, fd: i32, name: UserPtr, len: u32) -> Result<i32> {
    room.wait(|state| {
        let outcome = (|| {
            let socket = state.open.socket(fd)?;
            let Name::Address(address) = sockaddr::read(name, len)? else {
                return Err(Errno::EAFNOSUPPORT);
            };
            let (sockets, now) = state.sockets();
            sockets.connect(now, socket, address)
        })();
        match outcome {
            Err(Errno::EINPROGRESS | Errno::EALREADY) if !is_nonblocking(state, fd) => {
                Attempt::Blocked(Err(Errno::EAGAIN), None)
            }
            outcome => Attempt::Done(outcome.map(|()| 0)),
        }
    })
}

pub(super) fn shutdown(room: &Room, fd: i32, how: i32) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        let (sockets, now) = state.sockets();
        sockets.shutdown(now, socket, how)?;
        Ok(0)
    })
}

pub(super) fn close(room: &Room, fd: i32) -> Result<i32> {
    room.call(|state| {
        let kind = state.open.remove(fd)?;
        drop_kind(state, kind);
        Ok(0)
    })
}

pub(super) fn fcntl(room: &Room, fd: i32, command: i32, argument: i32) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        state.host.sockets.fcntl(socket, command, argument)
    })
}

pub(super) fn ioctl(room: &Room, fd: i32, request: u64, argument: UserPtr) -> Result<i32> {
    room.call(|state| {
        let socket = state.open.socket(fd)?;
        let request = i32::try_from(request).map_err(|_| Errno(libc::ENOTTY))?;
        if request == abi::FIONBIO {
            return state.host.sockets.ioctl(socket, request, argument.int()?);
        }
        let value = state.host.sockets.ioctl(socket, request, 0)?;
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
        let (sockets, _) = state.sockets();
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
        let (sockets, now) = state.sockets();
        sockets.setsockopt(now, socket, level, name, &bytes)?;
        Ok(0)
    })
}

pub(super) fn pipe(_room: &Room, _ends: UserPtr) -> Result<i32> {
    Err(Errno(libc::ENOSYS))
}
