//! The threads for blocking calls, alone: who runs, who waits, who is refused, what is left at the end.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use super::*;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Awaits on this thread, which is no core.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let begin = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(PATIENCE);
        assert!(begin.elapsed() < PATIENCE, "nothing came");
    }
}

fn until(mut reached: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(begin.elapsed() < PATIENCE, "it does not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A call that says that it has begun and goes on until it is told.
fn held(begun: &Sender<()>) -> (impl FnOnce() -> u32 + Send + 'static, Sender<u32>) {
    let begun = begun.clone();
    let (go, told): (Sender<u32>, Receiver<u32>) = channel();
    let call = move || {
        begun.send(()).expect("the test waits");
        told.recv().unwrap_or_default()
    };
    (call, go)
}

#[test]
fn results_and_panics_come_back() {
    let pool = Blocking::new(2);
    assert_eq!(wait(pool.spawn(|| 6 * 7)).ok(), Some(42));
    let error = wait(pool.spawn(|| panic!("on purpose"))).map(|(): ()| ());
    let error = error.expect_err("it panicked");
    assert!(error.is_panic(), "{error}");
    assert_eq!(error.to_string(), "the task panicked: on purpose");
    assert_eq!(wait(pool.spawn(|| 1)).ok(), Some(1), "the thread lives on");
    assert_eq!(pool.close(PATIENCE), 0);
    assert_eq!(pool.report().done, 3);
}

#[test]
fn threads_are_made_when_needed_up_to_the_bound() {
    let pool = Blocking::new(2);
    let (begun, begins) = channel();
    assert_eq!(pool.report(), BlockingReport::default());
    let mut running = Vec::new();
    for _ in 0..3 {
        let (call, go) = held(&begun);
        running.push((pool.spawn(call), go));
    }
    for _ in 0..2 {
        begins.recv_timeout(PATIENCE).expect("two run at once");
    }
    let report = pool.report();
    assert_eq!((report.threads, report.waiting), (2, 1));
    assert!(begins.try_recv().is_err(), "the third waits");
    for (n, (_, go)) in running.iter().enumerate() {
        go.send(n as u32).expect("it waits for this");
    }
    for (n, (handle, _)) in running.into_iter().enumerate() {
        assert_eq!(wait(handle).ok(), Some(n as u32));
    }
    until(|| pool.report().idle == 2);
    // A thread that is there serves again.
    for n in 0..20 {
        assert_eq!(wait(pool.spawn(move || n)).ok(), Some(n));
        until(|| pool.report().idle == 2);
    }
    assert_eq!(pool.report().threads, 2);
    assert_eq!(pool.close(PATIENCE), 0);
}

#[test]
fn a_call_that_is_aborted_in_time_does_not_begin() {
    let pool = Blocking::new(1);
    let (begun, begins) = channel();
    let (call, go) = held(&begun);
    let first = pool.spawn(call);
    begins.recv_timeout(PATIENCE).expect("it runs");
    let (call, _never) = held(&begun);
    let second = pool.spawn(call);
    second.abort();
    first.abort();
    go.send(5).expect("it waits for this");
    assert_eq!(wait(first).ok(), Some(5), "what has begun goes on");
    assert!(wait(second).is_err_and(|error| error.is_cancelled()));
    assert!(begins.try_recv().is_err());
    assert_eq!(pool.close(PATIENCE), 0);
}

#[test]
fn the_end_drops_what_waits_and_is_patient_with_what_runs() {
    let pool = Blocking::new(1);
    let (begun, begins) = channel();
    let (call, go) = held(&begun);
    let first = pool.spawn(call);
    begins.recv_timeout(PATIENCE).expect("it runs");
    let (call, _never) = held(&begun);
    let second = pool.spawn(call);
    assert_eq!(pool.close(Duration::from_millis(1)), 1, "left behind");
    assert!(wait(second).is_err_and(|error| error.is_cancelled()));
    let late = wait(pool.spawn(|| ())).expect_err("it is over");
    assert_eq!(
        late.to_string(),
        "the task was not begun: the runtime has ended"
    );
    go.send(7).expect("it goes on");
    assert_eq!(pool.close(PATIENCE), 0, "now it has ended");
    assert_eq!(wait(first).ok(), Some(7), "and its result is not lost");
}

#[test]
fn the_queue_has_a_bound() {
    let pool = Blocking::new(1);
    let (begun, begins) = channel();
    let (call, go) = held(&begun);
    let first = pool.spawn(call);
    begins.recv_timeout(PATIENCE).expect("it runs");
    let waiting = if cfg!(miri) { return } else { WAITING_MAX };
    let handles: Vec<_> = (0..waiting).map(|_| pool.spawn(|| ())).collect();
    let refused = wait(pool.spawn(|| ())).expect_err("it is full");
    assert!(refused.is_cancelled());
    assert_eq!(pool.report().refused, 1);
    drop(handles);
    go.send(1).expect("it waits for this");
    assert_eq!(wait(first).ok(), Some(1));
    assert_eq!(pool.close(PATIENCE), 0);
}

#[test]
fn a_result_that_nobody_wants_and_that_panics_in_its_drop_ends_no_thread() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }
    let pool = Blocking::new(1);
    let (begun, begins) = channel();
    let (call, go) = held(&begun);
    drop(pool.spawn(move || {
        call();
        Bad
    }));
    begins.recv_timeout(PATIENCE).expect("it runs");
    go.send(0).expect("it waits for this");
    assert_eq!(wait(pool.spawn(|| 3)).ok(), Some(3));
    assert_eq!(pool.report().threads, 1);
    assert_eq!(pool.close(PATIENCE), 0);
}
