//! The table of descriptors: which sockets and epoll instances there are and what state each is in. What a call does is in
//! `sockets`, `transfer` and `epoll`.

use janus_tcp::{ConnId, ListenerId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::family::Family;
use crate::zero_copy::ZeroCopy;

/// Descriptors a table holds; beyond it `EMFILE`.
pub const FDS_MAX: usize = 1 << 24;
/// The first descriptor given out; the three before are a process's standard streams.
const FIRST_FD: i32 = 3;
/// No item of an epoll instance.
pub(crate) const NO_ITEM: u32 = u32::MAX;

/// Present state of a socket.
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

impl State {
    pub(crate) fn connection(self) -> Option<ConnId> {
        match self {
            State::Connecting(conn) | State::Connected(conn) => Some(conn),
            State::Idle | State::Listening(_) => None,
        }
    }
}

/// `struct linger`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Linger {
    pub(crate) on: bool,
    pub(crate) seconds: i32,
}

/// Options that outlive the state. Sockets with equal ones share them ([`crate::shared`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SocketOptions {
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    /// Options that the engine carries out.
    pub(crate) tcp: janus_tcp::SocketOptions,
    /// TCP_DEFER_ACCEPT: seconds.
    pub(crate) defer_accept: i32,
    /// TCP_QUICKACK was switched off: connections begin by waiting with acknowledgements.
    pub(crate) waits_to_ack: bool,
    /// SO_LINGER.
    pub(crate) linger: Linger,
    /// SO_RCVLOWAT.
    pub(crate) receive_low: i32,
    /// SO_RCVTIMEO, SO_SNDTIMEO.
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// SO_OOBINLINE.
    pub(crate) urgent_in_line: bool,
    /// TCP_INQ: messages tell what is left to read.
    pub(crate) tell_unread: bool,
    /// SO_ZEROCOPY.
    pub(crate) zero_copy: bool,
    /// Options that are only stored and returned: [`crate::ignored_options`].
    pub(crate) ignored: crate::ignored_options::IgnoredOptions,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions {
            reuse_address: false,
            reuse_port: false,
            tcp: janus_tcp::SocketOptions::default(),
            defer_accept: 0,
            waits_to_ack: false,
            linger: Linger::default(),
            receive_low: 1,
            receive_timeout: None,
            send_timeout: None,
            urgent_in_line: false,
            tell_unread: false,
            zero_copy: false,
            ignored: crate::ignored_options::IgnoredOptions::default(),
        }
    }
}

/// A socket. There may be millions: what few have is behind a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) state: State,
    pub(crate) family: Family,
    /// Where `bind` or `listen` put it, as the stack knows it.
    pub(crate) bound: Option<Box<SocketAddr>>,
    pub(crate) options: Arc<SocketOptions>,
    /// Calls with MSG_ZEROCOPY, once there was one.
    pub(crate) zero_copy: Option<Box<ZeroCopy>>,
    /// The first of the epoll items that watch it.
    pub(crate) watch: u32,
    /// Stage of the connection last seen, to tell the meaning of a wake-up ([`crate::watch`]).
    pub(crate) seen: u8,
    /// An error that is not the connection's, as errno; 0 = none.
    pub(crate) error: u8,
    pub(crate) nonblocking: bool,
    pub(crate) close_on_exec: bool,
    /// `shutdown` was called.
    pub(crate) read_shut: bool,
    pub(crate) write_shut: bool,
    /// The program named the port, and keeps it whatever becomes of the socket (SOCK_BINDPORT_LOCK).
    pub(crate) port_given: bool,
    /// An attempt that failed was shut down before it was told (SS_DISCONNECTING).
    pub(crate) disconnecting: bool,
    /// It was while there was a connection whose end it could ask for.
    pub(crate) fin_asked: bool,
    /// The connection's error was told once; from then on it is merely closed.
    pub(crate) error_told: bool,
    /// Somebody waits for it who is no epoll instance.
    pub(crate) waited: bool,
    /// Its caller has connections for who accepts here, which are not the stack's.
    pub(crate) has_guests: bool,
}

