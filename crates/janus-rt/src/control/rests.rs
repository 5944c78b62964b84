//! Sleep of the cores as the control thread sees it: while all of them sleep nothing can be lost and no task keeps a core, so the thread
//! need not look. It says that it dozes; the first core that works again rings. Never here: what is looked at.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use janus_io::SleepObserver;
use rustix::fd::BorrowedFd;

use super::mailbox::ControlMailbox;
use crate::clock::Polling;

/// Number of times that a thread has fallen asleep and come to work: odd while it sleeps. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Nap(AtomicU64);

/// Sleep of all threads that carry packets: shards first, then I/O cores.
#[derive(Debug)]
pub(crate) struct Rests {
    naps: Vec<Nap>,
    /// The control thread sleeps until somebody rings.
    dozes: AtomicBool,
}

/// State of all threads at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen(Vec<u64>);

impl Rests {
    /// Counts threads that are all awake.
    pub(crate) fn new(threads: usize) -> Rests {
        Rests {
            naps: (0..threads).map(|_| Nap::default()).collect(),
            dozes: AtomicBool::new(false),
        }
    }

    /// Notes that a thread is about to sleep and has nothing to do. Each thread speaks for itself only.
    #[inline]
    pub(crate) fn falls_asleep(&self, thread: usize) {
        let nap = &self.naps[thread].0;
        let count = nap.load(Ordering::Relaxed);
        if count.is_multiple_of(2) {
            // With what it has counted before.
            nap.store(count.wrapping_add(1), Ordering::Release);
        }
    }

    /// Notes that a thread works. Returns whether it must ring, as the control thread dozes.
    #[inline]
    pub(crate) fn works(&self, thread: usize) -> bool {
        let nap = &self.naps[thread].0;
        let count = nap.load(Ordering::Relaxed);
        if count.is_multiple_of(2) {
            return false;
        }
        nap.store(count.wrapping_add(1), Ordering::Relaxed);
        self.ends_doze()
    }

    /// Returns whether the control thread dozes, and must be rung for; of several that ask, one rings.
    #[inline]
    pub(crate) fn ends_doze(&self) -> bool {
        // The control thread says that it dozes and then looks who works; we say that we work and then look whether it dozes. One of the
        // two sees the other.
        fence(Ordering::SeqCst);
        self.dozes.load(Ordering::Relaxed) && self.dozes.swap(false, Ordering::AcqRel)
    }

    /// Notes the state of all threads: what they counted before is seen by whoever looks at the counters next.
    pub(crate) fn note(&self, seen: &mut Seen) {
        seen.0.clear();
        let naps = self.naps.iter().map(|nap| nap.0.load(Ordering::Acquire));
        seen.0.extend(naps);
    }

    /// Begins to doze if all threads sleep, and have since `seen` was noted.
    pub(crate) fn doze(&self, seen: &Seen) -> bool {
        self.dozes.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let sleeps = |(nap, then): (&Nap, &u64)| {
            let now = nap.0.load(Ordering::Acquire);
            !now.is_multiple_of(2) && now == *then
        };
        let all = seen.0.len() == self.naps.len() && self.naps.iter().zip(&seen.0).all(sleeps);
        if !all {
            self.wakes();
        }
        all
    }

    /// Notes that the control thread is awake.
    pub(crate) fn wakes(&self) {
        self.dozes.store(false, Ordering::Relaxed);
    }
}

/// Tells of one I/O core's sleep. Such a core looks at its links from time to time, which is no work.
pub(crate) struct PollingRest {
    pub(crate) mailbox: Arc<ControlMailbox>,
    pub(crate) thread: usize,
    /// Where the clock jumps.
    pub(crate) clock: Option<Polling>,
}

impl SleepObserver for PollingRest {
    fn falls_asleep(&self, fd: Option<BorrowedFd<'_>>) {
        self.mailbox.rests().falls_asleep(self.thread);
        if let Some(clock) = &self.clock {
            clock.falls_asleep(fd);
        }
    }

    fn wakes(&self) {
        if let Some(clock) = &self.clock {
            clock.wakes();
        }
    }

    fn works(&self) {
        self.mailbox.works(self.thread);
    }
}
