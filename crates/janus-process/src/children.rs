//! Connections in forked children. A child has its parent's descriptors, and none of its connections: each is one of the kernel's
//! placeholders there. As on Linux a connection lasts until the child has let it go too, so the parent holds it for the child, which is known
//! to be there by a channel that ends with it. What the child uses it claims: its placeholder becomes one end of a pair, whose other end goes
//! to the parent by the channel, and is carried there (`pump`). What listens has a queue that all children share, made before the first fork:
//! the placeholder becomes the end of it that connections are taken from. Sockets that a child makes its parent makes for it (`made`).

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{MutexGuard, PoisonError};

use janus::{Handle, Permit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{DupFlags, ioctl_fionbio};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair, sockopt};

use crate::core::Inner;
use crate::legacy::{self, Legacy};
use crate::process::Process;
use crate::pump::{Names, Queue};
use crate::{Errno, Result, errno, kernel, own, passing, pump};

mod bound;
mod forked;
mod made;
#[cfg(test)]
mod tests;

pub(crate) use forked::{Forked, Told};
pub use made::Attempt;

/// A socket as it was when its process forked.
#[derive(Clone, Copy)]
struct Inherited {
    fd: RawFd,
    socket: i32,
    nonblocking: bool,
    kind: Kind,
    /// Children of its holder's have it too.
    shared: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Connection(Names),
    /// Listens here. Connections are taken from this end of its queue, which is Janus's; once it is claimed, from its descriptors too.
    Listener(RawFd),
    /// May listen once: has such a queue already.
    Bound(RawFd),
}

/// The child's words on a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    /// It has closed it.
    LetsGo = 0,
    /// It uses it: the end that is to be carried comes along.
    Uses = 1,
    /// It accepts from it.
    Accepts = 2,
    /// It becomes another program, which is to listen there itself: the other end of the mark comes along.
    Leaves = 3,
    /// It is to listen, with a backlog: where the answer goes comes along.
    Listens = 4,
    /// It is one to be made and bound, as a description says: likewise.
    Binds = 5,
    /// It is one to be made, as a description says, or was bound for it, and is to be connected. Bytes that fill the end which is to be carried are to be thrown
    /// away once it is. That end comes along, and where it is said that this is done.
    Connects = 6,
}

/// A parent that forked to end has said so by then.
const LEAVES_WITHIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// In the place of a socket that is to be made.
const NEW: i32 = -1;

/// A fork that is about to be: made ready for both sides of it.
pub struct Fork<'a> {
    channel: Option<Channel>,
    /// The pump rests: what it has open for a moment is no child's.
    _quiet: MutexGuard<'a, ()>,
}

/// Between a process and its child.
struct Channel {
    parents: OwnedFd,
    childs: OwnedFd,
    inherited: Vec<Inherited>,
    legacies: Legacies,
    shares_ports: bool,
    handle: Option<Handle>,
}

/// Descriptions of the sockets that listen, for a process of the child's own, or a program that it may become.
type Legacies = HashMap<i32, Box<[u8]>>;

/// The sockets that a child has of its parent's.
pub struct Child {
    channel: OwnedFd,
    inherited: Vec<Inherited>,
    legacies: Legacies,
    /// Several processes may listen at the same ports, as a daemon has the device.
    shares_ports: bool,
    /// Its parent's runtime, as far as it is memory.
    handle: Option<Handle>,
    /// It has waited for its parent's end, in vain.
    has_waited: Cell<bool>,
}

fn sockets(inherited: &[Inherited]) -> Vec<i32> {
    inherited.iter().map(|it| it.socket).collect()
}

