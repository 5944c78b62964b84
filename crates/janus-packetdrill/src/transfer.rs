//! The calls that move data. The bytes go through a copy: what the kernel cannot read or write at the caller's addresses
//! neither leaves a socket nor enters one.

use super::cabi::iovec::{Buffers, READ_MAX, WRITE_MAX};
use super::cabi::memory::UserPtr;
use super::cabi::message::Message;
use super::cabi::sockaddr;
use super::descriptors::Kind;
use super::pipe::Stop;
use super::room::{Attempt, Patience, Room, State};
use janus_posix::{Errno, Progress, abi};
use std::io::{IoSlice, IoSliceMut};

type Result<T> = std::result::Result<T, Errno>;

/// Turns progress into an attempt: a call that is blocked may wait, and returns the bytes done so far, if any, when it
/// may not.
pub(super) fn attempt(
    outcome: Result<Progress>,
    done: &mut usize,
    until: Option<u64>,
) -> Attempt<i64> {
    match outcome {
        Ok(Progress::Done(n)) => Attempt::Done(Ok(n as i64)),
        Ok(Progress::Blocked(n)) => {
            *done = n;
            let instead = match n {
                0 => Err(Errno::EAGAIN),
                n => Ok(n as i64),
            };
            Attempt::Blocked(instead, until)
        }
        Err(errno) => Attempt::Done(Err(errno)),
    }
}

/// Converts the state of a pipe into the result of a call on it.
pub(super) fn of_pipe(stop: Stop, nonblocking: bool) -> Result<Progress> {
    match stop {
        Stop::Broken => Err(Errno::EPIPE),
        Stop::Blocked if nonblocking => Err(Errno::EAGAIN),
        Stop::Blocked => Ok(Progress::Blocked(0)),
    }
}

/// `read(2)` and `readv(2)`. No room is no question (sock_read_iter).
pub(super) fn read(room: &Room, fd: i32, buffers: &Buffers) -> Result<i64> {
    let kind = room.call(|state| state.open.get(fd))?;
    match kind {
        _ if buffers.len() == 0 => Ok(0),
        Kind::PipeOut(pipe) => room.wait(|state| {
            let nonblocking = state.open.pipe(pipe).reader.nonblocking;
            let found = match state.open.pipe(pipe).peek(buffers.len()) {
                Err(stop) => of_pipe(stop, nonblocking),
                Ok(bytes) => buffers.scatter(bytes).map(Progress::Done),
            };
            if let Ok(Progress::Done(n)) = found {
                state.open.pipe(pipe).consume(n);
            }
            attempt(found, &mut 0, None)
        }),
        Kind::PipeIn(_) => Err(Errno::EBADF),
        Kind::Socket(_) => receive(room, fd, buffers, 0),
    }
}

/// `write(2)` and `writev(2)`.
pub(super) fn write(room: &Room, fd: i32, buffers: &Buffers) -> Result<i64> {
    let Kind::PipeIn(pipe) = room.call(|state| state.open.get(fd))? else {
        return match room.call(|state| state.open.get(fd))? {
            Kind::PipeOut(_) => Err(Errno::EBADF),
            _ => send(room, fd, buffers, 0),
        };
    };
    let bytes = buffers.gather(WRITE_MAX)?;
    let mut done = 0;
    room.wait(|state| {
        let nonblocking = state.open.pipe(pipe).writer.nonblocking;
        let outcome = match state.open.pipe(pipe).write(&bytes[done..]) {
            Ok(n) if done + n < bytes.len() && !nonblocking => Ok(Progress::Blocked(done + n)),
            Ok(n) => Ok(Progress::Done(done + n)),
            Err(Stop::Blocked) if done > 0 => Ok(Progress::Blocked(done)),
            Err(stop) => of_pipe(stop, nonblocking),
        };
        attempt(outcome, &mut done, None)
    })
}

/// `recv(2)`.
pub(super) fn receive(room: &Room, fd: i32, buffers: &Buffers, flags: i32) -> Result<i64> {
    let mut inbound = Inbound::new(buffers, flags);
    let n = room.wait(|state| inbound.attempt(state, fd, None))?;
    inbound.deliver(n)
}

/// A call that receives, from try to try.
struct Inbound<'b> {
    buffers: &'b Buffers,
    flags: i32,
    bytes: Vec<u8>,
    done: usize,
    patience: Patience,
    msg_flags: i32,
}

