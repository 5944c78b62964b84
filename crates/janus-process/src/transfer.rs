//! Bytes: receiving and sending, with the patience that the socket has.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use janus_posix::{Progress, Sockets, abi};

use crate::core::{Attempt, GoesOn};
use crate::process::Process;
use crate::{Errno, Result};

/// Result of a call that can go on no further.
fn so_far(done: usize) -> Result<usize> {
    match done {
        0 => Err(Errno::EAGAIN),
        done => Ok(done),
    }
}

impl Process {
    /// `recv(2)`, `read(2)`, `readv(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn receive(
        &self,
        fd: RawFd,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
        goes_on: GoesOn,
    ) -> Result<usize> {
        let mut done = 0;
        self.core.block(fd, goes_on, |sockets, _, socket, now| {
            let tried = sockets.receive(now, socket, into, flags, done);
            let tried = self.count_received(tried, flags, done);
            attempt(&mut done, (socket, tried), || {
                sockets.receive_timeout(socket)
            })
        })
    }

    /// Counts what a try received beyond what was there before it. The core's lock is held.
    #[inline]
    fn count_received(&self, tried: Tried, flags: i32, before: usize) -> Tried {
        if flags & abi::MSG_PEEK == 0 {
            self.core.counted.received(moved(&tried, before));
        }
        tried
    }

    /// `recvmsg(2)`: bytes received, and `msg_flags`. `control` gets what there is room for.
    ///
    /// # Errors
    /// Linux's.
    pub fn receive_message(
        &self,
        fd: RawFd,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
        (control, room): (&mut Vec<u8>, usize),
        goes_on: GoesOn,
    ) -> Result<(usize, i32)> {
        let (mut done, mut told) = (0, 0);
        let received = self.core.block(fd, goes_on, |sockets, _, socket, now| {
            let tried = sockets.receive_message(now, socket, into, flags, control, room, done);
            let tried = tried.map(|(progress, flags)| {
                told = flags;
                progress
            });
            let tried = self.count_received(tried, flags, done);
            attempt(&mut done, (socket, tried), || {
                sockets.receive_timeout(socket)
            })
        })?;
        Ok((received, told))
    }

    /// `send(2)`, `write(2)`, `writev(2)`. SIGPIPE is the caller's affair.
    ///
    /// # Errors
    /// Linux's.
    pub fn send(
        &self,
        fd: RawFd,
        from: &[IoSlice<'_>],
        flags: i32,
        goes_on: GoesOn,
    ) -> Result<usize> {
        self.send_by(fd, goes_on, |sockets, socket, now, done| {
            sockets.transmit(now, socket, from, flags, done)
        })
    }

    /// `sendmsg(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn send_message(
        &self,
        fd: RawFd,
        from: &[IoSlice<'_>],
        control: &[u8],
        flags: i32,
        goes_on: GoesOn,
    ) -> Result<usize> {
        self.send_by(fd, goes_on, |sockets, socket, now, done| {
            sockets.transmit_message(now, socket, from, control, flags, done)
        })
    }

    fn send_by(
        &self,
        fd: RawFd,
        goes_on: GoesOn,
        mut send: impl FnMut(&mut Sockets<'_>, i32, janus_tcp::Instant, usize) -> Result<Progress>,
    ) -> Result<usize> {
        let mut done = 0;
        self.core.block(fd, goes_on, |sockets, _, socket, now| {
            let tried = send(sockets, socket, now, done);
            self.core.counted.sent(moved(&tried, done));
            attempt(&mut done, (socket, tried), || sockets.send_timeout(socket))
        })
    }
}

/// How far a try came, with what was moved before.
type Tried = Result<Progress>;

/// Bytes that a try moved, where so many were moved before.
#[inline]
fn moved(tried: &Tried, before: usize) -> usize {
    match tried {
        Ok(Progress::Done(all) | Progress::Blocked(all)) => all.saturating_sub(before),
        Err(_) => 0,
    }
}

/// Outcome of a try, whose bytes are noted in `done`.
#[inline]
fn attempt(
    done: &mut usize,
    (on, tried): (i32, Tried),
    patience: impl FnOnce() -> Option<std::time::Duration>,
) -> Attempt<usize> {
    match tried {
        Ok(Progress::Done(all)) => Attempt::Done(Ok(all)),
        Ok(Progress::Blocked(some)) => {
            *done = some;
            Attempt::Blocked {
                on,
                so_far: so_far(some),
                patience: patience(),
            }
        }
        Err(error) => Attempt::Done(Err(error)),
    }
}
