//! epoll(7) over sockets of ours and descriptors of the kernel's at once: an instance is a real one of the kernel's, which watches its own,
//! beside one of `janus-posix`, which watches ours. A wait asks ours first and the kernel's when there was nothing, or now and then, so
//! that neither starves the other; it sleeps on both.

use std::collections::HashMap;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use janus_posix::{EpollEvent, abi};
use janus_tcp::Instant;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};

use crate::core::Inner;
use crate::held::Held;
use crate::kernel::{self, Watched};
use crate::process::Process;
use crate::rota::Turns;
use crate::sleep::Slept;
use crate::{Errno, Result, errno};

/// Events that have happened, and the program's word for what they happened to.
pub type Event = EpollEvent;

/// The kernel's descriptors are looked at so often, at least, however much of ours is ready.
const KERNEL_LOOK: Duration = Duration::from_micros(50);
/// Events taken from the kernel at once.
const KERNEL_ROOM: usize = 64;
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The kernel's part of an instance that has some.
#[derive(Default)]
pub(crate) struct KernelPart {
    /// Descriptors of the kernel's that were added. One that the program has closed since counts on.
    members: usize,
    /// It has watched others before it was adopted, which were not counted.
    has_uncounted: bool,
    looked: Option<Instant>,
}

/// By the number of the instance.
pub(crate) type KernelParts = HashMap<i32, KernelPart>;

impl Process {
    /// `epoll_create1(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn epoll_create(&self, flags: i32) -> Result<RawFd> {
        self.core.call(|sockets, descriptors, now| {
            let instance = sockets.epoll_create(flags)?;
            let flags = match flags & abi::EPOLL_CLOEXEC {
                0 => CreateFlags::empty(),
                _ => CreateFlags::CLOEXEC,
            };
            match epoll::create(flags) {
                Ok(fd) => Ok(descriptors.put(&self.core.ours, fd, instance)),
                Err(error) => {
                    sockets.close(now, instance)?;
                    Err(errno(error))
                }
            }
        })
    }

    /// An instance of the kernel's that is to watch sockets of ours too. What it watches already it goes on to watch.
    ///
    /// # Errors
    /// EINVAL for what is no epoll instance, EBADF.
    pub fn epoll_adopt(&self, epfd: RawFd) -> Result<()> {
        let mut inner = self.core.lock();
        let fd = kernel::epoll(epfd)?;
        let instance = match inner.call(|sockets, _, _| sockets.epoll_create(0)) {
            Ok(instance) => instance,
            Err(error) => {
                // It stays the program's.
                let _ = fd.into_raw_fd();
                return Err(error);
            }
        };
        inner.descriptors.put(&self.core.ours, fd, instance);
        let part = inner.kernel_parts.entry(instance).or_default();
        part.has_uncounted = true;
        Ok(())
    }

    /// `epoll_ctl(2)`.
    ///
    /// # Errors
    /// Linux's.
    pub fn epoll_ctl(&self, epfd: RawFd, op: i32, fd: RawFd, event: Event) -> Result<()> {
        if op == abi::EPOLL_CTL_ADD {
            self.waits_at(fd)?;
        }
        let mut inner = self.core.lock();
        let done = match self.has(fd) {
            true => inner.own_ctl(epfd, op, fd, event),
            false => inner.kernel_ctl(epfd, op, fd, event),
        };
        inner.settle();
        done
    }

    /// `epoll_wait(2)`: how many events were put into `into`. `None` waits for ever.
    ///
    /// # Errors
    /// Linux's.
    pub fn epoll_wait(
        &self,
        epfd: RawFd,
        into: &mut [Event],
        limit: Option<Duration>,
    ) -> Result<usize> {
        if self.core.has_unused.load(Ordering::Relaxed) {
            self.serves_again();
        }
        let mut pinned = None;
        let told = self.epoll_wait_on(epfd, into, limit, &mut pinned);
        self.core.let_go(pinned.as_slice());
        told
    }

    /// An instance that it waits for lasts as long as it does: it is in `pinned`, a name of it held.
    fn epoll_wait_on(
        &self,
        epfd: RawFd,
        into: &mut [Event],
        limit: Option<Duration>,
        pinned: &mut Option<i32>,
    ) -> Result<usize> {
        let mut until = None;
        // Outlives the lock: handlers run when it is given back.
        let mut held = None;
        let mut inner = self.core.lock();
        let instance = inner.descriptors.socket(epfd)?;
        let waits = limit != Some(Duration::ZERO);
        if !waits {
            inner.refresh();
        }
        loop {
            let mut told = inner.take_events(epfd, instance, into)?;
            if told == 0 && waits && held.is_none() {
                // Before what a sleep costs: under load a turn brings the next events.
                inner.turn();
                told = inner.take_events(epfd, instance, into)?;
            }
            if told == 0 && waits && held.is_none() {
                held = Some(Held::now());
                inner.refresh();
                told = inner.take_events(epfd, instance, into)?;
            }
            if told > 0 {
                inner.settle();
                return Ok(told);
            }
            let now = inner.now()?;
            let until = *until.get_or_insert(limit.map(|limit| now + limit));
            if until.is_some_and(|until| now >= until) {
                inner.settle();
                return Ok(0);
            }
            if pinned.is_none() {
                *pinned = Some(instance);
                inner.descriptors.hold(instance);
            }
            let mut kernel = Vec::new();
            if inner.is_named(epfd, instance) && inner.has_kernel_part(instance) {
                kernel.push(Watched::new(epfd, PollFlags::IN));
            }
            let (again, slept) =
                self.core
                    .rota
                    .sleep(inner, &[instance], &mut kernel, until, held.as_ref())?;
            inner = again;
            if slept == Slept::Interrupted {
                inner.settle();
                return Err(Errno::EINTR);
            }
        }
    }
}

