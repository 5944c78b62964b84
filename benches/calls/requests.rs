//! An echo server as plain programs are: it waits by epoll, reads what came and sends it back. The load is the generator of `rps`, called
//! where the device is asked, and its time is left out in the same way for all. Each way has what the one before it has, and more:
//! `sockets` are the calls of `janus-posix` over the engine; `core` the same on a runtime's core that the thread has to itself, where each
//! call reads the clock; `at_once`, where each answer leaves at the end of its call, as a process's does; `locked`, with a lock around each
//! call; `process` all that a process has. `relation` is what a request takes on one over what it takes on the other, round by round;
//! `guardian_ns_per_req` what of it is the processor time of threads beside the server's.
//! Each visit to the generator costs a reading of the clock that is not left out, and what sends at once visits it for each answer:
//! `at_once_over_core` has that in it, the relations above it do not.
//! Sides take turns; a row is the median of rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_posix::{EpollEvent, Errno};

use crate::support::Scale;
use crate::support::far::packet::Ends;
use crate::support::far::plan::{Counts, Kind, Mode, Phase, Plan};
use crate::support::meter::{Meter, Series, Span, Threads};
use crate::support::report::{Report, Value};
use crate::support::served::OPEN_WINDOW;
use crate::support::side::relation;
use crate::ways::{Calls, start};

const NAMES: [&str; 5] = ["sockets", "core", "at_once", "locked", "process"];
const RELATIONS: [(&str, usize, usize); 6] = [
    ("core_over_sockets", 1, 0),
    ("at_once_over_core", 2, 1),
    ("locked_over_at_once", 3, 2),
    ("process_over_locked", 4, 3),
    ("process_over_at_once", 4, 2),
    ("process_over_sockets", 4, 0),
];
/// Requests in progress at a time.
const WINDOW: u32 = 256;
const EVENTS: usize = 512;
/// Rounds of calls between two looks at the time.
const LOOK_EVERY: usize = 16;
const OPEN_MAX: Duration = Duration::from_secs(60);
const REST_MAX: Duration = Duration::from_secs(5);
/// After the last answer: acknowledgements are still under way.
const REST: Duration = Duration::from_millis(5);

/// A server and its load.
struct Server {
    calls: Box<dyn Calls>,
    plan: Arc<Plan>,
    /// Threads that it started.
    beside: Threads,
    listener: i32,
    epoll: i32,
    events: Vec<EpollEvent>,
    held: u32,
    series: Series,
    beside_ns: Vec<f64>,
}

impl Server {
    fn new(name: &str, held: u32) -> Result<Server, Errno> {
        let (before, ends) = (Threads::all(), Ends::default());
        let (mut calls, plan) = start(name, &ends, held);
        plan.set_interleaved();
        let beside = Threads::all().without(&before);
        let listener = calls.listen(ends.listen_at())?;
        let epoll = calls.epoll_create()?;
        calls.epoll_add(epoll, listener)?;
        let mut server = Server {
            calls,
            plan,
            beside,
            listener,
            epoll,
            events: vec![EpollEvent::default(); EVENTS],
            held,
            series: Series::default(),
            beside_ns: Vec::new(),
        };
        server.switch(Mode::Open, OPEN_WINDOW);
        let all = |counts: &Counts| counts.get(Kind::Ended) >= u64::from(held);
        assert!(
            server.work(OPEN_MAX, all)?,
            "{name}: {:?}",
            server.plan.counts()
        );
        server.rest()?;
        Ok(server)
    }

    fn switch(&self, mode: Mode, window: u32) {
        let held = self.held;
        self.plan.set(Phase { mode, window, held });
    }

    /// Serves until `done`, at most `limit`. Whether it was done.
    fn work(&mut self, limit: Duration, done: impl Fn(&Counts) -> bool) -> Result<bool, Errno> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            for _ in 0..LOOK_EVERY {
                self.serve()?;
            }
            if done(&self.plan.counts()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One wait, and what it brings.
    fn serve(&mut self) -> Result<(), Errno> {
        let told = self.calls.epoll_wait(self.epoll, &mut self.events)?;
        let mut data = [0; 2_048];
        for at in 0..told {
            let fd = self.events[at].data as i32;
            if fd == self.listener {
                self.accept()?;
                continue;
            }
            match self.calls.recv(fd, &mut data)? {
                0 => self.calls.close(fd)?,
                got => _ = self.calls.send(fd, &data[..got])?,
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<(), Errno> {
        loop {
            match self.calls.accept(self.listener) {
                Ok(new) => self.calls.epoll_add(self.epoll, new)?,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins nothing more, and lets end what is in progress.
    fn rest(&mut self) -> Result<(), Errno> {
        self.switch(Mode::Idle, 0);
        self.work(REST_MAX, |counts| counts.in_progress() == 0)?;
        self.work(REST, |_| false).map(|_| ())
    }

    fn round(&mut self, time: Duration, counts: bool) -> Result<(), Errno> {
        self.switch(Mode::Requests, WINDOW.min(self.held));
        // Caches and predictors are the last side's.
        self.work(time / 8, |_| false)?;
        let (plan, beside) = (Arc::clone(&self.plan), self.beside.clone());
        let threads = beside.clone().and(Threads::this());
        let (meter, span) = (
            Meter::start_for(&plan, 1, &threads),
            Span::start(Some(&beside)),
        );
        self.work(time, |_| false)?;
        let (reading, spent) = (meter.read(), span.read());
        if counts {
            self.series.add(&reading);
            self.beside_ns.push(spent.cpu_ns / reading.ended());
        }
        self.rest()
    }

    fn rows(&self, report: &mut Report, name: &str) {
        let params: [(&str, Value); 2] = [("by", name.into()), ("conns", self.held.into())];
        let Series {
            costs, disturbed, ..
        } = &self.series;
        report.medians("server_ns_per_req", costs, disturbed, "ns", &params);
        if name == "process" {
            let beside = &self.beside_ns;
            report.medians("guardian_ns_per_req", beside, disturbed, "ns", &params);
        }
        let counts = self.plan.counts();
        let bad = counts.bad() + counts.in_progress();
        report.row("bad_answers", bad as f64, "count", &params);
    }
}

pub(crate) fn run(report: &mut Report) {
    let scale = Scale::get();
    let conns: &[u32] = scale.pick(&[64], &[64, 1_000], &[64, 1_000]);
    let (rounds, ms) = scale.pick((1, 20), (9, 150), (21, 400));
    for held in conns {
        if let Err(error) = compare(report, *held, rounds, Duration::from_millis(ms)) {
            println!("skipped: {held} connections: {error:?}");
        }
    }
}

fn compare(report: &mut Report, held: u32, rounds: usize, time: Duration) -> Result<(), Errno> {
    let servers = NAMES.map(|name| Server::new(name, held));
    let mut all = servers.into_iter().collect::<Result<Vec<_>, _>>()?;
    // The first round warms up.
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..all.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            all[at].round(time, round > 0)?;
        }
    }
    for (server, name) in all.iter().zip(NAMES) {
        server.rows(report, name);
    }
    for (name, above, below) in RELATIONS {
        let pair = [&all[above].series, &all[below].series];
        relation(report, name, pair, &[("conns", held.into())]);
    }
    all.into_iter().for_each(|server| server.calls.end());
    Ok(())
}
