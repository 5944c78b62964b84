//! Losses by kind: the numbers that each core leaves for the control thread, and the counters that no core owns. Which of them
//! become warnings, and how often, is in `control/alarms`.

use std::net::IpAddr;

use janus_io::Counter;

use crate::admission::Ingress;

/// Most kernel connections inside the portal at a time; further ones wait in the kernel's backlog and are a [`Kind::PortalFull`].
pub(crate) const BRIDGES_MAX: usize = 16 * 1024;

/// A kind of loss, each with a warning of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Descriptors,
    PortalFull,
    Threads,
    Trace,
    Checksums,
    Buffers,
    Neighbors,
    AcceptQueues,
    SynFlood,
    Overrun,
}

impl Kind {
    pub(crate) const ALL: [Kind; 10] = [
        Kind::Descriptors,
        Kind::PortalFull,
        Kind::Threads,
        Kind::Trace,
        Kind::Checksums,
        Kind::Buffers,
        Kind::Neighbors,
        Kind::AcceptQueues,
        Kind::SynFlood,
        Kind::Overrun,
    ];

    /// Its bit in a set of kinds.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Losses of one source since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    counts: [u64; Kind::ALL.len()],
    /// The neighbor that did not answer last.
    pub(crate) neighbor: Option<IpAddr>,
}

impl Losses {
    pub(crate) fn with(mut self, kind: Kind, count: u64) -> Losses {
        self.counts[kind as usize] = count;
        self
    }

    pub(crate) fn get(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// Bits of the kinds of which `self` and `before` count differently.
    pub(crate) fn changes(&self, before: &Losses) -> u32 {
        let kinds = Kind::ALL.into_iter();
        let changed = kinds.filter(|&kind| self.get(kind) != before.get(kind));
        changed.fold(0, |bits, kind| bits | kind.bit())
    }
}

/// Counters of what the system did not give, which all cores of a runtime share.
#[derive(Debug, Default)]
pub(crate) struct Shortages {
    pub(crate) descriptors: Counter,
    pub(crate) clients_reset: Counter,
    pub(crate) portal_full: Counter,
}

/// Shortages of what the system gives, which all cores of the runtime share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShortageReport {
    /// Times a file descriptor was wanted and none was free (EMFILE, ENFILE): for a client of the portal, for a connection
    /// that is opened through it, or to read the hosts file.
    pub descriptors: u64,
    /// Clients of the portal whose connection was reset, as no descriptor came free for it.
    pub clients_reset: u64,
    /// Times the portal had as many connections as it can have, and another was wanted.
    pub portal_full: u64,
    /// Bursts of frames that could not be written to the packet trace when they came.
    pub trace_bursts: u64,
}

impl ShortageReport {
    pub(crate) fn new(counted: &Shortages, ingress: &Ingress) -> ShortageReport {
        let trace = ingress.trace.as_ref();
        ShortageReport {
            descriptors: counted.descriptors.get(),
            clients_reset: counted.clients_reset.get(),
            portal_full: counted.portal_full.get(),
            trace_bursts: trace.map_or(0, |trace| trace.failed()),
        }
    }
}
