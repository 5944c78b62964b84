//! Connections or requests begun when their time has come, not when others have ended: an offered rate, at random distances. How long
//! a handshake or a request took counts from the moment at which it was due, so that a server which stands still cannot hide what
//! it kept waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use crate::support::witness::{Readings, Record};

/// Handshakes and requests whose beginning is remembered at a time; more are never under way.
const UNDER_WAY: usize = 1 << 17;
/// Samples kept of one phase.
const SAMPLES_MAX: usize = 16_000_000;

/// When each thing that is under way was due, by connection.
pub type Due = Arc<[AtomicU64]>;

/// Room for all that is ever under way, touched now.
pub fn due() -> Due {
    (0..UNDER_WAY).map(|_| AtomicU64::new(1)).collect()
}

/// A handshake or a request that was finished.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When it was due, in nanoseconds from the plan's beginning.
    pub due_ns: u64,
    pub took_ns: u64,
}

/// The server's time.
#[derive(Clone, Copy)]
pub struct Since {
    pub origin: Instant,
    /// Added to the machine's where it is another.
    pub shift: Option<&'static AtomicI64>,
}

impl Since {
    pub fn now_ns(&self) -> u64 {
        let shift = self.shift.map_or(0, |it| it.load(Ordering::Relaxed));
        (self.origin.elapsed().as_nanos() as u64).wrapping_add_signed(shift)
    }
}

/// Room for about so many samples and some more, touched now: what the kernel takes for a page would be in the figures.
pub fn room_for(samples: usize) -> Vec<Sample> {
    let unused = Sample {
        due_ns: 1,
        took_ns: 1,
    };
    let mut room = vec![unused; (samples + samples / 8).min(SAMPLES_MAX)];
    room.clear();
    room
}

/// The schedule of one far end.
pub struct Pace {
    since: Since,
    mean_ns: f64,
    next_ns: f64,
    random: u64,
    /// Shared by all far ends: an answer may come to another.
    due: Due,
    samples: Vec<Sample>,
    /// The far end's readings of the clock.
    pub readings: Readings,
}

impl Pace {
    /// `rate` connections a second from now on, as many samples as there is room for.
    pub fn new(since: Since, due: Due, rate: f64, samples: Vec<Sample>, seed: u64) -> Self {
        let mut pace = Self {
            mean_ns: 1e9 / rate,
            next_ns: 0.0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            due,
            samples,
            readings: Readings::new(since.origin),
            since,
        };
        pace.next_ns = pace.now_ns() as f64;
        pace
    }

    /// The moment at which the next one was due, if it has come.
    pub fn next_due(&mut self) -> Option<u64> {
        let due = self.next_ns;
        if due > self.now_ns() as f64 {
            return None;
        }
        // Exponential distances: arrivals of strangers who do not know of each other.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let uniform = ((self.random >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        self.next_ns += -uniform.ln() * self.mean_ns;
        Some(due as u64)
    }

    pub fn began(&mut self, conn: u32, due_ns: u64) {
        self.due[conn as usize % UNDER_WAY].store(due_ns, Ordering::Relaxed);
    }

    /// The server's half of the handshake is here, or its answer to the request.
    pub fn answered(&mut self, conn: u32) {
        let due_ns = self.due[conn as usize % UNDER_WAY].load(Ordering::Relaxed);
        let took_ns = self.now_ns().saturating_sub(due_ns);
        if self.samples.len() < self.samples.capacity() {
            self.samples.push(Sample { due_ns, took_ns });
        }
    }

    /// What was measured, when the phase is over.
    pub fn finish(self) -> (Vec<Sample>, Record) {
        (self.samples, self.readings.finish())
    }

    fn now_ns(&self) -> u64 {
        self.since.now_ns()
    }
}
