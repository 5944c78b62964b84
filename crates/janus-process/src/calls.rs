//! The life of a socket: socket, bind, listen, accept, connect, shutdown, close, its names, its options.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};

use janus_posix::{Lingering, Sockets, abi};
use janus_tcp::Instant;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, ioctl_fionbio};

use crate::core::{Attempt, Core, GoesOn, Inner};
use crate::descriptors::Descriptors;
use crate::own::Own;
use crate::process::Process;
use crate::pump::Names;
use crate::rota::CLOSED;
use crate::{Errno, Result, errno, kernel, own};

#[cfg(test)]
mod tests;

/// Ports that are tried when the program has named none.
const PORTS_TRIED: u32 = 16;

/// Why a socket does not listen.
enum Refused {
    /// The outside does not open this port, and another one would do.
    Outside(SocketAddr, Errno),
    Here(Errno),
}

impl Process {
    /// A call about one socket that never waits.
    #[inline]
    pub(crate) fn on<R>(
        &self,
        fd: RawFd,
        call: impl FnOnce(&mut Sockets<'_>, i32, Instant) -> Result<R>,
    ) -> Result<R> {
        self.core.call(|sockets, descriptors, now| {
            let socket = descriptors.socket(fd)?;
            call(sockets, socket, now)
        })
    }

    /// Whether a descriptor is open, and a socket.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub fn check(&self, fd: RawFd) -> Result<()> {
        self.on(fd, |sockets, socket, _| match sockets.is_epoll(socket) {
            true => Err(Errno::ENOTSOCK),
            false => Ok(()),
        })
    }