impl Inbound<'_> {
    fn new(buffers: &Buffers, flags: i32) -> Inbound<'_> {
        let most = buffers.len().min(READ_MAX);
        // With MSG_TRUNC the bytes go nowhere.
        let most = match flags & abi::MSG_TRUNC {
            0 => buffers.writable(most),
            _ => most,
        };
        Inbound {
            buffers,
            flags,
            bytes: vec![0; most],
            done: 0,
            patience: Patience::default(),
            msg_flags: 0,
        }
    }

    /// One try. `control` gets the control messages, as long as there is room for.
    fn attempt(
        &mut self,
        state: &mut State,
        fd: i32,
        control: Option<(&mut Vec<u8>, usize)>,
    ) -> Attempt<i64> {
        let outcome = self.try_once(state, fd, control);
        let socket = state.open.socket(fd).unwrap_or(-1);
        let timeout = state.host.sockets().receive_timeout(socket);
        let until = self.patience.until(state, timeout);
        attempt(outcome, &mut self.done, until)
    }

    fn try_once(
        &mut self,
        state: &mut State,
        fd: i32,
        control: Option<(&mut Vec<u8>, usize)>,
    ) -> Result<Progress> {
        let socket = state.open.socket(fd)?;
        let (mut sockets, now) = state.sockets();
        if self.bytes.is_empty() && self.buffers.len() > 0 {
            // Nowhere to put anything: the address is bad as soon as there is something.
            let mut first = [0];
            let mut first = [IoSliceMut::new(&mut first)];
            let flags = self.flags | abi::MSG_PEEK;
            return match sockets.receive(now, socket, &mut first, flags, 0)? {
                Progress::Done(n) if n > 0 => Err(Errno::EFAULT),
                nothing => Ok(nothing),
            };
        }
        let mut into = [IoSliceMut::new(&mut self.bytes)];
        let (flags, done) = (self.flags, self.done);
        match control {
            None => sockets.receive(now, socket, &mut into, flags, done),
            Some((control, room)) => {
                let told =
                    sockets.receive_message(now, socket, &mut into, flags, control, room, done)?;
                self.msg_flags = told.1;
                Ok(told.0)
            }
        }
    }

    /// Puts what came where the caller wants it.
    fn deliver(&self, n: i64) -> Result<i64> {
        if self.flags & abi::MSG_TRUNC == 0 {
            self.buffers.scatter(&self.bytes[..n as usize])?;
        }
        Ok(n)
    }
}

/// `recvfrom(2)`. A stream tells no sender's name (tcp_recvmsg).
pub(super) fn receive_from(
    room: &Room,
    fd: i32,
    buffers: &Buffers,
    flags: i32,
    name: UserPtr,
    name_len: UserPtr,
) -> Result<i64> {
    let n = receive(room, fd, buffers, flags)?;
    if !name.is_null() {
        name_len.write(&0_u32.to_ne_bytes())?;
    }
    Ok(n)
}

/// `recvmsg(2)`.
pub(super) fn receive_message(room: &Room, fd: i32, message: &Message, flags: i32) -> Result<i64> {
    let mut inbound = Inbound::new(&message.buffers, flags);
    let mut control = Vec::new();
    let n = room.wait(|state| {
        let control = Some((&mut control, message.control_len));
        inbound.attempt(state, fd, control)
    })?;
    inbound.deliver(n)?;
    message.finish(&control, inbound.msg_flags)?;
    Ok(n)
}

/// `send(2)`.
pub(super) fn send(room: &Room, fd: i32, buffers: &Buffers, flags: i32) -> Result<i64> {
    transmit(room, fd, buffers, &[], flags)
}

/// `sendto(2)`. To a stream the name means nothing, but it is read.
pub(super) fn send_to(
    room: &Room,
    fd: i32,
    buffers: &Buffers,
    flags: i32,
    name: UserPtr,
    name_len: u32,
) -> Result<i64> {
    room.call(|state| state.open.socket(fd).map(|_| ()))?;
    if !name.is_null() {
        sockaddr::copy(name, name_len)?;
    }
    send(room, fd, buffers, flags)
}

/// `sendmsg(2)`.
pub(super) fn send_message(room: &Room, fd: i32, message: &Message, flags: i32) -> Result<i64> {
    if !message.name.is_null() && message.name_len > 0 {
        sockaddr::copy(message.name, message.name_len)?;
    }
    let control = message.control()?;
    transmit(room, fd, &message.buffers, &control, flags)
}

fn transmit(room: &Room, fd: i32, buffers: &Buffers, control: &[u8], flags: i32) -> Result<i64> {
    let bytes = buffers.gather(WRITE_MAX);
    let (mut done, mut patience) = (0, Patience::default());
    room.wait(|state| {
        let socket = match state.open.socket(fd) {
            Ok(socket) => socket,
            Err(errno) => return Attempt::Done(Err(errno)),
        };
        let timeout = state.host.sockets().send_timeout(socket);
        let until = patience.until(state, timeout);
        let (mut sockets, now) = state.sockets();
        let from = [IoSlice::new(bytes.as_deref().unwrap_or(&[]))];
        let outcome = sockets.transmit_message(now, socket, &from, control, flags, done);
        // The state of the connection is asked before the address.
        let outcome = match (outcome, &bytes) {
            (Ok(Progress::Done(_)), Err(errno)) => Err(*errno),
            (outcome, _) => outcome,
        };
        attempt(outcome, &mut done, until)
    })
}
