//! The time that a benchmark's engine is told: the machine's, or one that goes on by the same step each turn. Under the second every
//! run does the same to the instruction, whatever timers come due.

use janus_tcp::Instant;

/// Nanoseconds of a turn where time is made up: what a busy shard's turn takes.
const STEP_NS: u64 = 50_000;

pub enum Clock {
    Real(std::time::Instant),
    Turns(u64),
}

impl Clock {
    pub fn real() -> Self {
        Self::Real(std::time::Instant::now())
    }

    pub fn now(&self) -> Instant {
        Instant::from_nanos(match self {
            Self::Real(start) => start.elapsed().as_nanos() as u64,
            Self::Turns(turns) => turns * STEP_NS,
        })
    }

    /// Begins the next turn.
    pub fn turn(&mut self) -> Instant {
        if let Self::Turns(turns) = self {
            *turns += 1;
        }
        self.now()
    }
}
