//! A daemon between the device and the server, in turns with the split server that has an I/O core in its own process: in all of them one
//! thread polls the device and one does TCP and the application. The load is inside the thread that polls, so that two threads are on two
//! processors. `memory=shared`: the member borrows the daemon's buffers; `isolated`: each packet is copied.
//!
//! `round_trip_ns`: from a request to the next on one connection that has one under way. `above_split_ns` is that, less the split
//! server's in the same round. `req_per_s` and `conn_per_s` have many under way; `isolated_over_shared` is the ratio of the two memories, round by
//! round. `join_ms`: from a program's first call to its port. The daemon's thread is one of this process; the memory that it has in common with
//! the member is mapped twice, as between processes. `apart_ns`: a round trip between two programs, the daemon a third process (`apart.rs`).
//! `home_ms`, `port_ms` and `beside_us`: programs that are killed (`deaths.rs`).

mod apart;
mod deaths;
#[path = "../support/mod.rs"]
mod support;

use std::io::Result;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus::net::TcpListener;
use janus::{BackendChoice, DaemonMemory, Runtime};
use janus_daemon::{Counters, Daemon, Settings, Stop};
use rustix::thread::{CpuSet, sched_setaffinity};
use support::Scale;
use support::far::App;
use support::far::packet::Ends;
use support::far::plan::{Kind, Mode, Phase};
use support::report::Report;
use support::served::{Layout, Server, begin, builder};

/// Open connections for the requests.
const HELD: u32 = 1_024;
/// Requests or connections under way where many are.
const WINDOW: u32 = 128;
const BUFFERS: u32 = 65_536;
/// A member's processor; the daemon has the next. A split server pins its two threads likewise.
const MEMBERS_CPU: usize = 0;

/// A server, and the daemon before it if there is one.
struct Side {
    name: &'static str,
    server: Server,
    daemon: Option<Between>,
}

/// A daemon on a thread of its own.
struct Between {
    socket: PathBuf,
    counters: Arc<Counters>,
    stop: Stop,
    thread: JoinHandle<Result<()>>,
}

/// Work that is measured.
#[derive(Clone, Copy)]
struct Work {
    metric: &'static str,
    mode: Mode,
    window: u32,
    /// Bytes of an answer.
    size: u32,
}

const ECHO: u32 = 64;
const WORKS: [Work; 4] = [
    Work {
        metric: "round_trip_ns",
        mode: Mode::Requests,
        window: 1,
        size: ECHO,
    },
    Work {
        metric: "req_per_s",
        mode: Mode::Requests,
        window: WINDOW,
        size: ECHO,
    },
    Work {
        metric: "conn_per_s",
        mode: Mode::Short,
        window: WINDOW,
        size: 1_400,
    },
    Work {
        metric: "conn_per_s",
        mode: Mode::Short,
        window: WINDOW,
        size: ECHO,
    },
];

fn main() {
    if apart::is_child() {
        return apart::child();
    }
    if deaths::is_child() {
        return deaths::child();
    }
    let scale = Scale::get();
    let (rounds, run_ms) = scale.pick((1, 20), (7, 200), (21, 1_000));
    let mut report = Report::new("daemon");
    for work in WORKS.iter().filter(|it| is_wanted(it.metric)) {
        compare(&mut report, *work, rounds, Duration::from_millis(run_ms));
    }
    if is_wanted(apart::METRIC) {
        apart::compare(&mut report, rounds, Duration::from_millis(run_ms));
    }
    if is_wanted("join_ms") {
        joins(&mut report, scale.pick(2, 10, 50));
    }
    if is_wanted(deaths::HOME) {
        deaths::leave(&mut report, scale.pick(2, 10, 50));
    }
    if is_wanted(deaths::BESIDE) {
        deaths::compare(&mut report, rounds, Duration::from_millis(run_ms));
    }
    report.finish();
}

/// Whether the arguments name this figure, or none.
fn is_wanted(metric: &str) -> bool {
    let mut named = std::env::args()
        .skip(1)
        .filter(|it| !it.starts_with('-'))
        .peekable();
    named.peek().is_none() || named.any(|it| it == metric)
}

impl Work {
    fn held(self) -> u32 {
        match (self.mode, self.window) {
            (Mode::Short, _) => 0,
            (_, 1) => 1,
            _ => HELD,
        }
    }

    fn app(self) -> App {
        match self.size {
            ECHO => App::Echo,
            size => App::Sized(size),
        }
    }
}

impl Side {
    fn split(work: Work) -> Side {
        Side {
            name: "split",
            server: Server::start(Layout::SPLIT, work.app(), work.held()),
            daemon: None,
        }
    }

    fn member(work: Work, name: &'static str, memory: DaemonMemory) -> Side {
        let ends = Ends::default();
        let (device, plan) = builder(&ends, Layout::COMBINED, work.app(), work.held());
        let daemon = Between::start(device, name);
        let runtime = member(daemon.socket.clone(), memory)
            .seed(7)
            .backlog(4_096)
            .build();
        let app = work.app();
        let serve = async move |listener: TcpListener| loop {
            let (stream, _) = listener.accept().await?;
            begin(&app, stream);
        };
        let runtime = runtime.expect("the daemon takes it in");
        Side {
            name,
            server: Server::on(runtime, plan, ends, Layout::COMBINED, serve),
            daemon: Some(daemon),
        }
    }

