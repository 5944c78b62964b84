//! The cells: which sides take part in which work.

use crate::behind::Behind;
use crate::lwip::{LwipEcho, LwipStreams};
use crate::rounds::{Metric, Rounds, skipped};
use crate::side::{Figure, OnKernel, OnThread, Runtime, Side, retried};
use crate::smol::{SmolEcho, SmolStreams};
use crate::support::clock::Clock;
use crate::support::engine::Engine;
use crate::support::far::ECHO_LEN;
use crate::support::far::packet::Ends;
use crate::support::far::plan::{Mode, Phase};
use crate::support::kernel::Kernel;
use crate::support::meter::{Span, Threads};
use crate::support::report::{Report, Value};
use crate::support::side::{Cell, Serving};
use crate::support::stream::{Dir, Janus, Server, Streams};
use crate::{FEW, OPEN_MAX, OPEN_PEER_MAX, loops};
use std::time::Duration;

/// Requests in progress at a time, over however many connections.
const REQUESTS: u32 = 256;
/// Name of smoltcp on the cell that the project's aims compare with.
const REFERENCE: &str = "smoltcp, reference";

/// What all sides of a cell do.
#[derive(Clone, Copy)]
pub struct Work {
    phase: Phase,
    timestamps: bool,
}

impl Work {
    /// Short connections, so many at a time.
    pub fn short(window: u32, timestamps: bool) -> Self {
        let phase = Phase {
            mode: Mode::Short,
            window,
            held: 0,
        };
        Self { phase, timestamps }
    }

    /// Echo requests over so many connections.
    pub fn echo(conns: u32, timestamps: bool) -> Self {
        let phase = Phase {
            mode: Mode::Requests,
            window: conns.min(REQUESTS),
            held: conns,
        };
        Self { phase, timestamps }
    }

    /// The cell that the project's aims compare with.
    fn reference(self) -> Self {
        match self.phase.mode {
            Mode::Short => Self::short(16, false),
            _ => Self::echo(64, false),
        }
    }

    fn ends(self) -> Ends {
        ends(self.timestamps)
    }

    fn params(self) -> Vec<(&'static str, Value)> {
        let (work, number, count) = match self.phase.mode {
            Mode::Short => ("short", "window", self.phase.window),
            _ => ("echo", "conns", self.phase.held),
        };
        vec![
            ("work", work.into()),
            (number, count.into()),
            ("timestamps", yes_or_no(self.timestamps)),
        ]
    }

    fn engine(self) -> Box<dyn Side> {
        let (mut engine, plan) = Engine::start_at(self.ends(), self.phase.held);
        engine.clock = Clock::patient();
        let side = OnThread::open("janus engine", (engine, plan), self.phase, OPEN_MAX);
        side.unwrap_or_else(|why| panic!("{why}"))
    }

    fn runtime(self) -> Box<dyn Side> {
        self.served("janus runtime", Serving::Task)
    }

    fn served(self, name: &'static str, serving: Serving) -> Box<dyn Side> {
        let cell = Cell {
            serving,
            six: false,
            held: self.phase.held,
            ends_first: false,
            timestamps: self.timestamps,
            answer: ECHO_LEN as u32,
        };
        Runtime::open(name, cell, self.phase)
    }

    fn smoltcp(self, name: &'static str) -> Result<Box<dyn Side>, String> {
        let (held, window) = (self.phase.held, self.phase.window);
        let server = SmolEcho::new(&self.ends(), held, window);
        let behind = Behind::new(server, self.ends(), held);
        Ok(OnThread::open(name, behind, self.phase, OPEN_PEER_MAX)?)
    }

    fn lwip(self) -> Result<Box<dyn Side>, String> {
        let behind = Behind::new(LwipEcho::new(&self.ends())?, self.ends(), self.phase.held);
        Ok(OnThread::open("lwip", behind, self.phase, OPEN_PEER_MAX)?)
    }
}

fn ends(timestamps: bool) -> Ends {
    if timestamps {
        Ends::default()
    } else {
        Ends::without_timestamps()
    }
}

fn yes_or_no(is: bool) -> Value {
    if is { "yes" } else { "no" }.into()
}