impl Process {
    /// To be called right before a fork.
    pub fn before_fork(&self) -> Fork<'_> {
        let quiet = (self.core.forks.lock()).unwrap_or_else(PoisonError::into_inner);
        Fork {
            channel: self.channel(),
            _quiet: quiet,
        }
    }

    /// `None`: there is no room to hold what is inherited.
    fn channel(&self) -> Option<Channel> {
        self.make_queues();
        let mut inner = self.core.lock();
        let inherited = inner.inherited().ok()?;
        let legacies = inner.legacies();
        for connection in &inherited {
            inner.descriptors.hold(connection.socket);
        }
        drop(inner);
        let flags = SocketFlags::CLOEXEC;
        let Ok(pair) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None) else {
            self.core.let_go(&sockets(&inherited));
            return None;
        };
        // Without that its parent does not know who it has become, and binds no port for it that is not for everybody.
        let _ = sockopt::set_socket_passcred(&pair.0, true);
        let (parents, childs) = own::keep_both(pair);
        Some(Channel {
            parents,
            childs,
            inherited,
            legacies,
            shares_ports: self.core.shares_ports,
            handle: self.handle(),
        })
    }

    /// Makes a queue for each socket that listens, or may, and has none.
    fn make_queues(&self) {
        let mut inner = self.core.lock();
        let mut without = inner.listening_or_bound();
        without.retain(|socket| !inner.queues.contains_key(socket));
        let named = inner.call(|sockets, _, _| {
            let named = |socket| Some((socket, sockets.getsockname(socket).ok()?));
            Ok(without.into_iter().filter_map(named).collect())
        });
        drop(inner);
        let named: Vec<(i32, SocketAddr)> = named.unwrap_or_default();
        for (socket, local) in named {
            // Not under the lock: descriptors are opened and closed. Without room for it the child has no use for that socket.
            let Ok(queue) = Queue::new(local) else { return };
            let mut inner = self.core.lock();
            let other = match inner.descriptors.has_names(socket) {
                true => inner.queues.insert(socket, queue),
                false => Some(queue),
            };
            drop(inner);
            drop(other);
        }
    }

    /// Right after it, in the parent. If there is no child, the connections are let go at once.
    pub fn after_fork(&self, fork: Fork<'_>) {
        let Some(channel) = fork.channel else { return };
        let child = Forked {
            channel: channel.parents,
            held: sockets(&channel.inherited),
            accepts: Vec::new(),
        };
        // The other end is the child's alone.
        own::forget(channel.childs.as_raw_fd());
        drop(channel.childs);
        // Without a thread to hear it, they are held to the end.
        let _ = self.hear(child);
    }
}

impl Inner {
    fn listening_or_bound(&mut self) -> Vec<i32> {
        let listening: Vec<i32> = self.listening.keys().copied().collect();
        let bound = self.call(|sockets, descriptors, _| {
            let all = descriptors.all().into_iter();
            let of_ours = all.filter_map(|fd| descriptors.socket(fd).ok());
            Ok(of_ours.filter(|socket| sockets.is_bound(*socket)).collect())
        });
        let mut bound: Vec<i32> = bound.unwrap_or_default();
        bound.sort_unstable();
        bound.dedup();
        [listening, bound].concat()
    }

    /// Descriptions of all that listens.
    fn legacies(&mut self) -> Legacies {
        let listening: Vec<i32> = self.listening.keys().copied().collect();
        let text = |socket| Some((socket, self.legacy(socket).ok()?));
        listening.into_iter().filter_map(text).collect()
    }

    /// Connections, and what listens: each with the queue that children take from.
    fn inherited(&mut self) -> Result<Vec<Inherited>> {
        let mut all = self.descriptors.all();
        all.retain(|fd| !own::is(*fd));
        let mut inherited: Vec<Inherited> = self.call(|sockets, descriptors, _| {
            let one = |fd| {
                let socket = descriptors.socket(fd).ok()?;
                let kind = match sockets.is_listening(socket) {
                    true => Kind::Listener(-1),
                    false if sockets.is_bound(socket) => Kind::Bound(-1),
                    false => Kind::Connection(Names {
                        local: sockets.getsockname(socket).ok()?,
                        peer: sockets.getpeername(socket).ok()?,
                    }),
                };
                let nonblocking = sockets.is_nonblocking(socket);
                Some(Inherited {
                    fd,
                    socket,
                    nonblocking,
                    kind,
                    shared: false,
                })
            };
            Ok(all.into_iter().filter_map(one).collect())
        })?;
        inherited.retain_mut(|it| match &mut it.kind {
            Kind::Connection(_) => true,
            Kind::Listener(takes) | Kind::Bound(takes) => {
                let queue = self.queues.get(&it.socket);
                let waits = !it.nonblocking;
                queue.is_some_and(|queue| {
                    *takes = queue.takes();
                    queue.wait(waits).is_ok()
                })
            }
        });
        Ok(inherited)
    }
}