    /// `socket(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Result<RawFd> {
        self.core.call(|sockets, descriptors, now| {
            let socket = sockets.socket(domain, kind, protocol)?;
            match descriptors.reserve(kind & abi::SOCK_CLOEXEC != 0) {
                Ok(fd) => {
                    self.core.counted.socket();
                    Ok(descriptors.put(&self.core.ours, fd, socket))
                }
                Err(error) => {
                    sockets.close(now, socket)?;
                    Err(error)
                }
            }
        })
    }

    /// `bind(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn bind(&self, fd: RawFd, address: SocketAddr) -> Result<()> {
        self.on(fd, |sockets, socket, _| sockets.bind(socket, address))
    }

    /// `listen(2)`. The port is opened to what stands outside of the core too; where that refuses one that the program has not named, and was
    /// not told of, it gets another.
    ///
    /// # Errors
    /// Linux's, and EADDRINUSE or EACCES where the outside refuses.
    pub fn listen(&self, fd: RawFd, backlog: i32) -> Result<()> {
        let mut inner = self.core.lock();
        let mut tries = 0;
        let listened = loop {
            tries += 1;
            match inner.try_to_listen(fd, backlog) {
                Err(Refused::Outside(address, Errno::EADDRINUSE)) if tries < PORTS_TRIED => {
                    let other = SocketAddr::new(address.ip(), 0);
                    let bound = inner.call(|sockets, descriptors, _| {
                        sockets.bind(descriptors.socket(fd)?, other)
                    });
                    if let Err(error) = bound {
                        break Err(error);
                    }
                }
                Err(Refused::Outside(_, error) | Refused::Here(error)) => break Err(error),
                Ok(()) => break Ok(()),
            }
        };
        inner.settle();
        listened
    }

    /// `accept4(2)`: the descriptor and the peer.
    ///
    /// # Errors
    /// Linux's.
    pub fn accept4(&self, fd: RawFd, flags: i32, goes_on: GoesOn) -> Result<(RawFd, SocketAddr)> {
        self.waits_at(fd)?;
        let ours = &self.core.ours;
        let accepted = self
            .core
            .block(fd, goes_on, |sockets, descriptors, socket, now| {
                if let Some(guest) = accept_guest(sockets, descriptors, socket, flags) {
                    return Attempt::Done(guest);
                }
                // The descriptor first: a connection that has come must not be lost for want of one.
                let waits = sockets
                    .readiness(now, socket)
                    .is_ok_and(|mask| mask & abi::POLLIN as u32 != 0);
                let reserve = || descriptors.reserve(flags & abi::SOCK_CLOEXEC != 0);
                let reserved = match waits.then(reserve).transpose() {
                    Ok(reserved) => reserved,
                    Err(error) => return Attempt::Done(Err(error)),
                };
                match (sockets.accept4(socket, flags), reserved) {
                    (Ok((new, peer)), Some(fd)) => {
                        Attempt::Done(Ok((descriptors.put(ours, fd, new), peer)))
                    }
                    // It came between the two, and is the peer's to try again.
                    (Ok((new, _)), None) => {
                        let closed = sockets.close(now, new);
                        Attempt::Done(closed.and(Err(Errno::ECONNABORTED)))
                    }
                    (Err(Errno::EAGAIN), _) if !sockets.is_nonblocking(socket) => {
                        Attempt::Blocked {
                            on: socket,
                            so_far: Err(Errno::EAGAIN),
                            patience: sockets.receive_timeout(socket),
                        }
                    }
                    (Err(error), _) => Attempt::Done(Err(error)),
                }
            });
        accepted.inspect(|_| self.core.counted.socket())
    }

    /// `connect(2)`; `None` is AF_UNSPEC.
    ///
    /// # Errors
    /// Linux's.
    pub fn connect(&self, fd: RawFd, remote: Option<SocketAddr>, goes_on: GoesOn) -> Result<()> {
        let Some(remote) = remote else {
            return self.stops(fd, |sockets, socket, now| sockets.disconnect(now, socket));
        };
        self.core.block(fd, goes_on, |sockets, _, socket, now| {
            match sockets.connect(now, socket, remote) {
                Err(Errno::EINPROGRESS | Errno::EALREADY) if !sockets.is_nonblocking(socket) => {
                    Attempt::Blocked {
                        on: socket,
                        so_far: Err(Errno::EINPROGRESS),
                        patience: sockets.send_timeout(socket),
                    }
                }
                outcome => Attempt::Done(outcome),
            }
        })
    }

    /// `shutdown(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn shutdown(&self, fd: RawFd, how: i32) -> Result<()> {
        self.stops(fd, |sockets, socket, now| {
            sockets.shutdown(now, socket, how)
        })
    }

    /// A call after which a socket may not listen any more.
    fn stops(
        &self,
        fd: RawFd,
        call: impl FnOnce(&mut Sockets<'_>, i32, Instant) -> Result<()>,
    ) -> Result<()> {
        let mut inner = self.core.lock();
        let called = inner.call(|sockets, descriptors, now| {
            let socket = descriptors.socket(fd)?;
            let called = call(sockets, socket, now);
            Ok((socket, called, sockets.is_listening(socket)))
        });
        let called = called.and_then(|(socket, called, listens)| {
            if !listens {
                inner.close_port(socket);
            }
            called
        });
        inner.settle();
        called
    }

    /// `close(2)`: the last name of a socket ends it. With SO_LINGER it lasts until all was acknowledged, or as long as that says.
    ///
    /// # Errors
    /// EBADF.
    pub fn close(&self, fd: RawFd) -> Result<()> {
        let Some(lingering) = self.close_at_once(fd)? else {
            return Ok(());
        };
        let patience = Some(lingering.time);
        let goes_on = || false;
        let waited = self
            .core
            .block_on(self.core.lock(), goes_on, |sockets, _, _| {
                match sockets.lingers(&lingering) {
                    true => Attempt::Blocked {
                        on: CLOSED,
                        so_far: Err(Errno::EAGAIN),
                        patience,
                    },
                    false => Attempt::Done(Ok(())),
                }
            });
        // It is closed whatever became of the rest.
        let _ = waited;
        Ok(())
    }

    /// The kernel has closed a number that was not ours. If it was reserved for a socket of ours by then, that socket is closed too.
    pub fn was_closed(&self, fd: RawFd) {
        let mut inner = self.core.lock();
        if !self.has(fd) || kernel::is_open(fd) {
            return;
        }
        if let Ok((number, last)) = inner.descriptors.take(&self.core.ours, fd) {
            // Closed already.
            let _ = number.into_raw_fd();
            // An end that fails is an end.
            let _ = last.map(|socket| inner.end(socket));
        }
        inner.settle();
    }

    pub(crate) fn close_at_once(&self, fd: RawFd) -> Result<Option<Lingering>> {
        let mut inner = self.core.lock();
        let socket = inner.descriptors.socket(fd)?;
        let (number, last) = inner.descriptors.take(&self.core.ours, fd)?;
        let lingering = last.map_or(Ok(None), |socket| inner.end(socket))?;
        let is_shared = inner.succession.has(socket);
        inner.settle();
        drop(inner);
        if is_shared {
            // It may be the other program's alone now.
            self.core.ring_pump();
        }
        // Last of all, so that the number is not given out again while the socket ends.
        kernel::close(number);
        Ok(lingering)
    }

    /// `dup(2)` and its kin: another name for the same socket, the lowest from `least` on.
    ///
    /// # Errors
    /// EBADF, EMFILE.
    pub fn duplicate(&self, fd: RawFd, least: RawFd, close_on_exec: bool) -> Result<RawFd> {
        let mut inner = self.core.lock();
        let socket = inner.descriptors.socket(fd)?;
        let new = inner.descriptors.duplicate(fd, least, close_on_exec)?;
        Ok(inner.descriptors.put(&self.core.ours, new, socket))
    }

    /// `dup3(2)`: `new` becomes another name for the same socket; what it was before is closed.
    ///
    /// # Errors
    /// Linux's.
    pub fn duplicate_to(&self, fd: RawFd, new: RawFd, close_on_exec: bool) -> Result<()> {
        if fd == new {
            return Err(Errno::EINVAL);
        }
        let mut inner = self.core.lock();
        let before = inner
            .descriptors
            .replace(&self.core.ours, fd, new, close_on_exec)?;
        let ended = before.map_or(Ok(()), |before| inner.end(before).map(|_| ()));
        inner.settle();
        ended
    }

    /// A descriptor becomes the kernel's: `replace` puts something else in the place that its number has. If that fails, it is what it was.
    ///
    /// # Errors
    /// EBADF, and those of `replace`.
    pub fn give_up(&self, fd: RawFd, replace: impl FnOnce(RawFd) -> Result<()>) -> Result<()> {
        let mut inner = self.core.lock();
        inner.descriptors.socket(fd)?;
        replace(fd)?;
        let (number, last) = inner.descriptors.take(&self.core.ours, fd)?;
        // The number is the kernel's now, and not ours to close.
        let _ = number.into_raw_fd();
        let ended = last.map_or(Ok(None), |socket| inner.end(socket));
        inner.settle();
        ended.map(|_| ())
    }

    /// One more name of a socket, that the program is not told of.
    pub(crate) fn name_of_our_own(&self, socket: i32) -> Result<RawFd> {
        let mut inner = self.core.lock();
        if !inner.descriptors.has_names(socket) {
            return Err(Errno::EBADF);
        }
        let fd = own::keep(inner.descriptors.reserve(true)?);
        Ok(inner.descriptors.put(&self.core.ours, fd, socket))
    }

    /// A socket that is made by `make`, likewise.
    pub(crate) fn make_of_our_own(
        &self,
        make: impl FnOnce(&mut Sockets<'_>, Instant) -> Result<i32>,
    ) -> Result<RawFd> {
        let mut inner = self.core.lock();
        let made = inner.make_of_our_own(&self.core, make);
        inner.settle();
        made
    }

    /// Closes such a name.
    pub(crate) fn close_name_of_our_own(&self, fd: RawFd) {
        own::forget(fd);
        // Another thread may have closed it.
        let _ = self.close_at_once(fd);
    }

    /// The program's descriptors that are ours.
    pub fn open_descriptors(&self) -> Vec<RawFd> {
        let mut all = self.core.lock().descriptors.all();
        all.retain(|fd| !own::is(*fd));
        all
    }

    /// `getsockname(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn getsockname(&self, fd: RawFd) -> Result<SocketAddr> {
        let mut inner = self.core.lock();
        let told = inner.call(|sockets, descriptors, _| {
            let socket = descriptors.socket(fd)?;
            let address = sockets.getsockname(socket)?;
            let waits = address.port() != 0
                && !sockets.is_listening(socket)
                && sockets.getpeername(socket).is_err();
            Ok((socket, address, waits))
        });
        let told = told.map(|(socket, address, waits)| {
            if waits {
                inner.told.insert(socket);
            }
            address
        });
        inner.settle();
        told
    }

    /// `getpeername(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn getpeername(&self, fd: RawFd) -> Result<SocketAddr> {
        self.on(fd, |sockets, socket, _| sockets.getpeername(socket))
    }

    /// `setsockopt(2)`; `value` in the layout of the C ABI.
    ///
    /// # Errors
    /// Linux's.
    pub fn setsockopt(&self, fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
        self.on(fd, |sockets, socket, now| {
            sockets.setsockopt(now, socket, level, name, value)
        })
    }

    /// `getsockopt(2)`: bytes written to `into`.
    ///
    /// # Errors
    /// Linux's.
    pub fn getsockopt(&self, fd: RawFd, level: i32, name: i32, into: &mut [u8]) -> Result<usize> {
        self.on(fd, |sockets, socket, _| {
            sockets.getsockopt(socket, level, name, into)
        })
    }

    /// `fcntl(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn fcntl(&self, fd: RawFd, command: i32, argument: i32) -> Result<i32> {
        match command {
            abi::F_DUPFD => self.duplicate(fd, argument, false),
            abi::F_DUPFD_CLOEXEC => self.duplicate(fd, argument, true),
            abi::F_GETFD => self
                .core
                .lock()
                .descriptors
                .close_on_exec(fd)
                .map(i32::from),
            abi::F_SETFD => {
                let on = argument & abi::FD_CLOEXEC != 0;
                let inner = self.core.lock();
                inner.descriptors.set_close_on_exec(fd, on).map(|()| 0)
            }
            _ => {
                let done = self.on(fd, |sockets, socket, _| match sockets.is_epoll(socket) {
                    true => Ok(None),
                    false => sockets.fcntl(socket, command, argument).map(Some),
                })?;
                match done {
                    Some(done) => Ok(done),
                    None => self.flags_of_instance(fd, command, argument),
                }
            }
        }
    }

    /// Those of an epoll instance are kept by the kernel, which has it too.
    fn flags_of_instance(&self, fd: RawFd, command: i32, argument: i32) -> Result<i32> {
        let inner = self.core.lock();
        let instance = inner.descriptors.fd(fd)?;
        let flags = OFlags::from_bits_retain(argument as u32);
        match command {
            abi::F_GETFL => Ok(fcntl_getfl(instance).map_err(errno)?.bits() as i32),
            abi::F_SETFL => fcntl_setfl(instance, flags).map_err(errno).map(|()| 0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `ioctl(2)`: FIONBIO takes `argument`, the others give their number.
    ///
    /// # Errors
    /// Linux's.
    pub fn ioctl(&self, fd: RawFd, request: i32, argument: i32) -> Result<i32> {
        self.on(fd, |sockets, socket, _| {
            sockets.ioctl(socket, request, argument)
        })
    }
}

/// Takes a connection that another program carries, under a number of the program's, as a descriptor of the kernel's.
fn accept_guest(
    sockets: &mut Sockets<'_>,
    descriptors: &mut Descriptors,
    socket: i32,
    flags: i32,
) -> Option<Result<(RawFd, SocketAddr)>> {
    let (guest, is_last) = descriptors.take_guest(socket)?;
    if is_last {
        let _ = sockets.set_guests(socket, false);
    }
    let accepted = (|| {
        let names = Names::of(guest.as_fd().as_raw_fd()).ok_or(Errno::ECONNABORTED)?;
        let fd = fcntl_dupfd_cloexec(&guest, 0).map_err(errno)?;
        if flags & abi::SOCK_CLOEXEC == 0 {
            fcntl_setfd(&fd, FdFlags::empty()).map_err(errno)?;
        }
        ioctl_fionbio(&fd, flags & abi::SOCK_NONBLOCK != 0).map_err(errno)?;
        // The program's to close.
        Ok((fd.into_raw_fd(), names.peer))
    })();
    Some(accepted)
}

impl Inner {
    /// [`accept_guest`] for another process, which has the descriptor itself.
    pub(crate) fn take_guest(&mut self, socket: i32) -> Option<Own> {
        let (guest, is_last) = self.descriptors.take_guest(socket)?;
        if is_last {
            let _ = self.call(|sockets, _, _| sockets.set_guests(socket, false));
        }
        Some(guest)
    }

    fn try_to_listen(&mut self, fd: RawFd, backlog: i32) -> std::result::Result<(), Refused> {
        let listened = self.call(|sockets, descriptors, _| {
            let socket = descriptors.socket(fd)?;
            sockets.listen(socket, backlog)?;
            Ok((socket, sockets.getsockname(socket)?))
        });
        let (socket, address) = listened.map_err(Refused::Here)?;
        let Err(error) = self.open_port(socket, address) else {
            self.told.remove(&socket);
            return Ok(());
        };
        // It listened a moment ago; a port that the program has not named goes with that.
        let left = self.call(|sockets, _, now| {
            sockets.shutdown(now, socket, abi::SHUT_RD)?;
            sockets.getsockname(socket)
        });
        let chosen = left.is_ok_and(|left| left.port() == 0);
        Err(match chosen && !self.told.contains(&socket) {
            true => Refused::Outside(address, error),
            false => Refused::Here(error),
        })
    }

    /// A socket has begun to listen. Several may on one port; the outside is told of the first.
    pub(crate) fn open_port(&mut self, socket: i32, address: SocketAddr) -> Result<()> {
        if self.listening.contains_key(&socket) {
            return Ok(());
        }
        let before = self.standing(address.port());
        let reuses = self.call(|sockets, _, _| {
            let mut value = [0; 4];
            sockets.getsockopt(socket, abi::SOL_SOCKET, abi::SO_REUSEPORT, &mut value)?;
            Ok(value != [0; 4])
        });
        self.seat()?.reuses_port(address.port(), reuses?);
        self.listening.insert(socket, address.port());
        let stands = self.stands(before, address);
        if stands.is_err() {
            self.listening.remove(&socket);
        }
        stands
    }

    /// [`Process::make_of_our_own`].
    pub(crate) fn make_of_our_own(
        &mut self,
        core: &Core,
        make: impl FnOnce(&mut Sockets<'_>, Instant) -> Result<i32>,
    ) -> Result<RawFd> {
        let fd = own::keep(self.descriptors.reserve(true)?);
        let made = self.call(|sockets, _, now| make(sockets, now));
        let made = made.inspect_err(|_| own::forget(fd.as_raw_fd()))?;
        core.counted.socket();
        Ok(self.descriptors.put(&core.ours, fd, made))
    }

    /// The last name of a socket is gone.
    pub(crate) fn end(&mut self, socket: i32) -> Result<Option<Lingering>> {
        self.close_port(socket);
        self.kernel_parts.remove(&socket);
        self.descriptors.forget_guests(socket);
        self.told.remove(&socket);
        self.call(|sockets, _, now| sockets.close_lingering(now, socket))
    }

    /// A socket listens no more.
    fn close_port(&mut self, socket: i32) {
        self.queues.remove(&socket);
        let Some(port) = self.listening.get(&socket).copied() else {
            return self.succession.forget(socket);
        };
        let before = self.standing(port);
        self.listening.remove(&socket);
        self.succession.forget(socket);
        // Where another socket listens yet it is open already. A core that has ended has closed it.
        let _ = self.stands(before, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
}
