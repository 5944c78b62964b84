//! What the server alone used between two moments: processor time of the process, less the share of it spent in the
//! far ends. Time in which the machine ran something else is nobody's, so a busy machine disturbs the figures less.

use super::far::plan::{Counts, Kind, Plan};
use super::witness::threads::stolen_ticks;
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Share of the time that threads may be ready without running in a run that counts as undisturbed.
pub const WAIT_MAX: f64 = 0.02;
/// The kind of a clock that is a thread's processor time, in the kernel's encoding of clocks: `CPUCLOCK_PERTHREAD_MASK` and
/// `CPUCLOCK_SCHED`.
const OF_THREAD: i32 = 4 | 2;
/// The threads of this process.
const TASKS: &str = "/proc/self/task";

/// Threads of this process, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Threads(Vec<i32>);

impl Threads {
    /// All threads there are.
    pub fn all() -> Self {
        Self::named("")
    }

    /// Threads whose names begin so.
    fn named(name: &str) -> Self {
        let Ok(tasks) = std::fs::read_dir(TASKS) else {
            return Self::default();
        };
        let begins = |task: &std::fs::DirEntry| {
            let comm = || std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            name.is_empty() || comm().starts_with(name)
        };
        let tasks = tasks.flatten().filter(begins);
        Self(
            tasks
                .filter_map(|task| task.file_name().to_str()?.parse().ok())
                .collect(),
        )
    }

    /// Thread that asks.
    pub fn this() -> Self {
        Self(vec![rustix::thread::gettid().as_raw_nonzero().get()])
    }

    /// Removes those that are among `others`.
    pub fn without(mut self, others: &Self) -> Self {
        self.0.retain(|thread| !others.0.contains(thread));
        self
    }

    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Time that those of them have run that still do, to the nanosecond: what `/proc` tells of a thread that runs is as old as
    /// the last tick.
    fn ran(&self) -> Duration {
        let clocks = self
            .0
            .iter()
            .map(|thread| ClockId::from_raw(!thread << 3 | OF_THREAD));
        clocks
            .filter_map(|clock| clock_gettime(clock).ok())
            .map(Duration::from)
            .sum()
    }

    /// Time that they were ready and did not run. A thread that still waits has waited for nothing yet, as the kernel counts.
    fn waited(&self) -> Duration {
        let waited = |thread: &i32| {
            let text = std::fs::read_to_string(format!("{TASKS}/{thread}/schedstat")).ok()?;
            text.split(' ').nth(1)?.parse::<u64>().ok()
        };
        Duration::from_nanos(self.0.iter().filter_map(waited).sum())
    }
}

/// A while of some threads.
pub struct Span<'a> {
    /// `None`: all there are, as they are one server's.
    threads: Option<&'a Threads>,
    ran: Duration,
    waited: Duration,
    stolen: u64,
    wall: Instant,
}

/// What a while was.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub wall_ns: f64,
    /// Nanoseconds of processor time, of all threads together.
    pub cpu_ns: f64,
    /// Nanoseconds in which they were ready and did not run, of all together.
    pub waited_ns: f64,
    /// True if the host took the processor away.
    pub stolen: bool,
    /// True if the host took the processor away, or another program had it while the threads were ready.
    pub disturbed: bool,
}

impl<'a> Span<'a> {
    pub fn start(threads: Option<&'a Threads>) -> Self {
        let all = or_all(threads);
        Self {
            threads,
            waited: all.waited(),
            stolen: stolen_ticks(),
            ran: all.ran(),
            wall: Instant::now(),
        }
    }

    pub fn read(&self) -> Spent {
        let wall_ns = self.wall.elapsed().as_nanos() as f64;
        let all = or_all(self.threads);
        let cpu_ns = all.ran().saturating_sub(self.ran).as_nanos() as f64;
        let waited_ns = all.waited().saturating_sub(self.waited).as_nanos() as f64;
        let stolen = stolen_ticks() > self.stolen;
        Spent {
            wall_ns,
            cpu_ns,
            waited_ns,
            stolen,
            disturbed: stolen || waited_ns > wall_ns * WAIT_MAX,
        }
    }
}

fn or_all(threads: Option<&Threads>) -> Threads {
    threads.cloned().unwrap_or_else(Threads::all)
}

/// A running measurement.
pub struct Meter<'a> {
    plan: &'a Plan,
    polling: f64,
    counts: Counts,
    span: Span<'a>,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub counts: Counts,
    /// Nanoseconds of processor time used by the server.
    pub server_ns: f64,
    pub wall_ns: f64,
    /// Share of the wall's time that the threads got.
    pub share: f64,
    /// True if the machine was not the server's alone, or nothing ended.
    pub disturbed: bool,
}

impl<'a> Meter<'a> {
    /// With this many threads polling: shards and I/O cores.
    pub fn start(plan: &'a Plan, polling: usize) -> Self {
        Self::begin(plan, polling, None)
    }

    /// Begins to measure one server of several in this process, which has these threads.
    pub fn start_for(plan: &'a Plan, polling: usize, threads: &'a Threads) -> Self {
        Self::begin(plan, polling, Some(threads))
    }

    fn begin(plan: &'a Plan, polling: usize, threads: Option<&'a Threads>) -> Self {
        Self {
            plan,
            polling: polling as f64,
            counts: plan.counts(),
            span: Span::start(threads),
        }
    }

    pub fn read(&self) -> Reading {
        let Spent {
            wall_ns,
            cpu_ns,
            disturbed,
            ..
        } = self.span.read();
        let counts = self.plan.counts().since(&self.counts);
        let inside_ns = counts.get(Kind::InsideNs) as f64;
        // The far ends are timed by the wall clock. A polling thread never sleeps by itself, so what the threads got
        // of the wall's time is also what the far ends got of theirs.
        let share = (cpu_ns / (wall_ns * self.polling)).min(1.0);
        Reading {
            counts,
            server_ns: cpu_ns - inside_ns * share,
            wall_ns,
            share,
            disturbed: disturbed || counts.get(Kind::Ended) == 0,
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

/// Processor time of the threads whose names begin so.
pub fn thread_cpu(name: &str) -> Duration {
    Threads::named(name).ran()
}

/// Several measurements of the same thing.
#[derive(Default)]
pub struct Series {
    /// How many a second of one core's time.
    pub rates: Vec<f64>,
    /// Nanoseconds of server time for each.
    pub costs: Vec<f64>,
    /// True for each run in which the machine was not the server's alone.
    pub disturbed: Vec<bool>,
    /// What was counted in all of them together.
    pub counts: Counts,
}

impl Series {
    /// Measures `runs` times; `run` lets the server work for a while.
    pub fn take(plan: &Plan, threads: usize, runs: usize, mut run: impl FnMut()) -> Self {
        let mut series = Self::default();
        for _ in 0..runs {
            let meter = Meter::start(plan, threads);
            run();
            series.add(&meter.read());
        }
        series
    }

    pub fn add(&mut self, reading: &Reading) {
        self.rates.push(reading.per_core_second());
        self.costs.push(reading.cost_ns());
        self.disturbed.push(reading.disturbed);
        self.counts.add_all(&reading.counts);
    }

    /// Frames, or whatever `kind` counts, for each of what was measured.
    pub fn each(&self, kind: Kind) -> f64 {
        self.counts.get(kind) as f64 / self.counts.get(Kind::Ended) as f64
    }
}
