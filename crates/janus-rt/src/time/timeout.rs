//! A bound on the time a future may take.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Duration, Instant, Sleep, sleep, sleep_until};
use crate::task::coop;

/// Limits `future` to `time`: when it has not finished by then, the result is [`Elapsed`], and `future` is dropped with the [`Timeout`].
///
/// ```
/// use janus::time::{Duration, sleep, timeout};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let quick = timeout(Duration::from_secs(5), async { 7 });
/// assert_eq!(quick.await, Ok(7));
/// let slow = timeout(Duration::from_millis(1), sleep(Duration::from_secs(5)));
/// assert!(slow.await.is_err());
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When polled on a thread on which no Janus core runs.
///
/// # Cancel safety
/// Dropping the [`Timeout`] drops `future`.
pub fn timeout<F: Future>(time: Duration, future: F) -> Timeout<F> {
    Timeout {
        future,
        sleep: sleep(time),
    }
}

/// Like [`timeout`], but with the moment at which the time is over.
///
/// ```
/// use janus::time::{Duration, now, timeout_at};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let deadline = now() + Duration::from_millis(1);
/// let endless = timeout_at(deadline, std::future::pending::<()>());
/// assert!(endless.await.is_err());
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When polled on a thread on which no Janus core runs.
///
/// # Cancel safety
/// Dropping the [`Timeout`] drops `future`.
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout {
        future,
        sleep: sleep_until(deadline),
    }
}

/// See [`timeout`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct Timeout<F> {
    future: F,
    sleep: Sleep,
}

impl<F> Timeout<F> {
    /// Returns the future that is limited.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns the future that is limited.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Returns the future, without its limit.
    pub fn into_inner(self) -> F {
        self.future
    }
}

/// Error of a future that did not finish in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up before it finished")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: neither field is moved out of the pinned `Timeout`, it has no `Drop` of its own, and `Sleep` is
        // `Unpin`, so only `future` is pinned by it.
        let (future, sleep) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.sleep)
        };
        if let Poll::Ready(output) = future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // Checked even when the future has used up the task's budget, so that a future that is always ready has a limit too.
        coop::without_limit(|| Pin::new(sleep).poll(cx)).map(|()| Err(Elapsed))
    }
}
