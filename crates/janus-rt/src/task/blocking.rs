//! Threads for blocking calls: files, name servers, long computations. A thread is started when a call waits and none is idle, up to a
//! bound, and ends when it has been idle for a while. A call belongs to no core: it returns its result, and that is all.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::join::{JoinError, JoinHandle};
use super::parcel;
use crate::lock::Lock;

/// Most calls that may wait for a thread.
const WAITING_MAX: usize = 1 << 16;
/// How long an idle thread is kept.
const KEEP: Duration = Duration::from_secs(10);

/// State of a runtime's threads for blocking calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingReport {
    /// Threads that exist.
    pub threads: usize,
    /// Threads of these that are idle.
    pub idle: usize,
    /// Calls that wait for a thread.
    pub waiting: usize,
    /// Calls that have ended.
    pub done: u64,
    /// Calls refused because too many waited, or because there was no thread and none could be started.
    pub refused: u64,
    /// Times the system refused a thread. The call waited for an existing thread, or was refused if there was none.
    pub threads_refused: u64,
}

type Call = Box<dyn FnOnce() + Send>;

/// The threads of one runtime.
pub(crate) struct Blocking {
    state: Lock<PoolState>,
    /// Rung for a call that waits, and at the end.
    bell: Condvar,
    /// Rung when a thread has ended.
    left: Condvar,
}

#[derive(Default)]
struct PoolState {
    threads_max: usize,
    calls: VecDeque<Call>,
    threads: usize,
    idle: usize,
    /// Threads ever started, for their names.
    made: u64,
    done: u64,
    refused: u64,
    threads_refused: u64,
    closed: bool,
}

impl Blocking {
    pub(crate) fn new(threads_max: usize) -> Arc<Blocking> {
        Arc::new(Blocking {
            state: Lock::new(PoolState {
                threads_max,
                ..PoolState::default()
            }),
            bell: Condvar::new(),
            left: Condvar::new(),
        })
    }

    /// Sets the bound on threads for later calls. Threads beyond it end when they have been idle for a while.
    pub(crate) fn set_threads_max(&self, threads_max: usize) {
        self.state.lock().threads_max = threads_max;
    }

    pub(crate) fn spawn<F, R>(self: &Arc<Blocking>, call: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (parcel, delivery) = parcel::pair();
        let run = move || {
            if delivery.was_aborted() {
                return;
            }
            let end = catch_unwind(AssertUnwindSafe(call)).map_err(JoinError::panicked);
            delivery.deliver(end);
        };
        if let Err(why) = self.enter(Box::new(run)) {
            parcel.refuse(why);
        }
        JoinHandle::elsewhere(parcel)
    }

    /// Queues a call, and starts a thread if none is idle.
    fn enter(self: &Arc<Blocking>, call: Call) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        if state.closed {
            return Err("the runtime has ended");
        }
        if state.calls.len() >= WAITING_MAX {
            state.refused += 1;
            drop(state);
            // Dropped after the lock is released, since it holds the user's values.
            drop(call);
            return Err("too many blocking calls wait for a thread");
        }
        state.calls.push_back(call);
        if state.idle >= state.calls.len() {
            self.bell.notify_one();
            return Ok(());
        }
        if state.threads >= state.threads_max {
            return Ok(());
        }
        state.threads += 1;
        state.made += 1;
        let name = format!("janus-blocking-{}", state.made);
        drop(state);
        let pool = self.clone();
        if Builder::new().name(name).spawn(move || pool.work()).is_ok() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.threads -= 1;
        state.threads_refused += 1;
        if state.threads > 0 {
            // An existing thread will take it.
            return Ok(());
        }
        let calls = std::mem::take(&mut state.calls);
        state.refused += calls.len() as u64;
        drop(state);
        drop(calls);
        Err("no thread could be made for blocking calls")
    }

    /// Main loop of a thread.
    fn work(&self) {
        while let Some(call) = self.next() {
            // The call's own panic is caught in it; this catches one in the drop of a result whose handle is gone.
            let ended = catch_unwind(AssertUnwindSafe(call));
            // A panic's payload may panic in its own drop, which cannot be handled.
            ended.unwrap_or_else(std::mem::forget);
            self.state.lock().done += 1;
        }
    }

    /// Returns the next call; `None`: this thread no longer counts, and ends.
    fn next(&self) -> Option<Call> {
        let mut state = self.state.lock();
        let until = Instant::now() + KEEP;
        loop {
            if let Some(call) = state.calls.pop_front() {
                return Some(call);
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.closed || left.is_zero() {
                state.threads -= 1;
                self.left.notify_all();
                return None;
            }
            state.idle += 1;
            let waited = self.bell.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Drops the calls that wait, and waits at most `patience` for those that run. Returns how many still run.
    pub(crate) fn close(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        state.closed = true;
        let calls = std::mem::take(&mut state.calls);
        self.bell.notify_all();
        drop(state);
        drop(calls);
        let mut state = self.state.lock();
        while state.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.left.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.threads
    }

    /// Returns whether a call runs or waits.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.threads > state.idle || !state.calls.is_empty()
    }

    pub(crate) fn report(&self) -> BlockingReport {
        let state = self.state.lock();
        BlockingReport {
            threads: state.threads,
            idle: state.idle,
            waiting: state.calls.len(),
            done: state.done,
            refused: state.refused,
            threads_refused: state.threads_refused,
        }
    }
}
