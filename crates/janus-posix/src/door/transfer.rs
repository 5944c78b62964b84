//! The calls that move data.

use super::cabi::iovec::{Buffers, READ_MAX, WRITE_MAX};
use super::cabi::memory::UserPtr;
use super::cabi::message::Message;
use super::calls::is_nonblocking;
use super::room::{Attempt, Room, State};
use crate::{Errno, abi};

type Result<T> = std::result::Result<T, Errno>;

/// Whether a call on `fd` with these flags may wait.
fn may_wait(state: &mut State, fd: i32, flags: i32) -> bool {
    flags & abi::MSG_DONTWAIT == 0 && !is_nonblocking(state, fd)
}

pub(super) fn receive(room: &Room, fd: i32, buffers: &Buffers, flags: i32) -> Result<i64> {
    let mut bytes = vec![0; buffers.len().min(READ_MAX)];
    room.wait(|state| {
        let outcome = (|| {
            let socket = state.open.socket(fd)?;
            let (sockets, now) = state.sockets();
            // Looked at first: what cannot be put where the caller wants it stays unread.
            let found = sockets.recv(now, socket, &mut bytes, flags | abi::MSG_PEEK)?;
            let taken = match found {
                0 => bytes.len(),
                n => buffers.scatter(&bytes[..n])?,
            };
            sockets.recv(now, socket, &mut bytes[..taken], flags)
        })();
        match outcome {
            Err(Errno::EAGAIN) if may_wait(state, fd, flags) => {
                Attempt::Blocked(Err(Errno::EAGAIN), None)
            }
            outcome => Attempt::Done(outcome.map(|n| n as i64)),
        }
    })
}

pub(super) fn receive_from(
    room: &Room,
    fd: i32,
    buffers: &Buffers,
    flags: i32,
    name: UserPtr,
    name_len: UserPtr,
) -> Result<i64> {
    let n = receive(room, fd, buffers, flags)?;
    // A stream tells no sender's name (tcp_recvmsg).
    if !name.is_null() {
        name_len.write(&0_u32.to_ne_bytes())?;
    }
    Ok(n)
}

pub(super) fn receive_message(room: &Room, fd: i32, message: &Message, flags: i32) -> Result<i64> {
    let n = receive(room, fd, &message.buffers, flags)?;
    message.finish(&[], 0)?;
    Ok(n)
}

pub(super) fn send(room: &Room, fd: i32, buffers: &Buffers, flags: i32) -> Result<i64> {
    let bytes = buffers.gather(WRITE_MAX);
    let mut done = 0;
    room.wait(|state| {
        let outcome = (|| {
            let socket = state.open.socket(fd)?;
            let (sockets, now) = state.sockets();
            // The state of the connection is asked before the address.
            let rest = bytes.as_ref().map_or(&[][..], |bytes| &bytes[done..]);
            let n = sockets.send(now, socket, rest, flags)?;
            bytes.as_ref().map(|_| n).map_err(|errno| *errno)
        })();
        match outcome {
            Ok(n) => {
                done += n;
                if done < bytes.as_ref().map_or(0, Vec::len) && may_wait(state, fd, flags) {
                    return Attempt::Blocked(Ok(done as i64), None);
                }
                Attempt::Done(Ok(done as i64))
            }
            Err(Errno::EAGAIN) if may_wait(state, fd, flags) => match done {
                0 => Attempt::Blocked(Err(Errno::EAGAIN), None),
                _ => Attempt::Blocked(Ok(done as i64), None),
            },
            // What was written before the error counts; the error is told by the next call.
            Err(_) if done > 0 => Attempt::Done(Ok(done as i64)),
            Err(errno) => Attempt::Done(Err(errno)),
        }
    })
}

pub(super) fn send_to(
    room: &Room,
    fd: i32,
    buffers: &Buffers,
    flags: i32,
    _name: UserPtr,
    _name_len: u32,
) -> Result<i64> {
    send(room, fd, buffers, flags)
}

pub(super) fn send_message(room: &Room, fd: i32, message: &Message, flags: i32) -> Result<i64> {
    message.control()?;
    send(room, fd, &message.buffers, flags)
}

pub(super) fn splice(
    _room: &Room,
    _from: (i32, UserPtr),
    _to: (i32, UserPtr),
    _len: usize,
    _flags: u32,
) -> Result<i64> {
    Err(Errno(libc::ENOSYS))
}
