//! Requests that are sent again when no answer has come for a time, as a client's TCP does: what a server had no room for is late then, and
//! its sample says how late, but it is not lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Linux waits for so long at least.
const PATIENCE_NS: u64 = 200_000_000;

/// Whether a request is under way on each connection, for all far ends: an answer may come to any.
#[derive(Clone)]
pub struct Waiting(Arc<[AtomicU64]>);

/// The requests of one far end.
pub struct Again<T> {
    waiting: Waiting,
    /// In the order of their times.
    sent: VecDeque<Sent<T>>,
}

struct Sent<T> {
    conn: u32,
    at_ns: u64,
    request: T,
}

impl Waiting {
    /// None is, on so many connections.
    pub fn none(connections: u32) -> Self {
        let words = (0..connections.div_ceil(64)).map(|_| AtomicU64::new(0));
        Self(words.collect())
    }

    pub fn begins(&self, conn: u32) {
        let (word, bit) = self.place(conn);
        word.fetch_or(bit, Ordering::Relaxed);
    }

    /// Returns true if something was under way there, which now is over.
    pub fn ends(&self, conn: u32) -> bool {
        let (word, bit) = self.place(conn);
        word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    fn place(&self, conn: u32) -> (&AtomicU64, u64) {
        (&self.0[conn as usize / 64], 1 << (conn % 64))
    }
}

impl<T: Copy> Again<T> {
    pub fn new(waiting: Waiting) -> Self {
        let sent = VecDeque::new();
        Self { waiting, sent }
    }

    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub fn begins(&mut self, conn: u32, at_ns: u64, request: T) {
        self.waiting.begins(conn);
        self.sent.push_back(Sent {
            conn,
            at_ns,
            request,
        });
    }

    /// Whether this is the first answer to a request.
    pub fn ends(&self, conn: u32) -> bool {
        self.waiting.ends(conn)
    }

    /// A request that has waited for too long.
    pub fn next(&mut self, now_ns: u64) -> Option<T> {
        while let Some(first) = self.sent.front() {
            let (word, bit) = self.waiting.place(first.conn);
            let waits = word.load(Ordering::Relaxed) & bit != 0;
            if waits && now_ns < first.at_ns + PATIENCE_NS {
                return None;
            }
            let first = self.sent.pop_front()?;
            if waits {
                let request = first.request;
                let at_ns = now_ns;
                self.sent.push_back(Sent { at_ns, ..first });
                return Some(request);
            }
        }
        None
    }
}