impl Inner {
    fn own_ctl(&mut self, epfd: RawFd, op: i32, fd: RawFd, event: Event) -> Result<()> {
        let nested = self.call(|sockets, descriptors, now| {
            let (instance, socket) = (descriptors.socket(epfd)?, descriptors.socket(fd)?);
            sockets.epoll_ctl_named(now, instance, op, (socket, fd), event.events, event.data)?;
            Ok(sockets.is_epoll(socket))
        })?;
        // An instance within an instance: each has two parts. When both have something it is told twice, which a program must expect.
        match nested {
            true => self.kernel_ctl(epfd, op, fd, event),
            false => Ok(()),
        }
    }

    /// Whether something of the kernel's is watched by what has this number.
    pub(crate) fn has_kernel_part(&self, instance: i32) -> bool {
        let part = self.kernel_parts.get(&instance);
        part.is_some_and(|part| part.members > 0 || part.has_uncounted)
    }

    fn kernel_ctl(&mut self, epfd: RawFd, op: i32, fd: RawFd, event: Event) -> Result<()> {
        let instance = self.descriptors.socket(epfd)?;
        let theirs = kernel::named(fd)?;
        rustix::io::fcntl_getfd(theirs).map_err(errno)?;
        // An instance, and no socket.
        self.call(|sockets, _, _| match sockets.is_epoll(instance) {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        })?;
        let epoll = self.descriptors.fd(epfd)?;
        let (data, flags) = (
            EventData::new_u64(event.data),
            EventFlags::from_bits_retain(event.events),
        );
        let part = self.kernel_parts.entry(instance).or_default();
        match op {
            abi::EPOLL_CTL_ADD => {
                epoll::add(epoll, theirs, data, flags).map_err(errno)?;
                part.members += 1;
            }
            abi::EPOLL_CTL_MOD => epoll::modify(epoll, theirs, data, flags).map_err(errno)?,
            abi::EPOLL_CTL_DEL => {
                epoll::delete(epoll, theirs).map_err(errno)?;
                part.members = part.members.saturating_sub(1);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Whether a descriptor is an instance's still: the kernel's part of one that was closed is gone.
    fn is_named(&self, epfd: RawFd, instance: i32) -> bool {
        self.descriptors.socket(epfd) == Ok(instance)
    }

    /// Takes what is ready now of both parts.
    fn take_events(&mut self, epfd: RawFd, instance: i32, into: &mut [Event]) -> Result<usize> {
        let has_kernel = self.is_named(epfd, instance) && self.has_kernel_part(instance);
        // A quarter is left for the kernel's.
        let room = match has_kernel {
            true => into.len() - into.len() / 4,
            false => into.len(),
        };
        let mut told =
            self.call(|sockets, _, now| sockets.epoll_wait(now, instance, &mut into[..room]))?;
        if has_kernel {
            told += self.take_kernel_events(epfd, instance, told > 0, &mut into[told..])?;
        }
        Ok(told)
    }

    fn take_kernel_events(
        &mut self,
        epfd: RawFd,
        instance: i32,
        had_some: bool,
        into: &mut [Event],
    ) -> Result<usize> {
        let now = self.now()?;
        let part = self.kernel_parts.entry(instance).or_default();
        let just_looked = part
            .looked
            .is_some_and(|at| now.saturating_since(at) < KERNEL_LOOK);
        if into.is_empty() || (had_some && just_looked) {
            return Ok(0);
        }
        part.looked = Some(now);
        let none = epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut happened = [none; KERNEL_ROOM];
        let room = into.len().min(KERNEL_ROOM);
        let fd = self.descriptors.fd(epfd)?;
        let told = epoll::wait(fd, &mut happened[..room], Some(&AT_ONCE)).map_err(errno)?;
        for (place, event) in into.iter_mut().zip(&happened[..told]) {
            let (flags, data) = (event.flags, event.data);
            *place = Event {
                events: flags.bits(),
                data: data.u64(),
            };
        }
        Ok(told)
    }
}
