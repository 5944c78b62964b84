//! Cores on one thread as if each had a processor of its own: turns follow each other, and what one takes counts for its own core alone.
//! For measurements of more threads than there are processors. What differs from a machine that has them: the caches are shared here, and a
//! packet is seen by another core at the end of the turn in which it was sent.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use janus_io::IoCore;

use crate::clock::Clock;
use crate::control::conductor::Conductor;
use crate::runtime::{Builder, Handle, MainResult};
use crate::shard::{ForwardCounters, Shard};

/// How often the time is looked at that the machine gave to others.
const LOOK_NS: u64 = 1_000_000;
/// A turn of this length may have been interrupted.
const LONG_NS: u64 = 100_000;
/// A core that has nothing to do looks again so much later, if no other is further behind.
const IDLE_NS: u64 = 1_000;

/// A runtime without threads of its own.
pub struct SideBySide {
    start: Instant,
    shift: &'static AtomicI64,
    handle: Handle,
    shards: Vec<Shard>,
    io_cores: Vec<IoCore>,
    conductor: Conductor,
    /// How far each has come: shards, cores that poll, and control.
    at_ns: Vec<u64>,
    /// The machine's clock, and this thread's, when they were last compared.
    compared_ns: (u64, u64),
}

impl SideBySide {
    /// A runtime with one copy of `main` on each core.
    pub fn new<F>(builder: Builder, main: impl Fn() -> F) -> SideBySide
    where
        F: Future<Output: MainResult> + 'static,
    {
        let start = Instant::now();
        // Leaked: a clock is copied to wherever time is asked for.
        let shift: &'static AtomicI64 = Box::leak(Box::default());
        let clock = Clock::Shifted { start, shift };
        let prepared = builder.prepare(clock).expect("a runtime");
        let handle = Handle(Arc::clone(prepared.shared()));
        let (seeds, io_cores, conductor) = prepared.into_parts();
        let shards = seeds.into_iter().map(|seed| seed.grow(&main));
        let shards: Vec<Shard> = shards.collect::<Result<_, _>>().expect("shards");
        let at_ns = vec![0; shards.len() + io_cores.len() + 1];
        SideBySide {
            start,
            shift,
            handle,
            shards,
            io_cores,
            conductor,
            at_ns,
            compared_ns: (0, thread_ns()),
        }
    }

    /// The runtime's handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Added to the machine's clock, this gives the time of the core whose turn it is.
    pub fn shift(&self) -> &'static AtomicI64 {
        self.shift
    }

    /// Nanoseconds that all have come to.
    pub fn now_ns(&self) -> u64 {
        self.at_ns.iter().copied().min().unwrap_or_default()
    }

    /// Flows that a core holds.
    pub fn flows(&self, core: usize) -> usize {
        self.shards[core].ctx.stack.borrow().flows_held()
    }

    /// Counts of a core's frames and flows for others.
    pub fn forwards(&self, core: usize) -> ForwardCounters {
        self.shards[core].ctx.forwarder.borrow().counters
    }

    /// Lets whoever is furthest behind have its turn, until then.
    pub fn run_until(&mut self, mut done: impl FnMut(&SideBySide) -> bool) {
        while !done(self) {
            let each = self.at_ns.iter().enumerate();
            let next = each.min_by_key(|(_, at_ns)| **at_ns);
            self.turn(next.map_or(0, |(at, _)| at));
        }
    }

    fn turn(&mut self, at: usize) {
        let began = self.elapsed_ns();
        let shift = self.at_ns[at] as i64 - began as i64;
        self.shift.store(shift, Ordering::Relaxed);
        let (shards, io_cores) = (self.shards.len(), self.io_cores.len());
        let worked = match at {
            _ if at < shards => {
                let _entered = self.shards[at].enter();
                self.shards[at].turn()
            }
            _ if at < shards + io_cores => self.io_cores[at - shards].turn() > 0,
            _ => self.conductor.step(),
        };
        let ended = self.elapsed_ns();
        let mut took = ended - began;
        if took > LONG_NS || ended - self.compared_ns.0 > LOOK_NS {
            took = took.saturating_sub(self.stood_still(ended));
        }
        self.at_ns[at] += took;
        if !worked {
            let others = self.at_ns.iter().enumerate().filter(|(i, _)| *i != at);
            let behind = others.map(|(_, at_ns)| *at_ns).min();
            let later = self.at_ns[at] + IDLE_NS;
            self.at_ns[at] = behind.map_or(later, |other| other.clamp(self.at_ns[at], later));
        }
    }

    /// How long this thread has not run since the last look: the machine has other things to do.
    fn stood_still(&mut self, now_ns: u64) -> u64 {
        let compared = (now_ns, thread_ns());
        let before = std::mem::replace(&mut self.compared_ns, compared);
        (compared.0 - before.0).saturating_sub(compared.1 - before.1)
    }

    fn elapsed_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Nanoseconds for which this thread has run.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl std::fmt::Debug for SideBySide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SideBySide({} shards)", self.shards.len())
    }
}

/// Ordered so that tasks are dropped in their core's context.
impl Drop for SideBySide {
    fn drop(&mut self) {
        for shard in &self.shards {
            let _entered = shard.enter();
            drop(shard.ctx.executor.take());
            shard.ctx.drop_handlers();
        }
    }
}
