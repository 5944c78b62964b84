//! Waiting for a moment of the core's clock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Duration, Instant, now};
use crate::task::{Armed, context, coop};

/// Waits for `time` by the core's clock: never shorter, and longer by at most a third of a millisecond unless the core is busy. That clock
/// stands still while tasks run ([`now`]), so the time a task has computed in its turn before it sleeps counts as part of `time`.
///
/// ```
/// use janus::time::{Duration, now, sleep};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let begun = now();
/// sleep(Duration::from_millis(2)).await;
/// assert!(now() >= begun + Duration::from_millis(2));
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When polled on a thread on which no Janus core runs.
///
/// # Cancel safety
/// Dropping the future cancels the timer.
pub fn sleep(time: Duration) -> Sleep {
    Sleep {
        until: Until::After(time),
        armed: None,
    }
}

/// Waits until the core's clock reads `deadline`.
///
/// ```
/// use janus::time::{Duration, now, sleep_until};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let deadline = now() + Duration::from_millis(2);
/// sleep_until(deadline).await;
/// assert!(now() >= deadline);
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
///
/// # Panics
/// When polled on a thread on which no Janus core runs.
///
/// # Cancel safety
/// Dropping the future cancels the timer.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        until: Until::At(deadline),
        armed: None,
    }
}

/// See [`sleep`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct Sleep {
    until: Until,
    armed: Option<Armed>,
}

#[derive(Debug)]
enum Until {
    /// Counted from the first poll: a `Sleep` may be made before any core runs.
    After(Duration),
    At(Instant),
}

impl Sleep {
    /// Starts the wait anew, until `deadline`.
    pub fn reset(&mut self, deadline: Instant) {
        self.disarm();
        self.until = Until::At(deadline);
    }

    /// Returns the moment at which the sleep ends; `None` for a sleep of a duration that has not been polled, since the duration counts
    /// from the first poll.
    pub fn deadline(&self) -> Option<Instant> {
        match self.until {
            Until::After(_) => None,
            Until::At(deadline) => Some(deadline),
        }
    }

    /// Returns whether its deadline has passed.
    ///
    /// # Panics
    /// Where no Janus core runs.
    pub fn is_elapsed(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now())
    }

    fn disarm(&mut self) {
        if let Some(armed) = self.armed.take() {
            context::with(|core| core.timers.disarm(armed));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if coop::proceed(cx).is_pending() {
            return Poll::Pending;
        }
        let polled = context::with(|core| {
            let now = core.now();
            let deadline = match self.until {
                Until::At(deadline) => deadline,
                Until::After(time) => now + time,
            };
            self.until = Until::At(deadline);
            if deadline <= now {
                if let Some(armed) = self.armed.take() {
                    core.timers.disarm(armed);
                }
                coop::spend();
                return Poll::Ready(());
            }
            let task = core.task_of(cx.waker());
            if let Some(armed) = self.armed {
                if core.timers.wakes(armed, task, cx.waker()) {
                    return Poll::Pending;
                }
                core.timers.disarm(armed);
            }
            self.armed = Some(core.timers.arm(deadline, task, cx.waker()));
            Poll::Pending
        });
        polled.expect("janus::time was used where no Janus core runs: await it in a runtime's main or its tasks")
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}
