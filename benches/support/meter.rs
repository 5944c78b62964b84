//! What the server alone used between two moments: processor time of the process, less the share of it spent in the
//! far ends. Time in which the machine ran something else is nobody's, so a busy machine disturbs the figures less.

use super::far::plan::{Counts, Kind, Plan};
use std::time::{Duration, Instant};

/// A running measurement.
pub struct Meter<'a> {
    plan: &'a Plan,
    threads: f64,
    used: fn() -> Duration,
    counts: Counts,
    cpu: Duration,
    wall: Instant,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub counts: Counts,
    /// Nanoseconds of processor time used by the server.
    pub server_ns: f64,
    pub wall_ns: f64,
    /// Part of the time in which the threads ran: 1 where nothing else did.
    pub share: f64,
}

impl<'a> Meter<'a> {
    /// With this many threads polling: shards and I/O cores.
    pub fn start(plan: &'a Plan, threads: usize) -> Self {
        Self::start_by(plan, threads, process_cpu)
    }

    /// Like [`start`](Self::start), with `used` telling the processor time of those threads: where others are in the process.
    pub fn start_by(plan: &'a Plan, threads: usize, used: fn() -> Duration) -> Self {
        Self {
            plan,
            threads: threads as f64,
            used,
            counts: plan.counts(),
            cpu: used(),
            wall: Instant::now(),
        }
    }

    pub fn read(&self) -> Reading {
        let wall_ns = self.wall.elapsed().as_nanos() as f64;
        let cpu_ns = (self.used)().saturating_sub(self.cpu).as_nanos() as f64;
        let counts = self.plan.counts().since(&self.counts);
        let inside_ns = counts.get(Kind::InsideNs) as f64;
        // The far ends are timed by the wall clock. A polling thread never sleeps by itself, so what the threads got
        // of the wall's time is also what the far ends got of theirs.
        let share = (cpu_ns / (wall_ns * self.threads)).min(1.0);
        let server_ns = cpu_ns - inside_ns * share;
        Reading {
            counts,
            server_ns,
            wall_ns,
            share,
        }
    }
}

impl Reading {
    /// How many things ended.
    pub fn ended(&self) -> f64 {
        self.counts.get(Kind::Ended) as f64
    }

    /// Nanoseconds of server time for each.
    pub fn cost_ns(&self) -> f64 {
        self.server_ns / self.ended()
    }

    /// How many a core would do that did nothing but serve.
    pub fn per_core_second(&self) -> f64 {
        1e9 / self.cost_ns()
    }
}

/// Processor time of all threads, exact to a scheduler tick.
pub fn process_cpu() -> Duration {
    thread_cpu("")
}

/// Processor time of the threads whose names begin so.
pub fn thread_cpu(name: &str) -> Duration {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Duration::ZERO;
    };
    let is_meant = |path: &std::path::Path| {
        let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        name.is_empty() || read("comm").starts_with(name)
    };
    let meant = tasks.flatten().filter(|task| is_meant(&task.path()));
    let each = meant.map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|ns| ns.parse::<u64>().ok())
            .unwrap_or(0)
    });
    Duration::from_nanos(each.sum())
}

/// Several measurements of the same thing.
#[derive(Default)]
pub struct Series {
    /// How many a second of one core's time.
    pub rates: Vec<f64>,
    /// Nanoseconds of server time for each.
    pub costs: Vec<f64>,
    /// What was counted in all of them together.
    pub counts: Counts,
}

impl Series {
    /// Measures `runs` times; `run` lets the server work for a while.
    pub fn take(plan: &Plan, threads: usize, runs: usize, mut run: impl FnMut()) -> Self {
        let mut series = Self::default();
        let first = plan.counts();
        for _ in 0..runs {
            let meter = Meter::start(plan, threads);
            run();
            let reading = meter.read();
            series.rates.push(reading.per_core_second());
            series.costs.push(reading.cost_ns());
        }
        series.counts = plan.counts().since(&first);
        series
    }

    /// Frames, or whatever `kind` counts, for each of what was measured.
    pub fn each(&self, kind: Kind) -> f64 {
        self.counts.get(kind) as f64 / self.counts.get(Kind::Ended) as f64
    }
}
