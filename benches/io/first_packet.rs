//! The first packet after idleness: from the moment a device has something until the server's answer is given to the
//! device, with every thread of the server asleep before. Beside it a thread that only waits in `poll` for the same
//! signal: what the machine takes to wake anybody. A server must have been idle for ten seconds, and a thousand trials of
//! that would take three hours; so many servers of each kind take turns, each idle for as long, while the machine as a whole
//! is so for a fraction of a second only. Afterwards one of each kind is left, for a few trials in which the machine is idle
//! for ten seconds too: where those differ, the thousand flatter. What else the machine did is said beside both.
//! A trial is set aside (`disturbed_share`) when a thread that it woke was ready to run and did not for long, by the kernel's own account,
//! or when the host took time; no line of a server's own runs then.
//! The first answer (a SYN-ACK) is what is timed; every connection opened so also gets its request answered and checked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus::{BackendChoice, Handle, Placement, Runtime};
use janus_io::{Backend, Batch, Caps, Queue};
use janus_mem::Pool;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{BorrowedFd, OwnedFd};

use crate::echo::echo;
use crate::pin::pin;
use crate::stillness::Stillness;
use crate::support::Scale;
use crate::support::far::App;
use crate::support::far::device::Device;
use crate::support::far::packet::Ends;
use crate::support::far::plan::{Kind, Mode, Phase, Plan};
use crate::support::report::{Report, Value};
use crate::support::witness::bare::Bare;
use crate::support::witness::threads::{Threads, stolen_ticks};
use crate::wake::quantile;

/// Sleepers of each kind that take turns.
const SLEEPERS: usize = 64;
/// Threads of a server have begun after this.
const BEGINNING: Duration = Duration::from_millis(5);
/// A thread that was woken waits so long for its processor where nobody else has it.
const WAIT_MAX_NS: u64 = 200_000;
/// How long the clock alone is read on each processor.
const BARE: Duration = Duration::from_millis(500);
/// A trial that takes longer is a lost packet.
const PATIENCE: Duration = Duration::from_secs(20);

/// When something happened, in nanoseconds since this was made; 0 = not yet.
struct Stamp {
    base: Instant,
    at: AtomicU64,
}

impl Stamp {
    fn new(base: Instant) -> Arc<Self> {
        Arc::new(Self {
            base,
            at: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// The first time since it was cleared counts.
    fn set(&self) {
        let _ = self
            .at
            .compare_exchange(0, self.now(), Ordering::Release, Ordering::Relaxed);
    }

    fn wait(&self) -> u64 {
        let begin = Instant::now();
        loop {
            match self.at.load(Ordering::Acquire) {
                0 => std::thread::sleep(Duration::from_micros(200)),
                at => return at,
            }
            assert!(begin.elapsed() < PATIENCE, "no answer came");
        }
    }
}

/// A device that says when it was first given something to send.
struct Stamped {
    inner: Device,
    stamp: Arc<Stamp>,
}

struct StampedQueue {
    inner: Box<dyn Queue>,
    stamp: Arc<Stamp>,
}

impl Backend for Stamped {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Stamped { inner, stamp } = *self;
        let wrap = |inner| -> Box<dyn Queue> {
            Box::new(StampedQueue {
                inner,
                stamp: stamp.clone(),
            })
        };
        Ok(Box::new(inner)
            .open(queues)?
            .into_iter()
            .map(wrap)
            .collect())
    }
}

impl Queue for StampedQueue {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.inner.rx_burst(pool, out);
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        if !frames.is_empty() {
            self.stamp.set();
        }
        self.inner.tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }
}

/// Somebody who sleeps until prodded.
trait Sleeper {
    /// Nanoseconds from the signal until the first sign of life.
    fn prod(&mut self) -> u64;
}

struct Server {
    plan: Arc<Plan>,
    stamp: Arc<Stamp>,
    opened: u32,
    handle: Handle,
    thread: Option<JoinHandle<janus::Result>>,
}

impl Server {
    fn start(placement: Placement, trials: u32, base: Instant) -> Self {
        let plan = Arc::new(Plan::new(1, trials));
        let stamp = Stamp::new(base);
        let ends = Ends::default();
        let inner = Device {
            ends: ends.clone(),
            app: App::Echo,
            plan: plan.clone(),
            held: trials,
        };
        let device = Stamped {
            inner,
            stamp: stamp.clone(),
        };
        let runtime = Runtime::builder()
            .ignore_environment()
            .cores(1)
            .placement(placement)
            .backend(BackendChoice::Custom(Box::new(device)))
            .address(format!("{}/24", ends.server.ip()).parse().unwrap())
            .gateway([192, 0, 2, 2])
            .max_connections(trials + 1024)
            .packet_buffers(1024)
            .seed(7)
            .close_time(Duration::ZERO)
            .build()
            .expect("a runtime for the benchmark");
        let handle = runtime.handle();
        let port = ends.server.port();
        let thread = std::thread::spawn(move || runtime.run(move || echo(port)));
        Self {
            plan,
            stamp,
            opened: 0,
            handle,
            thread: Some(thread),
        }
    }
}

impl Sleeper for Server {
    fn prod(&mut self) -> u64 {
        self.opened += 1;
        self.stamp.at.store(0, Ordering::Relaxed);
        let before = self.stamp.now();
        self.plan.set(Phase {
            mode: Mode::Open,
            window: 1,
            held: self.opened,
        });
        let answered = self.stamp.wait();
        let begin = Instant::now();
        while self.plan.counts().get(Kind::Ended) < u64::from(self.opened) {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.plan.counts());
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(self.plan.counts().bad(), 0, "{:?}", self.plan.counts());
        answered.saturating_sub(before)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join().expect("the runtime's caller does not panic");
            ended.expect("the server ends well");
        }
    }
}

