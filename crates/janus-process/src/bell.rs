//! The ends of a thread's sleep: its bell, which others ring, descriptors of the core, and those of the kernel's that it waits for.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::held::Held;
use crate::kernel::{self, Watched};
use crate::own::{self, Own};
use crate::sleep::Slept;
use crate::{Errno, Result, errno, interrupts};

/// A descriptor that is readable when a core that sleeps is to take a turn.
pub(crate) type Waker = OwnedFd;

pub(crate) struct Bell(Own);

impl Bell {
    pub(crate) fn new() -> Result<Bell> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(errno)?;
        Ok(Bell(Own::new(own::keep(bell))))
    }

    pub(crate) fn ring(&self) {
        // It fails when the counter is full, and then the bell rings already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _nothing_to_clear = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Waits until it rings, a descriptor of `also` or `kernel` has something, a signal was handled, or the time is up.
    pub(crate) fn wait(
        &self,
        also: &[Waker],
        kernel: &mut [Watched],
        limit: Option<Duration>,
        held: Option<&Held>,
    ) -> Result<Slept> {
        let own = [self.0.as_fd()].into_iter();
        let also: Vec<_> = own.chain(also.iter().map(AsFd::as_fd)).collect();
        let sleeping = interrupts::sleeps_on(self.0.as_fd().as_raw_fd());
        let slept = match interrupts::is_due() {
            true => Err(Errno::EINTR),
            false => kernel::wait(&also, kernel, limit, held),
        };
        drop(sleeping);
        // Handlers run here, where no lock is held.
        match (slept, interrupts::deliver()) {
            (Ok(()), false) => Ok(Slept::Awake),
            (Ok(()) | Err(Errno::EINTR), _) => Ok(Slept::Interrupted),
            (Err(error), _) => Err(error),
        }
    }
}
