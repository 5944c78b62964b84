//! Waking a sleeping core: nanoseconds to ring a bell nobody listens for, and to ring one somebody sleeps at; microseconds
//! until the sleeper runs. Beside it what the kernel has for that: a futex, a blocking read of an eventfd, a thread
//! unparked by the standard library. The ways alternate; the sleeper sleeps long enough to be really asleep. A wake during
//! which the waker, who only reads the clock then, was stopped itself is set aside (`disturbed_share`).

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use janus_io::park::Parker;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::futex;

use crate::pin::pin;
use crate::support::Scale;
use crate::support::report::{Report, Value};
use crate::support::witness::GAP_MIN_NS;
use crate::support::witness::bare::Bare;

/// Before each wake: longer than it takes to fall asleep.
const ASLEEP: Duration = Duration::from_micros(300);
/// How long the clock alone is read on each processor in a round.
const BARE: Duration = Duration::from_millis(20);

/// One side sleeps, the other wakes it.
trait Way: Sync {
    const NAME: &'static str;
    /// Sleeps until woken for the `n`th time.
    fn sleep(&self, sleeper: &mut Parker, n: u32);
    /// Wakes for the `n`th time.
    fn wake(&self, n: u32);
}

struct Bell {
    rung: AtomicU32,
    unparker: janus_io::park::Unparker,
}

impl Way for Bell {
    const NAME: &'static str = "janus bell";

    fn sleep(&self, sleeper: &mut Parker, n: u32) {
        while self.rung.load(Ordering::Acquire) != n {
            let news = || self.rung.load(Ordering::Acquire) == n;
            sleeper.park(&[], None, news).expect("it sleeps");
        }
    }

    fn wake(&self, n: u32) {
        self.rung.store(n, Ordering::Release);
        self.unparker.wake();
    }
}

struct Futex(AtomicU32);

impl Way for Futex {
    const NAME: &'static str = "futex";

    fn sleep(&self, _: &mut Parker, n: u32) {
        while self.0.load(Ordering::Acquire) != n {
            // An error says that the number has changed, or a signal came: looked at again.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, n - 1, None);
        }
    }

    fn wake(&self, n: u32) {
        self.0.store(n, Ordering::Release);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }
}

struct Eventfd(rustix::fd::OwnedFd);

impl Way for Eventfd {
    const NAME: &'static str = "eventfd read";

    fn sleep(&self, _: &mut Parker, _: u32) {
        rustix::io::read(&self.0, &mut [0; 8]).expect("an eventfd");
    }

    fn wake(&self, _: u32) {
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).expect("an eventfd");
    }
}

struct Unpark {
    rung: AtomicU32,
    thread: std::sync::OnceLock<std::thread::Thread>,
}

impl Way for Unpark {
    const NAME: &'static str = "std unpark";

    fn sleep(&self, _: &mut Parker, n: u32) {
        self.thread.get_or_init(std::thread::current);
        while self.rung.load(Ordering::Acquire) != n {
            std::thread::park();
        }
    }

    fn wake(&self, n: u32) {
        self.rung.store(n, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// What was measured, in nanoseconds.
#[derive(Default)]
struct Times {
    /// Until the sleeper runs.
    latency: Vec<f64>,
    /// That the waker was busy with it.
    call: Vec<f64>,
    /// Wakes that were set aside.
    disturbed: u32,
}

/// Wakes `wakes` times.
fn measure<W: Way>(way: &W, sleeper: &mut Parker, wakes: u32, times: &mut Times) {
    let base = Instant::now();
    let now = || base.elapsed().as_nanos() as u64;
    let woken_at = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _there = pin(1);
            for n in 1..=wakes {
                way.sleep(sleeper, n);
                woken_at.store(now(), Ordering::Release);
            }
        });
        let _here = pin(0);
        for n in 1..=wakes {
            std::thread::sleep(ASLEEP);
            woken_at.store(0, Ordering::Relaxed);
            let before = now();
            way.wake(n);
            let after = now();
            let (mut last, mut gap) = (after, 0);
            let woken = loop {
                let at = now();
                gap = gap.max(at - last);
                last = at;
                match woken_at.load(Ordering::Acquire) {
                    0 => std::hint::spin_loop(),
                    at => break at,
                }
            };
            if gap >= GAP_MIN_NS {
                times.disturbed += 1;
                continue;
            }
            times.latency.push(woken.saturating_sub(before) as f64);
            times.call.push((after - before) as f64);
        }
    });
}

/// A quantile of sorted figures.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() as f64 * q / 100.0) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

fn rows(report: &mut Report, who: &'static str, mut times: Times) {
    times.latency.sort_by(f64::total_cmp);
    times.call.sort_by(f64::total_cmp);
    for q in [50.0, 90.0, 99.0] {
        let params: [(&str, Value); 3] = [
            ("way", who.into()),
            ("q", q.into()),
            ("wakes", times.latency.len().into()),
        ];
        report.row("wake_us", quantile(&times.latency, q) / 1e3, "us", &params);
    }
    let median = quantile(&times.call, 50.0);
    report.row("wake_call_ns", median, "ns", &[("way", who.into())]);
    let all = times.latency.len() as f64 + f64::from(times.disturbed);
    let aside = f64::from(times.disturbed) / all;
    report.row("disturbed_share", aside, "ratio", &[("way", who.into())]);
}

/// Ringing while the owner is awake: what every batch to a busy core costs.
fn awake(report: &mut Report, runs: usize, rings: u32) {
    let parker = Parker::new().expect("an eventfd");
    let unparker = parker.unparker();
    let figures: Vec<f64> = (0..runs)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..rings {
                black_box(unparker.wake());
            }
            begin.elapsed().as_nanos() as f64 / f64::from(rings)
        })
        .collect();
    report.median("ring_awake_ns", &figures, "ns", &[]);
}

pub(crate) fn run(scale: Scale, report: &mut Report) {
    let (rounds, wakes) = scale.pick((1, 5), (10, 100), (20, 1000));
    awake(report, 9, scale.pick(1_000, 1_000_000, 10_000_000));
    let mut bare = Bare::default();
    let mut sleeper = Parker::new().expect("an eventfd");
    let mut times: [Times; 4] = Default::default();
    for _ in 0..rounds {
        bare.look(scale.pick(BARE / 10, BARE, BARE));
        let bell = Bell {
            rung: AtomicU32::new(0),
            unparker: sleeper.unparker(),
        };
        measure(&bell, &mut sleeper, wakes, &mut times[0]);
        measure(
            &Futex(AtomicU32::new(0)),
            &mut sleeper,
            wakes,
            &mut times[1],
        );
        let fd = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        measure(&Eventfd(fd), &mut sleeper, wakes, &mut times[2]);
        let unpark = Unpark {
            rung: AtomicU32::new(0),
            thread: std::sync::OnceLock::new(),
        };
        measure(&unpark, &mut sleeper, wakes, &mut times[3]);
    }
    let names = [Bell::NAME, Futex::NAME, Eventfd::NAME, Unpark::NAME];
    for (name, times) in names.into_iter().zip(times) {
        rows(report, name, times);
    }
    bare.rows(report);
}
