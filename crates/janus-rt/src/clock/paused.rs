//! A clock for tests: it stands still while any thread has something to do, and jumps to the next timer when all sleep. A test of a day's
//! work takes no time, and a timer never fires because the machine was slow. Several runtimes may share one: then packets between them
//! hold it too. It can be made to run at the speed of the machine's for a while.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use janus_io::SleepObserver;
use janus_io::park::Unparker;
use janus_tcp::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::OFFSET_NS;
use crate::lock::Lock;

#[cfg(test)]
mod tests;

/// One runtime's share of a clock.
#[derive(Debug, Default)]
pub(crate) struct Paused {
    time: Arc<Time>,
    /// Index of the runtime's first sleeper among all.
    first: AtomicUsize,
}

/// Bit of [`Time::elapsed`]: the clock runs.
const RUNS: u64 = 1 << 63;

#[derive(Debug)]
struct Time {
    /// Nanoseconds since the start; while the clock runs, the offset to the machine's clock that yields them, without the highest bit.
    /// Written under the lock of `sleepers`.
    elapsed: AtomicU64,
    start: std::time::Instant,
    sleepers: Lock<Vec<Sleeper>>,
}

impl Default for Time {
    fn default() -> Time {
        Time {
            elapsed: AtomicU64::new(0),
            start: std::time::Instant::now(),
            sleepers: Lock::default(),
        }
    }
}

impl Time {
    fn elapsed_ns(&self) -> u64 {
        let elapsed = self.elapsed.load(Ordering::Acquire);
        match elapsed & RUNS {
            0 => elapsed,
            _ => elapsed.wrapping_add(self.machine_ns()) & !RUNS,
        }
    }

    fn machine_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn runs(&self) -> bool {
        self.elapsed.load(Ordering::Acquire) & RUNS != 0
    }
}

/// A thread that may have work: a core, a polling core, the control thread.
struct Sleeper {
    bell: Unparker,
    /// Descriptor that the thread also sleeps on: readable when something came that no bell announced. A duplicate, since other threads
    /// check it.
    fd: Option<OwnedFd>,
    state: SleeperState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SleeperState {
    Awake,
    /// Asleep until then, or until it is woken.
    Asleep(Option<Instant>),
    /// The thread has ended.
    Gone,
}

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.state)
    }
}

/// Next step of an idle core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A timer is due: the clock has jumped, or was moved.
    Due,
    Sleep,
}

impl Paused {
    /// Returns a share of the clock for another runtime.
    pub(super) fn shared(&self) -> Paused {
        Paused {
            time: self.time.clone(),
            first: AtomicUsize::new(0),
        }
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        self.time.elapsed_ns()
    }

    /// Returns whether the clock runs.
    pub(crate) fn runs(&self) -> bool {
        self.time.runs()
    }

    /// Makes the clock run at the machine's speed; returns false if it did already.
    pub(crate) fn resume(&self) -> bool {
        let sleepers = self.time.sleepers.lock();
        if self.runs() {
            return false;
        }
        let behind = self.elapsed_ns().wrapping_sub(self.time.machine_ns());
        self.time.elapsed.store(behind | RUNS, Ordering::Release);
        wake_all(&sleepers);
        true
    }

    /// Stops the clock at its present time; returns false if it stood already.
    pub(crate) fn pause(&self) -> bool {
        let sleepers = self.time.sleepers.lock();
        if !self.runs() {
            return false;
        }
        let elapsed_ns = self.elapsed_ns();
        self.time.elapsed.store(elapsed_ns, Ordering::Release);
        wake_all(&sleepers);
        true
    }

    /// Moves the clock while it stands; returns the new time, or `None` if the clock runs.
    pub(crate) fn advance(&self, by: Duration) -> Option<Instant> {
        let sleepers = self.time.sleepers.lock();
        if self.runs() {
            return None;
        }
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let most = RUNS - 1 - OFFSET_NS;
        let elapsed_ns = self.elapsed_ns().saturating_add(by).min(most);
        self.time.elapsed.store(elapsed_ns, Ordering::Release);
        wake_all(&sleepers);
        Some(Instant::from_nanos(OFFSET_NS + elapsed_ns))
    }

