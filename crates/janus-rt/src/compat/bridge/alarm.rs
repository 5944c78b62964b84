//! The shard's next deadline as a descriptor, because tokio's own timers know milliseconds only.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

const NEVER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

pub(super) struct Alarm {
    timer: OwnedFd,
    is_set: bool,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            is_set: false,
        })
    }

    /// Returns a duplicate of the descriptor that becomes readable at the deadline.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.timer.try_clone()
    }

    /// Sets the deadline to `timeout` from now, which is not zero; `None`: never.
    pub(super) fn set(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // A time too long for the kernel's type is no limit at all.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if timeout.is_none() && !self.is_set {
            return Ok(());
        }
        let time = Itimerspec {
            it_interval: NEVER,
            it_value: timeout.unwrap_or(NEVER),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)?;
        self.is_set = timeout.is_some();
        Ok(())
    }
}
