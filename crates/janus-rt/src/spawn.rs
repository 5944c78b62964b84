//! Calls of a task that run something away from its core: on another core of the runtime, or on a thread for blocking calls. `task` does
//! the work; here it is found for the core that asks.

use std::future::Future;

use crate::shard::core_context;
use crate::task::{AbortHandle, JoinHandle, JoinSet};

/// Spawns a task on a core of this runtime: `make` is sent there, and the future it makes stays there, so the future need not be `Send`.
/// The handle may be awaited here.
///
/// When the core has ended, or 65,536 tasks wait for it to take them, awaiting the handle returns an error.
///
/// ```
/// # janus::Runtime::builder().ignore_environment().cores(2).build()?.run(|| async {
/// let there = janus::spawn_on(1, || async { janus::core_id() });
/// assert_eq!(there.await.unwrap(), Some(1));
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When no Janus core runs on this thread ([`Handle::spawn_on`](crate::Handle::spawn_on) is for others), or the runtime
/// has no such core.
pub fn spawn_on<M, F>(core: usize, make: M) -> JoinHandle<F::Output>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future + 'static,
    F::Output: Send + 'static,
{
    let Some(shared) = core_context::shared() else {
        panic!(
            "janus::spawn_on was called where no Janus core runs: use Handle::spawn_on, or call it from a runtime's main \
             or its tasks"
        );
    };
    shared.cores.spawn_on(core, make)
}

/// Runs `call` on a thread on which it may block, and returns its result.
///
/// Aborting the handle cancels a call that has not begun; one that has begun runs to its end. When the runtime ends, it waits for running
/// calls for as long as for connections (`close_ms`), and leaves the rest behind.
///
/// ```
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let text = janus::spawn_blocking(|| std::fs::read_to_string("/proc/version"));
/// assert!(text.await.unwrap().is_ok());
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When no Janus core runs on this thread; [`Handle::spawn_blocking`](crate::Handle::spawn_blocking) is for others.
pub fn spawn_blocking<F, R>(call: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let Some(shared) = core_context::shared() else {
        panic!(
            "janus::spawn_blocking was called where no Janus core runs: use Handle::spawn_blocking, or call it from a \
             runtime's main or its tasks"
        );
    };
    shared.blocking.spawn(call)
}

impl<T: Send + 'static> JoinSet<T> {
    /// Spawns a task on a core of this runtime, as [`spawn_on`] does.
    pub fn spawn_on<M, F>(&mut self, core: usize, make: M) -> AbortHandle
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.insert(spawn_on(core, make))
    }

    /// Runs a call that may block, as [`spawn_blocking`] does.
    pub fn spawn_blocking<F>(&mut self, call: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
    {
        self.insert(spawn_blocking(call))
    }
}
