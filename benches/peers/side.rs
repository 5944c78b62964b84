//! The sides of a comparison. Each measures itself for a while when its turn comes and rests meanwhile; a round is a turn of
//! every side, so the figures of a round are of about the same moment.

use crate::behind::{BURST, Turns};
use crate::support::far::plan::{Kind, Mode, Phase, Plan};
use crate::support::kernel::{Kernel, Load};
use crate::support::meter::{Meter, Reading, Threads};
use crate::support::served::OPEN_WINDOW;
use crate::support::side::{Cell, Side as Whole};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for what is in progress to end.
const REST_MAX: Duration = Duration::from_secs(2);
/// Longest time for a wave of short connections.
const WAVE_MAX: Duration = Duration::from_secs(5);
/// Turns between two looks at the clock.
const TURNS: u32 = 16;
/// How often a server is measured until the machine is its alone.
const TRIES: usize = 4;
/// A runtime is told on another thread what to do, so it is measured for longer.
const RUNTIME_TIMES: u32 = 3;

/// What one turn of a side gave.
#[derive(Clone, Copy)]
pub struct Figure {
    /// Nanoseconds of the server for a piece of work, or Gbit/s of a stream.
    pub value: f64,
    /// Nanoseconds of the server and its client, where the kernel works for both.
    pub both_ns: Option<f64>,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self {
            value,
            both_ns: None,
        }
    }
}

/// A server in a comparison.
pub trait Side {
    fn name(&self) -> &'static str;
    /// Works for `warm`, then for `time`, and rests.
    fn measure(&mut self, warm: Duration, time: Duration) -> Figure;
    /// Returns the number of wrong and missing answers up to now.
    fn bad(&self) -> u64;
    /// Ends the server, where it does not end by itself.
    fn stop(self: Box<Self>) {}
}

/// Whether a side is Janus's.
pub fn is_janus(name: &str) -> bool {
    name.starts_with("janus")
}

/// Returns the nanoseconds for a piece of work that `measure` reads, again where the machine ran something else meanwhile: the far
/// end's part is not known well then.
fn undisturbed(mut measure: impl FnMut() -> Reading) -> f64 {
    retried(|| {
        let reading = measure();
        (reading.disturbed, reading.cost_ns())
    })
}

/// Returns the figure of a measurement that also says whether it was disturbed, after as many tries as that takes.
pub fn retried(mut measure: impl FnMut() -> (bool, f64)) -> f64 {
    let (mut disturbed, mut figure) = measure();
    for _ in 1..TRIES {
        if !disturbed {
            break;
        }
        (disturbed, figure) = measure();
    }
    figure
}

/// A server on this thread behind the load generator.
pub struct OnThread<T> {
    name: &'static str,
    bench: T,
    plan: Arc<Plan>,
    phase: Phase,
    unfinished: u64,
}

impl<T: Turns> OnThread<T> {
    /// Opens what `phase` holds. The error says how far that came within `limit`.
    pub fn open(
        name: &'static str,
        (bench, plan): (T, Arc<Plan>),
        phase: Phase,
        limit: Duration,
    ) -> Result<Box<Self>, String> {
        plan.set_interleaved();
        let mut side = Self {
            name,
            bench,
            plan,
            phase,
            unfinished: 0,
        };
        if phase.held > 0 {
            side.plan.set(Phase {
                mode: Mode::Open,
                window: OPEN_WINDOW.min(phase.window.max(1)),
                held: phase.held,
            });
            let opened = |plan: &Plan| plan.counts().get(Kind::Ended);
            if !side.run(limit, TURNS, |plan| opened(plan) >= u64::from(phase.held)) {
                return Err(format!(
                    "{} of {} connections opened in {} s, {} wrong answers",
                    opened(&side.plan),
                    phase.held,
                    limit.as_secs_f64(),
                    side.plan.counts().bad()
                ));
            }
        }
        Ok(Box::new(side))
    }

