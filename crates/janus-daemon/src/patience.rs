//! Members that hang: packets are in the rings of one that takes none of them, though its process is there. Those who share its port wait for what it was given.

use std::time::{Duration, Instant};

/// Looks within the time that a member has, and the longest pause between two.
const LOOKS: u32 = 8;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// When members are looked at.
pub(crate) struct Patience {
    /// The time that a member has; `None`: any.
    limit: Option<Duration>,
    looked: Instant,
    /// Frames that had been given to members by then.
    given: u64,
    /// There was one that had not taken all.
    waits: bool,
}

impl Patience {
    pub(crate) fn new(limit: Option<Duration>) -> Patience {
        Patience {
            limit,
            looked: Instant::now(),
            given: 0,
            waits: false,
        }
    }

    /// When it is time for the next look, where so many frames have been given to members. None is due while nothing waits.
    pub(crate) fn due(&self, given: u64) -> Option<Instant> {
        let limit = self.limit?;
        let pause = (limit / LOOKS).min(PAUSE_MAX);
        (self.waits || given != self.given).then(|| self.looked + pause)
    }

    /// Begins a look, if it is time for one. The time that a member has.
    pub(crate) fn looks(&mut self, now: Instant, given: u64) -> Option<Duration> {
        if self.due(given).is_none_or(|due| now < due) {
            return None;
        }
        (self.looked, self.given, self.waits) = (now, given, false);
        self.limit
    }

    /// A member has not taken all that it has been given.
    pub(crate) fn is_kept_waiting(&mut self) {
        self.waits = true;
    }
}

/// How far one core of a member has come in what it was given.
#[derive(Default)]
pub(crate) struct Progress {
    taken: u32,
    since: Option<Instant>,
}

impl Progress {
    /// It has taken so many by now, and `all` or not. Since when it was not seen to take any, if some wait.
    pub(crate) fn is_at(&mut self, (taken, all): (u32, bool), now: Instant) -> Option<Instant> {
        if all || taken != self.taken {
            self.since = None;
        }
        self.taken = taken;
        (!all).then(|| *self.since.get_or_insert(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_takes_something_now_and_then_does_not_hang() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut progress = Progress::default();
        assert_eq!(progress.is_at((0, true), at(0)), None, "nothing waits");
        assert_eq!(progress.is_at((0, false), at(1)), Some(at(1)));
        assert_eq!(progress.is_at((0, false), at(5)), Some(at(1)));
        assert_eq!(progress.is_at((1, false), at(6)), Some(at(6)), "a little");
        assert_eq!(progress.is_at((1, true), at(7)), None);
        assert_eq!(progress.is_at((1, false), at(8)), Some(at(8)));
    }

    #[test]
    fn no_look_is_due_while_nothing_waits() {
        let limit = Duration::from_secs(4);
        let mut patience = Patience::new(Some(limit));
        let later = patience.looked + limit;
        assert_eq!(patience.looks(later, 0), None, "nothing was given");
        assert_eq!(patience.looks(later, 3), Some(limit));
        assert_eq!(patience.due(3), None);
        patience.is_kept_waiting();
        let due = patience.due(3).expect("it waits yet");
        assert_eq!(due, later + limit / LOOKS);
        assert_eq!(patience.looks(later, 4), None, "too early");
        assert_eq!(Patience::new(None).due(7), None);
    }
}
