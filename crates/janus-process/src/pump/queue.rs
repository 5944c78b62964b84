//! The listening sockets of a process, for its forked children: each has a queue that all of them take connections from, a pair of the
//! kernel's. While one of them accepts, this process accepts for it, and puts one end of each connection's pair into the queue. Who takes
//! it first has it, as on a socket of the kernel's that several processes have; what one does not take another does.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use janus_posix::abi;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{fcntl_dupfd_cloexec, ioctl_fionbio, ioctl_fionread};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair, sockopt,
};

use super::names::Names;
use super::pair::Pair;
use crate::own::{self, Own};
use crate::poll::Polled;
use crate::process::Process;
use crate::{Errno, Result, errno, kernel, passing};

/// Connections of one listener until the others have their turn.
const AT_ONCE: usize = 16;
/// A child that says that it closes a descriptor has done it by then.
const CLOSES_WITHIN: Duration = Duration::from_millis(5);
/// Time until more descriptors may be there.
const DESCRIPTORS_AGAIN: Duration = Duration::from_millis(1);
/// Time that a child takes to accept at what the end of its parent has ended.
const ENDED_AGAIN: Duration = Duration::from_millis(100);

/// A listener's queue, whether a child takes from it or not.
pub(crate) struct Queue {
    takes: Own,
    gives: Own,
}

impl Queue {
    pub(crate) fn new(local: SocketAddr) -> Result<Queue> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None).map_err(errno)?;
        Names::give_listener(local, &pair.1);
        // The least there is: what waits belongs into the listener's own queue, which has the length that the program gave it.
        let _ = sockopt::set_socket_send_buffer_size(&pair.1, 1);
        let (takes, gives) = own::keep_both(pair);
        let (takes, gives) = (Own::new(takes), Own::new(gives));
        Ok(Queue { takes, gives })
    }

    /// The end that connections are taken from.
    pub(crate) fn takes(&self) -> RawFd {
        self.takes.as_fd().as_raw_fd()
    }

    /// Another descriptor of it.
    pub(crate) fn taking_end(&self) -> Result<Own> {
        another(&self.takes)
    }

    /// Whether connections wait in it.
    pub(crate) fn is_empty(&self) -> bool {
        ioctl_fionread(&self.takes).is_ok_and(|waiting| waiting == 0)
    }

    /// Takes a connection that no child takes any more.
    pub(crate) fn take_back(&self) -> Option<OwnedFd> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        loop {
            match passing::receive(&self.takes, &mut [0], flags) {
                Ok((_, Some(end))) => return Some(end),
                // That there are others before this one.
                Ok((1.., None)) => {}
                _ => return None,
            }
        }
    }

    /// Whether who finds it empty waits.
    pub(crate) fn wait(&self, waits: bool) -> Result<()> {
        ioctl_fionbio(&self.takes, !waits).map_err(errno)
    }
}

fn another(end: &Own) -> Result<Own> {
    let copy = fcntl_dupfd_cloexec(end, 0).map_err(errno)?;
    Ok(Own::new(own::keep(copy)))
}

/// A connection that was accepted for another process.
pub(super) enum Accepted {
    /// Under a name of our own.
    Ours(RawFd),
    /// One that another program carries.
    Guest(Own),
}

/// A listener whose connections go to children. Of several that wait exclusively (EPOLLEXCLUSIVE) the kernel wakes one: if that closes its
/// descriptor and takes nothing, what is in the queue is said once more.
pub(super) struct Door {
    pub(super) socket: i32,
    /// A name of it, our own.
    fd: RawFd,
    gives: Own,
    takes: Own,
    full: bool,
    /// When to see whether a wake-up went to a child that is gone.
    looks_at: Option<Instant>,
}

impl Door {
    pub(super) fn open(process: &Process, socket: i32) -> Result<Door> {
        let inner = process.core.lock();
        let queue = inner.queues.get(&socket).ok_or(Errno::EINVAL)?;
        let (gives, takes) = (another(&queue.gives)?, another(&queue.takes)?);
        drop(inner);
        let fd = process.name_of_our_own(socket)?;
        Ok(Door {
            socket,
            fd,
            gives,
            takes,
            full: false,
            looks_at: None,
        })
    }

    /// A child has let go of it.
    pub(super) fn was_let_go(&mut self) {
        self.looks_at = Some(Instant::now() + CLOSES_WITHIN);
    }

