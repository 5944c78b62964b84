//! The host around the connections: neighbors, fragments, ICMP, UDP, what is known of paths when no connection uses them.

use crate::config::Secrets;
use crate::fragments::Fragments;
use crate::icmp_out::Budget;
use crate::input::Later;
use crate::isn::{self, Purpose};
use crate::neighbor::Neighbors;
use crate::udp::Sockets;
use crate::walks::Walks;

/// The host part of a stack.
pub(crate) struct Host {
    pub(crate) neighbors: Neighbors,
    pub(crate) fragments: Fragments,
    pub(crate) icmp_budget: Budget,
    /// Answer to a ping while it is written, in parts if need be; kept so that this allocates once.
    pub(crate) answer: Vec<u8>,
    pub(crate) later: Later,
    pub(crate) udp: Sockets,
    /// Identifications of fragments, and ports of connections that are opened from any.
    pub(crate) identifications: Walks,
    pub(crate) source_ports: Walks,
}

impl Host {
    pub(crate) fn new(secrets: &Secrets) -> Host {
        Host {
            neighbors: Neighbors::new(secrets.table.0 ^ secrets.table.1.rotate_left(17)),
            fragments: Fragments::default(),
            icmp_budget: Budget::default(),
            answer: Vec::new(),
            later: Later::default(),
            udp: Sockets::default(),
            identifications: Walks::new(isn::derived(secrets, Purpose::Identifications)),
            source_ports: Walks::new(isn::derived(secrets, Purpose::SourcePorts)),
        }
    }
}
