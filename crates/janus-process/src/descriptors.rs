//! Which of the process's descriptors are ours, and the socket behind each. They are the kernel's numbers: copies of one placeholder, a
//! socket that is never used, so that what slips past us meets an unconnected socket and not somebody's file.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

use rustix::io::{DupFlags, FdFlags, dup, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::numbers::Numbers;
use crate::own::{self, Own};
use crate::{Errno, Result, errno, kernel};

/// Descriptors are below this; more than `fs.nr_open` lets a process have by default.
pub(crate) const FDS_MAX: usize = 1 << 20;

/// A descriptor of ours.
struct Open {
    fd: OwnedFd,
    /// Its number among [`janus_posix::Files`].
    socket: i32,
}

/// Marks of the descriptors that are ours, read without the core's lock.
pub(crate) struct Ours(Numbers<Box<[AtomicU64]>>);

/// The table; changed with the core's lock held.
pub(crate) struct Descriptors {
    placeholder: OwnedFd,
    open: Vec<Option<Open>>,
    /// How many descriptors have each socket, by its number.
    names: Vec<u32>,
    /// Connections that another program carries, by the listening socket where they are to be accepted.
    guests: HashMap<i32, VecDeque<Own>>,
}

impl Ours {
    pub(crate) fn none() -> Ours {
        Ours(Numbers::with_room(FDS_MAX / 64))
    }

    #[inline]
    pub(crate) fn has(&self, fd: RawFd) -> bool {
        self.0.has(fd)
    }

    /// It is not, or, in a forked child, not any more.
    pub(crate) fn is_not(&self, fd: RawFd) {
        self.0.remove(fd);
    }

    /// It is, or, in a forked child, is again.
    pub(crate) fn is(&self, fd: RawFd) {
        self.0.add(fd);
    }

    /// All of them.
    pub(crate) fn none_from_to(&self, first: RawFd, last: RawFd) {
        self.0.remove_from_to(first, last);
    }
}

/// A new descriptor, if the table reaches so far.
fn within(fd: rustix::io::Result<OwnedFd>) -> Result<OwnedFd> {
    let fd = fd.map_err(errno)?;
    // The kernel has given it just now: whoever had it before does not.
    own::forget(fd.as_raw_fd());
    match (fd.as_raw_fd() as usize) < FDS_MAX {
        true => Ok(fd),
        false => Err(Errno::EMFILE),
    }
}

fn copy(fd: &OwnedFd, least: RawFd, close_on_exec: bool) -> Result<OwnedFd> {
    let new = within(fcntl_dupfd_cloexec(fd, least))?;
    if !close_on_exec {
        fcntl_setfd(&new, FdFlags::empty()).map_err(errno)?;
    }
    Ok(new)
}

impl Descriptors {
    pub(crate) fn new() -> Result<Descriptors> {
        let flags = SocketFlags::CLOEXEC;
        let placeholder = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        Ok(Descriptors {
            placeholder: placeholder.map_err(errno)?,
            open: Vec::new(),
            names: Vec::new(),
            guests: HashMap::new(),
        })
    }

    /// A number that nothing in the process has, the lowest there is.
    pub(crate) fn reserve(&self, close_on_exec: bool) -> Result<OwnedFd> {
        match close_on_exec {
            true => self.reserve_from(0, true),
            false => within(dup(&self.placeholder)),
        }
    }

    /// The lowest from `least` on.
    fn reserve_from(&self, least: RawFd, close_on_exec: bool) -> Result<OwnedFd> {
        copy(&self.placeholder, least, close_on_exec)
    }

    /// A descriptor for a socket, in the place of what has this number.
    pub(crate) fn place(&self, number: RawFd, close_on_exec: bool) -> Result<OwnedFd> {
        let flags = match close_on_exec {
            true => DupFlags::CLOEXEC,
            false => DupFlags::empty(),
        };
        within(Ok(kernel::duplicate_to(&self.placeholder, number, flags)?))
    }

    /// Another name of what is at a number, the lowest from `least` on: of an epoll instance, its kernel's part has it too.
    pub(crate) fn duplicate(
        &self,
        fd: RawFd,
        least: RawFd,
        close_on_exec: bool,
    ) -> Result<OwnedFd> {
        copy(&self.of(fd)?.fd, least, close_on_exec)
    }

    /// Gives a socket a descriptor that was reserved.
    pub(crate) fn put(&mut self, ours: &Ours, fd: OwnedFd, socket: i32) -> RawFd {
        let number = fd.as_raw_fd();
        let at = number as usize;
        if self.open.len() <= at {
            self.open.resize_with(at + 1, || None);
        }
        let socket_at = socket as usize;
        if self.names.len() <= socket_at {
            self.names.resize(socket_at + 1, 0);
        }
        self.names[socket_at] += 1;
        // The socket that had this number was closed behind our back.
        if let Some(stale) = self.open[at].replace(Open { fd, socket }) {
            self.names[stale.socket as usize] -= 1;
            // The number is the new one's.
            std::mem::forget(stale.fd);
        }
        ours.is(number);
        number
    }

    #[inline]
    pub(crate) fn socket(&self, fd: RawFd) -> Result<i32> {
        let open = usize::try_from(fd).ok().and_then(|fd| self.open.get(fd));
        match open {
            Some(Some(open)) => Ok(open.socket),
            _ => Err(Errno::EBADF),
        }
    }

    /// The kernel's object behind it: a placeholder, or an epoll instance.
    pub(crate) fn fd(&self, fd: RawFd) -> Result<BorrowedFd<'_>> {
        Ok(self.of(fd)?.fd.as_fd())
    }

    /// The descriptor is closed when what is answered is dropped; until then nothing else has its number. The socket: if it was the last
    /// name of it.
    pub(crate) fn take(&mut self, ours: &Ours, fd: RawFd) -> Result<(OwnedFd, Option<i32>)> {
        let place = usize::try_from(fd)
            .ok()
            .and_then(|fd| self.open.get_mut(fd));
        let open = place.and_then(Option::take).ok_or(Errno::EBADF)?;
        ours.is_not(fd);
        let names = &mut self.names[open.socket as usize];
        *names -= 1;
        let last = (*names == 0).then_some(open.socket);
        Ok((open.fd, last))
    }

    /// Puts a connection among those that are to be accepted at a socket.
    pub(crate) fn put_guest(&mut self, socket: i32, guest: Own) {
        self.guests.entry(socket).or_default().push_back(guest);
    }

    /// Takes one, and says whether it was the last.
    pub(crate) fn take_guest(&mut self, socket: i32) -> Option<(Own, bool)> {
        let guests = self.guests.get_mut(&socket)?;
        let guest = guests.pop_front();
        let last = guests.is_empty();
        if last {
            self.guests.remove(&socket);
        }
        guest.map(|guest| (guest, last))
    }

    /// The socket is gone, and they with it.
    pub(crate) fn forget_guests(&mut self, socket: i32) {
        self.guests.remove(&socket);
    }

    /// How many descriptors have a socket, and others that hold it.
    pub(crate) fn names(&self, socket: i32) -> u32 {
        self.names.get(socket as usize).copied().unwrap_or(0)
    }

    pub(crate) fn has_names(&self, socket: i32) -> bool {
        self.names(socket) > 0
    }

    /// A name more for a socket that has one, and no descriptor: it lasts.
    pub(crate) fn hold(&mut self, socket: i32) {
        self.names[socket as usize] += 1;
    }

    /// Takes it back. Whether it was the last name; not if all have been taken.
    pub(crate) fn unhold(&mut self, socket: i32) -> bool {
        let names = &mut self.names[socket as usize];
        let had = std::mem::replace(names, names.saturating_sub(1));
        had == 1
    }

    /// Takes all names of a socket. Whether it had one.
    pub(crate) fn forget_names(&mut self, socket: i32) -> bool {
        std::mem::take(&mut self.names[socket as usize]) > 0
    }

    /// Takes all names of sockets that have one yet.
    pub(crate) fn unhold_all(&mut self) -> Vec<i32> {
        let numbered = self.names.iter_mut().zip(0..);
        numbered
            .filter_map(|(names, socket)| (std::mem::take(names) > 0).then_some(socket))
            .collect()
    }

    /// Counts names anew: those of descriptors that are open, and `held`. Sockets that had one, and have none now.
    pub(crate) fn count_again(&mut self, held: impl Iterator<Item = i32>) -> Vec<i32> {
        let before = self.unhold_all();
        let open = self.open.iter().flatten().map(|open| open.socket);
        for socket in open.chain(held) {
            self.names[socket as usize] += 1;
        }
        before
            .into_iter()
            .filter(|it| !self.has_names(*it))
            .collect()
    }

    /// Makes a number another name of what is at `fd`, whatever is there. The socket that was, if it has no name any more.
    pub(crate) fn replace(
        &mut self,
        ours: &Ours,
        fd: RawFd,
        new: RawFd,
        close_on_exec: bool,
    ) -> Result<Option<i32>> {
        let flags = if close_on_exec {
            DupFlags::CLOEXEC
        } else {
            DupFlags::empty()
        };
        let of = self.of(fd)?;
        let (socket, fd) = (of.socket, kernel::duplicate_to(&of.fd, new, flags)?);
        let before = self.take(ours, new).ok();
        self.put(ours, fd, socket);
        Ok(before.and_then(|(fd, last)| {
            // Its number is the new one's.
            let _ = fd.into_raw_fd();
            last
        }))
    }

    /// FD_CLOEXEC is the descriptor's own, and so the kernel's to keep.
    pub(crate) fn close_on_exec(&self, fd: RawFd) -> Result<bool> {
        let flags = fcntl_getfd(&self.of(fd)?.fd).map_err(errno)?;
        Ok(flags.contains(FdFlags::CLOEXEC))
    }

    pub(crate) fn set_close_on_exec(&self, fd: RawFd, on: bool) -> Result<()> {
        let flags = if on {
            FdFlags::CLOEXEC
        } else {
            FdFlags::empty()
        };
        fcntl_setfd(&self.of(fd)?.fd, flags).map_err(errno)
    }

    fn of(&self, fd: RawFd) -> Result<&Open> {
        let open = usize::try_from(fd).ok().and_then(|fd| self.open.get(fd));
        open.and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    /// Everything that is open.
    pub(crate) fn all(&self) -> Vec<RawFd> {
        let numbered = self.open.iter().zip(0..);
        numbered
            .filter_map(|(open, fd)| open.as_ref().map(|_| fd))
            .collect()
    }
}
