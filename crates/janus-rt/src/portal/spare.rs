//! Clients for whom there is no file descriptor. In the kernel's backlog they count as connected and hear nothing, for as long as
//! the shortage lasts. So they wait there for a moment, as descriptors come free whenever another connection ends; then each is
//! let in with a descriptor that was kept for this, and reset, so that it knows, and can try elsewhere. New clients are served again
//! as soon as a descriptor is free.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::Duration;

use janus_tcp::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::bridge::reset_on_drop;

/// How long a shortage lasts before clients are reset.
const PATIENCE: Duration = Duration::from_millis(500);
/// A shortage that was not met for so long was over: the next one is another.
const OVER: Duration = Duration::from_secs(2);

/// A descriptor kept for the time when there is no other.
pub(super) struct Spare {
    /// `None`: somebody else had it when it was to be opened again.
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
    /// There is none.
    Nobody,
    /// It waits on, if there is one.
    Perhaps,
}

impl Spare {
    pub(super) fn new() -> Spare {
        Spare {
            held: open(),
            short: None,
        }
    }

    /// A client was let in: there are descriptors.
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

/// Any descriptor; this kind can be had everywhere.
fn open() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// Answers whether a client waits at `door`.
pub(super) fn somebody_waits(door: &TcpListener) -> bool {
    let mut fds = [PollFd::new(door, PollFlags::IN)];
    // Where the kernel cannot say, the next client brings an event.
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests;