impl Process {
    /// In a forked child, which closes these descriptors: from now on they are what the kernel says.
    pub fn closes_in_child(&self, first: RawFd, last: RawFd) {
        self.core.ours.none_from_to(first, last);
    }
}

impl Fork<'_> {
    /// Right after it, in the child. Of what Janus works with it keeps its channel, and the queues: all else is its parent's, whose
    /// devices are free, and whose peers see an end, when the parent closes them. `None`: it has no parent to speak to.
    pub fn in_child(self) -> Option<Child> {
        let channel = self.channel;
        let kept: Vec<RawFd> = (channel.iter())
            .flat_map(|channel| {
                let takes = channel.inherited.iter().filter_map(|it| match it.kind {
                    Kind::Listener(takes) | Kind::Bound(takes) => Some(takes),
                    Kind::Connection(_) => None,
                });
                takes.chain([channel.childs.as_raw_fd()])
            })
            .collect();
        own::close_all_but(&kept);
        let Channel {
            parents,
            childs,
            inherited,
            legacies,
            shares_ports,
            handle,
        } = channel?;
        // Closed just now.
        let _ = parents.into_raw_fd();
        Some(Child {
            channel: childs,
            inherited,
            legacies,
            shares_ports,
            handle,
            has_waited: Cell::new(false),
        })
    }
}

impl Child {
    /// It forks: what it closes from now on its own children may still use, and its parent holds it until all of them have ended.
    pub fn forks(&mut self) {
        self.inherited.iter_mut().for_each(|it| it.shared = true);
    }

    /// Makes a descriptor that was a socket the kernel's, and all others of the same socket. False: it was none, or its parent is gone.
    pub fn claims(&mut self, process: &Process, fd: RawFd) -> bool {
        let Some(claimed) = self.inherited.iter().find(|it| it.fd == fd).copied() else {
            return false;
        };
        self.claim(process, claimed).is_ok()
    }

    /// Whether a descriptor is the only one of a connection, for which the child [may have](Child::permit_for) TCP of its own.
    pub fn has_alone(&self, fd: RawFd) -> bool {
        let mut connections = self.inherited.iter();
        let socket = connections.find_map(|it| match it.kind {
            Kind::Connection(_) if it.fd == fd => Some(it.socket),
            _ => None,
        });
        let names = self.inherited.iter().filter(|it| Some(it.socket) == socket);
        self.shares_ports && names.count() == 1
    }

    /// The permit for a process of the child's own, to which the connection comes that is carried for it under this descriptor, and its parent's runtime. There is one
    /// if the connection came to where its parent listens.
    pub fn permit_for(&self, fd: RawFd) -> Option<(&Handle, Permit)> {
        let port = Names::of(fd)?.local.port();
        let mut legacies = self.legacies.values().filter(|_| self.shares_ports);
        let permit = legacies.find_map(|text| {
            let permit = Legacy::from_text(text)?.permit?;
            (permit.port == port).then_some(permit)
        });
        Some((self.handle.as_ref()?, permit?))
    }

