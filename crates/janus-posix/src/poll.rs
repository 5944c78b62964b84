//! Readiness of a descriptor, as tcp_poll of Linux reports it, and poll(2) over many.

use janus_tcp::{Instant, State as TcpState};

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::{Entry, State, fd_of, slot_of};

/// One place of the array that `poll` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollFd {
    /// The descriptor; a negative one is passed over.
    pub fd: i32,
    /// Events that are asked for.
    pub events: i16,
    /// Events that are present.
    pub revents: i16,
}

const READABLE: u32 = (abi::EPOLLIN | abi::EPOLLRDNORM) as u32;
const WRITABLE: u32 = (abi::EPOLLOUT | abi::EPOLLWRNORM) as u32;
const HANGUP: u32 = abi::EPOLLHUP as u32;

impl Sockets<'_> {
    /// All that is ready about a descriptor: `POLLIN`, `POLLOUT`, `POLLERR`, `POLLHUP`, `POLLRDHUP` and so on.
    pub fn readiness(&mut self, now: Instant, fd: i32) -> Result<u32, Errno> {
        let slot = slot_of(fd)?;
        self.files.table.entry(slot).ok_or(Errno::EBADF)?;
        self.gather();
        Ok(self.mask_of(now, slot))
    }

    /// Says whether a listening socket has connections that are not the stack's, and that its caller gives to who accepts: it is readable then.
    pub fn set_guests(&mut self, fd: i32, has: bool) -> Result<(), Errno> {
        self.files.table.get(fd)?.has_guests = has;
        if has {
            self.happened(slot_of(fd)?, READABLE);
        }
        Ok(())
    }

    /// `poll(2)` without its patience: how many of `fds` have something to tell.
    pub fn poll(&mut self, now: Instant, fds: &mut [PollFd]) -> usize {
        let mut told = 0;
        for place in fds {
            let wanted = place.events | (abi::POLLERR | abi::POLLHUP) as i16;
            place.revents = match self.readiness(now, place.fd) {
                _ if place.fd < 0 => 0,
                Err(_) => abi::POLLNVAL as i16,
                Ok(mask) => mask as i16 & wanted,
            };
            told += usize::from(place.revents != 0);
        }
        told
    }

    /// Returns the readiness of the object in a slot.
    pub(crate) fn mask_of(&mut self, now: Instant, slot: u32) -> u32 {
        match self.files.table.entry(slot) {
            None => 0,
            Some(Entry::Epoll(_)) => self.epoll_mask(now, slot),
            Some(Entry::Socket(socket)) => match socket.state {
                State::Idle => {
                    let (read, write) = (socket.read_shut, socket.write_shut);
                    let error = socket.error != 0 || socket.has_told();
                    // A closed socket hangs, and has nothing queued that writing could wait for.
                    HANGUP | WRITABLE | shut_mask(read, write) | error_mask(error)
                }
                State::Listening(id) => match self.stack.accept_queue_len(id) {
                    0 if !socket.has_guests => 0,
                    _ => READABLE,
                },
                State::Connecting(_) | State::Connected(_) => self.connection_mask(now, slot),
            },
        }
    }

    fn connection_mask(&mut self, now: Instant, slot: u32) -> u32 {
        let mut error = self.pending_error(fd_of(slot)).is_some();
        let ahead = self.ahead(fd_of(slot));
        let Some(Entry::Socket(socket)) = self.files.table.entry(slot) else {
            return 0;
        };
        error |= socket.has_told();
        let Some(status) = socket
            .state
            .connection()
            .and_then(|c| self.stack.status(c).ok())
        else {
            return HANGUP | WRITABLE | shut_mask(true, true) | error_mask(error);
        };
        let closed = status.state == TcpState::Closed;
        let read_shut = socket.read_shut || status.peer_fin || closed;
        let write_shut = socket.write_shut || closed;
        let mut mask = shut_mask(read_shut, write_shut) | error_mask(error);
        if closed {
            mask |= HANGUP;
        }
        if matches!(status.state, TcpState::SynSent | TcpState::SynReceived) {
            return mask;
        }
        // tcp_stream_is_readable, with SO_RCVLOWAT; an urgent octet that reading passes over does not count.
        let readable = status.unread.saturating_sub(ahead.hole);
        let enough = readable >= socket.options.receive_low as u32 || status.window_low;
        if readable > 0 && enough {
            mask |= READABLE;
        }
        if write_shut || status.writable {
            mask |= WRITABLE;
        } else {
            self.arm_writer(now, slot);
        }
        if ahead.here {
            mask |= abi::EPOLLPRI as u32;
        }
        mask
    }
}

/// Returns the events for directions that are shut (tcp_poll).
fn shut_mask(read: bool, write: bool) -> u32 {
    let mut mask = 0;
    if read {
        mask |= READABLE | abi::EPOLLRDHUP as u32;
    }
    if read && write {
        mask |= HANGUP;
    }
    mask
}

fn error_mask(error: bool) -> u32 {
    if error { abi::EPOLLERR as u32 } else { 0 }
}
