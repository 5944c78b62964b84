//! Settings that change while the runtime runs, as its cores read them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use janus_tcp::BufferSizes;

use super::Settings;

/// Shared by the cores of one runtime.
pub(crate) struct Live {
    drain_ns: AtomicU64,
    backlog: AtomicUsize,
    name_servers: Mutex<Arc<[SocketAddr]>>,
    buffers: Mutex<BufferSizes>,
}

impl Live {
    pub(crate) fn new(settings: &Settings, buffers: BufferSizes) -> Live {
        let live = Live {
            drain_ns: AtomicU64::new(0),
            backlog: AtomicUsize::new(settings.backlog),
            name_servers: Mutex::new(Arc::default()),
            buffers: Mutex::new(buffers),
        };
        live.set_drain(settings.drain);
        live.set_name_servers(&settings.name_servers);
        live
    }

    /// Name servers that were configured.
    pub(crate) fn name_servers(&self) -> Arc<[SocketAddr]> {
        lock(&self.name_servers).clone()
    }

    pub(crate) fn set_name_servers(&self, servers: &[SocketAddr]) {
        *lock(&self.name_servers) = servers.into();
    }

    /// Returns the buffer sizes of connections whose options set none.
    pub(crate) fn buffers(&self) -> BufferSizes {
        *lock(&self.buffers)
    }

    pub(crate) fn set_buffers(&self, buffers: BufferSizes) {
        *lock(&self.buffers) = buffers;
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

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in a lock's scope can be left half done.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