    fn claim(&mut self, process: &Process, claimed: Inherited) -> Result<()> {
        let names = match claimed.kind {
            Kind::Connection(names) => names,
            Kind::Listener(takes) => {
                let takes = kernel::named(takes)?;
                self.tell(claimed.socket, Word::Accepts, None)?;
                return self.replace(process, claimed.socket, takes);
            }
            Kind::Bound(takes) => {
                return self.replace(process, claimed.socket, kernel::named(takes)?);
            }
        };
        let (mine, parents) = pump::pair(Some(names))?;
        rustix::io::ioctl_fionbio(&mine, claimed.nonblocking).map_err(errno)?;
        self.tell(claimed.socket, Word::Uses, Some(&parents))?;
        self.replace(process, claimed.socket, mine.as_fd())?;
        self.inherited.retain(|it| it.socket != claimed.socket);
        Ok(())
    }

    /// Puts something of the kernel's in the place of all descriptors of a socket.
    fn replace(&self, process: &Process, socket: i32, with: BorrowedFd<'_>) -> Result<()> {
        for name in self.inherited.iter().filter(|it| it.socket == socket) {
            self.put(with, name.fd)?;
            process.core.ours.is_not(name.fd);
        }
        Ok(())
    }

    /// Whether a descriptor was a listener at which a process of the child's own may listen while its parent does.
    pub fn may_serve(&self, fd: RawFd) -> bool {
        self.shares_ports && self.may_follow(fd)
    }

    /// Likewise once its parent has ended.
    pub fn may_follow(&self, fd: RawFd) -> bool {
        let mut inherited = self.inherited.iter().filter(|it| it.fd == fd);
        inherited.any(|it| self.legacies.contains_key(&it.socket))
    }