    /// Time until it is to look after its queue.
    pub(super) fn looks_in(&self) -> Option<Duration> {
        let at = self.looks_at?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Looks after its queue, if it is time to.
    pub(super) fn looks(&mut self) {
        if self.looks_in() == Some(Duration::ZERO) {
            self.looks_at = None;
            if ioctl_fionread(&self.takes).is_ok_and(|waiting| waiting > 0) {
                // If there is no room, those that wait are woken as they come.
                let _ = passing::send(&self.gives, &[0], &[], SendFlags::DONTWAIT);
            }
        }
    }

    /// The listener, or a full queue.
    pub(super) fn polled(&self) -> Polled {
        let (fd, events) = match self.full {
            true => (self.gives.as_fd().as_raw_fd(), abi::POLLOUT),
            false => (self.fd, abi::POLLIN),
        };
        Polled {
            fd,
            events: events as i16,
            revents: 0,
        }
    }

    /// Hands on what has come, as far as there is room. False: it listens no more.
    pub(super) fn hands_on(&mut self, process: &Process, pairs: &mut Vec<Pair>) -> bool {
        for _ in 0..AT_ONCE {
            self.full = !self.has_room();
            if self.full {
                return true;
            }
            match process.accept_for_another(self.fd) {
                // If it cannot be handed on, its peer is told of an end.
                Ok(Accepted::Ours(fd)) => pairs.extend(self.hand_on(process, fd)),
                Ok(Accepted::Guest(end)) => {
                    let end = [end.as_fd()];
                    let _ = passing::send(&self.gives, &[0], &end, SendFlags::DONTWAIT);
                }
                Err(Errno::EAGAIN) => return true,
                Err(Errno::EMFILE | Errno::ENOMEM) => {
                    std::thread::sleep(DESCRIPTORS_AGAIN);
                    return true;
                }
                Err(_) => return false,
            }
        }
        true
    }

    fn has_room(&self) -> bool {
        let mut polled = [PollFd::new(&self.gives, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn hand_on(&self, process: &Process, fd: RawFd) -> Result<Pair> {
        let handed = (|| {
            let names = Names {
                local: process.getsockname(fd)?,
                peer: process.getpeername(fd)?,
            };
            let (theirs, ours) = super::pair(Some(names))?;
            passing::send(&self.gives, &[0], &[theirs.as_fd()], SendFlags::DONTWAIT)?;
            Ok(own::keep(ours))
        })();
        match handed {
            Ok(end) => Ok(Pair::of(fd, end)),
            Err(error) => {
                process.close_name_of_our_own(fd);
                Err(error)
            }
        }
    }

    pub(super) fn close(&self, process: &Process) {
        process.close_name_of_our_own(self.fd);
    }
}

impl Process {
    /// Accepts a connection for another process.
    pub(super) fn accept_for_another(&self, listener: RawFd) -> Result<Accepted> {
        let mut inner = self.core.lock();
        let (socket, waits) = inner.call(|sockets, descriptors, now| {
            let socket = descriptors.socket(listener)?;
            let seen = sockets.readiness(now, socket)?;
            let waits = seen & (abi::POLLIN | abi::POLLERR | abi::POLLHUP) as u32 != 0;
            Ok((socket, waits))
        })?;
        if !waits {
            return Err(Errno::EAGAIN);
        }
        if let Some(guest) = inner.take_guest(socket) {
            return Ok(Accepted::Guest(guest));
        }
        let accepted = inner.make_of_our_own(&self.core, |sockets, _| {
            let (new, _) = sockets.accept4(socket, abi::SOCK_NONBLOCK)?;
            Ok(new)
        });
        inner.settle();
        accepted.map(Accepted::Ours)
    }
}

/// `accept4(2)` in another process than the one that listens: takes from the queue, and waits as the descriptor is set.
///
/// # Errors
/// EINVAL once that process listens no more; those of `recvmsg(2)`.
pub fn accept(fd: RawFd, flags: i32) -> Result<(OwnedFd, SocketAddr)> {
    let mut how = RecvFlags::empty();
    how.set(RecvFlags::CMSG_CLOEXEC, flags & abi::SOCK_CLOEXEC != 0);
    let end = loop {
        match passing::receive(kernel::named(fd)?, &mut [0], how)? {
            (_, Some(end)) => break end,
            (0, None) => {
                // One that asks again at once, as its event loop says that there is something, would do nothing else.
                std::thread::sleep(ENDED_AGAIN);
                return Err(Errno::EINVAL);
            }
            // That there are others before this one.
            _ => {}
        }
    };
    own::is_the_programs(end.as_raw_fd());
    ioctl_fionbio(&end, flags & abi::SOCK_NONBLOCK != 0).map_err(errno)?;
    let names = Names::of(end.as_raw_fd()).ok_or(Errno::ECONNABORTED)?;
    Ok((end, names.peer))
}
