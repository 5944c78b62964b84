//! The host around the connections: neighbors, fragments, ICMP, UDP, what is known of paths when no connection uses them.

use janus_mem::Frame;
use janus_wire::FlowKey;

use crate::ip::fragments::Fragments;
use crate::ip::icmp_out::Budget;
use crate::ip::neighbor::Neighbors;
use crate::ip::udp::Sockets;
use crate::ip::walks::Walks;
use crate::rules::config::Secrets;
use crate::rules::isn::{self, Purpose};

/// The host part of a stack.
pub(crate) struct Host {
    pub(crate) neighbors: Neighbors,
    pub(crate) fragments: Fragments,
    pub(super) icmp_budget: Budget,
    /// Answer to a ping while it is written, in parts if need be; kept so that this allocates once.
    pub(crate) answer: Vec<u8>,
    pub(crate) deferred: Deferred,
    pub(crate) udp: Sockets,
    /// Identifications of fragments, and ports of connections that are opened from any.
    pub(super) identifications: Walks,
    pub(crate) source_ports: Walks,
}

impl Host {
    pub(crate) fn new(secrets: &Secrets) -> Host {
        Host {
            neighbors: Neighbors::new(
                secrets.table_key().0 ^ secrets.table_key().1.rotate_left(17),
            ),
            fragments: Fragments::default(),
            icmp_budget: Budget::default(),
            answer: Vec::new(),
            deferred: Deferred::default(),
            udp: Sockets::default(),
            identifications: Walks::new(isn::derived(secrets, Purpose::Identifications)),
            source_ports: Walks::new(isn::derived(secrets, Purpose::SourcePorts)),
        }
    }
}

/// Work left for the end of a batch; the queues are kept so that no call allocates.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Segments put together from fragments, with whose they are.
    pub(crate) segments: Vec<(FlowKey, Frame)>,
    /// ICMP errors about flows that are not here.
    pub(crate) astray: Vec<(FlowKey, Frame)>,
    pub(crate) frames: Vec<Frame>,
}

impl Deferred {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.astray.is_empty()
    }
}