    /// Makes a descriptor that was a listener one of the child's own process, with TCP of its own, which is started by `start` if there is none. Connections
    /// that come there are the child's alone. Nothing is changed if that cannot be.
    ///
    /// # Errors
    /// It was no listener, or there is no daemon that would let the child listen there, and its parent does not end; what `start` says.
    pub fn serves<'a>(
        &self,
        parents: &Process,
        fd: RawFd,
        start: impl FnOnce(&Handle, Option<&Permit>) -> Result<&'a Process>,
    ) -> Result<()> {
        let claimed = self.inherited.iter().find(|it| it.fd == fd);
        let claimed = claimed.ok_or(Errno::EBADF)?;
        let text = self.legacies.get(&claimed.socket);
        let legacy = text.and_then(|text| Legacy::from_text(text));
        let (Some(text), Some(legacy), Some(handle)) = (text, legacy, &self.handle) else {
            return Err(Errno::EINVAL);
        };
        let permit = legacy.permit.filter(|_| self.shares_ports);
        if permit.is_none() && (self.shares_ports || !self.is_about_to_be_left()) {
            return Err(Errno::EINVAL);
        }
        let process = start(handle, permit.as_ref())?;
        let names = self.inherited.iter();
        let names: Vec<RawFd> = (names.filter(|it| it.socket == claimed.socket))
            .map(|it| it.fd)
            .collect();
        self.put_mark(parents, claimed, text, &names)?;
        for fd in &names {
            parents.core.ours.is_not(*fd);
        }
        process.take_over(&names, true)
    }

    /// Whether its parent has ended, or is about to: nothing is carried for it then.
    pub fn is_orphan(&self) -> bool {
        self.is_left_within(Timespec::default())
    }

    fn is_left_within(&self, limit: Timespec) -> bool {
        // A parent says nothing to its children while it lives.
        let mut polled = [PollFd::new(&self.channel, PollFlags::IN)];
        poll(&mut polled, Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// Whether its parent has ended, or does so in a moment, if it has not been waited for before: who goes into the background forks, and ends.
    fn is_about_to_be_left(&self) -> bool {
        let limit = match self.has_waited.get() {
            true => Timespec::default(),
            false => LEAVES_WITHIN,
        };
        let is_left = self.is_left_within(limit);
        self.has_waited.set(!is_left);
        is_left
    }

    /// A descriptor of each listener at which a process of the child's own may listen.
    pub fn servable(&self) -> Vec<RawFd> {
        let inherited = || self.inherited.iter();
        let first = |socket: &i32| inherited().find(|it| it.socket == *socket).map(|it| it.fd);
        self.legacies.keys().filter_map(first).collect()
    }

    /// It becomes another program: what listens and is not closed by that is left to it, as marks. How many descriptors that are. If it stays
    /// what it is, it can claim them yet.
    pub fn leaves(&self, process: &Process) -> usize {
        let legacies = self.legacies.iter().filter(|_| self.shares_ports);
        let left = legacies.map(|(socket, text)| self.leave(process, *socket, text));
        // Without room for a mark the next program has a socket that is of no use to it.
        left.map(|left| left.unwrap_or(0)).sum()
    }

    fn leave(&self, process: &Process, socket: i32, text: &[u8]) -> Result<usize> {
        let mut names: Vec<&Inherited> = self.inherited.iter().collect();
        names.retain(|it| it.socket == socket && !kernel::closes_on_exec(it.fd));
        let Some(first) = names.first() else {
            return Ok(0);
        };
        let fds: Vec<RawFd> = names.iter().map(|it| it.fd).collect();
        self.put_mark(process, first, text, &fds)?;
        Ok(names.len())
    }

    /// Puts a mark in the place of these descriptors, of which `first` is one.
    fn put_mark(
        &self,
        process: &Process,
        first: &Inherited,
        text: &[u8],
        fds: &[RawFd],
    ) -> Result<()> {
        let ours = &process.core.ours;
        let nonblocking = match ours.has(first.fd) {
            true => first.nonblocking,
            // It was claimed, and may have been changed since.
            false => kernel::is_nonblocking(first.fd)?,
        };
        let (mark, other) = legacy::mark(text)?;
        ioctl_fionbio(&mark, nonblocking).map_err(errno)?;
        if self.shares_ports {
            // A parent that is gone listens no more, and need not know.
            let _ = self.tell(first.socket, Word::Leaves, Some(&other));
        }
        for fd in fds {
            self.put(&mark, *fd)?;
            ours.is(*fd);
        }
        Ok(())
    }

    /// Puts something of the kernel's in the place of a descriptor of the program's.
    fn put(&self, it: impl AsFd, fd: RawFd) -> Result<()> {
        let flags = match kernel::closes_on_exec(fd) {
            true => DupFlags::CLOEXEC,
            false => DupFlags::empty(),
        };
        // The number is the program's now.
        let _ = kernel::duplicate_to(it, fd, flags)?.into_raw_fd();
        Ok(())
    }

    /// The child closes these descriptors, or puts others in their place. False: one of them is the channel's, and all is over.
    pub fn closes(&mut self, first: RawFd, last: RawFd) -> bool {
        let closed = |it: &Inherited| (first..=last).contains(&it.fd);
        let (gone, left): (Vec<Inherited>, _) = self.inherited.iter().partition(|it| closed(it));
        self.inherited = left;
        for name in gone.iter().filter(|it| !it.shared) {
            // A parent that is gone holds nothing; one that does not listen now, until the child ends.
            let _ = self.tell(name.socket, Word::LetsGo, None);
        }
        !(first..=last).contains(&self.channel.as_raw_fd())
    }

    /// Its channel is the program's to close.
    pub fn is_over(self) {
        let _ = self.channel.into_raw_fd();
    }

    fn tell(&self, socket: i32, word: Word, end: Option<&OwnedFd>) -> Result<()> {
        self.tell_more(socket, word, &[], end.map(AsFd::as_fd).as_slice())
    }

    fn tell_more(
        &self,
        socket: i32,
        word: Word,
        more: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let mut text = (i64::from(socket) << 8 | word as i64)
            .to_le_bytes()
            .to_vec();
        text.extend(more);
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::DONTWAIT, word == Word::LetsGo);
        passing::send(&self.channel, &text, fds, flags)
    }
}
