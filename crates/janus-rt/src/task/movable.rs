//! Tasks that go to another core when they ask for it: the future is sent, and goes on there in a new task. Its output comes back as that of
//! any task elsewhere. Which cores there are is told by `spawn_on`.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::join::JoinHandle;
use super::parcel;
use super::spawn_on::{Cores, Sent};
use super::{spawn, spawn_sent};
use crate::inbox::Job;

/// Wish of the task that is being polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It is none that moves.
    Fixed,
    /// It goes on here.
    Stay,
    /// It goes on there.
    Go(usize),
}

thread_local! {
    static WISH: Cell<Wish> = const { Cell::new(Wish::Fixed) };
}

/// Returns the wish of the task that is being polled.
pub(crate) fn wish() -> Wish {
    WISH.get()
}

/// Changes it, where the task may move.
pub(crate) fn set_wish(wish: Wish) {
    if WISH.get() != Wish::Fixed {
        WISH.set(wish);
    }
}

type Anywhere<T> = dyn Future<Output = T> + Send;

/// A task that may move.
struct Movable<T> {
    /// `None` once it has gone.
    task: Option<Sent<Anywhere<T>>>,
    cores: Cores,
}

impl Cores {
    /// Spawns a task on this core that goes to another when it asks for it.
    pub(crate) fn spawn_movable<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (parcel, delivery) = parcel::pair();
        let future: Pin<Box<Anywhere<F::Output>>> = Box::pin(future);
        drop(spawn(Movable {
            task: Some(Sent::new(future, delivery)),
            cores: self.clone(),
        }));
        JoinHandle::elsewhere(parcel)
    }
}

impl<T: Send + 'static> Movable<T> {
    /// Goes to another core; where that takes no tasks it goes on here.
    fn go(&mut self, core: usize) {
        let moved = Movable {
            task: self.task.take(),
            cores: self.cores.clone(),
        };
        let begin: Job = Box::new(move || spawn_sent(moved));
        if let Err(begin) = self.cores.offer(core, begin) {
            begin();
        }
    }
}

impl<T: Send + 'static> Future for Movable<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.task else {
            return Poll::Ready(());
        };
        let before = WISH.replace(Wish::Stay);
        let polled = Pin::new(task).poll(cx);
        let wish = WISH.replace(before);
        match (polled, wish) {
            (Poll::Pending, Wish::Go(core)) => {
                self.go(core);
                Poll::Ready(())
            }
            (polled, _) => polled,
        }
    }
}
