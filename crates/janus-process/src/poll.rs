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

/// Told by `poll` whether asked for or not.
const ALWAYS: i16 = (abi::POLLERR | abi::POLLHUP) as i16;

/// One place of the array that `poll` takes.
pub type Polled = PollFd;

impl Process {
    /// `poll(2)`: how many of the descriptors have something to tell. `None` waits for ever.
    ///
    /// # Errors
    /// Linux's: EINTR.
    pub fn poll(&self, polled: &mut [Polled], limit: Option<Duration>) -> Result<usize> {
        for place in polled.iter_mut().filter(|place| place.fd >= 0) {
            place.events |= ALWAYS;
        }
        self.poll_exactly(polled, limit)
    }

    /// [`Process::poll`] that tells errors and ends only where they are asked for, as `select(2)` does.
    ///
    /// # Errors
    /// As for `poll`.
    pub fn poll_exactly(&self, polled: &mut [Polled], limit: Option<Duration>) -> Result<usize> {
        self.waits_at_all(polled);
        let mut pins = Vec::new();
        let told = self.poll_on(polled, limit, &mut pins);
        self.core.let_go(&pins);
        told
    }

    /// Sockets that it waits for last as long as it does: they are in `pins`, a name of each held.
    fn poll_on(
        &self,
        polled: &mut [Polled],
        limit: Option<Duration>,
        pins: &mut Vec<i32>,
    ) -> Result<usize> {
        let mut until = None;
        let mut interrupted = false;
        let mut first = None;
        // Outlives the lock: handlers run when it is given back.
        let held = (limit != Some(Duration::ZERO)).then(Held::now);
        let mut inner = self.core.lock();
        inner.refresh();
        loop {
            // Another thread may have closed some, or put others in their place.
            let (places, mut kernel) = inner.kernel_fds(polled);
            let on = inner.look(polled)?;
            if !kernel.is_empty() {
                kernel::look(&mut kernel)?;
                for (place, seen) in places.iter().zip(&kernel) {
                    let wanted = polled[*place].events | abi::POLLNVAL as i16;
                    polled[*place].revents |= seen.seen.bits() as i16 & wanted;
                }
            }
            let told = polled.iter().filter(|it| it.revents != 0).count();
            let now = inner.now()?;
            let until = *until.get_or_insert(limit.map(|limit| now + limit));
            let is_up = until.is_some_and(|until| now >= until);
            let first = first.get_or_insert_with(|| inner.sockets_of(polled));
            if is_up
                || told > 0 && (interrupted || pins.is_empty() || inner.is_stirred(polled, first))
            {
                inner.settle();
                return Ok(told);
            }
            if interrupted {
                inner.settle();
                return Err(Errno::EINTR);
            }
            if pins.is_empty() {
                pins.clone_from(&on);
                on.iter().for_each(|socket| inner.descriptors.hold(*socket));
            }
            // One that was closed meanwhile, or has what is not asked for, would end every sleep.
            kernel.retain(|it| it.seen.is_empty());
            let (again, slept) =
                self.core
                    .rota
                    .sleep(inner, pins, &mut kernel, until, held.as_ref())?;
            inner = again;
            interrupted = slept == Slept::Interrupted;
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
                let mask = sockets.readiness(now, socket);
                let told = mask.map(|mask| mask as i16 & place.events);
                place.revents = told.unwrap_or(abi::POLLNVAL as i16);
            }
            Ok(on)
        })
    }

    /// The socket of each place that has one.
    fn sockets_of(&self, polled: &[Polled]) -> Vec<Option<i32>> {
        let sockets = polled.iter().map(|it| self.descriptors.socket(it.fd).ok());
        sockets.collect()
    }

    /// Whether something has happened to what is waited for, after a sleep. A close is nothing that ends a wait: what was closed is told of
    /// only when something else does.
    fn is_stirred(&mut self, polled: &[Polled], first: &[Option<i32>]) -> bool {
        let now = self.sockets_of(polled);
        let mut places = polled.iter().zip(first).zip(now);
        places.any(|((place, first), now)| match (*first, now) {
            (Some(first), now) if now != Some(first) => {
                let mask = self.call(|sockets, _, now| sockets.readiness(now, first));
                mask.is_ok_and(|mask| mask as i16 & place.events != 0)
            }
            _ => i32::from(place.revents) & !abi::POLLNVAL != 0,
        })
    }
}
