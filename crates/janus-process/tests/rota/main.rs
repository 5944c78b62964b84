//! A model of who takes a core's turns: the rota itself, the watch and the sleepers, by their files, with a model checker's threads and locks
//! in place of the system's, in every order of a program's threads, the guardian and a device. A core whose packets nobody takes, or a thread
//! whose socket is ready and that sleeps on, is a standstill, which the checker reports.

mod bell;
mod core;
#[allow(dead_code, reason = "the end of a process is not of the model")]
#[path = "../../src/rota.rs"]
mod rota;
#[allow(dead_code, reason = "no signal ends a sleep")]
#[path = "../../src/sleep.rs"]
mod sleep;
#[path = "../../src/watch.rs"]
mod watch;

use janus_process::Result;
use loom::thread;

use self::core::World;

/// In the system's place, as the files above name it.
mod sync {
    use std::time::Duration;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;
    pub(crate) use loom::thread_local;
    pub(crate) use std::sync::PoisonError;

    /// Who pauses goes on in any order anyway, and never for ever: each call is seen once.
    pub(crate) fn pause(_time: Duration) {}
}

/// Signals are not of the model.
mod held {
    pub(crate) struct Held;
}

/// Nor are the kernel's descriptors.
mod kernel {
    pub(crate) struct Watched;
}

/// Runs it in every order of its threads, with so many switches at most where a thread could have gone on; one more in the full form.
fn in_every_order(switches: usize, world: impl Fn() + Send + Sync + 'static) {
    let more = std::env::var("JANUS_MODEL").is_ok_and(|form| form == "full");
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches + usize::from(more));
    model.check(world);
}

#[test]
fn a_thread_that_waits_is_woken_by_what_comes() {
    in_every_order(2, || {
        let world = World::new();
        let reader = world.reads(1);
        world.brings(1);
        reader.join().unwrap();
        world.ends();
    });
}

#[test]
fn a_device_is_served_while_no_thread_calls() {
    in_every_order(2, || {
        let world = World::new();
        world.brings(1);
        world.awaits_taken(1);
        world.brings(2);
        world.awaits_taken(2);
        world.ends();
    });
}

#[test]
fn what_comes_for_a_thread_that_computes_is_taken() {
    in_every_order(1, || {
        let world = World::new();
        let reader = world.reads(1);
        world.brings(1);
        reader.join().unwrap();
        world.brings(2);
        world.awaits_taken(2);
        world.ends();
    });
}

#[test]
fn of_two_that_wait_each_gets_its_own() {
    in_every_order(1, || {
        let world = World::new();
        let readers = [world.reads(1), world.reads(2)];
        world.brings(2);
        world.brings(1);
        for reader in readers {
            reader.join().unwrap();
        }
        world.ends();
    });
}

#[test]
fn a_call_that_wakes_the_core_leaves_it_to_its_leader() {
    in_every_order(1, || {
        let world = World::new();
        let reader = world.reads(1);
        let caller = world.clone();
        let caller = thread::spawn(move || caller.calls());
        world.brings(1);
        reader.join().unwrap();
        caller.join().unwrap();
        world.ends();
    });
}

#[test]
fn what_a_call_does_wakes_who_waits_for_it() {
    in_every_order(1, || {
        let world = World::new();
        let readers = [world.reads(1), world.reads(2)];
        world.makes_ready(1);
        world.makes_ready(2);
        for reader in readers {
            reader.join().unwrap();
        }
        world.ends();
    });
}

#[test]
fn a_thread_that_goes_to_sleep_wakes_whom_its_calls_concern() {
    in_every_order(1, || {
        let world = World::new();
        let reader = world.reads(1);
        let other = world.clone();
        let other = thread::spawn(move || other.makes_ready_and_reads(1, 2));
        reader.join().unwrap();
        world.brings(2);
        other.join().unwrap();
        world.ends();
    });
}
