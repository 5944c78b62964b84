//! The response of one stream of HTTP/2 on its way to the peer: how much of it the peer's windows have let out, and the time limit of a
//! peer that takes nothing of it. The stream's task waits inside of hyper, so progress is counted where the bytes are taken, and the limit
//! is kept around the task. Over HTTP/1.1 the connection's own stream does this ([`Stream`](super::stream::Stream)).

use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::hyper::body::{Buf, Bytes};
use ::hyper::rt::Executor;
use janus::time::{Sleep, now, sleep};
use pin_project_lite::pin_project;

use super::watch::Watch;
use crate::pace::{Stall, Taker};
use crate::pool;

/// Most bytes of a response that may be left to the connection when the stream's task ends: nothing limits these but the connection's
/// idle time. One frame's, so that a small response needs no frame for its end.
const LEFT_MAX: u64 = 16 * 1024;

/// Progress of one response.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Bytes that the body has given.
    given: AtomicU64,
    /// Bytes of them that were written to the connection.
    taken: AtomicU64,
    /// Task that waits until enough is taken.
    waits: Mutex<Option<Waker>>,
}

impl Outgoing {
    fn outstanding(&self) -> u64 {
        self.given.load(Relaxed) - self.taken.load(Relaxed)
    }

    /// Returns whether so much is outstanding that the task must not end.
    pub(super) fn is_behind(&self) -> bool {
        self.outstanding() > LEFT_MAX
    }

    /// Waits until little is outstanding.
    pub(super) fn poll_taken(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_behind() {
            return Poll::Ready(());
        }
        // All of a connection is on one core: nothing is taken between the look and this.
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        Poll::Pending
    }

    fn count_taken(&self, count: usize) {
        let was_behind = self.is_behind();
        self.taken.fetch_add(count as u64, Relaxed);
        if was_behind && !self.is_behind() {
            let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            let waker = waits.take();
            drop(waits);
            waker.inspect(Waker::wake_by_ref);
        }
    }
}

/// Data of a response, which counts what is taken of it; over HTTP/1.1 nothing is counted.
pub(super) struct Counted<D> {
    data: D,
    outgoing: Option<Arc<Outgoing>>,
}

impl<D: Buf> Counted<D> {
    pub(super) fn new(data: D, outgoing: Option<Arc<Outgoing>>) -> Counted<D> {
        if let Some(outgoing) = &outgoing {
            outgoing.given.fetch_add(data.remaining() as u64, Relaxed);
        }
        Counted { data, outgoing }
    }

    fn count_taken(&self, count: usize) {
        if let Some(outgoing) = &self.outgoing {
            outgoing.count_taken(count);
        }
    }
}

impl<D: Buf> Buf for Counted<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(into)
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
        self.count_taken(count);
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        let bytes = self.data.copy_to_bytes(len);
        self.count_taken(len);
        bytes
    }
}

impl Taker for Outgoing {
    type Sleep = Sleep;

    fn sleep(&self, duration: Duration) -> Sleep {
        sleep(duration)
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(now().as_nanos())
    }

    fn unacknowledged(&self) -> usize {
        usize::try_from(self.outstanding()).unwrap_or(usize::MAX)
    }

    fn abort(&self) {
        pool::count(|counters| counters.streams_stalled += 1);
    }
}

/// Runs the streams of one connection as tasks of their own, each within the limit.
#[derive(Clone)]
pub(super) struct Streams(pub(super) Arc<Watch>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, future: F) {
        let limit = self.0.options().write_timeout;
        janus::spawn(Limited {
            future,
            watch: self.0.clone(),
            outgoing: None,
            limit,
            stall: Stall::new(limit),
        });
    }
}

pin_project! {
    /// The task of one stream. When it is dropped before its end, the stream is reset.
    struct Limited<F> {
        #[pin]
        future: F,
        watch: Arc<Watch>,
        outgoing: Option<Arc<Outgoing>>,
        limit: Option<Duration>,
        stall: Stall<Outgoing>,
    }
}

impl<F: Future<Output = ()>> Future for Limited<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.future.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if this.outgoing.is_none() {
            // The service is called in the task's first poll.
            *this.outgoing = this.watch.takes_outgoing();
        }
        let Some(outgoing) = this.outgoing else {
            return Poll::Pending;
        };
        if outgoing.outstanding() == 0 || this.watch.is_released() {
            // It waits for the service, or for more of the body: that is no time of the peer's.
            *this.stall = Stall::new(*this.limit);
            return Poll::Pending;
        }
        let given = outgoing.given.load(Relaxed);
        this.stall.poll(outgoing, cx, given).map(|_stalled| ())
    }
}
