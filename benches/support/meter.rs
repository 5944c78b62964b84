//! What the server alone used between two moments: processor time of the process, less the share of it spent in the
//! far ends. Time in which the machine ran something else is nobody's, so a busy machine disturbs the figures less.

use super::far::plan::{Counts, Kind, Plan};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Share of the time that threads may be ready without running in a run that counts as undisturbed.
const WAIT_MAX: f64 = 0.02;

/// Threads of this process, as directories of `/proc`.
#[derive(Clone, Debug, Default)]
pub struct Threads(Vec<PathBuf>);

impl Threads {
    /// All threads there are.
    pub fn all() -> Self {
        Self::named("")
    }

    /// Threads whose names begin so.
    fn named(name: &str) -> Self {
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
            return Self::default();
        };
        let begins = |path: &PathBuf| {
            let comm = || std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            name.is_empty() || comm().starts_with(name)
        };
        let tasks = tasks.flatten().map(|task| task.path());
        Self(tasks.filter(begins).collect())
    }

    /// Thread that asks.
    pub fn this() -> Self {
        let id = rustix::thread::gettid().as_raw_nonzero();
        Self(vec![format!("/proc/self/task/{id}").into()])
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

    /// Time that they have run, and time that they were ready and did not, exact to a scheduler tick.
    fn times(&self) -> [Duration; 2] {
        let mut sums = [0; 2];
        for thread in &self.0 {
            let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
            for (sum, word) in sums.iter_mut().zip(text.split(' ')) {
                *sum += word.parse::<u64>().unwrap_or(0);
            }
        }
        sums.map(Duration::from_nanos)
    }
}

/// A running measurement.
pub struct Meter<'a> {
    plan: &'a Plan,
    polling: f64,
    /// Threads of the server; `None`: all there are, as it is the only server.
    threads: Option<&'a Threads>,
    counts: Counts,
    times: [Duration; 2],
    stolen: u64,
    wall: Instant,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub counts: Counts,
    /// Nanoseconds of processor time used by the server.
    pub server_ns: f64,
    pub wall_ns: f64,
    /// True if the host took the processor away, or another program had it while the server was ready.
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
            threads,
            counts: plan.counts(),
            times: times_of(threads),
            stolen: stolen_ticks(),
            wall: Instant::now(),
        }
    }

    pub fn read(&self) -> Reading {
        let wall_ns = self.wall.elapsed().as_nanos() as f64;
        let [cpu_ns, waited_ns] = [0, 1].map(|at| {
            let times = times_of(self.threads);
            times[at].saturating_sub(self.times[at]).as_nanos() as f64
        });
        let counts = self.plan.counts().since(&self.counts);
        let inside_ns = counts.get(Kind::InsideNs) as f64;
        // The far ends are timed by the wall clock. A polling thread never sleeps by itself, so what the threads got
        // of the wall's time is also what the far ends got of theirs.
        let share = (cpu_ns / (wall_ns * self.polling)).min(1.0);
        let server_ns = cpu_ns - inside_ns * share;
        Reading {
            counts,
            server_ns,
            wall_ns,
            // A thread that still waits has waited for nothing yet, as the kernel counts.
            disturbed: stolen_ticks() > self.stolen
                || waited_ns > wall_ns * WAIT_MAX
                || counts.get(Kind::Ended) == 0,
        }
    }
}

fn times_of(threads: Option<&Threads>) -> [Duration; 2] {
    threads.map_or_else(|| Threads::all().times(), Threads::times)
}

/// Ticks that the host took from all processors.
fn stolen_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    let stolen = all.split_ascii_whitespace().nth(8);
    stolen.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
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
    Threads::named(name).times()[0]
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
