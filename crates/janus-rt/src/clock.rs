//! The one place where the runtime reads a clock. Everything below it is handed an [`Instant`].

use janus_tcp::Instant;

/// Nanoseconds since a start that all threads of a runtime share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

/// Where the count begins: never zero, so that "before the start" can be told apart.
const OFFSET_NS: u64 = 1_000_000_000;

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            start: std::time::Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(OFFSET_NS + self.start.elapsed().as_nanos() as u64)
    }
}
