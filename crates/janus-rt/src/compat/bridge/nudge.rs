//! What brings the resting main future its turn when tokio does not come to an end of what is ready: a descriptor that is
//! readable from the start, which tokio looks at after each batch of tasks. (A timer of tokio's would do as well, but to set
//! one makes its next sleep a short one.)

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
    /// To be called in the runtime's context.
    pub(super) fn new() -> io::Result<Nudge> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Nudge {
            event: super::registered(event)?,
            is_set: false,
        })
    }

    /// The task of `cx` is woken after the batch.
    pub(super) fn set(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        rustix::io::write(self.event.get_ref(), &1u64.to_ne_bytes())?;
        self.is_set = true;
        // What was seen of an earlier nudge is forgotten; of this one tokio has seen nothing yet.
        while let Poll::Ready(seen) = self.event.poll_read_ready(cx) {
            seen?.clear_ready();
        }
        Ok(())
    }

    /// It is no longer needed. If tokio has not looked yet it will see nothing.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_set) {
            // Fails when there is nothing to clear.
            let _ = rustix::io::read(self.event.get_ref(), &mut [0; 8]);
        }
    }
}
