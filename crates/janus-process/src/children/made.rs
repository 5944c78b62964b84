//! Sockets that a forked child makes, which has no TCP of its own: those of an FTP server's sessions, or of workers that ask another server. They
//! are the kernel's until they are to be bound or connected to a place of Janus's. Then the child's parent makes one like it, with the same options.
//! The child has in its place what it would have if it had inherited that: one end of a pair that is carried, or of a queue.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::{ioctl_fionbio, read};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, UCred, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Child, Inherited, Kind, NEW, Told, Word};
use crate::kernel::{self, Watched};
use crate::legacy::Legacy;
use crate::own::{self, Own};
use crate::process::Process;
use crate::pump::{Connecting, Connects, Pair, Queue, fill, pair};
use crate::{Errno, Result, errno, passing};

/// Bytes of a number in a message.
const NUMBER: usize = size_of::<i32>();

/// A connection that the parent is asked for.
pub struct Attempt {
    hears: OwnedFd,
    waits: bool,
    patience: Option<Duration>,
}

impl Attempt {
    /// The answer of `connect(2)`: at once where it does not wait.
    ///
    /// # Errors
    /// Linux's.
    pub fn ends(&self) -> Result<()> {
        if !self.waits {
            return Err(Errno::EINPROGRESS);
        }
        if self.patience.is_some() {
            let mut heard = [Watched::new(self.hears.as_raw_fd(), PollFlags::IN)];
            kernel::wait(&[], &mut heard, self.patience, None)?;
            if heard[0].seen.is_empty() {
                return Err(Errno::EINPROGRESS);
            }
        }
        let mut number = [0; NUMBER];
        match read(&self.hears, &mut number).map_err(errno)? {
            NUMBER => match i32::from_ne_bytes(number) {
                0 => Ok(()),
                error => Err(Errno(error)),
            },
            // The parent has ended.
            _ => Err(Errno::ETIMEDOUT),
        }
    }
}

impl Child {
    /// `bind(2)`, if the place is Janus's and the socket is neither bound nor connected. `None`: it is the kernel's, and so if the parent is gone.
    pub fn binds(&mut self, fd: RawFd, at: SocketAddr) -> Option<Result<()>> {
        let wanted = self.unused(fd, at)?;
        self.bind(fd, &wanted).transpose()
    }

    /// Describes a socket that is to be there.
    fn unused(&self, fd: RawFd, at: SocketAddr) -> Option<Legacy> {
        let takes = self.handle.as_ref()?.takes(at);
        let is_unused = takes && kernel::unused_tcp(fd).is_some();
        is_unused.then(|| Legacy::of_kernels(fd, at).ok())?
    }

    fn bind(&mut self, fd: RawFd, wanted: &Legacy) -> Result<Option<()>> {
        let nonblocking = kernel::is_nonblocking(fd)?;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (hears, says) = socketpair(family, kind, SocketFlags::CLOEXEC, None).map_err(errno)?;
        if (self.tell_more(NEW, Word::Binds, &wanted.text(), &[says.as_fd()])).is_err() {
            return Ok(None);
        }
        drop(says);
        let mut answer = [0; NUMBER];
        let takes = loop {
            match passing::receive(&hears, &mut answer, RecvFlags::CMSG_CLOEXEC) {
                Ok((NUMBER, Some(takes))) => break takes,
                Ok((NUMBER, None)) => return Err(Errno(i32::from_ne_bytes(answer))),
                Err(Errno::EINTR) => {}
                // It has ended.
                _ => return Ok(None),
            }
        };
        ioctl_fionbio(&takes, nonblocking).map_err(errno)?;
        self.put(&takes, fd)?;
        self.inherited.push(Inherited {
            fd,
            socket: i32::from_ne_bytes(answer),
            nonblocking,
            // It is claimed already.
            kind: Kind::Bound(-1),
            shared: false,
        });
        Ok(Some(()))
    }

    /// `connect(2)`, likewise; the socket may also have been bound before by [`binds`](Child::binds).
    pub fn connects(&mut self, fd: RawFd, remote: SocketAddr) -> Option<Result<Attempt>> {
        let bound = self.inherited.iter().find(|it| it.fd == fd);
        let bound = bound.filter(|it| matches!(it.kind, Kind::Bound(_)));
        let (socket, wanted) = match bound {
            Some(bound) => (bound.socket, Legacy::at(remote)),
            None => (NEW, self.unused(fd, remote)?),
        };
        self.connect(fd, socket, &wanted).transpose()
    }

