//! A listener that several programs have, as one of them knows it, and their words to each other about it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{RecvFlags, SendFlags, Shutdown, shutdown};

use crate::own::{self, Own};
use crate::standing::Standing;
use crate::{Errno, Result, passing};

/// Words between programs that have the same listener, a byte each.
#[derive(Clone, Copy)]
pub(super) enum Word {
    /// Said on a mark, with the end of a line: this program serves from now on.
    Serves = 1,
    /// It has closed the listener.
    Rests = 2,
    /// A connection that it has not accepted comes along, as one end of a pair: it carries it.
    Guest = 3,
}

/// The line to a program that has taken a listener over.
pub(super) struct Successor {
    pub(super) line: Own,
    pub(super) serves: bool,
}

/// A listener that this program has in common with others.
#[derive(Default)]
pub(super) struct Shared {
    /// The mark by which it was taken over, as long as no thread has waited at it.
    pub(super) unused: Option<Own>,
    /// The line to the program before this one.
    pub(super) before: Option<Own>,
    /// Other ends of marks: programs that may take it over.
    pub(super) marks: Vec<Own>,
    pub(super) after: Vec<Successor>,
    /// This program has closed it.
    pub(super) rests: bool,
    /// Then, that all is heard which the program before has said.
    pub(super) is_told_all: bool,
    /// It was taken over from the process that this one was forked from: others like it serve there too.
    pub(super) forked: bool,
    /// It is held until the pump has a name of it: the program may close it at once.
    pub(super) held: bool,
    /// Its connections were not accepted for a while, and go to the others until this program waits for some.
    pub(super) aside: bool,
}

pub(super) fn say(line: &Own, word: Word, fd: Option<BorrowedFd<'_>>) -> Result<()> {
    passing::send(line, &[word as u8], fd.as_slice(), SendFlags::DONTWAIT)
}