/// A thread that waits in `poll` and says when it runs.
struct Plain {
    fd: Arc<OwnedFd>,
    stamp: Arc<Stamp>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Plain {
    fn start(base: Instant) -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = Arc::new(eventfd(0, flags).expect("an eventfd"));
        let (stamp, stop) = (Stamp::new(base), Arc::new(AtomicBool::new(false)));
        let (there, stamped, stopped) = (fd.clone(), stamp.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            // Where a runtime of one core is pinned too.
            let _there = pin(0);
            while !stopped.load(Ordering::Relaxed) {
                let mut polled = [PollFd::new(&*there, PollFlags::IN)];
                let _ = poll(&mut polled, None);
                stamped.set();
                let _ = rustix::io::read(&*there, &mut [0; 8]);
            }
        });
        Self {
            fd,
            stamp,
            stop,
            thread: Some(thread),
        }
    }

    fn ring(&self) {
        rustix::io::write(&*self.fd, &1u64.to_ne_bytes()).expect("an eventfd");
    }
}

impl Sleeper for Plain {
    fn prod(&mut self) -> u64 {
        self.stamp.at.store(0, Ordering::Relaxed);
        let before = self.stamp.now();
        self.ring();
        self.stamp.wait().saturating_sub(before)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.ring();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it only waits");
        }
    }
}

/// Those of one kind, and what they took, in nanoseconds.
struct Sleepers {
    name: &'static str,
    /// Each with its threads.
    all: Vec<(Box<dyn Sleeper>, Threads)>,
    times: Vec<f64>,
    disturbed: usize,
}

impl Sleepers {
    fn start(name: &'static str, placement: Option<Placement>, trials: usize) -> Self {
        let base = Instant::now();
        let start = || -> Box<dyn Sleeper> {
            let sleeper: Box<dyn Sleeper> = match placement {
                Some(placement) => Box::new(Server::start(placement, trials as u32, base)),
                None => Box::new(Plain::start(base)),
            };
            std::thread::sleep(BEGINNING);
            sleeper
        };
        let all = (0..SLEEPERS).map(|_| Threads::started_by(start));
        Self {
            name,
            all: all.collect(),
            times: Vec::new(),
            disturbed: 0,
        }
    }