    /// Registers the runtime's threads, all of which must sleep before the clock jumps: the cores, then the others.
    pub(crate) fn governs(&self, bells: impl IntoIterator<Item = Unparker>) {
        let mut sleepers = self.time.sleepers.lock();
        self.first.store(sleepers.len(), Ordering::Relaxed);
        sleepers.extend(bells.into_iter().map(|bell| Sleeper {
            bell,
            fd: None,
            state: SleeperState::Awake,
        }));
    }

    /// Reports that thread `number` is idle, has armed its bell, and sleeps on `fd` too. If all threads are idle, the clock jumps. The
    /// thread must not sleep by the clock if that runs or has passed `deadline`.
    pub(crate) fn falls_asleep(
        &self,
        number: usize,
        deadline: Option<Instant>,
        fd: Option<BorrowedFd<'_>>,
    ) -> Verdict {
        let mut sleepers = self.time.sleepers.lock();
        let own = self.first.load(Ordering::Relaxed) + number;
        let sleeper = &mut sleepers[own];
        if let (None, Some(fd)) = (&sleeper.fd, fd) {
            // Without a duplicate, packets on the descriptor are not seen and do not hold the clock.
            sleeper.fd = fd.try_clone_to_owned().ok();
        }
        sleeper.state = SleeperState::Asleep(deadline);
        let reads = Instant::from_nanos(OFFSET_NS + self.elapsed_ns());
        if self.runs() || deadline.is_some_and(|deadline| deadline <= reads) {
            return Verdict::Due;
        }
        let rests = |(other, sleeper): (usize, &Sleeper)| sleeper.rests(other == own);
        if !sleepers.iter().enumerate().all(rests) {
            return Verdict::Sleep;
        }
        let Some(next) = sleepers.iter().filter_map(Sleeper::deadline).min() else {
            return Verdict::Sleep;
        };
        let elapsed_ns = next.as_nanos().saturating_sub(OFFSET_NS);
        self.time.elapsed.fetch_max(elapsed_ns, Ordering::AcqRel);
        let mut verdict = Verdict::Sleep;
        for (number, sleeper) in sleepers.iter().enumerate() {
            let due = sleeper.deadline().is_some_and(|at| at <= next);
            if due && number == own {
                verdict = Verdict::Due;
            } else if due {
                sleeper.bell.wake();
            }
        }
        verdict
    }

    pub(crate) fn wakes(&self, number: usize) {
        self.is(number, SleeperState::Awake);
    }

    /// Reports that a thread ends, and is not waited for any more.
    pub(crate) fn leaves(&self, number: usize) {
        self.is(number, SleeperState::Gone);
    }

    fn is(&self, number: usize, state: SleeperState) {
        let own = self.first.load(Ordering::Relaxed) + number;
        self.time.sleepers.lock()[own].state = state;
    }
}

/// Wakes all sleepers, whose deadlines no longer hold.
fn wake_all(sleepers: &[Sleeper]) {
    for sleeper in sleepers
        .iter()
        .filter(|one| one.state != SleeperState::Gone)
    {
        sleeper.bell.wake();
    }
}

impl Sleeper {
    fn deadline(&self) -> Option<Instant> {
        match self.state {
            SleeperState::Asleep(deadline) => deadline,
            SleeperState::Awake | SleeperState::Gone => None,
        }
    }

    /// Returns whether the thread sleeps. A thread whose bell was rung counts as awake, since messages to it are followed by the bell; so
    /// does one whose descriptor is readable. The asking thread's own bell is not checked.
    fn rests(&self, asks: bool) -> bool {
        match self.state {
            SleeperState::Gone => true,
            SleeperState::Awake => false,
            SleeperState::Asleep(_) => (asks || self.bell.would_wake()) && !self.has_mail(),
        }
    }

    fn has_mail(&self) -> bool {
        let Some(fd) = &self.fd else { return false };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// Share of a thread that polls a device: it waits for no timer, but no time passes while it is awake.
pub(crate) struct Polling {
    pub(crate) clock: &'static Paused,
    pub(crate) number: usize,
}

impl SleepObserver for Polling {
    fn falls_asleep(&self, fd: Option<BorrowedFd<'_>>) {
        let _ = self.clock.falls_asleep(self.number, None, fd);
    }

    fn wakes(&self) {
        self.clock.wakes(self.number);
    }
}
