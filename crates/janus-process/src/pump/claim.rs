//! A carried connection that the process which uses it claims for a TCP of its own. It says so on the stream itself, in the place where its bytes have come to: by one
//! byte, with which the end of a line comes. On that it is answered, and the connection goes as bytes at a moment when nothing is under way on it. Until who claims it
//! says that it has it, this side remembers it, and takes it back if that side ends or has no room.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use janus_posix::Ends;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::time::{ClockId, clock_gettime};

use super::names::{self, Names};
use crate::held::Held;
use crate::legacy::{Legacy, TEXT_MAX};
use crate::own::{self, Own};
use crate::process::Process;
use crate::{Errno, Result, errno, kernel, passing};

/// Bytes of a connection on which nothing is under way, at most.
const CONNECTION_MAX: usize = 4 << 10;
/// Before them: the answer, the time, the length of the socket's description.
const HEAD: usize = 1 + 8 + 2;

/// Said in the end by who has claimed a connection, and has it.
const TAKEN: u8 = 1;

/// The answer to a claim, a byte.
#[derive(Clone, Copy)]
enum Answer {
    /// Others have the connection too, or this side keeps it.
    Never = 0,
    /// Something is under way.
    Later = 1,
    /// It follows.
    Here = 2,
}

/// Time that is the same for all processes.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The line by which a connection was claimed.
pub(super) struct Claim(Own);

/// One that was given, and may come back.
pub(super) struct Given {
    line: Own,
    ends: Ends,
    bytes: Vec<u8>,
    at: Duration,
}

impl Claim {
    /// The claim that a descriptor is which has come on a stream. `None`: it is something else.
    pub(super) fn of(fd: OwnedFd) -> Option<Claim> {
        names::is_claim(&fd).then(|| Claim(Own::new(own::keep(fd))))
    }

    fn say(&self, answer: Answer) {
        // One that has ended need not know.
        let _ = passing::send(&self.0, &[answer as u8], &[], SendFlags::DONTWAIT);
    }

    /// Something is on its way in this process.
    pub(super) fn comes_later(self) {
        self.say(Answer::Later);
    }

    /// Gives the connection of this name of our own, if that is the only one it has.
    pub(super) fn meet(self, process: &Process, fd: RawFd) -> Option<Given> {
        match process.give(fd) {
            Ok((text, ends, bytes)) => {
                let at = now();
                let len = (text.len() as u16).to_ne_bytes();
                let time = (at.as_nanos() as u64).to_ne_bytes();
                let said = [&[Answer::Here as u8][..], &time, &len, &text, &bytes].concat();
                let given = Given {
                    line: self.0,
                    ends,
                    bytes,
                    at,
                };
                match passing::send(&given.line, &said, &[], SendFlags::DONTWAIT) {
                    Ok(()) => Some(given),
                    Err(_) => {
                        given.comes_back(process, fd);
                        None
                    }
                }
            }
            Err(error) => {
                self.say(match error {
                    Errno::EAGAIN => Answer::Later,
                    _ => Answer::Never,
                });
                None
            }
        }
    }
}

impl Given {
    pub(super) fn line(&self) -> RawFd {
        self.line.as_fd().as_raw_fd()
    }

    /// The other side has said something, or ended. Whether it has the connection; else it is here again.
    pub(super) fn ends(self, process: &Process, fd: RawFd) -> bool {
        let mut said = [0; 2];
        let heard = passing::receive(&self.line, &mut said, RecvFlags::DONTWAIT);
        let is_taken = matches!(heard, Ok((1, _))) && said[0] == TAKEN;
        match is_taken {
            true => process.forget_given(self.ends),
            false => self.comes_back(process, fd),
        }
        is_taken
    }

