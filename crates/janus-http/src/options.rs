//! The limits a server keeps. Every one has a name, a default, and an answer when it is hit.

use std::time::Duration;

/// What a server takes. Kept in a `static`, so that a waiting connection holds one reference to it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Longest request head in bytes, request line and headers: 431 (or 414) beyond. At most
    /// [`head::BYTES_MAX`](crate::head::BYTES_MAX), whatever stands here.
    pub head_bytes: usize,
    /// Longest body that a handler can read: 413 beyond.
    pub body_bytes: u64,
    /// How much of a body that the handler left unread is read and thrown away to keep the connection.
    pub drain_bytes: u64,
    /// How long the rest of a head may take once its first bytes were there: 408 beyond.
    pub head_timeout: Duration,
    /// How long a connection that is being closed waits for the peer's end, so that the last answer is not lost to a
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
        head_timeout: Duration::from_secs(10),
        linger: Duration::from_secs(2),
        date: true,
    };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}
