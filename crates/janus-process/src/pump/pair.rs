//! A connection, the kernel's end that stands for it elsewhere, and the bytes between them. One may be under way yet.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use janus_posix::abi;
use rustix::net::{RecvFlags, SendFlags, Shutdown, send, shutdown};

use super::claim::{Claim, Given};
use super::connecting::Connecting;
use crate::kernel::{has_hung_up, is_all_read};
use crate::poll::Polled;
use crate::process::Process;
use crate::{Errno, Result, errno, own, passing};

/// Bytes that are between the two, each way.
const ROOM: usize = 16 << 10;
/// Pieces of one pair until the others have their turn.
const AT_ONCE: usize = 64;
const IN: i16 = abi::POLLIN as i16;
const OUT: i16 = abi::POLLOUT as i16;
const HANGS_UP: i16 = (abi::POLLHUP | abi::POLLERR) as i16;

pub(crate) struct Pair {
    /// A name of the connection's, our own.
    fd: RawFd,
    end: OwnedFd,
    stage: Stage,
    /// From the connection to the other process.
    out: Way,
    /// From the other process to the connection.
    back: Way,
    /// The other process has closed its end; what it wrote may still be there.
    hung_up: bool,
}

/// The stage of a connection.
enum Stage {
    /// It is not there yet.
    Connecting(Connecting),
    Carries,
    /// The other process has claimed it, and there is none here unless it comes back.
    Given(Given),
}

/// One direction.
struct Way {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
    /// Nothing more is read.
    read: bool,
    /// And the other side knows.
    told: bool,
}

