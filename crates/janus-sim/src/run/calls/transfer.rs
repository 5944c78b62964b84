//! Bytes in and out: the reads and writes in all their forms. What an application writes is a pattern by its place in the
//! stream, and what it reads is held against the pattern that the script's packets carry.

use super::super::Runner;
use super::super::flow::{WRITTEN_MAX, inbound_byte, outbound_byte};
use super::super::values::{control_bytes, field, int, len, vector};
use super::{Attempt, Course, Result, Returned};
use crate::script::Expr;
use janus_posix::{Errno, Progress, abi};
use std::io::{IoSlice, IoSliceMut};

/// A buffer the script leaves to the runner, one that it spells out, or none.
fn is_null(data: &Expr) -> bool {
    *data == Expr::Word("NULL".into())
}

/// Pieces of `lens` bytes each.
fn pieces<'b>(mut bytes: &'b [u8], lens: &[usize]) -> Vec<&'b [u8]> {
    let mut out = Vec::new();
    for len in lens {
        let (piece, rest) = bytes.split_at((*len).min(bytes.len()));
        out.push(piece);
        bytes = rest;
    }
    out
}

impl Runner<'_> {
    /// `read`, `readv`, `recv` and `recvfrom` into buffers of `lens` bytes.
    pub(super) fn receive(
        &mut self,
        fd: &Expr,
        data: &Expr,
        (lens, flags): (&[usize], i32),
        course: &mut Course,
    ) -> Result<Attempt> {
        let live = self.live(fd)?;
        if is_null(data) {
            return Ok(self.no_buffer(live, lens, flags));
        }
        if lens.iter().sum::<usize>() == 0 {
            // sock_read_iter: no room is no question.
            let mut none = [];
            let now = self.world.instant();
            let read = self.world.sockets().read(now, live, &mut none);
            return Ok(self.returned(read.map(|n| n as i64)));
        }
        let at = self.reading_place(fd, lens, flags, course.done)?;
        let outcome = self.try_receive(live, lens, flags, course, None);
        let outcome = outcome.map(|(progress, _)| progress);
        self.received(fd, outcome, (at, flags), course)
    }

    fn try_receive(
        &mut self,
        live: i32,
        lens: &[usize],
        flags: i32,
        course: &mut Course,
        control: Option<(&mut Vec<u8>, usize)>,
    ) -> std::result::Result<(Progress, i32), Errno> {
        let now = self.world.instant();
        course.buffer.resize(lens.iter().sum(), 0);
        let mut rest = course.buffer.as_mut_slice();
        let mut slices = Vec::new();
        for len in lens {
            let (piece, after) = std::mem::take(&mut rest).split_at_mut(*len);
            slices.push(IoSliceMut::new(piece));
            rest = after;
        }
        let mut sockets = self.world.sockets();
        match control {
            Some((control, room)) => {
                sockets.receive_message(now, live, &mut slices, flags, control, room, course.done)
            }
            None => sockets
                .receive(now, live, &mut slices, flags, course.done)
                .map(|progress| (progress, 0)),
        }
    }

    /// Where in the pattern a try of a call reads. Urgent octets that are not in line stand in it: reading passes over them.
    fn reading_place(&mut self, fd: &Expr, lens: &[usize], flags: i32, done: usize) -> Result<u64> {
        let live = self.live(fd)?;
        let sockets = self.world.sockets();
        let mut hole = u64::from(sockets.passed_over(live));
        let to_mark = sockets.until_mark(live).map_or(0, u64::from);
        let Some(flow) = self.fd(fd)?.and_then(|fd| fd.flow) else {
            return Ok(0);
        };
        let flow = &mut self.flows[flow];
        if flags & abi::MSG_OOB != 0 {
            return Ok(flow.read + hole.saturating_sub(u64::from(to_mark == 0)) + to_mark);
        }
        // A call that has given something stops there; one that wants nothing passes over nothing.
        if done > 0 || lens.iter().sum::<usize>() == 0 {
            hole = 0;
        }
        if flags & abi::MSG_PEEK == 0 {
            flow.read += hole;
            hole = 0;
        }
        Ok(flow.read + hole)
    }

    /// Holds what was read against what was sent.
    fn received(
        &mut self,
        fd: &Expr,
        outcome: std::result::Result<Progress, Errno>,
        (at, flags): (u64, i32),
        course: &mut Course,
    ) -> Result<Attempt> {
        let live = self.live(fd)?;
        let outcome = match outcome {
            Ok(Progress::Blocked(done)) if !course.timed_out => {
                course.done = done;
                let patience = self.world.sockets().receive_timeout(live);
                return Ok(self.blocked(course, patience));
            }
            Ok(Progress::Blocked(0)) => Err(Errno::EAGAIN),
            Ok(Progress::Blocked(n) | Progress::Done(n)) => Ok(n),
            Err(errno) => Err(errno),
        };
        let flow = self.fd(fd)?.and_then(|fd| fd.flow);
        if let (Ok(n), Some(flow)) = (outcome, flow) {
            let flow = &mut self.flows[flow];
            let seen = match flags & abi::MSG_TRUNC {
                0 => &course.buffer[..n.min(course.buffer.len())],
                _ => &[],
            };
            let mut wrong = seen.iter().zip(at..);
            if let Some((_, offset)) = wrong.find(|(byte, at)| **byte != inbound_byte(*at)) {
                return Err(format!(
                    "the byte read at sequence number {} is not the one sent there",
                    offset + 1
                ));
            }
            if flags & (abi::MSG_PEEK | abi::MSG_OOB) == 0 {
                flow.read += n as u64;
            }
        }
        Ok(self.returned(outcome.map(|n| n as i64)))
    }

    /// A read into no buffer fails when there is something to put into it.
    fn no_buffer(&mut self, live: i32, lens: &[usize], flags: i32) -> Attempt {
        let now = self.world.instant();
        let mut one = [0];
        let peek = flags | abi::MSG_PEEK | abi::MSG_DONTWAIT;
        let there = self.world.sockets().recv(now, live, &mut one, peek);
        self.returned(match there {
            Ok(n) if n > 0 && lens.iter().sum::<usize>() > 0 => Err(Errno::EFAULT),
            other => other.map(|_| 0),
        })
    }

    /// `recvmsg(4, {msg_name(...)=..., msg_iov(1)=[{..., 1000}], msg_flags=0, msg_control=[..]}, 0)`.
    pub(super) fn receive_message(
        &mut self,
        fd: &Expr,
        message: &Expr,
        flags: i32,
        course: &mut Course,
    ) -> Result<Attempt> {
        let live = self.live(fd)?;
        let lens = vector(field(message, "msg_iov")?, field(message, "msg_iovlen")?)?;
        let expected_flags = int(field(message, "msg_flags")?)?;
        let expected = match field(message, "msg_control") {
            Ok(list) => control_bytes(list)?,
            Err(_) => Vec::new(),
        };
        let (mut control, room) = (Vec::new(), expected.len());
        let at = self.reading_place(fd, &lens, flags, course.done)?;
        let outcome = self.try_receive(live, &lens, flags, course, Some((&mut control, room)));
        let progress = outcome.map(|(progress, _)| progress);
        let attempt = self.received(fd, progress, (at, flags), course)?;
        if let (Attempt::Returned(Returned { errno: None, .. }), Ok((_, flags))) =
            (&attempt, outcome)
        {
            if i64::from(flags) != expected_flags {
                return Err(format!(
                    "msg_flags: expected {expected_flags:#x}, actual {flags:#x}"
                ));
            }
            if control != expected {
                return Err(format!(
                    "msg_control: expected the bytes {expected:02x?}, actual {control:02x?}"
                ));
            }
        }
        Ok(attempt)
    }

    /// `write`, `writev`, `send` and `sendto` from buffers of `lens` bytes.
    pub(super) fn transmit(
        &mut self,
        fd: &Expr,
        data: &Expr,
        (lens, flags): (&[usize], i32),
        course: &mut Course,
    ) -> Result<Attempt> {
        self.transmit_with(fd, data, (lens, flags), None, course)
    }

    /// `sendmsg(4, {msg_name(...)=..., msg_iov(1)=[{..., 1000}], msg_flags=0}, 0)`.
    pub(super) fn transmit_message(
        &mut self,
        fd: &Expr,
        message: &Expr,
        flags: i32,
        course: &mut Course,
    ) -> Result<Attempt> {
        let lens = vector(field(message, "msg_iov")?, field(message, "msg_iovlen")?)?;
        if int(field(message, "msg_flags")?)? != 0 {
            return Err("sendmsg does not look at msg_flags: write 0".into());
        }
        let control = match field(message, "msg_control") {
            Ok(list) => control_bytes(list)?,
            Err(_) => Vec::new(),
        };
        self.transmit_with(fd, &Expr::Ellipsis, (&lens, flags), Some(&control), course)
    }

    fn transmit_with(
        &mut self,
        fd: &Expr,
        data: &Expr,
        (lens, flags): (&[usize], i32),
        control: Option<&[u8]>,
        course: &mut Course,
    ) -> Result<Attempt> {
        let (live, now) = (self.live(fd)?, self.world.instant());
        let len: usize = lens.iter().sum();
        let flow = self.fd(fd)?.and_then(|fd| fd.flow);
        if is_null(data) {
            let open = self.world.sockets().readiness(now, live);
            return Ok(self.returned(open.and(Err(Errno::EFAULT))));
        }
        // Bytes written by earlier tries of this call are in the record already.
        let written = flow.map_or(0, |flow| self.flows[flow].written.len()) - course.noted;
        if written + len > WRITTEN_MAX {
            return Err(format!(
                "a script may write {WRITTEN_MAX} bytes on a connection"
            ));
        }
        let bytes = match data {
            Expr::Ellipsis => (0..len as u64)
                .map(|at| outbound_byte(written as u64 + at))
                .collect(),
            Expr::Bytes(text) if text.len() >= len => text[..len].to_vec(),
            _ => {
                return Err(format!(
                    "`{data}` is not {len} bytes; write `...` to leave them to the runner"
                ));
            }
        };
        let pieces = pieces(&bytes, lens);
        let slices: Vec<IoSlice<'_>> = pieces.into_iter().map(IoSlice::new).collect();
        let mut sockets = self.world.sockets();
        let outcome = match control {
            Some(control) => {
                sockets.transmit_message(now, live, &slices, control, flags, course.done)
            }
            None => sockets.transmit(now, live, &slices, flags, course.done),
        };
        if let (Ok(Progress::Done(n) | Progress::Blocked(n)), Some(flow)) = (outcome, flow) {
            let new = bytes.get(course.noted..n).unwrap_or_default();
            self.flows[flow].written.extend_from_slice(new);
            course.noted = course.noted.max(n);
        }
        Ok(match outcome {
            Ok(Progress::Blocked(done)) if !course.timed_out => {
                course.done = done;
                let patience = self.world.sockets().send_timeout(live);
                self.blocked(course, patience)
            }
            Ok(Progress::Blocked(0)) => self.returned(Err(Errno::EAGAIN)),
            Ok(Progress::Blocked(n) | Progress::Done(n)) => self.returned(Ok(n as i64)),
            Err(errno) => self.returned(Err(errno)),
        })
    }

    /// The one buffer of a call.
    pub(super) fn one(count: &Expr) -> Result<[usize; 1]> {
        Ok([len(count)?])
    }
}
