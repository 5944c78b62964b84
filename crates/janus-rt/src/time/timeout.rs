//! A bound on how long a future may take.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Duration, Instant, Sleep, sleep, sleep_until};
use crate::task::coop;

/// Gives `future` at most `time` to finish; it is dropped with the [`Timeout`] when it has not.
pub fn timeout<F: Future>(time: Duration, future: F) -> Timeout<F> {
    Timeout {
        future,
        sleep: sleep(time),
    }
}

/// Gives `future` until `deadline` to finish.
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout {
        future,
        sleep: sleep_until(deadline),
    }
}

/// See [`timeout`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Timeout<F> {
    future: F,
    sleep: Sleep,
}

impl<F> Timeout<F> {
    /// The future that is waited for.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The future that is waited for.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// The future, without a bound.
    pub fn into_inner(self) -> F {
        self.future
    }
}

/// The time was up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        // Also when the future has used up the task's budget: one that always finds something to do has a bound too.
        coop::without_limit(|| Pin::new(sleep).poll(cx)).map(|()| Err(Elapsed))
    }
}
