//! Time that a piece of work keeps each kind of thread of a server busy, and what so many processors could thus do: of equal cores the
//! sum counts, of threads that do different things the kind that is busier.

use std::time::{Duration, Instant};

use janus::CoreReport;

use super::far::plan::{Kind, Phase};
use super::meter::{Meter, thread_cpu};
use super::served::{Layout, Server};

/// What one thing keeps each kind of thread busy.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    /// All shards together.
    pub shards_ns: f64,
    /// The threads that only poll, if there are any.
    pub polling_ns: f64,
    /// True if the machine was not the server's alone.
    pub disturbed: bool,
}

impl Busy {
    /// Time of all threads.
    pub fn all_ns(self) -> f64 {
        self.shards_ns + self.polling_ns
    }

    /// Returns what a processor for each thread does in a second.
    pub fn per_second(self, layout: Layout) -> f64 {
        let polling = layout.threads() - layout.cores;
        let each_shard = self.shards_ns / layout.cores as f64;
        let longest = each_shard.max(self.polling_ns / polling.max(1) as f64);
        1e9 / longest
    }

    /// Measures one phase of a server, which rests before and after it.
    pub fn of(server: &Server, phase: Phase, time: Duration) -> Self {
        server.plan.set(phase);
        std::thread::sleep(time / 8);
        let (before, polled) = (server.reports(), thread_cpu("janus-io"));
        let (meter, begin) = (
            Meter::start(&server.plan, server.layout.threads()),
            Instant::now(),
        );
        std::thread::sleep(time);
        let (reading, wall_ns) = (meter.read(), begin.elapsed().as_nanos() as f64);
        let (after, polled_after) = (server.reports(), thread_cpu("janus-io"));
        server.quiesce(phase.held);
        let ended = reading.ended().max(1.0);
        // Both are timed by the wall clock.
        let inside_ns = reading.counts.get(Kind::InsideNs) as f64 * reading.share;
        let sum = |cores: &[CoreReport]| -> f64 {
            let busy = cores.iter().map(|core| core.turns.busy.as_nanos() as f64);
            busy.sum()
        };
        let shards_ns = sum(&after) - sum(&before);
        // The reports took a moment longer than the reading.
        let shards_ns = shards_ns * reading.share * reading.wall_ns / wall_ns.max(reading.wall_ns);
        if server.layout.threads() == server.layout.cores {
            return Self {
                shards_ns: (shards_ns - inside_ns) / ended,
                polling_ns: 0.0,
                disturbed: reading.disturbed,
            };
        }
        let polling_ns = polled_after.saturating_sub(polled).as_nanos() as f64 - inside_ns;
        Self {
            shards_ns: shards_ns / ended,
            polling_ns: polling_ns / ended,
            disturbed: reading.disturbed,
        }
    }
}
