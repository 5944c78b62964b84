//! Tasks for other cores: a closure goes through the core's inbox, makes the future, and that runs there to its end; only its output comes
//! back.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::join::{JoinError, JoinHandle};
use super::parcel::{self, Delivery};
use super::{context, spawn_sent};
use crate::inbox::{Inbox, Job, Refused};

/// The inboxes of a runtime's cores.
#[derive(Clone)]
pub(crate) struct Cores {
    inboxes: Arc<[Arc<Inbox>]>,
}

impl Cores {
    pub(crate) fn new(inboxes: Vec<Arc<Inbox>>) -> Cores {
        Cores {
            inboxes: inboxes.into(),
        }
    }

    /// Runs `job` on the thread of a core, or gives it back.
    pub(super) fn offer(&self, core: usize, job: Job) -> Result<(), Job> {
        match self.inboxes.get(core) {
            Some(inbox) => inbox.offer(job),
            None => Err(job),
        }
    }

    /// Runs `job` on the thread of a core.
    pub(crate) fn run(&self, core: u8, job: Job) -> Result<(), Refused> {
        let inbox = self.inboxes.get(usize::from(core)).ok_or(Refused::Closed)?;
        inbox.run(job)
    }

    /// Runs `job` on the thread of each core that has not ended; returns false when a core's inbox is too full to take it.
    pub(crate) fn run_on_each(&self, job: impl Fn() + Copy + Send + 'static) -> bool {
        let full = |inbox: &Arc<Inbox>| inbox.run(Box::new(job)) == Err(Refused::Full);
        self.inboxes.iter().filter(|inbox| full(inbox)).count() == 0
    }

    pub(crate) fn spawn_on<M, F>(&self, core: usize, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let Some(inbox) = self.inboxes.get(core) else {
            panic!(
                "there is no core {core}: this runtime's cores are 0 to {}",
                self.inboxes.len().saturating_sub(1)
            );
        };
        let (parcel, delivery) = parcel::pair();
        let begin = move || {
            // `make` is the user's: its panic is caught in a task.
            spawn_sent(Sent::new(Box::pin(async move { make().await }), delivery));
        };
        let handle = JoinHandle::elsewhere(parcel.clone());
        if inbox.run(Box::new(begin)) == Err(Refused::Full) {
            // The closure is dropped, and with it the delivery, which reported a cancelled task.
            parcel.refuse("too many tasks wait for that core");
        }
        handle
    }
}

/// A task from another thread. Its output is delivered after its future is dropped.
pub(super) struct Sent<F: Future + ?Sized> {
    /// `None` once it has ended.
    future: Option<Pin<Box<F>>>,
    /// `None` once the output is delivered.
    delivery: Option<Delivery<F::Output>>,
}

impl<F: Future + ?Sized> Sent<F> {
    pub(super) fn new(future: Pin<Box<F>>, delivery: Delivery<F::Output>) -> Sent<F> {
        Sent {
            future: Some(future),
            delivery: Some(delivery),
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.future else {
            return Poll::Pending;
        };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl<F: Future + ?Sized> Future for Sent<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.delivery.as_ref().is_none_or(|d| d.is_aborted(cx)) {
            // The future is dropped first, then the delivery, which reports the end.
            return Poll::Ready(());
        }
        let end = match catch_unwind(AssertUnwindSafe(|| self.step(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => {
                let future = self.future.take();
                context::with(|core| {
                    core.count_panic();
                    core.quietly(|| drop(future));
                });
                Err(JoinError::panicked(payload))
            }
        };
        if let Some(delivery) = self.delivery.take() {
            delivery.deliver(end);
        }
        Poll::Ready(())
    }
}
