//! Servers that stand beside each other and work in turns, so that what the machine does besides comes to all of them
//! alike: a relation of two is one of runs that follow each other. Each is the engine alone or a whole runtime, over
//! IPv4 or IPv6, with connections that it holds or without.

use super::clock::Clock;
use super::engine::{Engine, ahead};
use super::far::packet::Ends;
use super::far::plan::{Counts, Kind, Mode, Phase, Plan};
use super::far::{App, ECHO_LEN};
use super::meter::{Meter, Reading, Series, Threads};
use super::report::{Report, Value, tell};
use super::served::{BODY, Layout, OPEN_WINDOW, Server, begin_once};
use std::sync::Arc;
use std::time::Duration;

/// Longest time that what is in progress takes to end.
const REST_MAX: Duration = Duration::from_secs(5);
/// Longest time that the opening of a window of connections takes.
const OPEN_MAX: Duration = Duration::from_secs(600);

/// Server of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// The engine alone, on the thread that measures.
    Engine,
    /// One core with an async task for each connection.
    Task,
    /// One core with a task of `janus-http` for each connection.
    Http,
    /// A polling core beside a shard with an async task for each connection.
    Split,
    /// One core whose connections rest between requests.
    Rest,
    /// The same with `janus-http`.
    HttpRest,
}

impl Serving {
    pub const ALL: [Self; 6] = [
        Self::Engine,
        Self::Task,
        Self::Http,
        Self::Split,
        Self::Rest,
        Self::HttpRest,
    ];

    pub fn placement(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Task | Self::Http => Layout::COMBINED.name(),
            Self::Rest | Self::HttpRest => "rest",
            Self::Split => Layout::SPLIT.name(),
        }
    }

    fn app(self) -> App {
        match self {
            Self::Http | Self::HttpRest => App::http(BODY),
            Self::Engine | Self::Task | Self::Split | Self::Rest => App::Echo,
        }
    }

    /// Servers whose placements the program's arguments name; all where none is named.
    pub fn wanted() -> Vec<Self> {
        let named: Vec<String> = std::env::args().skip(1).collect();
        let is_named = |serving: &Self| named.iter().any(|arg| arg == serving.placement());
        let some: Vec<Self> = Self::ALL.into_iter().filter(is_named).collect();
        if some.is_empty() {
            Self::ALL.to_vec()
        } else {
            some
        }
    }
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub serving: Serving,
    /// True over IPv6.
    pub six: bool,
    /// Connections that it holds.
    pub held: u32,
    /// True if the server ends a connection with its first answer.
    pub ends_first: bool,
    /// True on a wire with timestamps.
    pub timestamps: bool,
    /// Bytes of an answer of an echo server; all behind the first [`ECHO_LEN`] are a filler.
    pub answer: u32,
}

impl Cell {
    fn app(&self) -> App {
        match self.serving.app() {
            App::Echo if self.answer > ECHO_LEN as u32 => App::Sized(self.answer),
            app => app,
        }
    }

    pub fn params(&self) -> Vec<(&'static str, Value)> {
        let mut params = vec![
            ("placement", self.serving.placement().into()),
            ("app", self.serving.app().name().into()),
            ("ip", if self.six { 6u32 } else { 4 }.into()),
        ];
        if self.ends_first {
            params.push(("first", "server".into()));
        }
        params
    }
}

/// Program behind a side.
enum Behind {
    Bare(Box<Engine>),
    Whole(Server),
}

/// One server, and its far end.
pub struct Side {
    pub cell: Cell,
    pub plan: Arc<Plan>,
    server: Behind,
    threads: Threads,
    /// Connections and requests that never ended.
    unfinished: u64,
}

