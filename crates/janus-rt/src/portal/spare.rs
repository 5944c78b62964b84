//! Clients for whom there is no file descriptor. In the kernel's backlog they count as connected and hear nothing, for as long as the
//! shortage lasts. They wait there for a moment, as descriptors come free whenever another connection ends; then each is accepted with a
//! descriptor that was kept for this, and reset, so that it can try elsewhere. New clients are served again as soon as a descriptor is
//! free.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::Duration;

use janus_tcp::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::bridge::reset_on_drop;

/// How long a shortage lasts before clients are reset.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time without another failure after which a shortage counts as over: the next one is new.
const OVER: Duration = Duration::from_secs(2);

/// A descriptor kept for the time when no other is free.
pub(super) struct Spare {
    /// `None`: it could not be opened again, as none was free.
    held: Option<OwnedFd>,
    short: Option<Shortage>,
}

/// When a shortage was met first and last.
#[derive(Clone, Copy)]
struct Shortage {
    first: Instant,
    last: Instant,
}

/// Fate of the client that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// It was reset; others may wait.
    TurnedAway,
    /// No client waits.
    Nobody,
    /// It still waits, if there is one.
    Perhaps,
}

impl Spare {
    pub(super) fn new() -> Spare {
        Spare {
            held: open(),
            short: None,
        }
    }

    /// Notes that a client was accepted: there are descriptors.
    pub(super) fn relieved(&mut self) {
        self.short = None;
        if self.held.is_none() {
            self.held = open();
        }
    }

    /// Resets the client that waits at `door`, if the shortage has lasted.
    pub(super) fn turn_away(&mut self, now: Instant, door: &TcpListener) -> Waiting {
        let known = self.short.filter(|short| short.last + OVER > now);
        let first = known.map_or(now, |short| short.first);
        self.short = Some(Shortage { first, last: now });
        if self.held.is_none() {
            self.held = open();
        }
        if now < first + PATIENCE || self.held.take().is_none() {
            return Waiting::Perhaps;
        }
        let waiting = match door.accept() {
            Ok((client, _)) => {
                reset_on_drop(&client);
                Waiting::TurnedAway
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Waiting::Nobody,
            // Another thread was quicker to take the descriptor.
            Err(_) => Waiting::Perhaps,
        };
        self.held = open();
        waiting
    }
}

/// Opens any descriptor; an eventfd can be had everywhere.
fn open() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// Returns whether a client waits at `door`.
pub(super) fn somebody_waits(door: &TcpListener) -> bool {
    let mut fds = [PollFd::new(door, PollFlags::IN)];
    // Where the kernel cannot say, the next client brings an event.
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests;