    fn comes_back(self, process: &Process, fd: RawFd) {
        let ago = now().saturating_sub(self.at);
        let back = process.core.call(|sockets, descriptors, now| {
            let socket = descriptors.socket(fd)?;
            sockets.take_in(now, socket, &self.bytes, ago)
        });
        if back.is_err() {
            // There is no memory for it any more: its peer is told so when it sends.
            process.forget_given(self.ends);
        }
    }
}

impl Process {
    fn forget_given(&self, ends: Ends) {
        // A process that ends has forgotten all.
        let _ = self.core.call(|sockets, _, _| {
            sockets.forget_given(ends);
            Ok(())
        });
    }

    /// The connection of this name of our own, which is in no stack then: the description of its socket, its ends, and itself.
    fn give(&self, fd: RawFd) -> Result<(Box<[u8]>, Ends, Vec<u8>)> {
        if !self.core.shares_ports {
            return Err(Errno::EINVAL);
        }
        self.core.call(|sockets, descriptors, now| {
            let socket = descriptors.socket(fd)?;
            if descriptors.names(socket) > 1 {
                return Err(Errno::EINVAL);
            }
            let text = Legacy::of(sockets, now, socket, None)?.text();
            let (ends, bytes) = sockets.give(now, socket)?;
            Ok((text, ends, bytes))
        })
    }

    /// Claims the connection that this descriptor stands for, and that another process carries for this one alone. It has TCP of this process's own then, under a new
    /// descriptor; the old one stands for nothing any more.
    ///
    /// # Errors
    /// EAGAIN: something is under way on it, which may be over soon. Others: it stays what it is.
    pub fn claims_carried(&self, fd: RawFd) -> Result<RawFd> {
        let names = Names::of(fd).ok_or(Errno::ENOTCONN)?;
        let local = SocketAddr::new(names.local.ip().to_canonical(), names.local.port());
        let may = self.core.lock().seat()?.may_bring(local);
        may.map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Errno::EAGAIN,
            _ => Errno::EINVAL,
        })?;
        let end = kernel::named(fd)?;
        // The answer is waited for as a system call is that no signal ends.
        let _signals = Held::now();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let line = socketpair(family, kind, SocketFlags::CLOEXEC, None).map_err(errno)?;
        let (mine, theirs) = own::keep_both(line);
        let (mine, theirs) = (Own::new(mine), Own::new(theirs));
        names::claims(&mine);
        passing::send(end, &[0], &[theirs.as_fd()], SendFlags::DONTWAIT)?;
        drop(theirs);
        let mut said = vec![0; HEAD + TEXT_MAX + CONNECTION_MAX];
        let (len, _) = passing::receive(&mine, &mut said, RecvFlags::CMSG_CLOEXEC)?;
        said.truncate(len);
        match said.first().copied() {
            Some(it) if it == Answer::Here as u8 => {}
            Some(it) if it == Answer::Later as u8 => return Err(Errno::EAGAIN),
            _ => return Err(Errno::EINVAL),
        }
        let (head, rest) = said.split_first_chunk::<HEAD>().ok_or(Errno::EINVAL)?;
        let [_, time @ .., low, high] = *head;
        let at = Duration::from_nanos(u64::from_ne_bytes(time));
        let (text, bytes) = rest
            .split_at_checked(u16::from_ne_bytes([low, high]).into())
            .ok_or(Errno::EINVAL)?;
        let legacy = Legacy::from_text(text).ok_or(Errno::EINVAL)?;
        let mut ends = None;
        let new = self.make_of_our_own(|sockets, clock| {
            legacy.make(sockets, clock, |sockets, socket| {
                let ago = now().saturating_sub(at);
                ends = Some(sockets.take_in(clock, socket, bytes, ago)?);
                Ok(())
            })
        })?;
        if let (Some(ends), Ok(seat)) = (ends, self.core.lock().seat()) {
            seat.brings(ends);
        }
        let _ = passing::send(&mine, &[TAKEN], &[], SendFlags::DONTWAIT);
        own::is_the_programs(new);
        Ok(new)
    }
}
