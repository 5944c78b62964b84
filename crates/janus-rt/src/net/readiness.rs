//! Readiness: events to wait for, and events found, as two small sets named as tokio names them.

use std::fmt;
use std::ops::{BitAnd, BitOr};

const READ: u8 = 1;
const WRITE: u8 = 2;
const READ_CLOSED: u8 = 4;
const WRITE_CLOSED: u8 = 8;
const ERROR: u8 = 16;

/// Kinds of readiness to wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    /// Something to read.
    pub const READABLE: Interest = Interest(READ);
    /// Room to write.
    pub const WRITABLE: Interest = Interest(WRITE);
    /// That the connection broke.
    pub const ERROR: Interest = Interest(ERROR);

    /// Reading is among it.
    pub const fn is_readable(self) -> bool {
        self.0 & READ != 0
    }

    /// Writing is among it.
    pub const fn is_writable(self) -> bool {
        self.0 & WRITE != 0
    }

    /// Errors are among it.
    pub const fn is_error(self) -> bool {
        self.0 & ERROR != 0
    }

    /// Both.
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
    /// Nothing.
    pub const EMPTY: Ready = Ready(0);
    /// Reading gives something: bytes, the peer's end, or an error.
    pub const READABLE: Ready = Ready(READ);
    /// Writing gives something: room, or an error.
    pub const WRITABLE: Ready = Ready(WRITE);
    /// The peer has ended, or the connection is over.
    pub const READ_CLOSED: Ready = Ready(READ_CLOSED);
    /// We have ended, or the connection is over.
    pub const WRITE_CLOSED: Ready = Ready(WRITE_CLOSED);
    /// The connection broke.
    pub const ERROR: Ready = Ready(ERROR);
    /// Everything.
    pub const ALL: Ready = Ready(READ | WRITE | READ_CLOSED | WRITE_CLOSED | ERROR);

    /// For nothing.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// There is something to read, or reading is over.
    pub const fn is_readable(self) -> bool {
        self.0 & (READ | READ_CLOSED) != 0
    }

    /// There is room to write, or writing is over.
    pub const fn is_writable(self) -> bool {
        self.0 & (WRITE | WRITE_CLOSED) != 0
    }

    /// Nothing more will come.
    pub const fn is_read_closed(self) -> bool {
        self.0 & READ_CLOSED != 0
    }

    /// Nothing more can be sent.
    pub const fn is_write_closed(self) -> bool {
        self.0 & WRITE_CLOSED != 0
    }

    /// The connection broke.
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
