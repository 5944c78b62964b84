//! `splice(2)`: from a socket into a pipe, from a pipe into a socket.

use super::cabi::memory::UserPtr;
use super::descriptors::Kind;
use super::room::{Attempt, Room, State};
use super::transfer::{attempt, of_pipe};
use janus_posix::{Errno, Progress, abi};
use std::io::{IoSlice, IoSliceMut};

type Result<T> = std::result::Result<T, Errno>;

const KNOWN: u32 =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// Neither a pipe nor a socket has places. The tool hands over a place in any case, 0 where the script says NULL.
fn no_place(at: UserPtr) -> Result<()> {
    if at.is_null() {
        return Ok(());
    }
    match at.bytes(size_of::<i64>())?.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(Errno(libc::ESPIPE)),
    }
}

pub(super) fn splice(
    room: &Room,
    (from, from_at): (i32, UserPtr),
    (to, to_at): (i32, UserPtr),
    len: usize,
    flags: u32,
) -> Result<i64> {
    if len == 0 {
        return Ok(0);
    }
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    room.wait(|state| {
        let outcome = (|| {
            let ends = (state.open.get(from)?, state.open.get(to)?);
            no_place(from_at)?;
            no_place(to_at)?;
            match ends {
                (Kind::Socket(socket), Kind::PipeIn(pipe)) => {
                    into_pipe(state, socket, pipe, len, flags)
                }
                (Kind::PipeOut(pipe), Kind::Socket(socket)) => {
                    out_of_pipe(state, pipe, socket, len, flags)
                }
                (Kind::PipeIn(_), _) | (_, Kind::PipeOut(_)) => Err(Errno::EBADF),
                _ => Err(Errno::EINVAL),
            }
        })();
        // A splice that has moved anything is over.
        let outcome = match outcome {
            Ok(Progress::Blocked(n)) if n > 0 => Ok(Progress::Done(n)),
            outcome => outcome,
        };
        match outcome {
            Ok(Progress::Blocked(_)) if flags & libc::SPLICE_F_NONBLOCK != 0 => {
                Attempt::Done(Err(Errno::EAGAIN))
            }
            outcome => attempt(outcome, &mut 0, None),
        }
    })
}

fn into_pipe(
    state: &mut State,
    socket: i32,
    pipe: usize,
    len: usize,
    flags: u32,
) -> Result<Progress> {
    let room = match state.open.pipe(pipe).room() {
        Ok(room) => room,
        Err(stop) => return of_pipe(stop, flags & libc::SPLICE_F_NONBLOCK != 0),
    };
    let (mut sockets, now) = state.sockets();
    let len = match sockets.until_mark(socket) {
        // The urgent octet is never spliced, in line or not (tcp_read_sock): the caller has to read past it.
        Some(0) if sockets.has_unread(socket) => {
            return if sockets.is_nonblocking(socket) {
                Err(Errno::EAGAIN)
            } else {
                Ok(Progress::Done(0))
            };
        }
        Some(bytes) if bytes > 0 => len.min(bytes as usize),
        _ => len,
    };
    let mut bytes = vec![0; len.min(room)];
    let mut into = [IoSliceMut::new(&mut bytes)];
    let progress = sockets.receive(now, socket, &mut into, 0, 0)?;
    let (Progress::Done(n) | Progress::Blocked(n)) = progress;
    // There was room a moment ago.
    let _ = state.open.pipe(pipe).write(&bytes[..n]);
    Ok(progress)
}

fn out_of_pipe(
    state: &mut State,
    pipe: usize,
    socket: i32,
    len: usize,
    flags: u32,
) -> Result<Progress> {
    let bytes = match state.open.pipe(pipe).peek(len) {
        Ok(bytes) => bytes.to_vec(),
        Err(stop) => return of_pipe(stop, flags & libc::SPLICE_F_NONBLOCK != 0),
    };
    let more = match flags & libc::SPLICE_F_MORE {
        0 => 0,
        _ => abi::MSG_MORE,
    };
    let (mut sockets, now) = state.sockets();
    let progress = sockets.transmit(now, socket, &[IoSlice::new(&bytes)], more, 0)?;
    let (Progress::Done(n) | Progress::Blocked(n)) = progress;
    state.open.pipe(pipe).consume(n);
    Ok(progress)
}