impl Socket {
    pub(crate) fn new(state: State, family: Family, options: Arc<SocketOptions>) -> Socket {
        Socket {
            state,
            family,
            bound: None,
            options,
            zero_copy: None,
            watch: NO_ITEM,
            seen: 0,
            error: 0,
            nonblocking: false,
            close_on_exec: false,
            read_shut: false,
            write_shut: false,
            port_given: false,
            disconnecting: false,
            fin_asked: false,
            error_told: false,
            waited: false,
            has_guests: false,
        }
    }
}

impl Socket {
    /// A port that the program did not name goes when the socket is neither connected nor listening any more.
    pub(crate) fn forget_port(&mut self) {
        if !self.port_given {
            self.bound = None;
        }
    }
}

const _: () = assert!(size_of::<Socket>() <= 64);

/// Object that a descriptor stands for.
pub(crate) enum Entry {
    Socket(Socket),
    Epoll(Epoll),
}

#[derive(Default)]
pub(crate) struct Table {
    entries: Vec<Option<Entry>>,
    /// Slots that were given back.
    free: BinaryHeap<Reverse<u32>>,
}

/// The slot of a descriptor.
pub(crate) fn slot_of(fd: i32) -> Result<u32, Errno> {
    fd.checked_sub(FIRST_FD)
        .and_then(|slot| u32::try_from(slot).ok())
        .ok_or(Errno::EBADF)
}

/// The descriptor of a slot.
pub(crate) fn fd_of(slot: u32) -> i32 {
    slot as i32 + FIRST_FD
}

impl Table {
    /// Puts a socket at the lowest free descriptor, as POSIX demands.
    pub(crate) fn insert(&mut self, entry: Entry) -> Result<i32, Errno> {
        let slot = match self.free.pop() {
            Some(Reverse(lowest)) => lowest,
            None if self.entries.len() < FDS_MAX => {
                self.entries.push(None);
                self.entries.len() as u32 - 1
            }
            None => return Err(Errno::EMFILE),
        };
        self.entries[slot as usize] = Some(entry);
        Ok(fd_of(slot))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() == FDS_MAX && self.free.is_empty()
    }

    pub(crate) fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)?.as_ref()
    }

    pub(crate) fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// A socket.
    pub(crate) fn get(&mut self, fd: i32) -> Result<&mut Socket, Errno> {
        match self.entry_mut(slot_of(fd)?) {
            Some(Entry::Socket(socket)) => Ok(socket),
            Some(Entry::Epoll(_)) => Err(Errno::ENOTSOCK),
            None => Err(Errno::EBADF),
        }
    }

    pub(crate) fn peek(&self, fd: i32) -> Result<&Socket, Errno> {
        match self.entry(slot_of(fd)?) {
            Some(Entry::Socket(socket)) => Ok(socket),
            Some(Entry::Epoll(_)) => Err(Errno::ENOTSOCK),
            None => Err(Errno::EBADF),
        }
    }

    /// An epoll instance.
    pub(crate) fn epoll(&mut self, slot: u32) -> Option<&mut Epoll> {
        match self.entry_mut(slot)? {
            Entry::Epoll(epoll) => Some(epoll),
            Entry::Socket(_) => None,
        }
    }

    /// The first item that watches what is in a slot.
    pub(crate) fn watch(&mut self, slot: u32) -> Option<&mut u32> {
        Some(match self.entry_mut(slot)? {
            Entry::Socket(socket) => &mut socket.watch,
            Entry::Epoll(epoll) => &mut epoll.watch,
        })
    }

    pub(crate) fn remove(&mut self, fd: i32) -> Result<Entry, Errno> {
        let slot = slot_of(fd)?;
        let entry = self
            .entries
            .get_mut(slot as usize)
            .and_then(Option::take)
            .ok_or(Errno::EBADF)?;
        self.free.push(Reverse(slot));
        Ok(entry)
    }

    /// The descriptors that are open.
    pub(crate) fn open(&self) -> impl Iterator<Item = i32> {
        let numbered = self.entries.iter().zip(FIRST_FD..);
        numbered.filter_map(|(entry, fd)| entry.is_some().then_some(fd))
    }
}