    /// Turns until `done` says so, asked every `turns`; false when that is not within `limit`.
    fn run(&mut self, limit: Duration, turns: u32, done: impl Fn(&Plan) -> bool) -> bool {
        let start = Instant::now();
        while !done(&self.plan) {
            for _ in 0..turns {
                self.bench.turn();
            }
            if start.elapsed() > limit {
                return done(&self.plan);
            }
        }
        true
    }

    /// Lets end what is in progress, and delivers the last acknowledgements: a server that rested without them would send again.
    fn rest(&mut self) {
        let left = |plan: &Plan| plan.counts().in_progress() as i64;
        self.run(REST_MAX, TURNS, |plan| left(plan) <= 0);
        self.unfinished = left(&self.plan).unsigned_abs();
        for _ in 0..=self.phase.window as usize / BURST {
            self.bench.turn();
        }
    }

    fn ended(&self) -> u64 {
        self.plan.counts().get(Kind::Ended)
    }

    /// Works on until a whole number of windows has ended since `first`: those begun together go through their lives together,
    /// and a part of such a wave is not like the whole.
    fn finish_wave(&mut self, first: u64) {
        let window = u64::from(self.phase.window);
        let whole = first + (self.ended() - first).div_ceil(window).max(1) * window;
        self.run(WAVE_MAX, 1, |plan| plan.counts().get(Kind::Ended) >= whole);
    }
}

impl<T: Turns> Side for OnThread<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn measure(&mut self, warm: Duration, time: Duration) -> Figure {
        let first = self.ended();
        self.plan.set(self.phase);
        self.run(warm, TURNS, |_| false);
        self.finish_wave(first);
        let (plan, this) = (Arc::clone(&self.plan), Threads::this());
        let cost = undisturbed(|| {
            let first = self.ended();
            let meter = Meter::start_for(&plan, 1, &this);
            self.run(time, TURNS, |_| false);
            self.finish_wave(first);
            meter.read()
        });
        self.plan.set(Phase {
            mode: Mode::Idle,
            ..self.phase
        });
        self.rest();
        cost.into()
    }

    fn bad(&self) -> u64 {
        self.plan.counts().bad() + self.unfinished
    }
}

/// Janus's runtime with a task for each connection, on a thread of its own.
pub struct Runtime {
    name: &'static str,
    whole: Whole,
    phase: Phase,
}

impl Runtime {
    pub fn open(name: &'static str, cell: Cell, phase: Phase) -> Box<Self> {
        let mut whole = Whole::start(cell);
        whole.open(phase.held);
        Box::new(Self { name, whole, phase })
    }
}

impl Side for Runtime {
    fn name(&self) -> &'static str {
        self.name
    }

    fn measure(&mut self, warm: Duration, time: Duration) -> Figure {
        let Phase { mode, window, .. } = self.phase;
        undisturbed(|| self.whole.run(mode, window, warm, time * RUNTIME_TIMES)).into()
    }

    fn bad(&self) -> u64 {
        self.whole.bad()
    }

    fn stop(self: Box<Self>) {
        self.whole.stop();
    }
}

/// A server over the kernel's sockets.
pub struct OnKernel {
    name: &'static str,
    server: Kernel,
    load: Load,
    wrong: u64,
}

impl OnKernel {
    pub fn new(name: &'static str, server: Kernel, phase: Phase) -> Box<Self> {
        let load = Load {
            mode: phase.mode,
            window: phase.window,
            held: phase.held,
        };
        Box::new(Self {
            name,
            server,
            load,
            wrong: 0,
        })
    }
}

impl Side for OnKernel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn measure(&mut self, warm: Duration, time: Duration) -> Figure {
        let cost = self.server.cost(self.load, warm, time);
        self.wrong += cost.wrong;
        Figure {
            value: cost.server_ns,
            both_ns: Some(cost.both_ns),
        }
    }

    fn bad(&self) -> u64 {
        self.wrong
    }
}
