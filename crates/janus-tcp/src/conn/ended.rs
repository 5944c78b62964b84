//! What the application learns of a connection that is over, or has nothing for it to read.

use crate::conn::Conn;
use crate::rules::error::Error;
use crate::store::cold::{EndReason, State, Tcb, flag};

impl Tcb {
    /// Why the connection ended, if it did so badly.
    /// Keeps MUST-12, MUST-47, SHLD-25.
    #[inline(always)]
    pub(crate) fn failure(&self) -> Option<Error> {
        match self.state {
            State::Closed => failure_of(self.ended_by()),
            _ => None,
        }
    }

    /// What a reader is told for whom there are no bytes: that the stream has ended, or why there is none.
    #[inline(always)]
    pub(crate) fn nothing_to_read(&self) -> Result<(), Error> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        match self.has(flag::PEER_FIN) || self.state == State::Closed {
            true => Ok(()),
            false => Err(Error::WouldBlock),
        }
    }
}

impl Tcb {
    /// Whether the state lets anything be written, or why not.
    #[inline(always)]
    pub(crate) fn may_write(&self) -> Result<(), Error> {
        match self.state {
            State::Established | State::CloseWait if !self.has(flag::FIN_QUEUED) => Ok(()),
            State::SynSent | State::SynReceived => Err(Error::WouldBlock),
            _ => Err(self.failure().unwrap_or(Error::BrokenPipe)),
        }
    }
}

impl Conn<'_> {
    /// As [`Tcb::may_write`].
    #[inline(always)]
    pub(crate) fn may_write(&self) -> Result<(), Error> {
        self.tcb.may_write()
    }

    /// As [`Tcb::nothing_to_read`].
    #[inline(always)]
    pub(crate) fn nothing_to_read(&self) -> Result<(), Error> {
        self.tcb.nothing_to_read()
    }
}

#[cold]
fn failure_of(why: EndReason) -> Option<Error> {
    match why {
        EndReason::Reset => Some(Error::ConnectionReset),
        EndReason::Refused => Some(Error::ConnectionRefused),
        EndReason::TimedOut => Some(Error::TimedOut),
        EndReason::NoHost => Some(Error::HostUnreachable),
        EndReason::NoNetwork => Some(Error::NetworkUnreachable),
        EndReason::NoProtocol => Some(Error::ProtocolUnreachable),
        EndReason::HostUnknown => Some(Error::HostUnknown),
        EndReason::HostIsolated => Some(Error::HostIsolated),
        EndReason::RouteFailed => Some(Error::RouteFailed),
        EndReason::Prohibited => Some(Error::Prohibited),
        EndReason::BadHeader => Some(Error::HeaderRefused),
        EndReason::Orderly => None,
    }
}