impl Way {
    fn new() -> Way {
        Way {
            bytes: vec![0; ROOM].into_boxed_slice(),
            from: 0,
            to: 0,
            read: false,
            told: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    fn wants(&self) -> bool {
        self.is_empty() && !self.read
    }

    /// Moves on as far as it goes. Broken: the side that is written to takes nothing any more.
    fn carry(
        &mut self,
        mut take: impl FnMut(&mut [u8]) -> Result<usize>,
        mut give: impl FnMut(&[u8]) -> Result<usize>,
        end: impl FnOnce(),
    ) -> Result<()> {
        for _ in 0..AT_ONCE {
            if self.wants() {
                match take(&mut self.bytes) {
                    Ok(taken) => {
                        (self.from, self.to) = (0, taken);
                        self.read = taken == 0;
                    }
                    Err(Errno::EAGAIN) => return Ok(()),
                    // Its other side is told of an end, as there is no way to hand an error on.
                    Err(_) => self.read = true,
                }
            }
            while !self.is_empty() {
                match give(&self.bytes[self.from..self.to]) {
                    Ok(given) => self.from += given,
                    Err(Errno::EAGAIN) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            // At once, as nothing is asked for any more that would lead back here.
            if self.read {
                if !std::mem::replace(&mut self.told, true) {
                    end();
                }
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Pair {
    /// The end is one that is kept.
    pub(crate) fn new(process: &Process, socket: i32, end: OwnedFd) -> Result<Pair> {
        let named = process.name_of_our_own(socket);
        let fd = named.inspect_err(|_| own::forget(end.as_raw_fd()))?;
        Ok(Pair::of(fd, end))
    }

    /// Both are kept.
    pub(crate) fn of(fd: RawFd, end: OwnedFd) -> Pair {
        Pair {
            fd,
            end,
            stage: Stage::Carries,
            out: Way::new(),
            back: Way::new(),
            hung_up: false,
        }
    }

    /// [`Pair::of`] a connection that is under way.
    pub(super) fn under_way(fd: RawFd, end: OwnedFd, connecting: Connecting) -> Pair {
        Pair {
            stage: Stage::Connecting(connecting),
            ..Pair::of(fd, end)
        }
    }

    /// Whether the other process has ended, or closed it, and bytes may be left.
    pub(crate) fn outlasts(&self) -> bool {
        has_hung_up(self.end.as_fd())
    }

    /// Whether the connection's peer has said its end.
    pub(super) fn is_closed(&self) -> bool {
        self.out.told
    }

    /// The connection, and the end: each only while something can come of it.
    pub(crate) fn polled(&self) -> [Polled; 2] {
        let place = |fd, events, asked| Polled {
            fd: if asked { fd } else { -1 },
            events,
            revents: 0,
        };
        let end = self.end.as_raw_fd();
        match &self.stage {
            Stage::Given(given) => {
                return [place(given.line(), IN, true), place(end, 0, false)];
            }
            Stage::Connecting(_) => return [place(self.fd, OUT, true), place(end, 0, true)],
            Stage::Carries => {}
        }
        let wanted = |reads: &Way, writes: &Way| {
            let (reads, writes) = (reads.wants(), !writes.is_empty());
            (i16::from(reads) * IN) | (i16::from(writes) * OUT)
        };
        let ours = wanted(&self.out, &self.back);
        let theirs = wanted(&self.back, &self.out);
        [
            place(self.fd, ours, ours != 0),
            // That it was closed is of interest by itself.
            place(end, theirs, theirs != 0 || !self.hung_up),
        ]
    }

    /// False: all is said both ways, or one side is gone.
    pub(crate) fn carries_on(&mut self, process: &Process, seen: &[Polled]) -> bool {
        if seen.iter().all(|seen| seen.revents == 0) {
            return true;
        }
        let hangs_up = seen[1].revents & HANGS_UP != 0;
        let done = match std::mem::replace(&mut self.stage, Stage::Carries) {
            Stage::Given(given) => given.ends(process, self.fd),
            Stage::Connecting(connecting) if seen[0].revents != 0 => {
                self.hung_up |= hangs_up;
                connecting.ends(process, self.fd, &self.end).is_err()
            }
            // The other process waits for it no more, perhaps.
            connecting @ Stage::Connecting(_) => {
                self.stage = connecting;
                hangs_up
            }
            Stage::Carries => {
                self.hung_up |= hangs_up;
                let (done, claim) = self.carry(process);
                if let Some(claim) = claim {
                    self.is_claimed(process, claim, done);
                }
                done
            }
        };
        if done {
            self.close(process);
        }
        !done
    }

    /// The other process claims it, and gets it if that can be.
    fn is_claimed(&mut self, process: &Process, claim: Claim, done: bool) {
        if done || !self.rests() {
            claim.comes_later();
        } else if let Some(given) = claim.meet(process, self.fd) {
            self.stage = Stage::Given(given);
        }
    }

    /// Whether nothing is between the two, and both may yet say something.
    fn rests(&self) -> bool {
        let wait = self.out.wants() && self.back.wants();
        wait && !self.hung_up && is_all_read(self.end.as_fd())
    }

    /// Whether that was all, and the other process's claim if one came.
    fn carry(&mut self, process: &Process) -> (bool, Option<Claim>) {
        let (fd, end, mut claim) = (self.fd, &self.end, None);
        let no_wait = || false;
        let back = self.back.carry(
            |into| {
                if claim.is_some() {
                    return Err(Errno::EAGAIN);
                }
                let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
                let (got, came) = passing::receive(end, into, flags)?;
                claim = came.and_then(Claim::of);
                match (claim.is_some(), got) {
                    // Its byte is the last that is received with it.
                    (true, 1) => Err(Errno::EAGAIN),
                    (true, got) => Ok(got - 1),
                    (false, got) => Ok(got),
                }
            },
            |from| process.send(fd, &[IoSlice::new(from)], abi::MSG_DONTWAIT, no_wait),
            || {
                // Half-closed. Who has closed all may not have been the last that has the connection.
                if !has_hung_up(end.as_fd()) {
                    let _ = process.shutdown(fd, abi::SHUT_WR);
                }
            },
        );
        if self.hung_up {
            // Bytes for it are not read any more.
            return (back.is_err() || self.back.told, claim);
        }
        let out = self.out.carry(
            |into| {
                let into = &mut [IoSliceMut::new(into)];
                process.receive(fd, into, abi::MSG_DONTWAIT, no_wait)
            },
            |from| {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                send(end, from, flags).map_err(errno)
            },
            || _ = shutdown(end, Shutdown::Write),
        );
        let done = back.is_err() || out.is_err() || self.back.told && self.out.told;
        (done, claim)
    }

    /// Before its time.
    pub(crate) fn end(self, process: &Process) {
        self.close(process);
    }

    fn close(&self, process: &Process) {
        own::forget(self.end.as_raw_fd());
        process.close_name_of_our_own(self.fd);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Carries so many pieces, of which each is given in two parts, until it waits for one of its sides; whether the end was told.
    fn carried(pieces: usize, fails: bool) -> bool {
        let (mut way, told) = (Way::new(), Cell::new(0));
        let (mut left, mut is_full) = (pieces, false);
        while way.wants() || !way.is_empty() {
            let done = way.carry(
                |into| match left.checked_sub(1) {
                    Some(rest) => {
                        left = rest;
                        into[..2].copy_from_slice(b"ab");
                        Ok(2)
                    }
                    None if fails => Err(Errno::ECONNRESET),
                    None => Ok(0),
                },
                |_| {
                    is_full = !is_full;
                    if is_full { Ok(1) } else { Err(Errno::EAGAIN) }
                },
                || told.set(told.get() + 1),
            );
            done.unwrap();
        }
        assert!(told.get() < 2, "it is told once");
        told.get() == 1
    }

    #[test]
    fn the_end_is_told_however_many_pieces_come_before_it() {
        for pieces in 0..3 * AT_ONCE {
            for fails in [false, true] {
                assert!(carried(pieces, fails), "{pieces} pieces");
            }
        }
    }

    #[test]
    fn the_end_is_told_where_the_other_side_takes_all_at_once() {
        for pieces in 0..3 * AT_ONCE {
            let (mut way, mut left, mut told) = (Way::new(), pieces, false);
            while way.wants() {
                let take = |_: &mut [u8]| {
                    let some = usize::from(left > 0);
                    left -= some;
                    Ok(some)
                };
                way.carry(take, |from| Ok(from.len()), || told = true)
                    .unwrap();
            }
            assert!(told, "{pieces} pieces");
        }
    }
}
