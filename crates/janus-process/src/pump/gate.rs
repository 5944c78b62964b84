//! A listener that this program has in common with another (`succession`), as the pump sees it. When no process of this program accepts there any
//! more, connections that have come go to the other one, as on a socket of the kernel's that both have: they are carried there.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use janus_posix::abi;

use super::names::Names;
use super::pair::Pair;
use super::queue::Accepted;
use crate::own::Own;
use crate::poll::Polled;
use crate::process::Process;
use crate::succession::Common;
use crate::{Errno, Result, own};

/// Connections of one listener until the others have their turn.
const AT_ONCE: usize = 16;
/// Packets that were under way when the program closed its listener have come by then, in most networks.
const QUIET: Duration = Duration::from_millis(300);
/// Time between two looks at a listener that the program has closed.
const LOOK: Duration = Duration::from_millis(5);
/// A process that has accepted none for so long, while some wait, does something else.
const BUSY: Duration = Duration::from_millis(20);
/// Handshakes that have begun are over by then, or one of their peers is gone.
const HANDSHAKES: Duration = Duration::from_secs(10);

pub(super) struct Gate {
    pub(super) socket: i32,
    /// A name of it, our own: it listens for as long as the gate is there.
    fd: RawFd,
    /// Children have accepted there.
    had_children: bool,
    /// When something came last, once the program has closed it.
    closed: Option<Instant>,
    /// No more comes then, but from others that have it.
    rests: bool,
    /// Since when some have waited, and the sockets that the program had made by then.
    waits: Option<(Instant, u64)>,
    /// Connections go to the other program.
    hands_over: bool,
}

impl Gate {
    pub(super) fn open(process: &Process, socket: i32) -> Result<Gate> {
        let fd = process.name_of_our_own(socket)?;
        process.is_named(socket);
        Ok(Gate {
            socket,
            fd,
            had_children: false,
            closed: None,
            rests: false,
            waits: None,
            hands_over: false,
        })
    }

    /// Looks who accepts there: children if there is a door, and this process unless its names are gone. False: it is over.
    pub(super) fn looks(&mut self, process: &Process, has_door: bool, ends: bool) -> bool {
        self.had_children |= has_door;
        let mut common = process.state_of(self.socket, ends);
        self.sees_waiting(process, &common);
        let is_closed = ends || common.names <= 1 + u32::from(has_door);
        if is_closed && self.closed.is_none() {
            self.closed = Some(Instant::now());
            if !common.awaits_heir {
                process.rests(self.socket);
                common = process.state_of(self.socket, ends);
            }
        }
        let is_left = self.closed.is_some() || !has_door && (self.had_children || common.is_shut);
        self.hands_over = is_left && common.has_heir;
        if self.hands_over && common.waits && !has_door {
            process.passes_on_queued(self.socket);
        }
        let may_go = common.has_heir || common.awaits_heir;
        let Some(since) = self.closed else {
            return true;
        };
        let passed = since.elapsed();
        self.rests = match common.awaits_heir {
            true => passed >= QUIET,
            false => passed >= HANDSHAKES || process.has_come_to_rest(self.socket),
        };
        let comes = common.may_be_passed_back || common.is_being_told;
        may_go && (common.waits || !self.rests || comes)
    }

    /// One of several processes that serve may be busy with something else; then others are to have what waits for it.
    fn sees_waiting(&mut self, process: &Process, common: &Common) {
        let waits = common.is_one_of_many && common.waits && !common.is_shut;
        let same = self.waits.filter(|(_, made)| *made == common.made);
        self.waits = waits.then(|| same.unwrap_or((Instant::now(), common.made)));
        if self.waits.is_some_and(|(since, _)| since.elapsed() >= BUSY) {
            process.stands_aside(self.socket);
        }
    }

    /// Time until it is to be looked at again, whatever happens.
    pub(super) fn looks_in(&self) -> Option<Duration> {
        let waits = self.waits.map(|_| BUSY);
        let awaits = self.closed.filter(|_| !self.rests).map(|_| LOOK);
        awaits.into_iter().chain(waits).min()
    }

    pub(super) fn polled(&self) -> Polled {
        Polled {
            fd: if self.hands_over { self.fd } else { -1 },
            events: abi::POLLIN as i16,
            revents: 0,
        }
    }

    /// Hands over what has come.
    pub(super) fn hands_on(&mut self, process: &Process, pairs: &mut Vec<Pair>) {
        for _ in 0..AT_ONCE {
            match process.accept_for_another(self.fd) {
                Ok(Accepted::Ours(fd)) => {
                    self.closed = self.closed.map(|_| Instant::now());
                    // If it cannot be handed over, its peer is told of an end.
                    pairs.extend(self.hand_over(process, fd));
                }
                // That program carries it.
                Ok(Accepted::Guest(end)) => process.passes_on(self.socket, end),
                Err(_) => return,
            }
        }
    }

    fn hand_over(&self, process: &Process, fd: RawFd) -> Result<Pair> {
        let handed = (|| {
            let names = Names {
                local: process.getsockname(fd)?,
                peer: process.getpeername(fd)?,
            };
            let (theirs, ours) = super::pair(Some(names))?;
            process.passes_on(self.socket, Own::new(own::keep(theirs)));
            Ok(own::keep(ours))
        })();
        let handed: Result<_> = handed.inspect_err(|_: &Errno| process.close_name_of_our_own(fd));
        Ok(Pair::of(fd, handed?))
    }

    pub(super) fn close(&self, process: &Process) {
        process.close_name_of_our_own(self.fd);
    }
}
