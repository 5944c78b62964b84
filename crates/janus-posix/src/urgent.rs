//! The urgent octet as sockets have it without SO_OOBINLINE: it is no byte of the stream, reading passes over it, and
//! `recv(MSG_OOB)` gets it, until something behind it is read. With the option it stays in line. One octet can be urgent at a
//! time; a pointer that moves on leaves the one before to the stream, unless reading stands there (Linux: tcp_check_urg,
//! tcp_recv_urg). Who can should use neither (RFC 6093 section 6).

use janus_tcp::{ConnId, Instant, State as TcpState, UrgentMark};
use std::io::IoSliceMut;

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::transfer::Progress;

/// Place of urgent data ahead of the next read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    /// The next bytes that are none of the stream.
    pub(crate) hole: u32,
    /// Bytes between here and the mark; `None`: there is none.
    pub(crate) to_mark: Option<u32>,
    /// The urgent octet can be had, or is in line.
    pub(crate) here: bool,
}

impl Ahead {
    /// The mark is the next byte (SIOCATMARK).
    pub(crate) fn at_mark(&self) -> bool {
        self.to_mark == Some(0)
    }

    /// Bytes that one read may give: it ends at the mark, unless it begins there.
    pub(crate) fn room(&self) -> usize {
        match self.to_mark {
            Some(bytes) if bytes > 0 => bytes as usize,
            _ => usize::MAX,
        }
    }
}

impl Sockets<'_> {
    fn mark(&self, fd: i32) -> Option<UrgentMark> {
        let conn = self.files.table.peek(fd).ok()?.state.connection()?;
        self.stack.urgent_mark(conn).ok().flatten()
    }

    fn in_line(&self, fd: i32) -> bool {
        let socket = self.files.table.peek(fd);
        socket.is_ok_and(|socket| socket.options.urgent_in_line)
    }

    /// SO_OOBINLINE has changed. Octets that were passed over before, or were in line, stay so.
    pub(crate) fn changed_in_line(&mut self, now: Instant, fd: i32, on: bool) -> Result<(), Errno> {
        let (Some(conn), Some(mark)) =
            (self.files.table.peek(fd)?.state.connection(), self.mark(fd))
        else {
            return Ok(());
        };
        match on {
            true => self.pass_over(now, conn, mark.passed)?,
            false => self.stack.keep_passed_octets(conn)?,
        }
        Ok(())
    }

    /// Returns the place of urgent data among the next bytes.
    pub(crate) fn ahead(&self, fd: i32) -> Ahead {
        let Some(mark) = self.mark(fd) else {
            return Ahead::default();
        };
        let in_line = self.in_line(fd);
        let passed = if in_line { 0 } else { mark.passed };
        let to_mark = mark.left - 1 - passed;
        let at_mark = !in_line && to_mark == 0;
        Ahead {
            hole: passed + u32::from(at_mark),
            to_mark: Some(to_mark),
            here: mark.here && !mark.taken,
        }
    }

    /// The next bytes of what has come that are none of the stream, since they were urgent: the next read passes over them.
    pub fn passed_over(&self, fd: i32) -> u32 {
        let conn = self
            .files
            .table
            .peek(fd)
            .ok()
            .and_then(|s| s.state.connection());
        let unread = conn.and_then(|conn| self.stack.status(conn).ok());
        self.ahead(fd)
            .hole
            .min(unread.map_or(0, |status| status.unread))
    }

    /// Whether anything has come that was not read, urgent or not.
    pub fn has_unread(&self, fd: i32) -> bool {
        let conn = self
            .files
            .table
            .peek(fd)
            .ok()
            .and_then(|s| s.state.connection());
        let status = conn.and_then(|conn| self.stack.status(conn).ok());
        status.is_some_and(|status| status.unread > 0)
    }

    /// Bytes received up to where urgent data ends, without its last; `None`: nothing is urgent.
    pub fn until_mark(&self, fd: i32) -> Option<u32> {
        self.ahead(fd).to_mark
    }

    /// FIONREAD: what a read could give, but nothing behind an urgent octet (tcp_inq).
    pub(crate) fn unread_to_mark(&self, fd: i32, unread: u32) -> u32 {
        let ahead = self.ahead(fd);
        let passed = ahead.hole - u32::from(ahead.at_mark() && ahead.hole > 0);
        let unread = unread - unread.min(passed);
        match ahead.to_mark {
            Some(bytes) if bytes < unread && !self.in_line(fd) => bytes,
            _ => unread,
        }
    }

    /// `recv(MSG_OOB)`: the urgent octet. Never waits (tcp_recv_urg).
    pub(crate) fn receive_urgent(
        &mut self,
        fd: i32,
        conn: Option<ConnId>,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<Progress, Errno> {
        let (Some(conn), Some(mark)) = (conn, self.mark(fd)) else {
            return Err(Errno::EINVAL);
        };
        if self.in_line(fd) || mark.taken {
            return Err(Errno::EINVAL);
        }
        let status = self.stack.status(conn)?;
        let closed = status.state == TcpState::Closed;
        if closed && !status.peer_fin {
            return Err(Errno::ENOTCONN);
        }
        let Some(octet) = self.stack.urgent_octet(conn)? else {
            let over = closed || status.peer_fin || self.files.table.peek(fd)?.read_shut;
            return if over {
                Ok(Progress::Done(0))
            } else {
                Err(Errno::EAGAIN)
            };
        };
        if flags & abi::MSG_PEEK == 0 {
            self.stack.take_urgent_octet(conn)?;
        }
        let mut places = into.iter_mut().flat_map(|part| part.iter_mut());
        Ok(Progress::Done(match places.next() {
            Some(place) => {
                if flags & abi::MSG_TRUNC == 0 {
                    *place = octet;
                }
                1
            }
            None => 0,
        }))
    }

    /// Returns the `msg_flags` of `recvmsg(MSG_OOB)`: that there was an urgent octet, and that there was no room for
    /// it.
    pub(crate) fn urgent_flags(&self, into: &[IoSliceMut<'_>], progress: Progress) -> i32 {
        match progress {
            Progress::Done(1) => abi::MSG_OOB,
            _ if into.iter().all(|part| part.is_empty()) => abi::MSG_OOB | abi::MSG_TRUNC,
            _ => 0,
        }
    }

    /// Throws away what is at the front of what came and none of the stream; as much of it as has come.
    pub(crate) fn pass_over(&mut self, now: Instant, conn: ConnId, hole: u32) -> Result<(), Errno> {
        let there = self.stack.status(conn)?.unread.min(hole);
        if there > 0 {
            self.stack.discard(now, conn, there as usize)?;
        }
        Ok(())
    }
}