    fn prod(&mut self, trial: usize) {
        let turn = trial % self.all.len();
        let (sleeper, threads) = &mut self.all[turn];
        // No thread of a sleeper wakes for being looked at.
        let before = (threads.waited_ns(), stolen_ticks());
        let time = sleeper.prod();
        let (waited_ns, stolen) = (threads.waited_ns() - before.0, stolen_ticks() - before.1);
        if waited_ns > WAIT_MAX_NS || stolen > 0 {
            self.disturbed += 1;
        } else {
            self.times.push(time as f64);
        }
    }

    fn clear(&mut self) {
        self.times.clear();
        self.disturbed = 0;
    }

    /// Who slept for `idle` on a machine that was idle for `machine`.
    fn rows(&mut self, report: &mut Report, idle: Duration, machine: Duration) {
        self.times.sort_by(f64::total_cmp);
        for q in [0.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let params: [(&str, Value); 5] = [
                ("who", self.name.into()),
                ("q", q.into()),
                ("idle_s", idle.as_secs_f64().into()),
                ("machine_idle_s", machine.as_secs_f64().into()),
                ("trials", self.times.len().into()),
            ];
            let at = quantile(&self.times, q) / 1e3;
            report.row("first_packet_us", at, "us", &params);
        }
        let aside = self.disturbed as f64 / (self.disturbed + self.times.len()) as f64;
        let of = [
            ("who", self.name.into()),
            ("idle_s", idle.as_secs_f64().into()),
        ];
        report.row("disturbed_share", aside, "ratio", &of);
    }
}

/// `trials` of each kind, a gap apart. Who comes first, and so finds the machine asleep, changes each time.
fn trials(kinds: &mut [Sleepers], trials: std::ops::Range<usize>, gap: Duration) {
    for trial in trials {
        let begin = Instant::now();
        for turn in 0..kinds.len() {
            kinds[(turn + trial) % 3].prod(trial);
        }
        std::thread::sleep(gap.saturating_sub(begin.elapsed()));
    }
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    // `gap`: between two trials of different sleepers; `still`: trials with the machine idle for `long`.
    let (count, gap) = scale.pick((64, 1), (1000, 5), (1000, 160));
    let (still, long) = scale.pick((1, 1), (10, 500), (9, 10_000));
    let (gap, long) = (Duration::from_millis(gap), Duration::from_millis(long));
    let before = Stillness::begin();
    std::thread::sleep(long / 4);
    before.rows(report, "nothing ran yet");
    let each = count / SLEEPERS + 3 + still;
    let mut kinds = [
        ("combined", Some(Placement::Combined)),
        ("split", Some(Placement::Split { io_cores: 1 })),
        ("a thread in poll", None),
    ]
    .map(|(name, placement)| Sleepers::start(name, placement, each));
    let _here = pin(1);
    // The first of each resolves addresses.
    trials(&mut kinds, 0..SLEEPERS, gap);
    for kind in &mut kinds {
        kind.clear();
    }
    let stillness = Stillness::begin();
    trials(&mut kinds, SLEEPERS..SLEEPERS + count, gap);
    stillness.rows(report, "many take turns");
    all_rows(&mut kinds, report, gap * SLEEPERS as u32, gap);
    kinds.iter_mut().for_each(|kind| kind.all.truncate(1));
    std::thread::sleep(long);
    let stillness = Stillness::begin();
    trials(&mut kinds, 0..still, long);
    stillness.rows(report, "one of each");
    all_rows(&mut kinds, report, long, long);
    let mut bare = Bare::default();
    bare.look(scale.pick(BARE / 50, BARE, BARE));
    bare.rows(report);
}

/// The rows of all kinds, and each one's median beside that of the thread that only waits.
fn all_rows(kinds: &mut [Sleepers; 3], report: &mut Report, idle: Duration, machine: Duration) {
    for kind in kinds.iter_mut() {
        kind.rows(report, idle, machine);
    }
    let [combined, split, plain] = &*kinds;
    for kind in [combined, split] {
        let ratio = quantile(&kind.times, 50.0) / quantile(&plain.times, 50.0);
        let of = [
            ("who", kind.name.into()),
            ("idle_s", idle.as_secs_f64().into()),
        ];
        report.row("to_plain_poll", ratio, "ratio", &of);
    }
    kinds.iter_mut().for_each(Sleepers::clear);
}
