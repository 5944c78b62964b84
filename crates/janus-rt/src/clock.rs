//! The one place where the runtime reads a clock. Everything below gets an [`Instant`].

mod paused;

use janus_tcp::Instant;

pub(crate) use paused::{Paused, Polling, Verdict};

/// Nanoseconds since a start that all threads of a runtime share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The machine's monotonic clock.
    Real { start: std::time::Instant },
    /// A test's clock that jumps when all threads sleep.
    Paused(&'static Paused),
    /// A test's clock that stands still until it is moved.
    #[cfg(any(test, feature = "lockstep"))]
    Virtual(&'static std::sync::atomic::AtomicU64),
    /// The machine's, shifted to the time of the core whose turn it is.
    #[cfg(any(test, feature = "lockstep"))]
    Shifted {
        start: std::time::Instant,
        shift: &'static std::sync::atomic::AtomicI64,
    },
}

/// Reading at the start: never zero, so that moments before the start can be told apart.
const OFFSET_NS: u64 = 1_000_000_000;

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock::Real {
            start: std::time::Instant::now(),
        }
    }

    /// Makes a clock that jumps. Leaked: clocks are copied to all places that read the time, and only tests of programs have this one.
    pub(crate) fn paused() -> Clock {
        Clock::Paused(Box::leak(Box::default()))
    }

    /// Returns this clock for another runtime, if it is one that jumps.
    pub(crate) fn shared(self) -> Option<Clock> {
        let paused = self.jumps()?.shared();
        Some(Clock::Paused(Box::leak(Box::new(paused))))
    }

    /// Returns the clock for threads that have no part in jumps: the machine's, where this one jumps.
    pub(crate) fn outside(self) -> Clock {
        match self {
            Clock::Paused(_) => Clock::start(),
            clock => clock,
        }
    }

    /// Returns true in a test's world of many cores on one thread.
    pub(crate) fn is_virtual(&self) -> bool {
        #[cfg(any(test, feature = "lockstep"))]
        return matches!(self, Clock::Virtual(_));
        #[cfg(not(any(test, feature = "lockstep")))]
        false
    }

    /// Returns the part that makes the clock jump, if it does.
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
            #[cfg(any(test, feature = "lockstep"))]
            Clock::Virtual(elapsed_ns) => elapsed_ns.load(std::sync::atomic::Ordering::Relaxed),
            #[cfg(any(test, feature = "lockstep"))]
            Clock::Shifted { start, shift } => {
                let shift = shift.load(std::sync::atomic::Ordering::Relaxed);
                (start.elapsed().as_nanos() as u64).wrapping_add_signed(shift)
            }
        };
        Instant::from_nanos(OFFSET_NS + elapsed_ns)
    }
}
