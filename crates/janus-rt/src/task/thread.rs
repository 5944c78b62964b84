//! The kernel's accounting of a core's thread, for the watchdog on another thread: how much of a time it ran or waited in a call, and how
//! much it only waited for a processor.

use std::fs;
use std::time::Duration;

/// A thread of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    id: i32,
    /// Clock of its processor time.
    clock: libc::clockid_t,
}

/// Accounting of a thread at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Processor time so far.
    ran: Duration,
    /// Time it has waited for a processor; a wait that is not over does not count yet.
    queued: Duration,
    /// Whether it runs, or waits for a processor.
    ready: bool,
}

impl Thread {
    /// Returns the calling thread; `None` where the system does not tell.
    pub(super) fn current() -> Option<Thread> {
        let mut clock = 0;
        // SAFETY: the calling thread is alive, and what is written to is ours.
        let refused = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        (refused == 0).then_some(Thread { id, clock })
    }

    /// Returns the accounting; `None` when the thread has ended, or the system does not tell.
    pub(super) fn account(self) -> Option<Account> {
        let read = |what| fs::read_to_string(format!("/proc/self/task/{}/{what}", self.id)).ok();
        let queued = read("schedstat")?.split_whitespace().nth(1)?.parse().ok()?;
        let stat = read("stat")?;
        // The name comes before, in brackets, and may contain brackets.
        let (_, state) = stat.rsplit_once(')')?;
        Some(Account {
            ran: self.ran()?,
            queued: Duration::from_nanos(queued),
            ready: state.trim_start().starts_with('R'),
        })
    }

    fn ran(self) -> Option<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: what is written to is ours; of the clock of a thread that is gone the system says so.
        let refused = unsafe { libc::clock_gettime(self.clock, &mut time) };
        let (seconds, ns) = (time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?);
        (refused == 0).then(|| Duration::new(seconds, ns))
    }
}

impl Account {
    /// Returns a lower bound of the part of `time` (elapsed since `before`) that the thread had, running or waiting in a call.
    pub(crate) fn kept_since(&self, before: &Account, time: Duration) -> Duration {
        if self.ready {
            // How long it has waited for a processor now is not known.
            return self.ran.saturating_sub(before.ran).min(time);
        }
        time.saturating_sub(self.queued.saturating_sub(before.queued))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_call_that_waits_counts_as_what_computes_does_and_a_place_in_the_line_does_not() {
        let ms = Duration::from_millis;
        let at = |ran, queued, ready| Account {
            ran: ms(ran),
            queued: ms(queued),
            ready,
        };
        let before = at(10, 100, true);
        let kept = |after: Account| after.kept_since(&before, ms(50));
        assert_eq!(kept(at(60, 100, true)), ms(50));
        assert_eq!(kept(at(10, 100, false)), ms(50));
        assert_eq!(kept(at(13, 147, true)), ms(3));
        assert_eq!(kept(at(10, 100, true)), ms(0));
        assert_eq!(kept(at(12, 130, false)), ms(20));
        // The values are not read at one moment.
        assert_eq!(kept(at(61, 100, true)), ms(50));
        assert_eq!(kept(at(10, 151, false)), ms(0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no such system")]
    fn the_system_tells_of_a_thread_what_it_does() {
        let (tell, told) = channel();
        let (go, wait) = channel::<()>();
        let other = std::thread::spawn(move || {
            tell.send(Thread::current().expect("a thread"))
                .expect("heard");
            let _ = wait.recv();
        });
        let waits = told.recv().expect("a thread");
        while waits.account().expect("it lives").ready {
            std::thread::yield_now();
        }
        drop(go);
        other.join().expect("it ends");
        // The system wakes the joiner a moment before it forgets the thread.
        let begin = Instant::now();
        while waits.account().is_some() && begin.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(waits.account(), None);

        let own = Thread::current().expect("a thread");
        let (before, begin) = (own.account().expect("it lives"), Instant::now());
        assert!(before.ready);
        loop {
            let after = own.account().expect("it lives");
            let kept = after.kept_since(&before, begin.elapsed());
            if kept > Duration::from_millis(20) {
                break;
            }
        }
    }
}
