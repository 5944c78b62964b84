//! Latency against load, with batches that follow the queue's length (`adaptive`) and with batches as large as can be
//! (`64`): an echo server of one core, the whole runtime, whose device gives requests at moments that are drawn
//! beforehand (exponential gaps) and not held up by answers. A request's time runs from that moment until its answer is
//! given to the device. Load is the share of what the server with large batches answers when more comes than it can.
//! Both get the same requests in short rounds, one after the other and each first every other time; a figure is the median
//! of the rounds' figures, and a ratio that of the rounds' ratios, so that a round in which the machine was somebody else's
//! does not decide. Answers are checked.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus::{BackendChoice, Batching, Handle, Placement, Runtime};
use janus_io::{Backend, Batch, Caps, Queue};
use janus_mem::Pool;
use janus_wire::{Link, ethernet, ipv4};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::echo::echo;
use crate::support::Scale;
use crate::support::far::packet::{Ends, connection};
use crate::support::far::plan::{Kind, Mode, Phase, Plan};
use crate::support::far::{App, Far};
use crate::support::report::{Report, Value};
use crate::wake::quantile;

/// Open connections: more than are ever in use at a time, except in overload.
const CONNECTIONS: u32 = 2048;
/// Requests that can wait at the device; more than these have nowhere to wait, and the load is too much.
const WAITING_MAX: usize = 1 << 16;
/// A frame no longer than this carries no request and no answer.
const BARE_MAX: u16 = 100;
/// Nanoseconds between two arrivals when more comes than anybody can serve.
const TOO_MUCH: u64 = 50;

/// What the benchmark tells the device, and what the device tells.
struct Pace {
    /// Off: the far end does as its plan says.
    on: AtomicBool,
    /// Nanoseconds between two arrivals on average.
    gap_ns: AtomicU64,
    /// Requests that come together.
    together: AtomicU64,
    /// What the moments are drawn from.
    seed: AtomicU64,
    /// Counts the orders given.
    order: AtomicU64,
    times: Mutex<Vec<f64>>,
    bell: OwnedFd,
}

/// A device whose requests come when they are due.
struct Paced {
    ends: Ends,
    plan: Arc<Plan>,
    pace: Arc<Pace>,
}

struct PacedQueue {
    far: Far,
    caps: Caps,
    pace: Arc<Pace>,
    order: u64,
    on: bool,
    base: Instant,
    next: u64,
    random: u64,
    /// When the requests that have not been given yet were due.
    waiting: std::collections::VecDeque<u64>,
    /// When each connection's request was due; 0: none is open.
    due: Vec<u64>,
    times: Vec<f64>,
}

impl Backend for Paced {
    fn open(self: Box<Self>, _: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Paced { ends, plan, pace } = *self;
        let caps = Caps {
            link: Link::Ethernet,
            mtu: 1500,
            mac: Some(ends.server_mac),
            tx_checksum: false,
            rx_checksum: false,
            tso: false,
            gro: false,
            name: "paced load".to_owned(),
        };
        Ok(vec![Box::new(PacedQueue {
            far: Far::new(ends, App::Echo, plan, 0, CONNECTIONS),
            caps,
            pace,
            order: 0,
            on: false,
            base: Instant::now(),
            next: 0,
            random: 1,
            waiting: std::collections::VecDeque::with_capacity(WAITING_MAX),
            due: vec![0; CONNECTIONS as usize],
            times: Vec::with_capacity(1 << 20),
        })])
    }
}

