//! The clock of a connection that hyper serves: which time limit of a connection that waits for a request applies, and since when. Bodies
//! and writes have clocks of their own. The stream, the requests in hand and the driver of the connection share it; all are on one core,
//! but hyper requires a stream that is `Send`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use janus::time::Instant;

use super::outgoing::Outgoing;
use crate::options::Options;

/// State of the clock; see the module.
pub(super) struct Watch {
    options: &'static Options,
    /// Requests whose response is not complete.
    in_hand: AtomicU32,
    /// Whether the stream waits for room.
    blocked: AtomicBool,
    /// Bytes handed to the stream.
    written: AtomicU64,
    /// End of the last request or write, or the connection's start, in nanoseconds.
    since: AtomicU64,
    /// Arrival of the first byte after that, in nanoseconds; 0 = none has come.
    head_since: AtomicU64,
    /// Whether a request has been answered, or is being answered.
    asked: AtomicBool,
    http2: AtomicBool,
    /// Whether the connection has changed to another protocol: nothing is limited any more.
    released: AtomicBool,
    /// Whether the stream must answer that the head took too long.
    refused: AtomicBool,
    /// Response of the stream of HTTP/2 whose service was called last, until the stream's task takes it.
    outgoing: Mutex<Option<Arc<Outgoing>>>,
}

/// A time limit that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// While no byte of a request had come.
    Silent,
    /// While a head was incomplete.
    Head,
}

impl Watch {
    pub(super) fn new(options: &'static Options) -> Arc<Watch> {
        Arc::new(Watch {
            options,
            in_hand: AtomicU32::new(0),
            blocked: AtomicBool::new(false),
            written: AtomicU64::new(0),
            since: AtomicU64::new(now()),
            head_since: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            released: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            outgoing: Mutex::default(),
        })
    }

    pub(super) fn options(&self) -> &'static Options {
        self.options
    }

    /// Counts a request as in hand until the returned guard is dropped.
    pub(super) fn begin(self: &Arc<Watch>, http2: bool) -> InHand {
        self.http2.store(http2, Relaxed);
        self.asked.store(true, Relaxed);
        self.in_hand.store(self.in_hand.load(Relaxed) + 1, Relaxed);
        InHand(self.clone())
    }

    /// Makes a stream's account of its response, for its service and its task.
    pub(super) fn gives_outgoing(&self) -> Arc<Outgoing> {
        let outgoing = Arc::<Outgoing>::default();
        let mut last = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(outgoing.clone());
        outgoing
    }

    pub(super) fn takes_outgoing(&self) -> Option<Arc<Outgoing>> {
        let mut last = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        last.take()
    }

    /// Notes received bytes.
    pub(super) fn received(&self) {
        if self.in_hand.load(Relaxed) == 0 && self.head_since.load(Relaxed) == 0 {
            self.head_since.store(now(), Relaxed);
        }
    }

    /// Notes bytes handed to the stream; `None`: there was no room.
    pub(super) fn wrote(&self, bytes: Option<usize>) {
        let was_blocked = self.blocked.load(Relaxed);
        match bytes {
            Some(bytes) => {
                let written = self.written.load(Relaxed) + bytes as u64;
                self.written.store(written, Relaxed);
                if was_blocked {
                    self.blocked.store(false, Relaxed);
                    self.since.store(now(), Relaxed);
                }
            }
            None => self.blocked.store(true, Relaxed),
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Notes that the connection begins as HTTP/2 does.
    pub(super) fn begin_http2(&self) {
        self.http2.store(true, Relaxed);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    /// Removes all limits.
    pub(super) fn release(&self) {
        self.released.store(true, Relaxed);
    }

    pub(super) fn is_released(&self) -> bool {
        self.released.load(Relaxed)
    }

    pub(super) fn refuse(&self) {
        self.refused.store(true, Relaxed);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// Returns the end of the wait for a request, if the connection waits for one.
    pub(super) fn deadline(&self) -> Option<(Instant, Bound)> {
        let busy = self.in_hand.load(Relaxed) > 0 || self.blocked.load(Relaxed);
        if busy || self.is_released() {
            return None;
        }
        let at = |since: u64, limit: Option<Duration>| {
            limit.map(|limit| Instant::from_nanos(since) + limit)
        };
        let head = self.head_since.load(Relaxed);
        // HTTP/2 sends bytes that are no request.
        if head != 0 && !self.is_http2() {
            return Some((at(head, self.options.head_timeout)?, Bound::Head));
        }
        let limit = match self.asked.load(Relaxed) {
            false => self.options.first_byte_timeout,
            true => self.options.idle_timeout,
        };
        Some((at(self.since.load(Relaxed), limit)?, Bound::Silent))
    }
}

fn now() -> u64 {
    janus::time::now().as_nanos()
}

/// A request in hand.
pub(super) struct InHand(Arc<Watch>);

impl InHand {
    pub(super) fn watch(&self) -> &Arc<Watch> {
        &self.0
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let watch = &*self.0;
        let left = watch.in_hand.load(Relaxed) - 1;
        watch.in_hand.store(left, Relaxed);
        if left == 0 && janus::handle().is_some() {
            watch.since.store(now(), Relaxed);
            watch.head_since.store(0, Relaxed);
        }
    }
}
