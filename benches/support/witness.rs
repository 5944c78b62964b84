//! Which moments were the machine's: a thread that only reads the clock is stopped again and again, by the kernel's tick, by
//! interrupts, by other programs, by the host. Little of that is counted anywhere as steal. What was measured in such a
//! moment says nothing of the server, and is set aside.
//!
//! A **gap** is a time between two readings of the clock that is longer than the work between them explains. Readings are
//! taken in three places:
//!
//! * The *load*, from the entry into a call of the far end to its end: straight code of the benchmark, in which nothing of
//!   Janus runs. A gap there is the machine's.
//! * The *program*, from the end of one call of the far end to the entry into the next (combined: the whole turn of the
//!   shard; split: the I/O core's), and in the split placement between two turns of the shard, in each of which a task reads
//!   the clock. A gap there may be the machine's or a long turn of Janus's. No thread sleeps meanwhile: the far end always has work.
//! * A *bare loop* that only reads the clock, on each processor, between the phases of the same run. It shows what the machine
//!   does without a program that works.
//!
//! A gap of the program is not set aside because it is a gap: that would hide the very stalls that are looked for.
//! Two things speak for the machine:
//!
//! * *Proof.* The thread's processor time stood still for half of the gap at least: another thread ran, or the kernel knows
//!   that the host took the processor.
//! * *Odds.* What interrupts and stalls without account take, they take from straight code as well, at the same rate for
//!   each second of it. So the load tells how many gaps of each size the machine made in the program's time
//!   ([`control`]). That many of the program's are set aside, drawn by lot among those of the size, or of the next, since a gap
//!   of the program has a turn's work in it too. All above that number stay in the figures as Janus's own, and are shown
//!   as such. The bare loop is no measure for short gaps: it finds the kernel's code in the caches. For long ones, of which
//!   a phase has few, it counts as the load does, and all phases are judged together.
//!
//! A gap sets aside what was due shortly before it, in it, and until the queue that it left is worked off: at load `l` a
//! queue drains in `l / (1 - l)` of the time in which it grew. That is decided by the moment at which something was due,
//! never by how long it took, so that no slow answer is set aside for being slow.

pub mod bare;
pub mod control;
pub mod threads;

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Between two readings; shorter ones disturb no more than a burst of packets does.
pub const GAP_MIN_NS: u64 = 10_000;
/// What the far end needs for a frame, at most.
const FRAME_NS: u64 = 250;
/// Gaps kept of one phase.
const GAPS_MAX: usize = 1 << 17;

/// Where the clock was read before and after a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Load,
    Program,
}

/// A gap, in nanoseconds from the origin.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    pub from_ns: u64,
    pub to_ns: u64,
    pub place: Place,
    /// The thread did not run for half of it at least.
    pub is_proven: bool,
}

impl Gap {
    pub fn ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// The gaps of one thread, and the time that it spent in each place.
#[derive(Debug, Default)]
pub struct Record {
    pub gaps: Vec<Gap>,
    pub load_ns: u64,
    pub program_ns: u64,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A thread's own readings of the clock. Made and used on that thread.
pub struct Readings {
    origin: Instant,
    /// End of the last call; nothing before the first.
    left: Option<Instant>,
    off_cpu_ns: u64,
    record: Record,
}

impl Readings {
    pub fn new(origin: Instant) -> Self {
        let mut readings = Self {
            origin,
            left: None,
            off_cpu_ns: 0,
            record: Record::default(),
        };
        readings.record.gaps.reserve(GAPS_MAX / 16);
        readings.off_cpu_ns = readings.off_cpu();
        readings.record.from_ns = readings.since_origin(Instant::now());
        readings
    }

    /// The thread has come into straight code.
    #[inline]
    pub fn enters(&mut self, now: Instant) {
        if let Some(left) = self.left {
            let took = now.saturating_duration_since(left).as_nanos() as u64;
            self.record.program_ns += took;
            if took >= GAP_MIN_NS {
                self.gap(left, now, Place::Program);
            }
        }
    }

    /// The straight code that it came into at `entered` is over; it worked on this many frames. Whether there was a gap in it.
    #[inline]
    pub fn leaves(&mut self, entered: Instant, now: Instant, frames: u64) -> bool {
        // The call in which this was made is not all watched.
        if self.left.replace(now).is_none() {
            return false;
        }
        let took = now.saturating_duration_since(entered).as_nanos() as u64;
        self.record.load_ns += took;
        let is_gap = took >= GAP_MIN_NS + frames * FRAME_NS;
        if is_gap {
            self.gap(entered, now, Place::Load);
        }
        is_gap
    }

    #[cold]
    fn gap(&mut self, from: Instant, to: Instant, place: Place) {
        let off_cpu_ns = self.off_cpu();
        let stood_ns = off_cpu_ns.saturating_sub(self.off_cpu_ns);
        self.off_cpu_ns = off_cpu_ns;
        let gap = Gap {
            from_ns: self.since_origin(from),
            to_ns: self.since_origin(to),
            place,
            is_proven: 2 * stood_ns >= to.duration_since(from).as_nanos() as u64,
        };
        if self.record.gaps.len() < GAPS_MAX {
            self.record.gaps.push(gap);
        }
    }

    /// Time since the origin in which the thread did not run, up to a constant.
    fn off_cpu(&self) -> u64 {
        let ran = clock_gettime(ClockId::ThreadCPUTime);
        let ran_ns = ran.tv_sec as u64 * 1_000_000_000 + ran.tv_nsec as u64;
        // The thread is older than the origin, perhaps.
        (self.since_origin(Instant::now()) + (1 << 60)).saturating_sub(ran_ns)
    }

    fn since_origin(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin).as_nanos() as u64
    }

    pub fn finish(mut self) -> Record {
        self.record.to_ns = self.since_origin(Instant::now());
        self.record
    }
}
