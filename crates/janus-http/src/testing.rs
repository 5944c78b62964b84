//! A transport in memory and an executor of one loop, for this crate's tests. Time passes only when a test says so.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::Transport;

/// Both ends of one connection, as the code under test and the test see it.
#[derive(Default)]
pub(crate) struct Wire {
    incoming: VecDeque<Box<[u8]>>,
    ended: bool,
    pub(crate) outgoing: Vec<u8>,
    /// Bytes that the transport still accepts.
    pub(crate) room: Option<usize>,
    pub(crate) shut: bool,
    pub(crate) sleeps: Vec<Duration>,
    leaving: bool,
    now: Duration,
    /// Bytes written and not acknowledged.
    pub(crate) unacknowledged: usize,
    pub(crate) aborted: bool,
    /// Last argument of `wake_reader`; `None`: the transport cannot wake a waiting reader.
    pub(crate) wakes: Option<Option<Duration>>,
}

/// The end that the code under test holds.
#[derive(Clone, Default)]
pub(crate) struct Pipe(Rc<RefCell<Wire>>);

impl Pipe {
    /// The peer sends `bytes`, in one piece.
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.0.borrow_mut().incoming.push_back(bytes.into());
    }

    /// The peer ends its direction.
    pub(crate) fn end(&self) {
        self.0.borrow_mut().ended = true;
    }

    /// Time passes.
    pub(crate) fn pass(&self, time: Duration) {
        self.0.borrow_mut().now += time;
    }

    /// Lets enough time pass for every timer to end.
    pub(crate) fn expire(&self) {
        self.pass(Duration::from_secs(3_600));
    }

    /// The server is about to end.
    pub(crate) fn leave(&self) {
        self.0.borrow_mut().leaving = true;
    }

    pub(crate) fn with<R>(&self, then: impl FnOnce(&mut Wire) -> R) -> R {
        then(&mut self.0.borrow_mut())
    }

    /// Returns the bytes that the peer has received since the last call.
    pub(crate) fn received(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.borrow_mut().outgoing)).unwrap()
    }
}

/// A timer that ends at this time.
pub(crate) struct Alarm(Rc<RefCell<Wire>>, Duration);

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.0.borrow().now >= self.1 {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Transport for Pipe {
    type Piece = Box<[u8]>;
    type Sleep = Alarm;

    fn poll_recv(&self, _: &mut Context<'_>) -> Poll<io::Result<Option<Box<[u8]>>>> {
        let mut wire = self.0.borrow_mut();
        match wire.incoming.pop_front() {
            Some(piece) => Poll::Ready(Ok(Some(piece))),
            None if wire.ended => Poll::Ready(Ok(None)),
            None => Poll::Pending,
        }
    }

    fn poll_write(&self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut wire = self.0.borrow_mut();
        assert!(!wire.shut, "written after the end");
        let taken = bytes.len().min(wire.room.unwrap_or(usize::MAX));
        if taken == 0 {
            return Poll::Pending;
        }
        wire.room = wire.room.map(|room| room - taken);
        wire.outgoing.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().shut = true;
        Poll::Ready(Ok(()))
    }

    fn sleep(&self, duration: Duration) -> Alarm {
        let mut wire = self.0.borrow_mut();
        wire.sleeps.push(duration);
        Alarm(self.0.clone(), wire.now + duration)
    }

    fn now(&self) -> Duration {
        // Some time after it began, as clocks do.
        Duration::from_secs(1) + self.0.borrow().now
    }

    fn wake_reader(&self, silence: Option<Duration>) -> bool {
        let wakes = &mut self.0.borrow_mut().wakes;
        wakes.as_mut().map(|wakes| *wakes = silence).is_some()
    }

    fn unacknowledged(&self) -> usize {
        self.0.borrow().unacknowledged
    }

    fn abort(&self) {
        self.0.borrow_mut().aborted = true;
    }

    fn is_leaving(&self) -> bool {
        self.0.borrow().leaving
    }
}

/// Polls once. Nothing in these tests wakes, so a test polls after each thing it does.
pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once and expects the end.
pub(crate) fn finish<F: Future>(future: Pin<&mut F>) -> F::Output {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("still waiting"),
    }
}
