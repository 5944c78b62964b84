//! Bytes in and out of a socket: `recv` and `send` in all their forms, in the order in which tcp_recvmsg_locked and
//! tcp_sendmsg_locked of Linux look at a socket's state. Nothing waits: a call that the kernel would block in says how far it
//! came, and is repeated from there.

use core::time::Duration;
use janus_tcp::{ConnId, Instant, State as TcpState, WriteFlags};
use std::io::{IoSlice, IoSliceMut};

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::{NO_ITEM, Socket, State, slot_of};

type Result<T> = std::result::Result<T, Errno>;

/// How far a call has come: bytes of the whole call, what earlier tries of it did included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is over.
    Done(usize),
    /// In the kernel the caller would be asleep now. The call is to be tried again, told how far it was, when
    /// [`Sockets::next_woken`] names the descriptor; when the time of SO_RCVTIMEO or SO_SNDTIMEO is over, this is all of it,
    /// and nothing at all is `EAGAIN`.
    Blocked(usize),
}

impl Sockets<'_> {
    /// `recv(2)` once: 0 is the end of the peer's stream, `EAGAIN` says that there is nothing, however patient the caller.
    pub fn recv(&mut self, now: Instant, fd: i32, into: &mut [u8], flags: i32) -> Result<usize> {
        let mut into = [IoSliceMut::new(into)];
        match self.receive(now, fd, &mut into, flags | abi::MSG_DONTWAIT, 0)? {
            Progress::Done(n) | Progress::Blocked(n) => Ok(n),
        }
    }

    /// `read(2)` once. No room is no question (sock_read_iter).
    pub fn read(&mut self, now: Instant, fd: i32, into: &mut [u8]) -> Result<usize> {
        if into.is_empty() {
            return self.files.table.peek(fd).map(|_| 0);
        }
        self.recv(now, fd, into, 0)
    }

    /// `recvmsg(2)` and all that it is the general form of; `done` is what earlier tries of this call have put into `into`.
    pub fn receive(
        &mut self,
        now: Instant,
        fd: i32,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
        done: usize,
    ) -> Result<Progress> {
        let socket = self.files.table.peek(fd)?;
        if flags & abi::MSG_ERRQUEUE != 0 {
            let told = self.take_told(fd, flags, &mut Vec::new(), 0);
            return told.map(|_| Progress::Done(0));
        }
        let conn = match socket.state {
            State::Listening(_) => return Err(Errno::ENOTCONN),
            state => state.connection(),
        };
        if flags & abi::MSG_OOB != 0 {
            return self.receive_urgent(fd, conn, into, flags);
        }
        let patient = flags & abi::MSG_DONTWAIT == 0 && !socket.nonblocking;
        let wanted: usize = into.iter().map(|part| part.len()).sum();
        let target = match flags & abi::MSG_WAITALL != 0 {
            true => wanted,
            false => wanted.min(socket.options.receive_low as usize),
        };
        let target = target.max(1);
        let peek = flags & abi::MSG_PEEK != 0;
        let (got, marked) = match conn {
            Some(conn) => self.take(now, fd, conn, into, flags, if peek { 0 } else { done })?,
            None => (0, false),
        };
        let copied = if peek { got } else { done + got };
        if copied >= target || marked {
            return Ok(Progress::Done(copied));
        }
        if wanted == 0 && self.unread(conn) > 0 {
            return Ok(Progress::Done(0));
        }
        self.nothing_more(fd, conn, copied, patient)
    }

    /// No more bytes are there than were copied: whether more can come, and who waits for them.
    pub(crate) fn nothing_more(
        &mut self,
        fd: i32,
        conn: Option<ConnId>,
        copied: usize,
        patient: bool,
    ) -> Result<Progress> {
        let status = conn.and_then(|conn| self.stack.status(conn).ok());
        let closed = status.is_none_or(|status| status.state == TcpState::Closed);
        // SOCK_DONE: after the end there is only the end, whatever else happened.
        let done = status.is_some_and(|status| status.peer_fin);
        let shut = self.files.table.peek(fd)?.read_shut || done || (closed && conn.is_some());
        if copied > 0 {
            let over = !patient || closed || shut || self.pending_error(fd).is_some();
            return Ok(match over {
                true => Progress::Done(copied),
                false => Progress::Blocked(copied),
            });
        }
        if done {
            return Ok(Progress::Done(0));
        }
        if let Some(error) = self.take_pending(fd) {
            return Err(error);
        }
        if shut {
            return Ok(Progress::Done(0));
        }
        match (closed, patient) {
            (true, _) => Err(Errno::ENOTCONN),
            (false, true) => Ok(Progress::Blocked(0)),
            (false, false) => Err(Errno::EAGAIN),
        }
    }

    pub(crate) fn unread(&self, conn: Option<ConnId>) -> u32 {
        conn.and_then(|conn| self.stack.status(conn).ok())
            .map_or(0, |status| status.unread)
    }

    /// Moves what is there into `into`, behind the first `skip` bytes of it. Also says whether it ended at urgent data, before
    /// which a call stops once it has given anything.
    fn take(
        &mut self,
        now: Instant,
        fd: i32,
        conn: ConnId,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
        mut skip: usize,
    ) -> Result<(usize, bool)> {
        let (peek, drop) = (flags & abi::MSG_PEEK != 0, flags & abi::MSG_TRUNC != 0);
        let ahead = self.ahead(fd);
        if ahead.at_mark() && skip > 0 {
            return Ok((0, true));
        }
        let (hole, room) = (ahead.hole as usize, ahead.room());
        if !peek && into.iter().any(|part| !part.is_empty()) {
            self.pass_over(now, conn, ahead.hole)?;
        }
        let behind = if peek { hole } else { 0 };
        let mut got = 0;
        for part in into {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            let part = &mut part[std::mem::take(&mut skip)..];
            let passed = if peek { behind + got } else { 0 };
            let left = (self.unread(Some(conn)) as usize).saturating_sub(passed);
            let most = left.min(part.len()).min(room - got);
            if most == 0 {
                break;
            }
            let part = &mut part[..most];
            got += match (peek, drop) {
                (true, true) => most,
                (true, false) => self.stack.peek_at(conn, passed, part)?,
                (false, true) => self.stack.discard(now, conn, most)?,
                (false, false) => self.stack.read(now, conn, part)?,
            };
        }
        Ok((got, got == room))
    }

    /// `send(2)` once: how much was taken, `EAGAIN` if nothing, however patient the caller. SIGPIPE is the caller's affair.
    pub fn send(&mut self, now: Instant, fd: i32, bytes: &[u8], flags: i32) -> Result<usize> {
        let bytes = [IoSlice::new(bytes)];
        match self.transmit(now, fd, &bytes, flags | abi::MSG_DONTWAIT, 0)? {
            Progress::Done(n) | Progress::Blocked(n) => Ok(n),
        }
    }

    /// `write(2)` once.
    pub fn write(&mut self, now: Instant, fd: i32, bytes: &[u8]) -> Result<usize> {
        self.send(now, fd, bytes, 0)
    }

    /// `sendmsg(2)` and all that it is the general form of; `done` is what earlier tries of this call have sent of `from`.
    pub fn transmit(
        &mut self,
        now: Instant,
        fd: i32,
        from: &[IoSlice<'_>],
        flags: i32,
        done: usize,
    ) -> Result<Progress> {
        let progress = self.transmit_copied(now, fd, from, flags, done)?;
        if flags & abi::MSG_ZEROCOPY != 0 {
            self.note_zero_copy(fd, progress, done)?;
        }
        Ok(progress)
    }

    fn transmit_copied(
        &mut self,
        now: Instant,
        fd: i32,
        from: &[IoSlice<'_>],
        flags: i32,
        done: usize,
    ) -> Result<Progress> {
        let socket = self.files.table.peek(fd)?;
        let patient = flags & abi::MSG_DONTWAIT == 0 && !socket.nonblocking;
        if flags & abi::MSG_FASTOPEN != 0 {
            // As where net.ipv4.tcp_fastopen does not let clients have it (tcp_sendmsg_fastopen).
            return Err(Errno::EOPNOTSUPP);
        }
        let conn = match self.may_send(fd) {
            Ok(conn) => conn,
            Err(Errno::EAGAIN) if patient => return Ok(Progress::Blocked(done)),
            Err(error) => return self.cut_short(done, error),
        };
        if done > 0 && !self.stack.status(conn)?.writable {
            // One that sleeps is woken when there is room enough, not for every byte (sk_stream_write_space).
            return Ok(Progress::Blocked(done));
        }
        let wanted: usize = from.iter().map(|part| part.len()).sum();
        let sent = self.put(now, conn, from, flags, done)?;
        if sent == wanted {
            return Ok(Progress::Done(sent));
        }
        // SOCK_NOSPACE: who watches is told when there is room.
        if self.files.table.peek(fd)?.watch != NO_ITEM {
            self.arm_writer(now, slot_of(fd)?);
        }
        match (patient, sent) {
            (true, _) => Ok(Progress::Blocked(sent)),
            (false, 0) => Err(Errno::EAGAIN),
            (false, _) => Ok(Progress::Done(sent)),
        }
    }

    /// An error after some bytes is told by the next call.
    fn cut_short(&self, done: usize, error: Errno) -> Result<Progress> {
        match done {
            0 => Err(error),
            _ => Ok(Progress::Done(done)),
        }
    }

    /// The connection of a socket that may send now. An error is told with that (sk_stream_error).
    pub(crate) fn may_send(&mut self, fd: i32) -> Result<ConnId> {
        let socket = self.files.table.peek(fd)?;
        let (state, write_shut) = (socket.state, socket.write_shut);
        if let Some(error) = self.take_pending(fd) {
            return Err(error);
        }
        let conn = state.connection().ok_or(Errno::EPIPE)?;
        match self.stack.status(conn)?.state {
            TcpState::SynSent | TcpState::SynReceived => Err(Errno::EAGAIN),
            TcpState::Established | TcpState::CloseWait if !write_shut => Ok(conn),
            _ => Err(Errno::EPIPE),
        }
    }

    /// Gives the stack what it takes of `from` behind the first `done` bytes; how far that comes.
    fn put(
        &mut self,
        now: Instant,
        conn: ConnId,
        from: &[IoSlice<'_>],
        flags: i32,
        done: usize,
    ) -> Result<usize> {
        let (mut skip, mut sent) = (done, done);
        let mut left: usize = from.iter().map(|part| part.len()).sum::<usize>() - done;
        for part in from {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            let part = &part[std::mem::take(&mut skip)..];
            left -= part.len();
            // Bytes before the end of the call have more behind them.
            let flags = WriteFlags {
                more: flags & abi::MSG_MORE != 0 || left > 0,
                end_of_record: flags & abi::MSG_EOR != 0 && left == 0,
                urgent: flags & abi::MSG_OOB != 0 && left == 0,
            };
            let taken = match self.stack.write_as(now, conn, part, flags) {
                Ok(taken) => taken,
                Err(janus_tcp::Error::WouldBlock) => 0,
                Err(error) => return Err(error.into()),
            };
            sent += taken;
            if taken < part.len() {
                // The rest finds no room: what is there is not kept back for it.
                self.stack.push(now, conn)?;
                break;
            }
        }
        Ok(sent)
    }

    /// SO_RCVTIMEO; `None`: for ever.
    pub fn receive_timeout(&self, fd: i32) -> Option<Duration> {
        self.files.table.peek(fd).ok()?.options.receive_timeout
    }

    /// SO_SNDTIMEO, which counts for `connect` too; `None`: for ever.
    pub fn send_timeout(&self, fd: i32) -> Option<Duration> {
        self.files.table.peek(fd).ok()?.options.send_timeout
    }

    /// The error that the next call that tells one will tell: that of the socket, or of its connection.
    pub(crate) fn pending_error(&self, fd: i32) -> Option<Errno> {
        let socket = self.files.table.peek(fd).ok()?;
        if socket.error != 0 {
            return Some(Errno(socket.error.into()));
        }
        if socket.error_told {
            return None;
        }
        let status = self.stack.status(socket.state.connection()?).ok()?;
        let error = status.failure?;
        // tcp_reset: in CLOSE-WAIT a reset is a broken pipe.
        let half_closed = status.peer_fin && !socket.fin_asked;
        Some(match error {
            janus_tcp::Error::ConnectionReset if half_closed => Errno::EPIPE,
            error => error.into(),
        })
    }

    /// Like [`pending_error`](Sockets::pending_error), but also marks the error as reported (sock_error).
    pub(crate) fn take_pending(&mut self, fd: i32) -> Option<Errno> {
        let error = self.pending_error(fd)?;
        let socket: &mut Socket = self.files.table.get(fd).ok()?;
        match socket.error {
            0 => socket.error_told = true,
            _ => socket.error = 0,
        }
        Some(error)
    }
}