    fn connect(&mut self, fd: RawFd, socket: i32, wanted: &Legacy) -> Result<Option<Attempt>> {
        let nonblocking = kernel::is_nonblocking(fd)?;
        let (mine, parents) = pair(None)?;
        Connects::give(wanted.local, &mine);
        let before = kernel::named(fd)?;
        for which in [Timeout::Recv, Timeout::Send] {
            if let Ok(Some(patience)) = sockopt::socket_timeout(before, which) {
                sockopt::set_socket_timeout(&mine, which, Some(patience)).map_err(errno)?;
            }
        }
        let filler = u32::try_from(fill(&mine)).map_err(|_| Errno::ENOBUFS)?;
        let (hears, says) = pipe_with(PipeFlags::CLOEXEC).map_err(errno)?;
        let more = [&filler.to_ne_bytes()[..], &wanted.text()].concat();
        let ends = [parents.as_fd(), says.as_fd()];
        if (self.tell_more(socket, Word::Connects, &more, &ends)).is_err() {
            return Ok(None);
        }
        ioctl_fionbio(&mine, nonblocking).map_err(errno)?;
        self.put(&mine, fd)?;
        self.inherited.retain(|it| it.fd != fd);
        let patience = sockopt::socket_timeout(&mine, Timeout::Send);
        Ok(Some(Attempt {
            hears,
            waits: !nonblocking,
            patience: patience.map_err(errno)?,
        }))
    }
}

/// The parent has heard that.
pub(super) fn binds(more: &[u8], sender: Option<UCred>, answer: OwnedFd) -> Told {
    Legacy::from_text(more).map_or(Told::LetGo, |wanted| {
        Told::Binds(wanted, sender, Own::new(own::keep(answer)))
    })
}

/// Likewise.
pub(super) fn connects(socket: i32, more: &[u8], end: OwnedFd, answer: OwnedFd) -> Told {
    let told = more.split_first_chunk().and_then(|(filler, text)| {
        let filler = u32::from_ne_bytes(*filler) as usize;
        Some((filler, Legacy::from_text(text)?))
    });
    match told {
        Some((filler, wanted)) => {
            let socket = (socket != NEW).then_some(socket);
            let answer = Own::new(own::keep(answer));
            let connecting = Connecting { filler, answer };
            Told::Connects(socket, wanted, own::keep(end), connecting)
        }
        None => Told::LetGo,
    }
}

/// Whether a child may have the port: one that has given up its parent's rights is to have none of them by its parent.
fn may_bind(child: Option<UCred>, port: u16) -> bool {
    let own = rustix::process::geteuid();
    let is_like_us = |child: UCred| !own.is_root() && child.uid == own;
    !(1..1024).contains(&port)
        || child.is_some_and(|child| is_like_us(child) || kernel::may_bind_any_port(child.pid))
}

impl Process {
    /// Makes and binds a socket for a child, which is answered. Held for it.
    pub(crate) fn binds_for_child(
        &self,
        wanted: &Legacy,
        sender: Option<UCred>,
        child: Own,
    ) -> Option<i32> {
        let made = match may_bind(sender, wanted.local.port()) {
            true => self.bind_for_another(wanted),
            false => Err(Errno::EACCES),
        };
        let (number, takes) = match &made {
            Ok((socket, takes)) => (*socket, Some(takes.as_fd())),
            Err(error) => (error.0, None),
        };
        let answer = number.to_ne_bytes();
        let told = passing::send(&child, &answer, takes.as_slice(), SendFlags::DONTWAIT);
        let (socket, _) = made.ok()?;
        // One that has ended first has nothing.
        told.inspect_err(|_| self.core.let_go(&[socket])).ok()?;
        Some(socket)
    }

    fn bind_for_another(&self, wanted: &Legacy) -> Result<(i32, Own)> {
        let fd = self.make_of_our_own(|sockets, now| {
            wanted.make(sockets, now, |sockets, socket| {
                sockets.bind(socket, wanted.local)
            })
        })?;
        let made = self.getsockname(fd).and_then(|local| {
            let queue = Queue::new(local)?;
            let takes = queue.taking_end()?;
            let mut inner = self.core.lock();
            let socket = inner.descriptors.socket(fd)?;
            inner.descriptors.hold(socket);
            inner.queues.insert(socket, queue);
            Ok((socket, takes))
        });
        self.close_name_of_our_own(fd);
        made
    }

    /// Connects a socket for a child, one that is made or was bound for it.
    pub(crate) fn connects_for_child(
        &self,
        socket: Option<i32>,
        wanted: &Legacy,
        end: OwnedFd,
        connecting: Connecting,
    ) -> Option<Pair> {
        let fd = match socket {
            Some(socket) => self.name_of_our_own(socket),
            None => self.make_of_our_own(|sockets, now| wanted.make(sockets, now, |_, _| Ok(()))),
        };
        self.connect_for_another(fd, wanted.local, end, connecting)
    }
}