/// Compares the stacks in memory.
pub fn in_memory(report: &mut Report, work: Work, rounds: Rounds) {
    let params = work.params();
    let mut sides = vec![work.engine()];
    // The far end sends no SYN again.
    if work.phase.mode == Mode::Short && work.phase.window > FEW {
        let why = "so many SYNs at once are a flood to a runtime, which sheds some";
        skipped(report, &params, "janus runtime", why);
    } else {
        sides.push(work.runtime());
    }
    sides.push(
        work.reference()
            .smoltcp(REFERENCE)
            .expect("few connections"),
    );
    let mut peer = |name, side: Result<Box<dyn Side>, String>| match side {
        Ok(side) => sides.push(side),
        Err(why) => skipped(report, &params, name, &why),
    };
    if work.phase.held <= FEW {
        peer("smoltcp", work.smoltcp("smoltcp"));
    }
    if !work.timestamps {
        peer("lwip", work.lwip());
    }
    rounds.compare(report, Metric::Ns, &params, sides);
}

/// Compares short connections that carry a request and a response of HTTP with the reference.
pub fn http(report: &mut Report, rounds: Rounds) {
    let work = Work::short(64, true);
    let mut params = work.params();
    params[0].1 = "short, http".into();
    let http = work.served("janus runtime, http", Serving::Http);
    let reference = work.reference().smoltcp(REFERENCE).expect("no connections");
    rounds.compare(report, Metric::Ns, &params, vec![http, reference]);
}

/// Compares with servers over the kernel's sockets.
pub fn kernel(report: &mut Report, work: Work, rounds: Rounds) {
    let mut params = work.params();
    params.push(("sockets", "kernel".into()));
    let (driver, monoio) = loops::monoio();
    let sides = vec![
        work.engine(),
        work.runtime(),
        OnKernel::new("tokio", Kernel::tokio(), work.phase),
        OnKernel::new("epoll", loops::epoll(), work.phase),
        OnKernel::new(driver, monoio, work.phase),
    ];
    rounds.compare(report, Metric::Ns, &params, sides);
}

/// Streams of one direction as a side.
struct Bulk<S> {
    name: &'static str,
    streams: Streams<S>,
    dir: Dir,
}

impl<S: Server + 'static> Bulk<S> {
    fn open(name: &'static str, server: S, ends: Ends, conns: usize, dir: Dir) -> Box<dyn Side> {
        let mut streams = Streams::on(server, ends, conns);
        streams.open();
        Box::new(Self { name, streams, dir })
    }
}

impl<S: Server> Side for Bulk<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn measure(&mut self, warm: Duration, time: Duration) -> Figure {
        self.streams.run(self.dir, warm);
        let this = Threads::this();
        let rate = retried(|| {
            let span = Span::start(Some(&this));
            let (bytes, server_ns) = self.streams.run(self.dir, time);
            (span.read().disturbed, bytes * 8.0 / server_ns)
        });
        rate.into()
    }

    fn bad(&self) -> u64 {
        self.streams.app.wrong
    }
}

/// Compares bulk data in and out.
pub fn streams(report: &mut Report, conns: usize, timestamps: bool, rounds: Rounds) {
    for dir in [Dir::Rx { lent: false }, Dir::Rx { lent: true }, Dir::Tx] {
        let work = match dir {
            Dir::Rx { lent: false } => "bulk in, copied",
            Dir::Rx { lent: true } => "bulk in, lent",
            Dir::Tx => "bulk out",
        };
        let params = vec![
            ("work", work.into()),
            ("conns", conns.into()),
            ("timestamps", yes_or_no(timestamps)),
        ];
        let between = ends(timestamps);
        let bulk = |name, server| Bulk::open(name, server, between.clone(), conns, dir);
        let mut sides = vec![bulk("janus engine", Janus::new(&between))];
        let smoltcp = SmolStreams::new(&between, conns);
        sides.push(Bulk::open("smoltcp", smoltcp, between.clone(), conns, dir));
        if !timestamps {
            match LwipStreams::new(&between) {
                Ok(lwip) => sides.push(Bulk::open("lwip", lwip, between.clone(), conns, dir)),
                Err(why) => skipped(report, &params, "lwip", &why),
            }
        }
        rounds.compare(report, Metric::Gbit, &params, sides);
    }
}