    /// Things done in a second.
    fn measure(&self, phase: Phase, time: Duration) -> f64 {
        let plan = &self.server.plan;
        plan.set(phase);
        std::thread::sleep(time / 4);
        let (before, begin) = (plan.counts().get(Kind::Ended), Instant::now());
        std::thread::sleep(time);
        let ended = plan.counts().get(Kind::Ended) - before;
        let rate = ended as f64 / begin.elapsed().as_secs_f64();
        self.server.quiesce(phase.held);
        rate
    }

    fn stop(self) {
        self.server.stop();
        if let Some(daemon) = self.daemon {
            daemon.end();
        }
    }
}

impl Between {
    fn start(device: janus::Builder, name: &str) -> Between {
        let folder = format!("janus-bench-{}-{name}", std::process::id());
        let socket = std::env::temp_dir().join(folder).join("io.sock");
        let settings = Settings {
            socket: socket.clone(),
            allow: Vec::new(),
            limits: Vec::new(),
            lends: 4 * BUFFERS,
            patience: None,
            signals: false,
        };
        let daemon = Daemon::open(device, &settings).expect("a daemon");
        let (stop, counters) = (daemon.stop(), daemon.counters());
        let thread = std::thread::Builder::new().name("janus-daemon".into());
        let run = move || {
            let mut other = CpuSet::new();
            other.set(MEMBERS_CPU + 1);
            // Where there is one processor only it stays there.
            let _ = sched_setaffinity(None, &other);
            daemon.run()
        };
        let thread = thread.spawn(run).expect("a thread");
        Between {
            socket,
            counters,
            stop,
            thread,
        }
    }

    fn end(self) {
        self.stop.stop();
        let ended = self.thread.join().expect("it does not panic");
        ended.expect("the daemon is told to end");
    }
}

fn member(socket: PathBuf, memory: DaemonMemory) -> janus::Builder {
    Runtime::builder()
        .ignore_environment()
        .cores(1)
        .packet_buffers(BUFFERS)
        .max_connections(65_536)
        .daemon_memory(memory)
        .close_time(Duration::ZERO)
        .backend(BackendChoice::Daemon { socket })
}

fn compare(report: &mut Report, work: Work, rounds: usize, time: Duration) {
    report.progress(&format!("{}, answers of {} bytes", work.metric, work.size));
    let sides = [
        Side::split(work),
        Side::member(work, "shared", DaemonMemory::Shared),
        Side::member(work, "isolated", DaemonMemory::Isolated),
    ];
    let held = work.held();
    let phase = Phase {
        mode: work.mode,
        window: work.window,
        held,
    };
    sides.iter().for_each(|side| side.server.open(held));
    let mut rates = [(); 3].map(|()| Vec::new());
    for round in 0..=rounds {
        for turn in 0..sides.len() {
            let at = (turn + round) % sides.len();
            let rate = sides[at].measure(phase, time);
            // The first round warms up.
            if round > 0 {
                rates[at].push(rate);
            }
        }
    }
    let size = ("answer", work.size.into());
    let trips = work.window == 1;
    for (side, rates) in sides.iter().zip(&rates) {
        let params = [("memory", side.name.into()), size.clone()];
        let times: Vec<f64> = rates.iter().map(|rate| 1e9 / rate).collect();
        match trips {
            true => report.median(work.metric, &times, "ns", &params),
            false => report.median(work.metric, rates, "1/s", &params),
        }
        let bad = side.server.plan.counts().bad();
        report.row("bad_answers", bad as f64, "count", &params);
    }
    let [split, shared, isolated] = &rates;
    let of = ("of", work.metric.into());
    if trips {
        for (name, member) in [("shared", shared), ("isolated", isolated)] {
            let both = member.iter().zip(split);
            let above: Vec<f64> = both.map(|(m, s)| 1e9 / m - 1e9 / s).collect();
            report.median("above_split_ns", &above, "ns", &[("memory", name.into())]);
        }
    } else {
        let params = [of, size];
        for (name, above, below) in [
            ("isolated_over_shared", isolated, shared),
            ("shared_over_split", shared, split),
        ] {
            let ratios: Vec<f64> = above.iter().zip(below).map(|(a, b)| a / b).collect();
            report.median(name, &ratios, "ratio", &params);
        }
    }
    sides.into_iter().for_each(Side::stop);
}

/// Programs that join, and have a port.
fn joins(report: &mut Report, times: usize) {
    let (device, _) = builder(&Ends::default(), Layout::COMBINED, App::Echo, 0);
    let daemon = Between::start(device, "joins");
    for (name, memory) in [
        ("shared", DaemonMemory::Shared),
        ("isolated", DaemonMemory::Isolated),
    ] {
        let mut all = Vec::new();
        for _ in 0..times {
            let begin = Instant::now();
            let runtime = member(daemon.socket.clone(), memory).build();
            let runtime = runtime.expect("the daemon takes it in");
            let (tells, told) = channel();
            let ran = runtime.run(move || {
                let tells = tells.clone();
                async move {
                    let _listener = TcpListener::bind("0.0.0.0:80").await?;
                    let _ = tells.send(begin.elapsed());
                    Result::Ok(())
                }
            });
            ran.expect("its port");
            all.push(told.recv().expect("a time").as_secs_f64() * 1e3);
        }
        report.median("join_ms", &all, "ms", &[("memory", name.into())]);
    }
    daemon.end();
}
