//! Pipes, for `splice`: bytes in order between two ends.

use std::collections::VecDeque;

/// Bytes a pipe holds, Linux's default.
const CAPACITY: usize = 65_536;

/// Reason why an end cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// Later perhaps.
    Blocked,
    /// The other end is closed.
    Broken,
}

#[derive(Default)]
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    pub(super) reader: End,
    pub(super) writer: End,
}

#[derive(Clone, Copy, Default)]
pub(super) struct End {
    pub(super) closed: bool,
    pub(super) nonblocking: bool,
}

impl Pipe {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes there is room for.
    pub(super) fn room(&self) -> Result<usize, Stop> {
        match CAPACITY - self.bytes.len() {
            _ if self.reader.closed => Err(Stop::Broken),
            0 => Err(Stop::Blocked),
            room => Ok(room),
        }
    }

    /// Takes what there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        let n = self.room()?.min(bytes.len());
        self.bytes.extend(&bytes[..n]);
        Ok(n)
    }

    /// The first bytes, at most `most`; none are the end.
    pub(super) fn peek(&mut self, most: usize) -> Result<&[u8], Stop> {
        if self.bytes.is_empty() && !self.writer.closed {
            return Err(Stop::Blocked);
        }
        let bytes = self.bytes.make_contiguous();
        Ok(&bytes[..most.min(bytes.len())])
    }

    /// Forgets the first bytes.
    pub(super) fn consume(&mut self, len: usize) {
        self.bytes.drain(..len);
    }

    /// Returns the `poll` events of the reading end (pipe_poll).
    pub(super) fn readable(&self) -> i16 {
        let data = if self.bytes.is_empty() {
            0
        } else {
            libc::POLLIN | libc::POLLRDNORM
        };
        data | if self.writer.closed { libc::POLLHUP } else { 0 }
    }

    /// Returns the `poll` events of the writing end.
    pub(super) fn writable(&self) -> i16 {
        match self.room() {
            Ok(_) => libc::POLLOUT | libc::POLLWRNORM,
            Err(Stop::Blocked) => 0,
            Err(Stop::Broken) => libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
        }
    }
}
