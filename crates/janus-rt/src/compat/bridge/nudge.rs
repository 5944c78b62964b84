//! Wakes the resting main future when tokio does not finish its ready tasks: a descriptor that is readable from the start, which tokio
//! polls after each batch of tasks. (A timer of tokio's would do as well, but setting one shortens its next sleep.)

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use rustix::event::{EventfdFlags, eventfd};
use tokio::io::unix::AsyncFd;

pub(super) struct Nudge {
    event: AsyncFd<OwnedFd>,
    is_set: bool,
}

impl Nudge {
    /// Makes one; must be called in the runtime's context.
    pub(super) fn new() -> io::Result<Nudge> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Nudge {
            event: super::registered(event)?,
            is_set: false,
        })
    }

    /// Has the task of `cx` woken after the batch.
    pub(super) fn set(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        rustix::io::write(self.event.get_ref(), &1u64.to_ne_bytes())?;
        self.is_set = true;
        // Forgets readiness of an earlier nudge; tokio has seen nothing of this one yet.
        while let Poll::Ready(seen) = self.event.poll_read_ready(cx) {
            seen?.clear_ready();
        }
        Ok(())
    }

    /// Takes the nudge back. If tokio has not polled yet, it will see nothing.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_set) {
            // Fails when there is nothing to clear.
            let _ = rustix::io::read(self.event.get_ref(), &mut [0; 8]);
        }
    }
}
