//! Settings that change while the runtime runs, as its cores read them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Shared by the cores of one runtime.
pub(crate) struct Live {
    drain_ns: AtomicU64,
    backlog: AtomicUsize,
}

impl Live {
    pub(crate) fn new(drain: Duration, backlog: usize) -> Live {
        let live = Live {
            drain_ns: AtomicU64::new(0),
            backlog: AtomicUsize::new(backlog),
        };
        live.set_drain(drain);
        live
    }

    /// How long connections may take to end in order.
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_nanos(self.drain_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_drain(&self, drain: Duration) {
        let ns = u64::try_from(drain.as_nanos()).unwrap_or(u64::MAX);
        self.drain_ns.store(ns, Ordering::Relaxed);
    }

    /// Connections that may wait to be accepted, for a listener that says nothing of it.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    pub(crate) fn set_backlog(&self, backlog: usize) {
        self.backlog.store(backlog, Ordering::Relaxed);
    }
}
