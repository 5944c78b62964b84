//! Calls of a task that run something away from its core, or go there: on another core of the runtime, or on a thread for blocking calls. `task` does
//! the work; here it is found for the core that asks.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::shard::core_context;
use crate::task::{self, AbortHandle, JoinHandle, JoinSet, Wish};

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

/// Spawns a task on this core that can go to another: where it awaits [`move_to`]. Its future is `Send`, as what it has goes along, but for
/// connections: those are asked for there ([`TcpStream::adopt_here`](crate::net::TcpStream::adopt_here)).
///
/// ```
/// use janus::net::{TcpListener, TcpStream};
///
/// # let runtime = janus::Runtime::builder().ignore_environment().cores(2).build()?;
/// # runtime.run(|| async {
/// # if janus::core_id() != Some(0) { return Ok(()) }
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.reachable_at()).await?;
/// let (stream, _peer) = listener.accept().await?;
/// let served = janus::spawn_movable(async move {
///     // Somebody has said `Handle::balance().drain(0)`: off we go.
///     janus::move_to(1).await?;
///     let stream = stream.adopt_here().await?;
///     stream.write_all(b"hello").await
/// });
/// let mut greeting = [0; 5];
/// client.read_exact(&mut greeting).await?;
/// assert_eq!(&greeting, b"hello");
/// served.await??;
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When no Janus core runs on this thread.
pub fn spawn_movable<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let Some(shared) = core_context::shared() else {
        panic!(
            "janus::spawn_movable was called where no Janus core runs: call it from a runtime's main or its tasks"
        );
    };
    shared.cores.spawn_movable(future)
}

/// Has the calling task go on on that core of its runtime. On that core it is there at once. Futures that the task waits for at the same
/// time are polled anew there; one that keeps account of who was woken, as `FuturesUnordered` does, is not told of that.
///
/// # Errors
/// [`InvalidInput`](io::ErrorKind::InvalidInput) when there is no such core; [`Unsupported`](io::ErrorKind::Unsupported) in a task that was not
/// spawned by [`spawn_movable`]; [`ResourceBusy`](io::ErrorKind::ResourceBusy) when that core has ended or takes no more tasks. The task
/// goes on where it was then.
///
/// # Cancel safety
/// A future that is dropped moves nothing.
pub fn move_to(core: usize) -> MoveTo {
    MoveTo { core, asked: false }
}

/// See [`move_to`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct MoveTo {
    core: usize,
    asked: bool,
}

impl Future for MoveTo {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let here = core_context::with(|ctx| (usize::from(ctx.core), ctx.shared.mailbox.shards()));
        let Some((here, cores)) = here else {
            return Poll::Ready(Err(core_context::no_core()));
        };
        let error = |kind, text: String| Poll::Ready(Err(io::Error::new(kind, text)));
        let asked = std::mem::replace(&mut self.asked, true);
        match task::wish() {
            _ if here == self.core => Poll::Ready(Ok(())),
            _ if self.core >= cores => {
                let text = format!(
                    "there is no core {}: they are 0 to {}",
                    self.core,
                    cores - 1
                );
                error(io::ErrorKind::InvalidInput, text)
            }
            Wish::Fixed => {
                let text = "only a task that janus::spawn_movable has spawned moves";
                error(io::ErrorKind::Unsupported, text.into())
            }
            Wish::Stay if asked => {
                let text = format!("core {} has ended, or takes no more tasks", self.core);
                error(io::ErrorKind::ResourceBusy, text)
            }
            Wish::Stay | Wish::Go(_) => {
                task::set_wish(Wish::Go(self.core));
                Poll::Pending
            }
        }
    }
}

impl Drop for MoveTo {
    fn drop(&mut self) {
        // In the poll in which it was asked for.
        if task::wish() == Wish::Go(self.core) {
            task::set_wish(Wish::Stay);
        }
    }
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
