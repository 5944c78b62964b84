//! The one place where the runtime reads a clock. Everything below it is handed an [`Instant`].

mod paused;

use janus_tcp::Instant;

pub(crate) use paused::{Paused, Polling, Verdict};

/// Nanoseconds since a start that all threads of a runtime share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The machine's.
    Real { start: std::time::Instant },
    /// One that jumps when all sleep.
    Paused(&'static Paused),
    /// One that stands still until a test moves it.
    #[cfg(test)]
    Virtual(&'static std::sync::atomic::AtomicU64),
}

/// Where the count begins: never zero, so that "before the start" can be told apart.
const OFFSET_NS: u64 = 1_000_000_000;

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock::Real {
            start: std::time::Instant::now(),
        }
    }

    /// For tests of programs, so it is not given back: a clock is copied to wherever time is asked for.
    pub(crate) fn paused() -> Clock {
        Clock::Paused(Box::leak(Box::default()))
    }

    /// For another runtime: the same, if it is one that jumps.
    pub(crate) fn shared(self) -> Option<Clock> {
        let paused = self.jumps()?.shared();
        Some(Clock::Paused(Box::leak(Box::new(paused))))
    }

    /// For who has no part in a jump: the machine's, where this one jumps.
    pub(crate) fn outside(self) -> Clock {
        match self {
            Clock::Paused(_) => Clock::start(),
            clock => clock,
        }
    }

    /// What makes it jump, if it does.
    pub(crate) fn jumps(&self) -> Option<&'static Paused> {
        match self {
            Clock::Paused(paused) => Some(paused),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let elapsed_ns = match self {
            Clock::Real { start } => start.elapsed().as_nanos() as u64,
            Clock::Paused(paused) => paused.elapsed_ns(),
            #[cfg(test)]
            Clock::Virtual(elapsed_ns) => elapsed_ns.load(std::sync::atomic::Ordering::Relaxed),
        };
        Instant::from_nanos(OFFSET_NS + elapsed_ns)
    }
}
