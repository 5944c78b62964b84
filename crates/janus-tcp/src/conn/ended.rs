//! The remains of a connection that is over, or that can say nothing more: its failure, for the application; its path's threshold, for
//! the next connection to the same peer; or nothing.

use crate::conn::Conn;
use crate::rules::error::Error;
use crate::rules::profile::DEFAULT;
use crate::rules::waits::Waits;
use crate::store::cold::{EndReason, NONE, State, Tcb, flag};
use crate::store::hot::{Hot, hot_flag};
use crate::store::keys::HotId;
use crate::store::rto;

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

    /// Tells a reader for whom there are no bytes that the stream has ended, or why there are none.
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

    /// Whether the state lets anything be written, or why not.
    #[inline(always)]
    pub(crate) fn may_write(&self) -> Result<(), Error> {
        match self.state {
            State::Established | State::CloseWait if !self.has(flag::FIN_QUEUED) => Ok(()),
            State::SynSent | State::SynReceived => Err(Error::WouldBlock),
            _ => Err(self.failure().unwrap_or(Error::BrokenPipe)),
        }
    }

    /// The slow-start threshold in segments, if one is known.
    #[inline(always)]
    pub(crate) fn threshold(&self, hot: Option<&Hot>) -> Option<u32> {
        let Some(hot) = hot else {
            return self.idle_threshold();
        };
        let ssthresh = hot.congestion.ssthresh();
        (ssthresh != u32::MAX).then(|| ssthresh / u32::from(self.payload_mss()))
    }

    /// The slot is free: handles that name it are stale.
    #[inline(always)]
    pub(crate) fn vacate(&mut self) {
        self.state = State::Closed;
        self.generation = self.generation.wrapping_add(1);
        self.flags = 0;
        self.reader = NONE;
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

    /// Whether the connection ends in good order and unnoticed: it has no owner and no options of its own, no queue names its
    /// block, and nothing of its path is to be kept or forgotten.
    #[inline(always)]
    pub(crate) fn ends_unseen(&self) -> bool {
        let (tcb, hot) = (&*self.tcb, &*self.hot);
        tcb.has(flag::ORPHAN)
            && tcb.state != State::Closed
            && tcb.profile == DEFAULT
            && !hot.has(hot_flag::QUEUED | hot_flag::STARVED)
            && self.env.paths.facts.is_empty()
            && tcb.threshold(Some(hot)).is_none()
            && !varies(rto::variation(tcb), self.rules.waits())
    }

    /// Nothing is left of the connection but its block, which it returns.
    #[inline(always)]
    pub(crate) fn vanish(&mut self) -> HotId {
        let block = self.part_from_block();
        self.tcb.vacate();
        block
    }
}

/// Whether the round trips of a path vary so much that the next connection should know. Below this the timeout is the round trip and
/// the configured least, whatever the variation (`rto`).
#[inline(always)]
pub(crate) fn varies(variation_us: u32, waits: &Waits) -> bool {
    4_000 * u64::from(variation_us) > waits.rto_min_ns()
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
