//! The time that a benchmark's engine is told: the machine's, or one that goes on by the same step each turn. Under the second every
//! run does the same to the instruction, whatever timers come due.

use janus_tcp::Instant;

/// Nanoseconds of a turn where time is made up: what a busy shard's turn takes.
const STEP_NS: u64 = 50_000;

/// Most nanoseconds that a turn of a patient clock takes.
const PATIENT_NS: u64 = 1_000_000;

pub enum Clock {
    Real(std::time::Instant),
    Turns(u64),
    /// The machine's time without its pauses: where it ran something else for long, or another side of a comparison, no
    /// timer comes due for that.
    Patient {
        start: std::time::Instant,
        now_ns: u64,
        left_out_ns: u64,
    },
}

impl Clock {
    pub fn real() -> Self {
        Self::Real(std::time::Instant::now())
    }

    pub fn patient() -> Self {
        Self::Patient {
            start: std::time::Instant::now(),
            now_ns: 0,
            left_out_ns: 0,
        }
    }

    pub fn now(&self) -> Instant {
        Instant::from_nanos(match self {
            Self::Real(start) => start.elapsed().as_nanos() as u64,
            Self::Turns(turns) => turns * STEP_NS,
            Self::Patient { now_ns, .. } => *now_ns,
        })
    }

    /// Begins the next turn.
    pub fn turn(&mut self) -> Instant {
        match self {
            Self::Real(_) => {}
            Self::Turns(turns) => *turns += 1,
            Self::Patient {
                start,
                now_ns,
                left_out_ns,
            } => {
                let passed = start.elapsed().as_nanos() as u64 - *left_out_ns - *now_ns;
                *left_out_ns += passed.saturating_sub(PATIENT_NS);
                *now_ns += passed.min(PATIENT_NS);
            }
        }
        self.now()
    }
}