impl Side {
    /// Reports what was measured of this side, for each `piece` of its work.
    pub fn rows(
        &self,
        report: &mut Report,
        piece: &str,
        series: &Series,
        about: &[(&'static str, Value)],
    ) {
        let params = [&self.cell.params()[..], about].concat();
        let Series {
            rates,
            costs,
            disturbed,
            ..
        } = series;
        let (rate, cost) = (format!("{piece}_per_s"), format!("server_ns_per_{piece}"));
        report.medians(&rate, rates, disturbed, "1/s", &params);
        report.medians(&cost, costs, disturbed, "ns", &params);
        // Of this server since it began.
        report.row("bad_answers", self.bad() as f64, "count", &params);
        let packets = format!("packets_per_{piece}");
        for (dir, frames) in [("rx", Kind::FramesIn), ("tx", Kind::FramesOut)] {
            let params = [&params[..], &[("dir", dir.into())]].concat();
            report.row(&packets, series.each(frames), "count", &params);
        }
    }

    /// Starts a server that holds no connection yet.
    pub fn start(cell: Cell) -> Self {
        let before = Threads::all();
        let ends = Ends {
            six: cell.six,
            timestamps: cell.timestamps,
            ..Ends::default()
        };
        let layout = match cell.serving {
            Serving::Split => Layout::SPLIT,
            _ => Layout::COMBINED,
        };
        let app = cell.app();
        let (server, plan) = if cell.serving == Serving::Engine {
            let (mut engine, plan) = Engine::start_answering(ends, app, cell.held, &ahead());
            engine.ends_first = cell.ends_first;
            // No timer comes due while other sides work.
            engine.clock = Clock::patient();
            (Behind::Bare(Box::new(engine)), plan)
        } else {
            let rests = matches!(cell.serving, Serving::Rest | Serving::HttpRest);
            let server = match (cell.ends_first, rests) {
                (true, _) => {
                    Server::start_between(ends, layout, app, cell.held, |it| it, begin_once)
                }
                (false, false) => Server::start_at(ends, layout, app, cell.held),
                (false, true) => Server::start_resting(ends, layout, app, cell.held),
            };
            let plan = Arc::clone(&server.plan);
            (Behind::Whole(server), plan)
        };
        plan.set_interleaved();
        let mut threads = Threads::all().without(&before);
        if cell.serving == Serving::Engine {
            threads = threads.and(Threads::this());
        }
        Self {
            cell,
            plan,
            server,
            threads,
            unfinished: 0,
        }
    }

    /// Threads that poll.
    fn polling(&self) -> usize {
        match &self.server {
            Behind::Bare(_) => 1,
            Behind::Whole(server) => server.layout.threads(),
        }
    }

    /// Goes on with what the plan says until `done`, at most `limit`. Returns whether it was done.
    fn work(&mut self, limit: Duration, done: impl Fn(&Counts) -> bool) -> bool {
        let plan = &self.plan;
        match &mut self.server {
            Behind::Bare(engine) => engine.run(limit, |_| done(&plan.counts())),
            Behind::Whole(server) => server.wait(limit, done),
        }
    }

    fn work_for(&mut self, time: Duration) {
        match &mut self.server {
            Behind::Bare(engine) => _ = engine.run(time, |_| false),
            Behind::Whole(_) => std::thread::sleep(time),
        }
    }

    /// Opens the connections that it holds, one request on each. Returns the nanoseconds that a connection took, window by
    /// window of so many.
    pub fn open(&mut self, window: u32) -> Vec<f64> {
        if let Behind::Whole(server) = &self.server
            && self.cell.held > 0
        {
            server.open_first();
        }
        self.plan.set(Phase {
            mode: Mode::Open,
            window: OPEN_WINDOW,
            held: self.cell.held,
        });
        let (mut costs, mut opened) = (Vec::new(), 0);
        while opened < self.cell.held {
            opened = self.cell.held.min(opened + window);
            let (plan, threads) = (Arc::clone(&self.plan), self.threads.clone());
            let meter = Meter::start_for(&plan, self.polling(), &threads);
            let enough = |counts: &Counts| counts.get(Kind::Ended) >= u64::from(opened);
            assert!(self.work(OPEN_MAX, enough), "{}", self.state());
            costs.push(meter.read().cost_ns());
        }
        self.rest();
        costs
    }

    /// Begins nothing more, and lets end what is in progress.
    fn rest(&mut self) {
        self.plan.set(Phase {
            mode: Mode::Idle,
            window: 0,
            held: self.cell.held,
        });
        let known = self.unfinished;
        self.work(REST_MAX, |counts| counts.in_progress() == known);
        self.unfinished = self.plan.counts().in_progress();
        // Without the last acknowledgements the server would send again when its next turn comes.
        if let Behind::Bare(engine) = &mut self.server {
            engine.run(REST_MAX, |engine| !engine.far.has_work());
        }
    }

    /// Does for a while what `mode` says, with so many at a time, after `warm`.
    pub fn run(&mut self, mode: Mode, window: u32, warm: Duration, time: Duration) -> Reading {
        self.plan.set(Phase {
            mode,
            window,
            held: self.cell.held,
        });
        // Caches and predictors are the last side's.
        self.work_for(warm);
        let (plan, threads) = (Arc::clone(&self.plan), self.threads.clone());
        let meter = Meter::start_for(&plan, self.polling(), &threads);
        self.work_for(time);
        let reading = meter.read();
        self.rest();
        reading
    }

    /// Makes one request on each connection that it holds, so many at a time. Returns what that took, and how many were answered.
    pub fn touch_all(&mut self, window: u32) -> (Reading, u64) {
        let all = u64::from(self.cell.held);
        self.plan.set(Phase {
            mode: Mode::Requests,
            window,
            held: self.cell.held,
        });
        let (plan, threads) = (Arc::clone(&self.plan), self.threads.clone());
        let meter = Meter::start_for(&plan, self.polling(), &threads);
        let before = plan.counts().get(Kind::Ended);
        // In turn: none is used twice before all are once.
        self.work(OPEN_MAX, |counts| counts.get(Kind::Ended) - before >= all);
        let reading = meter.read();
        self.rest();
        (reading, reading.counts.get(Kind::Ended).min(all))
    }

    /// Wrong answers so far, and what never ended, or ended twice as the server sent an answer again.
    pub fn bad(&self) -> u64 {
        self.plan.counts().bad() + self.unfinished.cast_signed().unsigned_abs() + self.missing()
    }

    /// Bytes of long answers that never came, while nothing is in progress.
    fn missing(&self) -> u64 {
        (-self.surplus()).max(0).cast_unsigned()
    }

    /// Bytes of long answers that came beyond those that were asked for, while nothing is in progress: a server that stood
    /// still for longer than its timers sends again.
    pub fn surplus(&self) -> i64 {
        let App::Sized(len) = self.cell.app() else {
            return 0;
        };
        let counts = self.plan.counts();
        let all = counts.get(Kind::Ended) * u64::from(len);
        counts
            .get(Kind::AnswerBytes)
            .wrapping_sub(all)
            .cast_signed()
    }

    fn state(&self) -> String {
        let counts = self.plan.counts();
        match &self.server {
            Behind::Bare(engine) => format!("{counts:?} {:?}", engine.stack.counters()),
            Behind::Whole(server) => format!("{counts:?} {:?}", server.reports()),
        }
    }

    /// Ends the server; what was wrong with its answers is told.
    pub fn stop(self) {
        if self.bad() > 0 {
            eprintln!("wrong answers ({:?}): {}", self.cell, self.state());
        }
        if let Behind::Whole(server) = self.server {
            server.stop();
        }
    }
}

/// Number of runs of each side, and their length.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub runs: usize,
    pub time: Duration,
}

impl Rounds {
    /// Lets all sides do in turns what `mode` says; one series of each.
    pub fn take(&self, sides: &mut [&mut Side], mode: Mode, window: u32) -> Vec<Series> {
        let mut all: Vec<Series> = sides.iter().map(|_| Series::default()).collect();
        // The first round warms up.
        for round in 0..=self.runs {
            let servers = sides.len();
            tell(|| {
                format!(
                    "{servers} servers, {window} at a time, round {round} of {}",
                    self.runs
                )
            });
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let reading = sides[at].run(mode, window, self.time / 8, self.time);
                if round > 0 {
                    all[at].add(&reading);
                }
            }
        }
        all
    }
}

/// Reports the cost of `above` over that of `below`, round by round.
pub fn relation(
    report: &mut Report,
    name: &str,
    [above, below]: [&Series; 2],
    params: &[(&str, Value)],
) {
    let ratios: Vec<f64> = above
        .costs
        .iter()
        .zip(&below.costs)
        .map(|(above, below)| above / below)
        .collect();
    let disturbed: Vec<bool> = above
        .disturbed
        .iter()
        .zip(&below.disturbed)
        .map(|(above, below)| *above || *below)
        .collect();
    let params = [&[("of", name.into())], params].concat();
    report.medians("relation", &ratios, &disturbed, "ratio", &params);
}
