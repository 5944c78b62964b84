//! How a core waits for a DPDK queue: on the descriptor of its driver where there is one, else on a timer, for longer
//! the longer nothing comes. Counts no frames.

use std::io;
use std::time::Duration;

use janus_dpdk_sys::ffi;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The first sleep after something came.
const FIRST: Duration = Duration::from_micros(50);

/// After so many sleeps in vain they become longer still, so that an idle server costs next to nothing.
const IN_VAIN: u32 = 256;
const LONGER: u32 = 8;

/// A queue's way to wait.
pub(super) enum Pause {
    /// Looks all the time.
    Never,
    Interrupt(Interrupt),
    Timer(Timer),
}

/// The driver's own descriptor.
pub(super) struct Interrupt {
    port: u16,
    queue: u16,
    fd: BorrowedFd<'static>,
    /// Every wake leaves a number in the descriptor, to be read; otherwise the frames themselves make it readable.
    counts: bool,
    armed: bool,
}

pub(super) struct Timer {
    fd: OwnedFd,
    next: Duration,
    most: Duration,
    in_vain: u32,
}

impl Pause {
    /// For a queue of a started port, whose owner outlives this.
    pub(super) fn new(
        port: u16,
        queue: u16,
        interrupts: bool,
        most: Duration,
    ) -> io::Result<Pause> {
        let fd = if interrupts {
            // SAFETY: the port is started and has the queue.
            unsafe { ffi::jd_rx_wait_fd(port, queue) }
        } else {
            -1
        };
        if fd >= 0 {
            return Ok(Pause::Interrupt(Interrupt {
                port,
                queue,
                // SAFETY: the driver's, open until the port is closed; its owner drops this before.
                fd: unsafe { BorrowedFd::borrow_raw(fd) },
                counts: is_eventfd(fd),
                armed: false,
            }));
        }
        if most.is_zero() {
            return Ok(Pause::Never);
        }
        Ok(Pause::Timer(Timer::new(most)?))
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Pause::Never => None,
            Pause::Interrupt(interrupt) => Some(interrupt.fd),
            Pause::Timer(timer) => Some(timer.fd.as_fd()),
        }
    }

    /// The core is about to sleep. False when it should look once more first.
    pub(super) fn arm(&mut self) -> bool {
        match self {
            Pause::Never => false,
            Pause::Interrupt(interrupt) => interrupt.arm(),
            Pause::Timer(timer) => timer.arm(),
        }
    }

    /// A look at the queue, and whether it had something.
    #[inline]
    pub(super) fn looked(&mut self, something: bool) {
        match self {
            Pause::Never => {}
            Pause::Interrupt(interrupt) if something && interrupt.armed => interrupt.disarm(),
            Pause::Timer(timer) if something => timer.reset(),
            Pause::Interrupt(_) | Pause::Timer(_) => {}
        }
    }
}

impl Interrupt {
    fn arm(&mut self) -> bool {
        if self.armed {
            return true;
        }
        if self.counts {
            // Clears what an earlier wake has left.
            let _ = rustix::io::read(self.fd, &mut [0; 8]);
        }
        self.armed = true;
        // SAFETY: the port is started and this is the queue's own thread.
        let enabled = unsafe { ffi::jd_rx_wait_arm(self.port, self.queue, 1) } == 0;
        // Frames that came before it was enabled ring no bell: the queue must be looked at once more. A driver that has no such switch is
        // always on.
        !enabled
    }

    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        // SAFETY: as in `arm`.
        unsafe { ffi::jd_rx_wait_arm(self.port, self.queue, 0) };
    }
}

impl Timer {
    fn new(most: Duration) -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Timer {
            fd: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            next: FIRST,
            most: most.max(FIRST),
            in_vain: 0,
        })
    }

    #[inline]
    fn reset(&mut self) {
        self.next = FIRST;
        self.in_vain = 0;
    }

    fn arm(&mut self) -> bool {
        let value = Timespec::try_from(self.next).unwrap_or(Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        });
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: value,
        };
        // Setting it anew also takes back that it had expired.
        let set = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once).is_ok();
        self.in_vain = self.in_vain.saturating_add(1);
        let most = match self.in_vain > IN_VAIN {
            true => LONGER * self.most,
            false => self.most,
        };
        self.next = (2 * self.next).min(most);
        set
    }
}

/// Tells an eventfd by the kernel's name of the descriptor, which is the only way to know.
fn is_eventfd(fd: i32) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}"))
        .is_ok_and(|name| name.to_string_lossy().contains("eventfd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_while_they_are_in_vain_and_begin_anew_after_work() {
        let most = Duration::from_millis(2);
        let mut timer = Timer::new(most).unwrap();
        let next = |timer: &mut Timer, sleeps: u32| {
            (0..sleeps).for_each(|_| assert!(timer.arm()));
            timer.next
        };
        assert_eq!(next(&mut timer, 1), 2 * FIRST);
        assert_eq!(next(&mut timer, 20), most);
        assert_eq!(next(&mut timer, IN_VAIN - 21), most);
        assert_eq!(next(&mut timer, 20), LONGER * most);
        timer.reset();
        assert_eq!(timer.next, FIRST);
        assert_eq!(next(&mut timer, 20), most);
    }
}
