//! poll(2) over sockets of ours and descriptors of the kernel's at once.

use std::os::fd::RawFd;
use std::time::Duration;

use janus_posix::{PollFd, abi};
use rustix::event::PollFlags;

use crate::core::Inner;
use crate::held::Held;
use crate::kernel::{self, Watched};
use crate::process::Process;
use crate::sleep::Slept;
use crate::{Errno, Result};

/// One place of the array that `poll` takes.
pub type Polled = PollFd;

impl Process {
    /// `poll(2)`: how many of the descriptors have something to tell. `None` waits for ever.
    ///
    /// # Errors
    /// Linux's: EINTR.
    pub fn poll(&self, polled: &mut [Polled], limit: Option<Duration>) -> Result<usize> {
        let mut kernel = self.kernel_fds(polled);
        let mut until = None;
        // Outlives the lock: handlers run when it is given back.
        let held = (limit != Some(Duration::ZERO)).then(Held::now);
        let mut inner = self.core.lock();
        inner.refresh();
        loop {
            let (mut told, on) = inner.look(polled)?;
            if !kernel.is_empty() {
                kernel::look(&mut kernel)?;
                told += tell(polled, &kernel, |fd| self.has(fd));
            }
            let now = inner.now()?;
            let until = *until.get_or_insert(limit.map(|limit| now + limit));
            if told > 0 || until.is_some_and(|until| now >= until) {
                inner.settle();
                return Ok(told);
            }
            let (again, slept) = self
                .core
                .sleep(inner, &on, &mut kernel, until, held.as_ref())?;
            inner = again;
            if slept == Slept::Interrupted {
                inner.settle();
                return Err(Errno::EINTR);
            }
        }
    }

    /// The descriptors that are the kernel's.
    fn kernel_fds(&self, polled: &[Polled]) -> Vec<Watched> {
        let theirs = polled.iter().filter(|it| it.fd >= 0 && !self.has(it.fd));
        let watched =
            theirs.map(|it| Watched::new(it.fd, PollFlags::from_bits_retain(it.events as u16)));
        watched.collect()
    }
}

/// Notes what the kernel has said of its descriptors; how many have something.
fn tell(polled: &mut [Polled], kernel: &[Watched], ours: impl Fn(RawFd) -> bool) -> usize {
    let theirs = polled.iter_mut().filter(|it| it.fd >= 0 && !ours(it.fd));
    let mut told = 0;
    for (place, seen) in theirs.zip(kernel) {
        place.revents = seen.seen.bits() as i16;
        told += usize::from(place.revents != 0);
    }
    told
}

impl Inner {
    /// Looks at ours: how many are ready, and all sockets that were asked for.
    fn look(&mut self, polled: &mut [Polled]) -> Result<(usize, Vec<i32>)> {
        self.call(|sockets, descriptors, now| {
            let (mut told, mut on) = (0, Vec::new());
            for place in polled {
                place.revents = 0;
                let Ok(socket) = descriptors.socket(place.fd) else {
                    continue;
                };
                on.push(socket);
                let wanted = place.events | (abi::POLLERR | abi::POLLHUP) as i16;
                let mask = sockets.readiness(now, socket);
                place.revents = mask.map_or(abi::POLLNVAL as i16, |mask| mask as i16 & wanted);
                told += usize::from(place.revents != 0);
            }
            Ok((told, on))
        })
    }
}