/// A word that was said on a line, and what came along. An error: there is no other end any more.
fn heard(line: &Own) -> Result<Option<(u8, Option<OwnedFd>)>> {
    let mut word = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut got = passing::receive(line, &mut word, flags);
    if got.as_ref().is_err_and(|error| *error == Errno::ECONNRESET) {
        // The other end was closed with the mark's text unread. What was said before that is still there.
        got = passing::receive(line, &mut word, flags);
    }
    match got {
        Ok((0, _)) => Err(Errno::ECONNRESET),
        Ok((_, fd)) => Ok(Some((word[0], fd))),
        Err(Errno::EAGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_at(own: &Own, fd: RawFd) -> bool {
    own.as_fd().as_raw_fd() == fd
}

impl Shared {
    pub(super) fn is_succeeded(&self) -> bool {
        self.after.iter().any(|it| it.serves)
    }

    /// Whether another program may pass on connections to this one, which has closed it, or is about to end.
    pub(super) fn may_be_passed_back(&self, ends: bool) -> bool {
        self.after.iter().any(|it| !ends || !it.serves)
    }

    /// Whether the program before may have given connections that were not heard of, although this one has closed it.
    pub(super) fn is_being_told(&self) -> bool {
        self.rests && self.before.is_some() && !self.is_told_all
    }

    /// Whether another program has it, or may have it, as far as is known.
    pub(super) fn is_common(&self) -> bool {
        self.before.is_some() || !self.marks.is_empty() || !self.after.is_empty()
    }

    /// Whether others like this process serve there too, to which it may leave what it lets wait.
    pub(super) fn is_one_of_many(&self) -> bool {
        self.forked && self.before.is_some()
    }

    /// Its connections go to the others, or it serves again; the program before is told.
    pub(super) fn stands_aside(&mut self, aside: bool) {
        self.aside = aside;
        let word = if aside { Word::Rests } else { Word::Serves };
        // One that has ended need not know.
        let _ = self.before.as_ref().map(|line| say(line, word, None));
    }

    /// How open it is to the outside.
    pub(super) fn standing(&self) -> Standing {
        match self {
            _ if self.unused.is_some() || self.rests => Standing::Closed,
            _ if self.aside || self.is_succeeded() => Standing::Reserve,
            _ => Standing::Open,
        }
    }

    /// Whether the program before takes what is not accepted here: this one does not want to.
    fn gives_back(&self) -> bool {
        (self.rests || self.aside) && self.before.is_some()
    }

    /// Whether another takes it: one that serves, or the program before.
    pub(super) fn has_heir(&self) -> bool {
        self.is_succeeded() || self.gives_back()
    }

    /// Gives a connection to one of them. False: there is none.
    pub(super) fn passes_on(&mut self, end: BorrowedFd<'_>) -> bool {
        for it in self.after.iter_mut().rev().filter(|it| it.serves) {
            match say(&it.line, Word::Guest, Some(end)) {
                Ok(()) => return true,
                // It has much to do.
                Err(Errno::EAGAIN) => {}
                // It is about to end.
                Err(_) => it.serves = false,
            }
        }
        let Some(before) = self.before.as_ref().filter(|_| self.gives_back()) else {
            return false;
        };
        let said = say(before, Word::Guest, Some(end));
        if said.is_err_and(|error| error != Errno::EAGAIN) {
            // It has ended.
            self.before = None;
        }
        said.is_ok()
    }

    /// From now on the program before gives this one none; what it has given already is heard yet.
    pub(super) fn rests(&mut self) {
        self.rests = true;
        if let Some(before) = &self.before {
            let _ = say(before, Word::Rests, None);
            let _ = shutdown(before, Shutdown::Read);
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = RawFd> {
        let after = self.after.iter().map(|it| &it.line);
        let before = self.before.iter().filter(|_| !self.is_told_all);
        let all = self.marks.iter().chain(before).chain(after);
        all.map(|it| it.as_fd().as_raw_fd())
    }

    /// Hears what is said on one of its lines. A connection may have come.
    pub(super) fn hear(&mut self, fd: RawFd) -> Option<OwnedFd> {
        let mut guest = None;
        let after = &mut self.after;
        self.marks.retain(|mark| {
            if !is_at(mark, fd) {
                return true;
            }
            match heard(mark) {
                Ok(Some((word, Some(line)))) if word == Word::Serves as u8 => {
                    let line = Own::new(own::keep(line));
                    after.push(Successor { line, serves: true });
                    true
                }
                said => said.is_ok(),
            }
        });
        self.after.retain_mut(|it| {
            if !is_at(&it.line, fd) {
                return true;
            }
            match heard(&it.line) {
                Ok(Some((_, Some(end)))) => guest = Some(end),
                Ok(Some((word, None))) => it.serves = word == Word::Serves as u8,
                Ok(None) => {}
                Err(_) => return false,
            }
            true
        });
        if let Some(before) = self.before.as_ref().filter(|it| is_at(it, fd)) {
            match heard(before) {
                Ok(said) => guest = said.and_then(|(_, end)| end),
                Err(_) if self.rests => self.is_told_all = true,
                Err(_) => self.before = None,
            }
        }
        guest
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn what_was_given_before_the_rest_is_heard_after_it() {
        let _turn = own::BY_TURNS.lock();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let line = || socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let own = |fd| Own::new(own::keep(fd));
        let (theirs, ours) = line();
        let (theirs, ours) = (own(theirs), own(ours));
        let fd = ours.as_fd().as_raw_fd();
        let mut shared = Shared {
            before: Some(ours),
            ..Shared::default()
        };
        let gives = || {
            let (end, _) = line();
            say(&theirs, Word::Guest, Some(end.as_fd()))
        };
        for _ in 0..3 {
            gives().unwrap();
        }
        assert!(!shared.is_being_told(), "it has not closed it");
        shared.rests();
        assert!(gives().is_err(), "no more comes");
        for _ in 0..3 {
            assert!(shared.is_being_told());
            assert!(shared.hear(fd).is_some());
        }
        assert!(shared.is_being_told(), "there may be another");
        assert!(shared.hear(fd).is_none());
        assert!(!shared.is_being_told());
    }
}
