//! The one place where the runtime reads a clock. Everything below it is handed an [`Instant`].

use janus_tcp::Instant;

/// Nanoseconds since a start that all threads of a runtime share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The machine's.
    Real { start: std::time::Instant },
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

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let elapsed_ns = match self {
            Clock::Real { start } => start.elapsed().as_nanos() as u64,
            #[cfg(test)]
            Clock::Virtual(elapsed_ns) => elapsed_ns.load(std::sync::atomic::Ordering::Relaxed),
        };
        Instant::from_nanos(OFFSET_NS + elapsed_ns)
    }
}
