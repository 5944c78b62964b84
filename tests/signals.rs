//! Signals of the process, as tasks wait for them. One process has one set of signals: each test has signals of its own, but for those
//! that end a runtime, which have their turns.

mod support;

use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use janus::signal::{SignalKind, ctrl_c, signal, unix};
use janus::{BackendChoice, Runtime};
use rustix::process::{Signal, getpid, kill_process};
use support::*;

fn runtime(case: Case) -> Runtime {
    case.builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap()
}

/// Locks SIGINT and SIGTERM. A runtime hears both, and the second one while it ends would end the process.
fn end_signals() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn raise(number: SignalKind) {
    let named = Signal::from_named_raw(number.as_raw_value()).expect("a signal");
    kill_process(getpid(), named).unwrap();
}

/// The same for this thread: its handler has run when this returns. The process's may run whenever another thread does.
fn raise_here(number: SignalKind) {
    // SAFETY: the signal is one that somebody listens for, so it does nothing but what its handler does.
    assert_eq!(unsafe { libc::raise(number.as_raw_value()) }, 0);
}

#[test]
fn every_core_hears_a_signal() {
    for case in [ONE_COMBINED, THREE_SPLIT] {
        let (ready, listening) = channel();
        let running = Running::start(runtime(case), move || {
            let ready = ready.clone();
            async move {
                let mut usr1 = signal(SignalKind::user_defined1())?;
                ready.send(())?;
                usr1.recv().await;
                // And again, from a sleep.
                ready.send(())?;
                usr1.recv().await;
                janus::Result::<()>::Ok(())
            }
        });
        for _ in 0..2 {
            for _ in 0..case.cores {
                listening.recv_timeout(PATIENCE).unwrap();
            }
            raise(SignalKind::user_defined1());
        }
        running.join().unwrap();
    }
}

#[test]
fn what_came_while_nobody_waited_is_told_once() {
    let running = Running::start(runtime(ONE_COMBINED), || async {
        let mut usr2 = signal(SignalKind::user_defined2())?;
        let mut other = unix::signal(SignalKind::window_change())?;
        raise_here(SignalKind::user_defined2());
        raise_here(SignalKind::user_defined2());
        usr2.recv().await;
        // Other signals are others, and old ones are not told again.
        assert!(other.recv().now_or_never().is_none());
        assert!(usr2.recv().now_or_never().is_none());
        // One who listens from now on hears what comes from now on.
        let mut late = signal(SignalKind::user_defined2())?;
        assert!(late.recv().now_or_never().is_none());
        raise_here(SignalKind::user_defined2());
        futures::join!(late.recv(), usr2.recv());
        janus::Result::<()>::Ok(())
    });
    running.join().unwrap();
}

#[test]
fn ctrl_c_is_a_reason_to_shut_down() {
    let _turn = end_signals();
    let (ready, listening) = channel();
    let running = Running::start(runtime(THREE_COMBINED), move || {
        let ready = ready.clone();
        async move {
            let mut waiting = std::pin::pin!(ctrl_c());
            assert!(waiting.as_mut().now_or_never().is_none());
            ready.send(())?;
            waiting.await?;
            janus::handle().unwrap().shutdown(Duration::from_secs(5));
            janus::Result::<()>::Ok(())
        }
    });
    for _ in 0..3 {
        listening.recv_timeout(PATIENCE).unwrap();
    }
    raise(SignalKind::interrupt());
    running.join().unwrap();
}

#[test]
fn sigterm_ends_a_runtime_that_does_not_wait_for_it() {
    let _turn = end_signals();
    let (ready, listening) = channel();
    let builder = THREE_COMBINED.builder().signals(true);
    let runtime = builder.backend(BackendChoice::Portal).build().unwrap();
    let running = Running::start(runtime, move || {
        let ready = ready.clone();
        async move {
            ready.send(())?;
            janus::shutting_down().await;
            janus::Result::<()>::Ok(())
        }
    });
    for _ in 0..3 {
        listening.recv_timeout(PATIENCE).unwrap();
    }
    raise(SignalKind::terminate());
    running.join().unwrap();
}

#[test]
fn signals_that_a_task_waits_for_are_the_programs_affair() {
    let _turn = end_signals();
    let builder = ONE_COMBINED.builder().signals(true);
    let runtime = builder.backend(BackendChoice::Portal).build().unwrap();
    let running = Running::start(runtime, || async {
        let mut terminate = signal(SignalKind::terminate())?;
        raise_here(SignalKind::terminate());
        terminate.recv().await;
        janus::time::sleep(Duration::from_millis(300)).await;
        assert!(!janus::is_shutting_down());
        janus::Result::<()>::Ok(())
    });
    running.join().unwrap();
}

#[test]
fn what_cannot_be_caught_is_refused() {
    assert!(signal(SignalKind::hangup()).is_err(), "no core runs here");
    let running = Running::start(runtime(ONE_COMBINED), || async {
        for number in [9, 19, 11, 0, -1, 65, 1_000] {
            let refused = signal(SignalKind::from_raw(number)).err();
            assert!(refused.is_some(), "signal {number}");
        }
        assert_eq!(SignalKind::terminate().as_raw_value(), 15);
    });
    running.join().unwrap();
}
