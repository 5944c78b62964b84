//! Connections that are made for another process, which has no TCP of its own. It has one end of a pair at once, as the kernel has a socket that
//! connects; what has become of it is in the names of both ends ([`Connects`]). So that its end is not taken for one that can be written to before,
//! it is full of bytes that mean nothing.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use janus_posix::abi;
use rustix::io::write;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::names::{Connects, Names};
use super::pair::Pair;
use crate::own::Own;
use crate::process::Process;
use crate::{Errno, Result};

const PIECE: usize = 16 << 10;

/// Left to do once it is there.
pub(crate) struct Connecting {
    /// Bytes that fill the end.
    pub(crate) filler: usize,
    /// Where its number is written if it fails, or 0.
    pub(crate) answer: Own,
}

/// Fills one end of a pair. The number of bytes.
pub(crate) fn fill(end: &OwnedFd) -> usize {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = std::iter::from_fn(|| send(end, &[0; PIECE], flags).ok());
    sent.sum()
}

impl Connecting {
    /// It is there, or cannot be had.
    pub(super) fn ends(self, process: &Process, fd: RawFd, end: &OwnedFd) -> Result<()> {
        match names(process, fd) {
            Ok(names) => {
                names.give(end);
                self.tell(end, 0);
                Ok(())
            }
            Err(error) => {
                self.fails(end, error);
                Err(error)
            }
        }
    }

    fn fails(self, end: &OwnedFd, why: Errno) {
        Connects::fail(why, end);
        self.tell(end, why.0);
    }

    /// After the end was named: who asked looks at that first.
    fn tell(mut self, end: &OwnedFd, number: i32) {
        let mut piece = [0; PIECE];
        while self.filler > 0 {
            let most = self.filler.min(PIECE);
            match recv(end, &mut piece[..most], RecvFlags::DONTWAIT) {
                Ok((got @ 1.., _)) => self.filler -= got,
                // It has closed its end.
                _ => break,
            }
        }
        // One that does not wait has closed that.
        let _ = write(&self.answer, &number.to_ne_bytes());
    }
}

fn names(process: &Process, fd: RawFd) -> Result<Names> {
    let mut error = [0; 4];
    process.getsockopt(fd, abi::SOL_SOCKET, abi::SO_ERROR, &mut error)?;
    match i32::from_ne_bytes(error) {
        0 => Ok(Names {
            local: process.getsockname(fd)?,
            peer: process.getpeername(fd)?,
        }),
        error => Err(Errno(error)),
    }
}

impl Process {
    /// Connects what has this name of our own, for a process that has `end`. Both are kept, and closed if that is over at once.
    pub(crate) fn connect_for_another(
        &self,
        fd: Result<RawFd>,
        remote: SocketAddr,
        end: OwnedFd,
        connecting: Connecting,
    ) -> Option<Pair> {
        let begun = fd.and_then(|fd| {
            let begun = self.fcntl(fd, abi::F_SETFL, abi::O_NONBLOCK);
            let begun = begun.and_then(|_| self.connect(fd, Some(remote), || false));
            match begun {
                Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
                Err(error) => {
                    self.close_name_of_our_own(fd);
                    Err(error)
                }
            }
        });
        match begun {
            Ok(fd) => Some(Pair::under_way(fd, end, connecting)),
            Err(error) => {
                connecting.fails(&end, error);
                drop(Own::new(end));
                None
            }
        }
    }
}
