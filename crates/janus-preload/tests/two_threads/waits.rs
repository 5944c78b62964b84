//! Which calls may wait, and which of those that wait compete.

use crate::plan::{By, Op, Wait};

/// Calls that wait for the same compete: which of them gets it nothing decides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It takes what it waits for.
    Takes,
    /// So does an epoll instance, what is told once.
    Epolls,
    Looks,
}

impl Waits {
    pub(crate) fn of(op: Op) -> Option<Waits> {
        match op {
            Op::Recv(_, _, flags, By::Socket | By::Message) if flags & libc::MSG_PEEK != 0 => {
                Some(Waits::Looks)
            }
            Op::Recv(..) | Op::Accept(..) => Some(Waits::Takes),
            Op::EpollWait(_, Wait::Ever) => Some(Waits::Epolls),
            Op::Look(_, _, _, Wait::Ever) => Some(Waits::Looks),
            _ => None,
        }
    }

    pub(crate) fn competes_with(self, other: Waits) -> bool {
        self == Waits::Takes
            || other == Waits::Takes
            || (self, other) == (Waits::Epolls, Waits::Epolls)
    }
}

/// The same call, which does not wait.
pub(crate) fn at_once(op: Op) -> Op {
    match op {
        Op::Recv(at, len, flags, _) => Op::Recv(at, len, flags | libc::MSG_DONTWAIT, By::Socket),
        Op::Accept(at, new, _) => Op::AcceptSoon(at, new),
        Op::EpollWait(at, _) => Op::EpollWait(at, Wait::Never),
        Op::Look(by, places, events, _) => Op::Look(by, places, events, Wait::Never),
        Op::Shutdown(at, _) | Op::NonBlocking(at, _) => Op::Flags(at),
        other => other,
    }
}

/// Whether a call may end only when another lets it.
pub(crate) fn may_wait_for_ever(op: Op) -> bool {
    let of_socket =
        |flags, by| flags & libc::MSG_DONTWAIT == 0 || matches!(by, By::File | By::Parts);
    match op {
        Op::Recv(_, _, flags, by) | Op::Send(_, _, flags, by) => of_socket(flags, by),
        _ => Waits::of(op).is_some(),
    }
}
