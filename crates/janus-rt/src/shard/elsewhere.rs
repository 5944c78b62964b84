//! A shard whose thread sleeps in somebody else's wait: what wakes it, and both ends of such a sleep. What else that
//! wait is for is not known here.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use janus_tcp::Instant;
#[cfg(feature = "tokio")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Shard, news};

#[cfg(feature = "tokio")]
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl Shard {
    /// Other names of the descriptors that become readable when the shard must wake: its bell, and its device's.
    pub(crate) fn wakes_by(&self) -> io::Result<Vec<OwnedFd>> {
        let mut all = vec![self.parker.bell().fd().try_clone_to_owned()?];
        if let Some(device) = &self.work.wait_fd {
            all.push(device.try_clone()?);
        }
        Ok(all)
    }

    /// Says that this core sleeps, for as long as is answered (`Some(None)`: for ever) or until a descriptor of
    /// [`wakes_by`](Shard::wakes_by) *becomes* readable; `None`: it must not, there is work. What happens to it on this
    /// thread from here on goes unnoticed: the wait is next, then [`wake_up`](Shard::wake_up), then a turn.
    #[cfg(feature = "tokio")]
    pub(crate) fn fall_asleep(&mut self) -> io::Result<Option<Option<Duration>>> {
        let Some(timeout) = self.lie_down() else {
            return Ok(None);
        };
        // Whoever waits for a change must not begin after it: what is readable already is work.
        if self.device_is_readable()? {
            self.rise();
            return Ok(None);
        }
        Ok(Some(timeout))
    }

    /// Another such wait, which also ends on what is readable already.
    pub(crate) fn lie_down(&mut self) -> Option<Option<Duration>> {
        self.sample_before_sleep();
        let timeout = self.may_sleep()?;
        self.parker.bell().arm();
        let waits = news(
            &self.ctx,
            &mut self.port,
            &self.forwarded,
            &self.reader,
            self.work.phase,
        );
        if waits {
            self.rise();
            return None;
        }
        Some(timeout)
    }

    /// It does not sleep after all.
    fn rise(&mut self) {
        self.parker.bell().disarm();
        self.works();
    }

    #[cfg(feature = "tokio")]
    fn device_is_readable(&self) -> io::Result<bool> {
        let Some(device) = &self.work.wait_fd else {
            return Ok(false);
        };
        match poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&AT_ONCE)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The sleep that began at `since` is over.
    pub(crate) fn wake_up(&mut self, since: Instant) {
        self.parker.bell().disarm();
        self.slept_since(since);
    }

    /// Tasks that want to be polled.
    #[cfg(feature = "tokio")]
    pub(crate) fn ready_tasks(&self) -> usize {
        let executor = self.ctx.executor.borrow();
        let roused = usize::from(self.ctx.stack.borrow().has_roused());
        executor.as_ref().map_or(0, |executor| executor.ready()) + roused
    }

    /// Whether its tasks live: until the runtime is ending.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_tasks(&self) -> bool {
        self.ctx.executor.borrow().is_some()
    }
}
