//! Readiness: kinds of events to wait for, and kinds that were found, as two small sets named as tokio names them.

use std::fmt;
use std::ops::{BitAnd, BitOr};

const READ: u8 = 1;
const WRITE: u8 = 2;
const READ_CLOSED: u8 = 4;
const WRITE_CLOSED: u8 = 8;
const ERROR: u8 = 16;

/// Kinds of readiness to wait for.
///
/// ```
/// use janus::net::{Interest, TcpListener, TcpStream};
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.reachable_at()).await?;
/// let ready = client.ready(Interest::READABLE | Interest::WRITABLE).await?;
/// assert!(ready.is_writable() && !ready.is_readable());
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    /// Something to read.
    pub const READABLE: Interest = Interest(READ);
    /// Room to write.
    pub const WRITABLE: Interest = Interest(WRITE);
    /// That the connection broke.
    pub const ERROR: Interest = Interest(ERROR);

    /// Returns whether the set contains reading.
    pub const fn is_readable(self) -> bool {
        self.0 & READ != 0
    }

    /// Returns whether the set contains writing.
    pub const fn is_writable(self) -> bool {
        self.0 & WRITE != 0
    }

    /// Returns whether the set contains errors.
    pub const fn is_error(self) -> bool {
        self.0 & ERROR != 0
    }

    /// Returns the union of both sets.
    pub const fn add(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        self.add(other)
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names(f, "Interest", self.0)
    }
}

/// Kinds of readiness that a socket has.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Ready(u8);

impl Ready {
    /// No readiness.
    pub const EMPTY: Ready = Ready(0);
    /// Reading returns something: bytes, the end of the stream, or an error.
    pub const READABLE: Ready = Ready(READ);
    /// Writing returns something: room, or an error.
    pub const WRITABLE: Ready = Ready(WRITE);
    /// The peer has shut down its side, or the connection is over.
    pub const READ_CLOSED: Ready = Ready(READ_CLOSED);
    /// This end has shut down its side, or the connection is over.
    pub const WRITE_CLOSED: Ready = Ready(WRITE_CLOSED);
    /// The connection broke.
    pub const ERROR: Ready = Ready(ERROR);
    /// Every kind.
    pub const ALL: Ready = Ready(READ | WRITE | READ_CLOSED | WRITE_CLOSED | ERROR);

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether there is something to read, or reading is over.
    pub const fn is_readable(self) -> bool {
        self.0 & (READ | READ_CLOSED) != 0
    }

    /// Returns whether there is room to write, or writing is over.
    pub const fn is_writable(self) -> bool {
        self.0 & (WRITE | WRITE_CLOSED) != 0
    }

    /// Returns whether nothing more will be received.
    pub const fn is_read_closed(self) -> bool {
        self.0 & READ_CLOSED != 0
    }

    /// Returns whether nothing more can be sent.
    pub const fn is_write_closed(self) -> bool {
        self.0 & WRITE_CLOSED != 0
    }

    /// Returns whether the connection broke.
    pub const fn is_error(self) -> bool {
        self.0 & ERROR != 0
    }
}

impl BitOr for Ready {
    type Output = Ready;

    fn bitor(self, other: Ready) -> Ready {
        Ready(self.0 | other.0)
    }
}

impl BitAnd for Ready {
    type Output = Ready;

    fn bitand(self, other: Ready) -> Ready {
        Ready(self.0 & other.0)
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names(f, "Ready", self.0)
    }
}

fn names(f: &mut fmt::Formatter<'_>, of: &str, bits: u8) -> fmt::Result {
    let all = [
        (READ, "readable"),
        (WRITE, "writable"),
        (READ_CLOSED, "read closed"),
        (WRITE_CLOSED, "write closed"),
        (ERROR, "error"),
    ];
    let set = all.iter().filter(|(bit, _)| bits & bit != 0);
    write!(f, "{of}(")?;
    for (place, (_, name)) in set.enumerate() {
        let before = if place == 0 { "" } else { ", " };
        write!(f, "{before}{name}")?;
    }
    f.write_str(")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_join_and_say_what_is_in_them() {
        let both = Interest::READABLE | Interest::WRITABLE;
        assert!(both.is_readable() && both.is_writable() && !both.is_error());
        assert_eq!(format!("{both:?}"), "Interest(readable, writable)");
        let over = Ready::READ_CLOSED | Ready::ERROR;
        assert!(over.is_readable() && !over.is_writable() && over.is_error());
        assert!((over & Ready::WRITABLE).is_empty());
        assert_eq!(format!("{:?}", Ready::EMPTY), "Ready()");
    }
}
