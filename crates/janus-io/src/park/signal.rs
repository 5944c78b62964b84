//! The part of a bell that really sleeps: an eventfd, waited for in `ppoll` with the descriptors of devices. Under the model checker
//! `model` takes this file's place.

use std::io;
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd};

use super::{Bell, MAX_WAIT_FDS, Parker, Woken};

/// An eventfd.
pub(super) struct Signal(rustix::fd::OwnedFd);

impl Signal {
    pub(super) fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(super) fn set(&self) {
        // Fails only when the counter is at its maximum, and then the descriptor is readable anyhow.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        // Fails when there is nothing to clear.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    fn wait(&self, fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Woken> {
        use rustix::event::{PollFd, PollFlags, poll};
        if fds.len() > MAX_WAIT_FDS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a core can sleep on {MAX_WAIT_FDS} descriptors, not {}",
                    fds.len()
                ),
            ));
        }
        let own = self.0.as_fd();
        let mut polled: [PollFd<'_>; MAX_WAIT_FDS + 1] = std::array::from_fn(|i| {
            PollFd::from_borrowed_fd(*fds.get(i).unwrap_or(&own), PollFlags::IN)
        });
        polled[fds.len()] = PollFd::from_borrowed_fd(own, PollFlags::IN);
        // A time too long for the kernel's type is no time limit at all.
        let timeout = timeout.and_then(|t| rustix::event::Timespec::try_from(t).ok());
        match poll(&mut polled[..=fds.len()], timeout.as_ref()) {
            Ok(0) => Ok(Woken::Timeout),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(Woken::Event),
            Err(e) => Err(e.into()),
        }
    }
}

impl Bell {
    /// Readable after a ring, until the next [`arm`](Self::arm).
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.signal.0.as_fd()
    }
}

impl Parker {
    /// Sleeps until rung, until one of `fds` is readable, or until the time is up; not at all when `has_work` (asked
    /// after the owner has said that it listens) is true. Descriptors beyond [`MAX_WAIT_FDS`] are refused.
    pub fn park(
        &mut self,
        fds: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
        has_work: impl FnOnce() -> bool,
    ) -> io::Result<Woken> {
        self.park_with(has_work, |signal| signal.wait(fds, timeout))
    }
}