impl PacedQueue {
    fn now(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    #[cold]
    fn follow(&mut self, order: u64) {
        self.order = order;
        self.on = self.pace.on.load(Ordering::Relaxed);
        self.next = self.now();
        self.random = self.pace.seed.load(Ordering::Relaxed) | 1;
        self.waiting.clear();
        self.pace
            .times
            .lock()
            .expect("no holder panics")
            .append(&mut self.times);
        let _ = rustix::io::read(&self.pace.bell, &mut [0; 8]);
    }

    /// What is due by now.
    fn draw(&mut self) {
        let (gap, now) = (self.pace.gap_ns.load(Ordering::Relaxed), self.now());
        let together = self.pace.together.load(Ordering::Relaxed);
        while self.next <= now && self.waiting.len() < WAITING_MAX {
            for _ in 0..together {
                self.waiting.push_back(self.next);
            }
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let uniform = ((self.random >> 11) + 1) as f64 / (1u64 << 53) as f64;
            self.next += (-uniform.ln() * (gap * together) as f64) as u64;
        }
    }
}

/// The connection that a frame to (or from, `back`) the server belongs to.
fn conn_of(frame: &[u8], back: bool) -> Option<usize> {
    let ip = ipv4::parse(frame.get(ethernet::LEN..)?).ok()?;
    let ports = ip.payload().first_chunk::<4>()?;
    let (address, port) = match back {
        false => (ip.src, [ports[0], ports[1]]),
        true => (ip.dst, [ports[2], ports[3]]),
    };
    let conn = connection(address.to_bits(), u16::from_be_bytes(port))?;
    (conn < CONNECTIONS).then_some(conn as usize)
}

impl Queue for PacedQueue {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        let order = self.pace.order.load(Ordering::Acquire);
        if order != self.order {
            self.follow(order);
        }
        if !self.on {
            let room = out.room();
            return self.far.give(pool, room, |frame| drop(out.push(frame)));
        }
        self.draw();
        let room = self.waiting.len().min(out.room());
        let (waiting, due) = (&mut self.waiting, &mut self.due);
        self.far.give(pool, room, |frame| {
            if let Some(conn) = conn_of(frame.data(), false).filter(|_| frame.len > BARE_MAX) {
                due[conn] = waiting.pop_front().unwrap_or_default();
            }
            let _ = out.push(frame);
        });
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        let lent = frames.iter().filter(|frame| frame.is_lent()).count();
        if frames.is_empty() || lent > done.room() {
            return;
        }
        if self.on {
            let now = self.now();
            for frame in frames.iter() {
                if let Some(conn) = conn_of(frame.data(), true).filter(|_| frame.len > BARE_MAX) {
                    let due = std::mem::take(&mut self.due[conn]);
                    if due != 0 && self.times.len() < self.times.capacity() {
                        self.times.push(now.saturating_sub(due) as f64);
                    }
                }
            }
        }
        self.far.take(frames.iter().map(|frame| frame.data()));
        for frame in frames.pull() {
            if frame.is_lent() {
                let _ = done.push(frame);
            } else {
                pool.free(frame.buf);
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pace.bell.as_fd())
    }

    fn arm(&mut self) -> bool {
        // Paced, the next request is due before any sleep would end.
        !self.on && !self.far.has_work() && self.order == self.pace.order.load(Ordering::Acquire)
    }
}

/// An echo server of one core behind a paced device.
struct Server {
    plan: Arc<Plan>,
    pace: Arc<Pace>,
    handle: Handle,
    thread: JoinHandle<janus::Result>,
}

impl Server {
    fn start(batching: Batching) -> Self {
        let plan = Arc::new(Plan::new(1, CONNECTIONS));
        let pace = Arc::new(Pace {
            on: AtomicBool::new(false),
            gap_ns: AtomicU64::new(TOO_MUCH),
            together: AtomicU64::new(1),
            seed: AtomicU64::new(1),
            order: AtomicU64::new(0),
            times: Mutex::new(Vec::new()),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd"),
        });
        let ends = Ends::default();
        let device = Paced {
            ends: ends.clone(),
            plan: plan.clone(),
            pace: pace.clone(),
        };
        let runtime = Runtime::builder()
            .ignore_environment()
            .cores(1)
            .placement(Placement::Combined)
            .backend(BackendChoice::Custom(Box::new(device)))
            .batching(batching)
            .address(format!("{}/24", ends.server.ip()).parse().unwrap())
            .gateway([192, 0, 2, 2])
            .max_connections(2 * CONNECTIONS)
            .packet_buffers(16_384)
            .seed(7)
            .close_time(Duration::ZERO)
            .build()
            .expect("a runtime for the benchmark");
        let handle = runtime.handle();
        let port = ends.server.port();
        let thread = std::thread::spawn(move || runtime.run(move || echo(port)));
        let server = Self {
            plan,
            pace,
            handle,
            thread,
        };
        server.open();
        server
    }

    fn phase(&self, mode: Mode, window: u32) {
        self.plan.set(Phase {
            mode,
            window,
            held: CONNECTIONS,
        });
        self.order();
    }

    fn order(&self) {
        self.pace.order.fetch_add(1, Ordering::Release);
        let _ = rustix::io::write(&self.pace.bell, &1u64.to_ne_bytes());
    }

    fn ended(&self) -> u64 {
        self.plan.counts().get(Kind::Ended)
    }

