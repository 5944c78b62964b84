//! Limits of a server. Each has a name, a default for a server that strangers reach, and an answer when it is hit.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

/// Limits of a server. Kept in a `static`, so that a waiting connection holds one reference to it.
///
/// Of the bounds on time `None` means no bound. None of them counts the time that a handler takes, or an answer that the peer
/// goes on reading.
/// Exhaustive: literals with `..Options::DEFAULT` are how it is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Longest request head in bytes, request line and headers: 431 (or 414) beyond. Larger values than
    /// [`head::BYTES_MAX`](crate::head::BYTES_MAX) mean that.
    pub head_bytes: usize,
    /// Longest body in bytes that a handler can read: 413 beyond.
    pub body_bytes: u64,
    /// Most unread bytes of a body that are discarded after the handler, so that the connection can be kept.
    pub drain_bytes: u64,
    /// Longest wait for the first byte of a new connection, which is closed without an answer beyond.
    pub first_byte_timeout: Option<Duration>,
    /// Longest time from the first byte of a head to its last: 408 beyond.
    pub head_timeout: Option<Duration>,
    /// Longest wait of a reader for the next bytes of a body: 408 beyond.
    pub body_timeout: Option<Duration>,
    /// Least bytes per second of a body while a reader waits for it: 408 for a sender that has fallen behind by
    /// [`body_grace`](Self::body_grace). Bytes that came faster make up for earlier waits, never for later ones.
    pub body_rate: Option<NonZeroU32>,
    /// Time that the sender of a body may be behind [`body_rate`](Self::body_rate).
    pub body_grace: Duration,
    /// Longest wait for the next request of a connection that is kept, which is closed without an answer beyond.
    pub idle_timeout: Option<Duration>,
    /// Most requests of one connection: the last answer says that it ends with it. `None`: as many as come.
    pub requests: Option<NonZeroU16>,
    /// Longest wait of a response for a peer that acknowledges nothing of it: the connection is reset beyond.
    pub write_timeout: Option<Duration>,
    /// Longest wait of a connection that is being closed for the peer's end, so that the last answer is not lost to a
    /// reset (RFC 9112 section 9.6).
    pub linger: Duration,
    /// Send a `Date` header (RFC 9110 section 6.6.1).
    pub date: bool,
}

impl Options {
    /// The defaults, for `static` items.
    pub const DEFAULT: Self = Self {
        head_bytes: 16 * 1024,
        body_bytes: 8 * 1024 * 1024,
        drain_bytes: 64 * 1024,
        first_byte_timeout: Some(Duration::from_secs(20)),
        head_timeout: Some(Duration::from_secs(10)),
        body_timeout: Some(Duration::from_secs(20)),
        body_rate: NonZeroU32::new(240),
        body_grace: Duration::from_secs(30),
        idle_timeout: Some(Duration::from_secs(60)),
        requests: None,
        write_timeout: Some(Duration::from_secs(30)),
        linger: Duration::from_secs(2),
        date: true,
    };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}
