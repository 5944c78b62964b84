//! Bytes in the packet buffers they came in: received without a copy, and sent on as they are. The order in which a socket's state is
//! looked at is that of `transfer`.

use janus_tcp::{ConnId, Error, Instant, Piece};

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::{State, slot_of};
use crate::transfer::Progress;

type Result<T> = std::result::Result<T, Errno>;

/// Outcome of a try to receive a buffer.
#[derive(Debug)]
pub enum Received {
    /// The next bytes of the stream.
    Bytes(Piece),
    /// The end of the peer's stream.
    End,
    /// As [`Progress::Blocked`].
    Blocked,
}

impl Sockets<'_> {
    /// The next bytes that have come, in the buffer they lie in: at least one, whatever SO_RCVLOWAT says. Of the flags of `recv(2)` there is
    /// MSG_DONTWAIT only. Up to an urgent octet bytes are copied into a buffer of their own, if they share theirs with what is behind it.
    ///
    /// # Errors
    /// Those of `recv(2)`; EOPNOTSUPP for other flags, ENOBUFS when there is no buffer for a copy.
    pub fn receive_buf(&mut self, now: Instant, fd: i32, flags: i32) -> Result<Received> {
        let socket = self.files.table.peek(fd)?;
        if flags & !abi::MSG_DONTWAIT != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let conn = match socket.state {
            State::Listening(_) => return Err(Errno::ENOTCONN),
            state => state.connection(),
        };
        let patient = flags & abi::MSG_DONTWAIT == 0 && !socket.nonblocking;
        if let Some(conn) = conn
            && let Some(piece) = self.take_buf(now, fd, conn)?
        {
            return Ok(Received::Bytes(piece));
        }
        Ok(match self.nothing_more(fd, conn, 0, patient)? {
            Progress::Done(_) => Received::End,
            Progress::Blocked(_) => Received::Blocked,
        })
    }

    fn take_buf(&mut self, now: Instant, fd: i32, conn: ConnId) -> Result<Option<Piece>> {
        let ahead = self.ahead(fd);
        self.pass_over(now, conn, ahead.hole)?;
        let unread = self.unread(Some(conn)) as usize;
        if unread == 0 {
            return Ok(None);
        }
        if ahead.room() < unread {
            return self.copy_to_mark(now, conn, ahead.room()).map(Some);
        }
        Ok(self.stack.recv(now, conn)?)
    }

    fn copy_to_mark(&mut self, now: Instant, conn: ConnId, most: usize) -> Result<Piece> {
        let mut buf = self.stack.pool().alloc().ok_or(Errno::ENOBUFS)?;
        let off = buf.off();
        let room = &mut buf.bytes_mut()[usize::from(off)..];
        let most = most.min(room.len());
        let read = self.stack.read(now, conn, &mut room[..most]);
        match read {
            Ok(len) => Ok(Piece {
                buf,
                off,
                len: len as u16,
            }),
            Err(error) => {
                self.stack.pool().free(buf);
                Err(error.into())
            }
        }
    }

    /// Sends a buffer that was received, as it is: it belongs to the connection from then on. When it cannot be taken it is given back, with
    /// why; what part of it was sent nevertheless is not among its bytes any more. Never waits: no room is EAGAIN.
    ///
    /// # Errors
    /// Those of `send(2)`.
    pub fn send_buf(
        &mut self,
        now: Instant,
        fd: i32,
        piece: Piece,
    ) -> std::result::Result<(), (Errno, Piece)> {
        let conn = match self.may_send(fd) {
            Ok(conn) => conn,
            Err(error) => return Err((error, piece)),
        };
        self.stack
            .send_buf(now, conn, piece)
            .map_err(|(error, rest)| {
                // SOCK_NOSPACE: who watches or waits is told when there is room.
                if error == Error::WouldBlock
                    && let Ok(slot) = slot_of(fd)
                {
                    self.arm_writer(now, slot);
                }
                (error.into(), rest)
            })
    }

    /// Gives back a buffer that was received.
    pub fn release(&mut self, piece: Piece) {
        self.stack.pool().free(piece.buf);
    }
}
