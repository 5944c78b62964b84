//! Counts of a process's sockets, connections and bytes: told to whoever asks whether a program's bytes went this way at all.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::Process;

/// Counted while calls are made.
#[derive(Default)]
pub(crate) struct Counted {
    sockets: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl Counted {
    /// A socket was made or accepted.
    pub(crate) fn socket(&self) {
        self.sockets.fetch_add(1, Ordering::Relaxed);
    }

    /// Sockets so far.
    pub(crate) fn made(&self) -> u64 {
        self.sockets.load(Ordering::Relaxed)
    }

    /// Bytes were given to the program. Said with the core's lock held.
    #[inline]
    pub(crate) fn received(&self, bytes: usize) {
        add(&self.received, bytes);
    }

    /// Bytes were taken from the program. Said with the core's lock held.
    #[inline]
    pub(crate) fn sent(&self, bytes: usize) {
        add(&self.sent, bytes);
    }
}

/// Adds where only who has the lock writes: an atomic addition costs as much as half of the lock.
#[inline]
fn add(count: &AtomicU64, bytes: usize) {
    let before = count.load(Ordering::Relaxed);
    count.store(before + bytes as u64, Ordering::Relaxed);
}

/// Use made of a process's sockets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sockets made or accepted.
    pub sockets: u64,
    /// Connections that were established, from either side, or claimed from another process. One that has gone to another is of that.
    pub connections: u64,
    /// Bytes that the program received; those it peeked at are not counted.
    pub received: u64,
    /// Bytes that the program sent.
    pub sent: u64,
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traffic {
            sockets,
            connections,
            received,
            sent,
        } = self;
        write!(
            f,
            "{sockets} sockets, {connections} connections, {received} bytes in, {sent} bytes out"
        )
    }
}

impl Process {
    /// Use made of the sockets so far; connections count as long as the process has not ended.
    pub fn traffic(&self) -> Traffic {
        let counted = &self.core.counted;
        let connections = self.core.call(|sockets, _, _| {
            let counters = sockets.stack().counters();
            let came = counters.accepted + counters.connected + counters.adopted;
            Ok(came.saturating_sub(counters.detached))
        });
        Traffic {
            sockets: counted.sockets.load(Ordering::Relaxed),
            connections: connections.unwrap_or(0),
            received: counted.received.load(Ordering::Relaxed),
            sent: counted.sent.load(Ordering::Relaxed),
        }
    }
}
