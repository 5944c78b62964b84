//! Members of the daemon before, who are about to come back. Until they have, or a moment is over, packets wait in the device: what is for a port
//! that has no member yet would be lost.

use std::time::{Duration, Instant};

use crate::{Settings, Statistics};

/// How long they are waited for. A member that dials comes back within a sixteenth of the time for which there was no daemon.
const WAITED_FOR: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct Absent {
    members: Vec<u32>,
    /// `None` before the daemon carries packets.
    until: Option<Instant>,
}

impl Absent {
    /// Those that a daemon with this socket has left, by its statistics.
    pub(crate) fn of(settings: &Settings) -> Absent {
        let path = Statistics::path_of(&settings.socket);
        let last = Statistics::open(path).ok().filter(|it| !it.is_running);
        let members = last.map(|it| it.members).unwrap_or_default();
        Absent {
            members: members.iter().map(|it| it.identity).collect(),
            until: None,
        }
    }

    /// Packets would be carried from now on.
    pub(crate) fn are_waited_for(&mut self) {
        self.until = Some(Instant::now() + WAITED_FOR);
    }

    pub(crate) fn is_back(&mut self, member: u32) {
        self.members.retain(|it| *it != member);
    }

    /// Until when packets wait, if they do.
    pub(crate) fn until(&mut self) -> Option<Instant> {
        if self.members.is_empty() {
            return None;
        }
        let until = self.until.filter(|until| Instant::now() < *until);
        if until.is_none() {
            self.members.clear();
        }
        until
    }
}