    fn open(&self) {
        self.phase(Mode::Open, 64);
        let begin = Instant::now();
        while self.ended() < u64::from(CONNECTIONS) {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{:?}",
                self.plan.counts()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        self.phase(Mode::Idle, 0);
    }

    /// Serves at this pace for a while: requests a second, and the times they took.
    fn serve(&self, load: Load, seed: u64, time: Duration) -> (f64, Vec<f64>) {
        self.pace.gap_ns.store(load.gap_ns, Ordering::Relaxed);
        self.pace.together.store(load.together, Ordering::Relaxed);
        self.pace.seed.store(seed, Ordering::Relaxed);
        self.pace.on.store(true, Ordering::Relaxed);
        self.phase(Mode::Requests, CONNECTIONS);
        std::thread::sleep(time / 10);
        // Hands over, and so forgets, the times of the beginning.
        self.order();
        let (begin, before) = (Instant::now(), self.ended());
        std::thread::sleep(time);
        let rate = (self.ended() - before) as f64 / begin.elapsed().as_secs_f64();
        self.pace.times.lock().expect("no holder panics").clear();
        self.pace.on.store(false, Ordering::Relaxed);
        self.phase(Mode::Idle, 0);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(self.plan.counts().bad(), 0, "{:?}", self.plan.counts());
        let times = std::mem::take(&mut *self.pace.times.lock().expect("no holder panics"));
        (rate, times)
    }

    fn stop(self) {
        self.handle.stop();
        let ended = self
            .thread
            .join()
            .expect("the runtime's caller does not panic");
        ended.expect("the server ends well");
    }
}

/// How requests come.
#[derive(Clone, Copy)]
struct Load {
    gap_ns: u64,
    together: u64,
}

/// The ways to choose a batch, by name.
const WAYS: [(&str, Batching); 2] = [
    ("adaptive", Batching::Adaptive),
    ("64", Batching::Fixed(64)),
];

/// What is said of a round's times.
const FIGURES: [&str; 4] = ["mean", "50", "90", "99"];

/// Mean and quantiles in microseconds.
fn figures(times: &mut [f64]) -> [f64; 4] {
    let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
    times.sort_unstable_by(f64::total_cmp);
    let [half, most, nearly_all] = [50.0, 90.0, 99.0].map(|q| quantile(times, q));
    [mean, half, most, nearly_all].map(|ns| ns / 1e3)
}

/// Both ways under the same load: requests a second, and figures, by way and round.
struct Rounds {
    rates: [Vec<f64>; 2],
    figures: [Vec<[f64; 4]>; 2],
}

fn alternate(servers: &[Server; 2], load: Load, rounds: u64, time: Duration) -> Rounds {
    let mut all = Rounds {
        rates: Default::default(),
        figures: Default::default(),
    };
    for round in 0..rounds {
        let first = (round % 2) as usize;
        for way in [first, 1 - first] {
            let seed = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (rate, mut times) = servers[way].serve(load, seed, time);
            all.rates[way].push(rate);
            all.figures[way].push(figures(&mut times));
        }
    }
    all
}

impl Rounds {
    fn rows(&self, report: &mut Report, load_percent: u32, together: u64) {
        let params = |way: &str, figure: &str| -> [(&'static str, Value); 4] {
            [
                ("batching", way.into()),
                ("load_percent", load_percent.into()),
                ("together", together.into()),
                ("q", figure.into()),
            ]
        };
        for (at, figure) in FIGURES.into_iter().enumerate() {
            for ((way, _), rounds) in WAYS.iter().zip(&self.figures) {
                let runs: Vec<f64> = rounds.iter().map(|figures| figures[at]).collect();
                report.median("batching_latency_us", &runs, "us", &params(way, figure));
            }
            let pairs = self.figures[0].iter().zip(&self.figures[1]);
            let ratios: Vec<f64> = pairs.map(|(ours, large)| ours[at] / large[at]).collect();
            let params = params("adaptive over 64", figure);
            report.median("batching_ratio", &ratios, "x", &params);
        }
    }
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    let (rounds, time) = scale.pick((1, 10), (6, 60), (40, 150));
    let time = Duration::from_millis(time);
    let servers = WAYS.map(|(_, batching)| Server::start(batching));
    let flood = Load {
        gap_ns: TOO_MUCH,
        together: 1,
    };
    let most = alternate(&servers, flood, rounds, time).rates;
    for ((way, _), most) in WAYS.iter().zip(&most) {
        let params = [("batching", (*way).into())];
        report.median("batching_req_per_s", most, "1/s", &params);
    }
    let mut sorted = most[1].clone();
    sorted.sort_by(f64::total_cmp);
    let capacity = quantile(&sorted, 50.0);
    for together in [1, 32] {
        for percent in [10, 30, 50, 70, 80, 90] {
            let gap = 1e9 / (capacity * f64::from(percent) / 100.0);
            let load = Load {
                gap_ns: gap as u64,
                together,
            };
            let rounds = alternate(&servers, load, rounds, time);
            rounds.rows(report, percent, together);
        }
    }
    servers.into_iter().for_each(Server::stop);
}
