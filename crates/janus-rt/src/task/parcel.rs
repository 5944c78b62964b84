//! A result on its way from another thread: one side runs the work and delivers, the other waits. A side that is dropped before it
//! delivers reports a cancelled task. Slow path only: locks are held for a move of memory, and no value of the user's is cloned, woken or
//! dropped under one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::join::JoinError;
use crate::lock::Lock;

/// State of a task that runs elsewhere, without its output.
#[derive(Default)]
pub(super) struct Order {
    aborted: AtomicBool,
    finished: AtomicBool,
    /// Waker of the task that runs it, woken when it is aborted.
    worker: Lock<Option<Waker>>,
}

/// Destination of the result.
pub(super) struct Parcel<T> {
    order: Arc<Order>,
    state: Lock<ParcelState<T>>,
}

enum ParcelState<T> {
    Waiting(Option<Waker>),
    Here(Result<T, JoinError>),
    Taken,
}

/// Duty to deliver the result.
pub(super) struct Delivery<T> {
    /// `None` once it is delivered.
    parcel: Option<Arc<Parcel<T>>>,
}

/// Makes both sides.
pub(super) fn pair<T>() -> (Arc<Parcel<T>>, Delivery<T>) {
    let parcel = Arc::new(Parcel {
        order: Arc::default(),
        state: Lock::new(ParcelState::Waiting(None)),
    });
    let delivery = Delivery {
        parcel: Some(parcel.clone()),
    };
    (parcel, delivery)
}

impl Order {
    /// Aborts the task, if it has not ended.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        // After the flag, and under the lock with which `is_aborted` sets the waker: one of the two sees the other.
        let worker = self.worker.lock().take();
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }
}

impl<T> Parcel<T> {
    pub(super) fn order(&self) -> &Arc<Order> {
        &self.order
    }

    /// Reports that the task was never begun, and why. Called before the first poll.
    pub(super) fn refuse(&self, why: &'static str) {
        let before = std::mem::replace(
            &mut *self.state.lock(),
            ParcelState::Here(Err(JoinError::refused(why))),
        );
        drop(before);
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        let waker = cx.waker().clone();
        let mut state = self.state.lock();
        match &mut *state {
            ParcelState::Waiting(waiter) => {
                let before = waiter.replace(waker);
                drop(state);
                drop(before);
                Poll::Pending
            }
            ParcelState::Here(_) => {
                let there = std::mem::replace(&mut *state, ParcelState::Taken);
                drop(state);
                match there {
                    ParcelState::Here(result) => Poll::Ready(result),
                    ParcelState::Waiting(_) | ParcelState::Taken => unreachable!("it was there"),
                }
            }
            ParcelState::Taken => Poll::Ready(Err(JoinError::cancelled())),
        }
    }
}

impl<T> Delivery<T> {
    /// Returns whether the task is aborted; if that changes, `cx`'s task is woken.
    pub(super) fn is_aborted(&self, cx: &Context<'_>) -> bool {
        let Some(parcel) = &self.parcel else {
            return false;
        };
        let order = &parcel.order;
        let waker = cx.waker().clone();
        let before = order.worker.lock().replace(waker);
        drop(before);
        order.aborted.load(Ordering::Acquire)
    }

    /// Returns whether the task is aborted, for work that cannot be interrupted.
    pub(super) fn was_aborted(&self) -> bool {
        let order = self.parcel.as_ref().map(|parcel| &parcel.order);
        order.is_some_and(|order| order.aborted.load(Ordering::Acquire))
    }

    pub(super) fn deliver(mut self, result: Result<T, JoinError>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<T, JoinError>) {
        let Some(parcel) = self.parcel.take() else {
            return;
        };
        let worker = parcel.order.worker.lock().take();
        drop(worker);
        let before = std::mem::replace(&mut *parcel.state.lock(), ParcelState::Here(result));
        parcel.order.finished.store(true, Ordering::Release);
        if let ParcelState::Waiting(Some(waiter)) = before {
            waiter.wake();
        }
    }
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        self.finish(Err(JoinError::cancelled()));
    }
}
