//! Everything a stack goes by and that no segment changes: the configuration, our addresses, the option profiles, and the
//! secrets behind every number that a stranger must not guess.

pub(crate) mod buffer_sizes;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod interface;
pub(crate) mod isn;
pub(crate) mod own_v4;
pub(crate) mod profile;
pub(crate) mod routes;
pub(crate) mod waits;

use std::net::{IpAddr, Ipv4Addr};

use crate::rules::config::{Config, Secrets};
use crate::rules::interface::Interface;
use crate::rules::own_v4::OwnV4;
use crate::rules::profile::Profiles;
use crate::rules::waits::Waits;

/// The rules of a stack. Connections read them and never change them.
pub(crate) struct Rules {
    pub(crate) config: Config,
    /// Of the configuration its times.
    pub(crate) waits: Waits,
    /// Window scale that SYNs offer, as it was at first: see [`BufferSizes`](crate::BufferSizes).
    pub(crate) own_scale: u8,
    pub(crate) interface: Interface,
    /// Of the interface's addresses those of IPv4.
    pub(crate) own_v4: OwnV4,
    pub(crate) secrets: Secrets,
    /// Sets of socket options.
    pub(crate) profiles: Profiles,
    /// Random numbers drawn so far.
    drawn: u64,
}

impl Rules {
    pub(crate) fn new(config: Config, interface: Interface, secrets: Secrets) -> Rules {
        let interface = interface.with_link_local();
        Rules {
            own_scale: config.buffer_sizes().scale(),
            own_v4: OwnV4::new(&interface),
            waits: Waits::of(&config),
            interface,
            profiles: Profiles::new(),
            drawn: 0,
            config,
            secrets,
        }
    }

    /// From now on this is the interface.
    pub(crate) fn set_interface(&mut self, interface: Interface) {
        self.interface = interface.with_link_local();
        self.own_v4 = OwnV4::new(&self.interface);
    }

    /// Returns the next hop of packets to `peer`, as [`Interface::next_hop`] does.
    #[inline(always)]
    pub(crate) fn next_hop_v4(&self, peer: Ipv4Addr) -> Ipv4Addr {
        if !self.interface.routes.is_empty()
            && let Some(IpAddr::V4(hop)) = self.interface.routed_hop(peer.into())
        {
            return hop;
        }
        match self.interface.gateway {
            Some(gateway) if !self.own_v4.is_near(peer) => gateway,
            _ => peer,
        }
    }

    /// Returns an unpredictable number: another one each time, and for each `of`, where several stacks have the same secrets.
    pub(crate) fn next_random(&mut self, of: u64) -> u64 {
        /// Other uses of the key have small numbers.
        const DRAWS: u64 = 1 << 63;
        self.drawn += 1;
        isn::keyed(&self.secrets, DRAWS | of << 48 | self.drawn)
    }
}
