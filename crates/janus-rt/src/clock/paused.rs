//! A clock for tests: it stands still while anybody has something to do, and jumps to the next timer when all sleep. So a
//! test of a day's work takes no time, and a timer never fires because the machine was slow. Several runtimes may have one
//! such time: then what travels between them holds it too. It can be let go for a while, and runs as the machine's then.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use janus_io::SleepObserver;
use janus_io::park::Unparker;
use janus_tcp::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::OFFSET_NS;

#[cfg(test)]
mod tests;

/// One runtime's part in a time.
#[derive(Debug, Default)]
pub(crate) struct Paused {
    time: Arc<Time>,
    /// Where its sleepers begin among all.
    first: AtomicUsize,
}

/// Bit of [`Time::elapsed`]: the clock has been let go.
const RUNS: u64 = 1 << 63;

#[derive(Debug)]
struct Time {
    /// Nanoseconds since the start; while it runs, what has to be added to the machine's for that, without the highest bit.
    /// Written under the lock of `sleepers`.
    elapsed: AtomicU64,
    start: std::time::Instant,
    sleepers: Mutex<Vec<Sleeper>>,
}

impl Default for Time {
    fn default() -> Time {
        Time {
            elapsed: AtomicU64::new(0),
            start: std::time::Instant::now(),
            sleepers: Mutex::default(),
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

/// A thread that may do something: a core, one that polls a device, the one that carries out changes.
struct Sleeper {
    bell: Unparker,
    /// What it also sleeps on: readable when something came for it that nobody rang for. Its own copy, since others look at it.
    fd: Option<OwnedFd>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Awake,
    /// To be woken then, if ever.
    Asleep(Option<Instant>),
    /// Its thread has ended.
    Gone,
}

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.state)
    }
}

/// What a core that has nothing to do does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The clock has jumped, or was moved: something is due here.
    Due,
    Sleep,
}

impl Paused {
    /// For another runtime with the same time.
    pub(super) fn shared(&self) -> Paused {
        Paused {
            time: self.time.clone(),
            first: AtomicUsize::new(0),
        }
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        self.time.elapsed_ns()
    }

    /// It has been let go.
    pub(crate) fn runs(&self) -> bool {
        self.time.runs()
    }

    /// Lets it run as the machine's does. False: it does.
    pub(crate) fn resume(&self) -> bool {
        let sleepers = self.lock();
        if self.runs() {
            return false;
        }
        let behind = self.elapsed_ns().wrapping_sub(self.time.machine_ns());
        self.time.elapsed.store(behind | RUNS, Ordering::Release);
        wake_all(&sleepers);
        true
    }

    /// Stops it where it is. False: it stands.
    pub(crate) fn pause(&self) -> bool {
        let sleepers = self.lock();
        if !self.runs() {
            return false;
        }
        let elapsed_ns = self.elapsed_ns();
        self.time.elapsed.store(elapsed_ns, Ordering::Release);
        wake_all(&sleepers);
        true
    }

    /// Moves it while it stands, and answers what it reads then. `None`: it runs.
    pub(crate) fn advance(&self, by: Duration) -> Option<Instant> {
        let sleepers = self.lock();
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

    /// These threads of the runtime must sleep before it jumps: the cores, and then the others.
    pub(crate) fn governs(&self, bells: impl IntoIterator<Item = Unparker>) {
        let mut sleepers = self.lock();
        self.first.store(sleepers.len(), Ordering::Relaxed);
        sleepers.extend(bells.into_iter().map(|bell| Sleeper {
            bell,
            fd: None,
            state: State::Awake,
        }));
    }

    /// `number` has nothing to do, listens to its bell already, and sleeps on `fd` too. If that goes for all, the clock
    /// jumps. One that has been let go, or moved beyond `deadline`, is not slept by.
    pub(crate) fn falls_asleep(
        &self,
        number: usize,
        deadline: Option<Instant>,
        fd: Option<BorrowedFd<'_>>,
    ) -> Verdict {
        let mut sleepers = self.lock();
        let own = self.first.load(Ordering::Relaxed) + number;
        let sleeper = &mut sleepers[own];
        if let (None, Some(fd)) = (&sleeper.fd, fd) {
            // Without a copy what comes by it is not seen, and does not hold the clock.
            sleeper.fd = fd.try_clone_to_owned().ok();
        }
        sleeper.state = State::Asleep(deadline);
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
        self.is(number, State::Awake);
    }

    /// Its thread ends, and is waited for no more.
    pub(crate) fn leaves(&self, number: usize) {
        self.is(number, State::Gone);
    }

    fn is(&self, number: usize, state: State) {
        let own = self.first.load(Ordering::Relaxed) + number;
        self.lock()[own].state = state;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sleeper>> {
        // Nothing in a lock's scope can be left half done.
        let locked = self.time.sleepers.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

/// They sleep by a clock that is another now.
fn wake_all(sleepers: &[Sleeper]) {
    for sleeper in sleepers.iter().filter(|one| one.state != State::Gone) {
        sleeper.bell.wake();
    }
}

impl Sleeper {
    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Asleep(deadline) => deadline,
            State::Awake | State::Gone => None,
        }
    }

    /// One whose bell was rung is as good as awake: whatever somebody has left for others, he has rung for. So is one to
    /// whom something has come. Who asks has not been rung for, as far as he knows.
    fn rests(&self, asks: bool) -> bool {
        match self.state {
            State::Gone => true,
            State::Awake => false,
            State::Asleep(_) => (asks || self.bell.would_wake()) && !self.has_mail(),
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

/// The part of a thread that polls a device: it waits for no time, but while it is awake none passes.
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
