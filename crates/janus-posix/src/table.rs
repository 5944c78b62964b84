//! The table of descriptors: which sockets there are and what state each is in. What a call does is in `sockets`.

use janus_tcp::{ConnId, ListenerId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use crate::errno::Errno;
use crate::family::Family;

/// Descriptors a table holds; beyond it `EMFILE`.
pub const FDS_MAX: usize = 1 << 20;
/// The first descriptor given out; the three before are a process's standard streams.
const FIRST_FD: i32 = 3;

/// What a socket is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Made, perhaps bound.
    Idle,
    /// Waiting for connections.
    Listening(ListenerId),
    /// `connect` was called, and its outcome not yet told.
    Connecting(ConnId),
    /// Connected, or was.
    Connected(ConnId),
}

/// Options that outlive the state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct SocketOptions {
    pub(crate) reuse_address: bool,
    /// What the engine carries out.
    pub(crate) tcp: janus_tcp::SocketOptions,
    /// TCP_DEFER_ACCEPT: seconds.
    pub(crate) defer_accept: i32,
    /// SO_LINGER: seconds, when on.
    pub(crate) linger: Option<i32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Socket {
    pub(crate) state: State,
    pub(crate) family: Family,
    /// Where `bind` put it, as the stack knows it.
    pub(crate) bound: Option<SocketAddr>,
    pub(crate) options: SocketOptions,
    pub(crate) nonblocking: bool,
    pub(crate) close_on_exec: bool,
    /// `shutdown(SHUT_RD)` was called.
    pub(crate) read_shut: bool,
    /// The end of the peer's stream was read: whatever comes after, reads say 0.
    pub(crate) end_seen: bool,
    /// The connection's error was told once; from then on it is merely closed.
    pub(crate) error_told: bool,
}

impl Socket {
    pub(crate) fn new(state: State, family: Family) -> Socket {
        Socket {
            state,
            family,
            bound: None,
            options: SocketOptions::default(),
            nonblocking: false,
            close_on_exec: false,
            read_shut: false,
            end_seen: false,
            error_told: false,
        }
    }
}

#[derive(Default)]
pub(crate) struct Table {
    sockets: Vec<Option<Socket>>,
    /// Slots that were given back.
    free: BinaryHeap<Reverse<usize>>,
}

fn slot_of(fd: i32) -> Result<usize, Errno> {
    fd.checked_sub(FIRST_FD)
        .and_then(|slot| usize::try_from(slot).ok())
        .ok_or(Errno::EBADF)
}

impl Table {
    /// Puts a socket at the lowest free descriptor, as POSIX demands.
    pub(crate) fn insert(&mut self, socket: Socket) -> Result<i32, Errno> {
        let slot = match self.free.pop() {
            Some(Reverse(lowest)) => lowest,
            None if self.sockets.len() < FDS_MAX => {
                self.sockets.push(None);
                self.sockets.len() - 1
            }
            None => return Err(Errno::EMFILE),
        };
        self.sockets[slot] = Some(socket);
        Ok(slot as i32 + FIRST_FD)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.sockets.len() == FDS_MAX && self.free.is_empty()
    }

    pub(crate) fn get(&mut self, fd: i32) -> Result<&mut Socket, Errno> {
        let slot = slot_of(fd)?;
        self.sockets
            .get_mut(slot)
            .and_then(Option::as_mut)
            .ok_or(Errno::EBADF)
    }

    pub(crate) fn peek(&self, fd: i32) -> Option<&Socket> {
        self.sockets.get(slot_of(fd).ok()?)?.as_ref()
    }

    pub(crate) fn remove(&mut self, fd: i32) -> Result<Socket, Errno> {
        let slot = slot_of(fd)?;
        let socket = self
            .sockets
            .get_mut(slot)
            .and_then(Option::take)
            .ok_or(Errno::EBADF)?;
        self.free.push(Reverse(slot));
        Ok(socket)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, &Socket)> {
        let numbered = self.sockets.iter().zip(FIRST_FD..);
        numbered.filter_map(|(socket, fd)| Some((fd, socket.as_ref()?)))
    }
}
