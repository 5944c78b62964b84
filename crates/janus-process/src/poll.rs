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
        let mut until = None;
        // Outlives the lock: handlers run when it is given back.
        let held = (limit != Some(Duration::ZERO)).then(Held::now);
        let mut inner = self.core.lock();
        inner.refresh();
        let (places, mut kernel) = inner.kernel_fds(polled);
        loop {
            let on = inner.look(polled)?;
            if !kernel.is_empty() {
                kernel::look(&mut kernel)?;
                for (place, seen) in places.iter().zip(&kernel) {
                    polled[*place].revents |= seen.seen.bits() as i16;
                }
            }
            let told = polled.iter().filter(|it| it.revents != 0).count();
            let now = inner.now()?;
            let until = *until.get_or_insert(limit.map(|limit| now + limit));
            if told > 0 || until.is_some_and(|until| now >= until) {
                inner.settle();
                return Ok(told);
            }
            let (again, slept) =
                self.core
                    .rota
                    .sleep(inner, &on, &mut kernel, until, held.as_ref())?;
            inner = again;
            if slept == Slept::Interrupted {
                inner.settle();
                return Err(Errno::EINTR);
            }
        }
    }
}

impl Inner {
    /// The places of descriptors that the kernel is asked about: its own, and epoll instances of ours that watch some of its own too.
    fn kernel_fds(&self, polled: &[Polled]) -> (Vec<usize>, Vec<Watched>) {
        let is_asked = |fd: RawFd| match self.descriptors.socket(fd) {
            Ok(socket) => self.has_kernel_part(socket),
            Err(_) => fd >= 0,
        };
        let all = polled.iter().enumerate();
        let asked = all.filter(|(_, it)| is_asked(it.fd));
        asked
            .map(|(place, it)| {
                let events = PollFlags::from_bits_retain(it.events as u16);
                (place, Watched::new(it.fd, events))
            })
            .unzip()
    }

    /// Notes which of ours are ready; answers all sockets that were asked for.
    fn look(&mut self, polled: &mut [Polled]) -> Result<Vec<i32>> {
        self.call(|sockets, descriptors, now| {
            let mut on = Vec::new();
            for place in polled {
                place.revents = 0;
                let Ok(socket) = descriptors.socket(place.fd) else {
                    continue;
                };
                on.push(socket);
                let wanted = place.events | (abi::POLLERR | abi::POLLHUP) as i16;
                let mask = sockets.readiness(now, socket);
                place.revents = mask.map_or(abi::POLLNVAL as i16, |mask| mask as i16 & wanted);
            }
            Ok(on)
        })
    }
}
