//! Who is named: a core that has a processor for itself or waits in a call, and not one that others keep from it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::*;
use crate::task::tests::core;

const LIMIT: Duration = Duration::from_millis(40);

/// A thread whose core polls one task, which is `busy`; it begins when it is told to.
struct Polls {
    pulse: Arc<Pulse>,
    begin: Sender<()>,
    thread: JoinHandle<()>,
}

fn polls(busy: impl FnOnce() + Send + 'static) -> Polls {
    let pulse = Arc::new(Pulse::default());
    let (own, (begin, wait)) = (pulse.clone(), channel());
    let (ready, is_ready) = channel();
    let thread = std::thread::spawn(move || {
        own.beats_here();
        let warnings = Arc::new(Warnings::new(None));
        let mut core = core().watched(own, warnings);
        drop(core.executor.spawn(async move { busy() }));
        ready.send(()).expect("it is waited for");
        let _ = wait.recv();
        core.run();
    });
    is_ready.recv().expect("it starts");
    Polls {
        pulse,
        begin,
        thread,
    }
}

/// A watchdog over these, and whom it names.
fn watches(cores: &[Polls]) -> (Watchdog, Receiver<Warning>) {
    let (name, named) = channel();
    let name = Mutex::new(name);
    let hook = move |warning: &Warning| name.lock().expect("whole").send(warning.clone());
    let warnings = Warnings::new(Some(Box::new(move |warning| _ = hook(warning))));
    let pulses = cores.iter().map(|core| core.pulse.clone()).collect();
    (Watchdog::new(pulses, Arc::new(warnings), LIMIT), named)
}

fn look_until_named(watchdog: &mut Watchdog, named: &Receiver<Warning>) -> Duration {
    loop {
        watchdog.look_at(Instant::now());
        if let Ok(warning) = named.try_recv() {
            let Warning::CoreBlocked { core: 0, time, .. } = warning else {
                panic!("{warning}");
            };
            return time;
        }
        std::thread::sleep(LIMIT / 8);
    }
}

/// What this core does has it named; `stop` ends it.
fn is_named(core: Polls, stop: impl FnOnce()) {
    let cores = [core];
    let begin = Instant::now();
    let (mut watchdog, named) = watches(&cores);
    // It does nothing yet.
    watchdog.look_at(begin);
    watchdog.look_at(begin + LIMIT);
    assert!(named.try_recv().is_err());
    let [core] = cores;
    core.begin.send(()).expect("it waits");
    let kept = look_until_named(&mut watchdog, &named);
    assert!((LIMIT..=begin.elapsed()).contains(&kept), "{kept:?}");
    stop();
    core.thread.join().expect("it ends well");
}

#[test]
fn one_that_computes_is_named() {
    let stop = Arc::new(AtomicBool::new(false));
    let until = stop.clone();
    let computes = polls(move || while !until.load(Ordering::Relaxed) {});
    is_named(computes, || stop.store(true, Ordering::Relaxed));
}

#[test]
fn one_that_waits_in_a_call_is_named() {
    let (end, ends) = channel::<()>();
    is_named(polls(move || _ = ends.recv()), || drop(end));
}

#[test]
fn what_cores_on_one_processor_keep_together_is_no_more_than_there_is() {
    let allowed = sched_getaffinity(None).expect("it is known where this may run");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut only = CpuSet::new();
    only.set(first.expect("it runs somewhere"));
    let stop = Arc::new(AtomicBool::new(false));
    let cores: [Polls; 4] = std::array::from_fn(|_| {
        let until = stop.clone();
        polls(move || {
            sched_setaffinity(None, &only).expect("it is one of those");
            while !until.load(Ordering::Relaxed) {}
        })
    });
    let (mut watchdog, _named) = watches(&cores);
    let begin = Instant::now();
    cores
        .iter()
        .for_each(|core| core.begin.send(()).expect("it waits"));
    let kept = loop {
        watchdog.look_at(Instant::now());
        let kept: Duration = watchdog.cores.iter().map(|core| core.kept).sum();
        if kept >= 2 * LIMIT {
            break kept;
        }
        std::thread::sleep(LIMIT / 8);
    };
    let passed = begin.elapsed();
    stop.store(true, Ordering::Relaxed);
    for core in cores {
        core.thread.join().expect("it ends well");
    }
    // Each of the four was in the middle of its poll all that time.
    assert!(kept < passed * 3 / 2, "{kept:?} of {passed:?}");
}
