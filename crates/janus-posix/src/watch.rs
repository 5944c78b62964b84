//! Delivers wake-ups to waiters: the stack's wake-ups, each a number of a descriptor, become places in the ready lists
//! of epoll instances and descriptors for those who wait otherwise. Only a socket that is watched or waited for is ever
//! woken, each once until it is looked at again; so nothing here grows with the number of sockets.

use janus_tcp::{Instant, State as TcpState, Token};

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::{Entry, NO_ITEM, State, fd_of, slot_of};

/// Everything may be different.
pub(crate) const ALL: u32 = u32::MAX;
/// Events that sk_data_ready and sk_write_space of Linux report as ready.
const INPUT: u32 = (abi::EPOLLIN | abi::EPOLLPRI | abi::EPOLLRDNORM | abi::EPOLLRDBAND) as u32;
pub(crate) const OUTPUT: u32 = (abi::EPOLLOUT | abi::EPOLLWRNORM | abi::EPOLLWRBAND) as u32;

/// The wake-up that a slot leaves with the stack.
fn token(slot: u32, writer: bool) -> Token {
    Token(slot << 1 | u32::from(writer))
}

impl Sockets<'_> {
    /// Takes the stack's wake-ups. Whoever hands the stack frames or time calls this before the next wait.
    pub fn gather(&mut self) {
        while let Some(Token(token)) = self.stack.pop_ready() {
            let (slot, writer) = (token >> 1, token & 1 != 0);
            if let Some(what) = self.meaning(slot, writer) {
                self.happened(slot, what);
            }
            self.arm(slot);
        }
    }

    /// The next descriptor of those that were waited for ([`Sockets::wait`]) on which something happened.
    pub fn next_woken(&mut self) -> Option<i32> {
        self.files.woken.pop_front().map(fd_of)
    }

    /// A caller would block on this descriptor, whatever for: [`Sockets::next_woken`] names it, once, when its call should
    /// be tried again. Calling for nothing is possible, sleeping through something is not.
    pub fn wait(&mut self, now: Instant, fd: i32) -> Result<(), Errno> {
        let slot = slot_of(fd)?;
        self.gather();
        match self.files.table.entry_mut(slot).ok_or(Errno::EBADF)? {
            Entry::Socket(socket) => socket.waited = true,
            Entry::Epoll(epoll) => epoll.waited = true,
        }
        self.arm(slot);
        // A writer is told when there is enough room for one; the mask notes that one waits.
        self.mask_of(now, slot);
        Ok(())
    }

    /// Leaves word with the stack for a slot that is watched or waited for.
    pub(crate) fn arm(&mut self, slot: u32) {
        let Some(Entry::Socket(socket)) = self.files.table.entry(slot) else {
            return;
        };
        if socket.watch == NO_ITEM && !socket.waited {
            return;
        }
        match socket.state {
            State::Idle => {}
            State::Listening(id) => self.stack.wait_accept(id, Some(token(slot, false))),
            State::Connecting(conn) | State::Connected(conn) => {
                self.stack.wait_read(conn, Some(token(slot, false)));
            }
        }
    }

    /// Notes the present stage: a condition that holds already is no news to a new watcher.
    pub(crate) fn note_stage(&mut self, slot: u32) {
        if let Some(Entry::Socket(socket)) = self.files.table.entry_mut(slot)
            && let Some(conn) = socket.state.connection()
            && let Ok(status) = self.stack.status(conn)
        {
            socket.seen = stage(status.state, status.peer_fin);
        }
    }

    /// Leaves word that somebody would write and cannot (SOCK_NOSPACE).
    pub(crate) fn arm_writer(&mut self, now: Instant, slot: u32) {
        let Some(Entry::Socket(socket)) = self.files.table.entry(slot) else {
            return;
        };
        if let Some(conn) = socket.state.connection() {
            self.stack.wait_write(now, conn, Some(token(slot, true)));
        }
    }

    /// Returns the events that a wake-up reports, if any.
    fn meaning(&mut self, slot: u32, writer: bool) -> Option<u32> {
        let Some(Entry::Socket(socket)) = self.files.table.entry_mut(slot) else {
            return None;
        };
        let conn = match socket.state {
            State::Idle => return None,
            State::Listening(_) => return Some(INPUT),
            State::Connecting(conn) | State::Connected(conn) => conn,
        };
        let status = self.stack.status(conn).ok()?;
        let stage = stage(status.state, status.peer_fin);
        if std::mem::replace(&mut socket.seen, stage) != stage {
            return Some(ALL);
        }
        // Also where there is no room, or none any more: whoever looks leaves word again, which this was taken for.
        if writer {
            return Some(OUTPUT);
        }
        // tcp_data_ready: less than SO_RCVLOWAT causes no wake-up.
        let enough = status.unread >= socket.options.receive_low as u32 || status.window_low;
        (enough || self.ahead(fd_of(slot)).here).then_some(INPUT)
    }

    /// Something happened to a descriptor: those who watch it and those who wait for it learn.
    pub(crate) fn happened(&mut self, slot: u32, what: u32) {
        if let Some(Entry::Socket(socket)) = self.files.table.entry_mut(slot)
            && std::mem::take(&mut socket.waited)
        {
            self.files.woken.push_back(slot);
        }
        self.notify(slot, what);
    }
}

/// A number that differs when the state of a connection does in a way that wakes everybody (sk_state_change).
pub(crate) fn stage(state: TcpState, peer_fin: bool) -> u8 {
    state as u8 | u8::from(peer_fin) << 7
}
